//! What one simulated core counts. Counters only grow; readers take differences.

use std::ops::{Add, Sub};

/// Why the guest left for the VMM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum Exit {
    /// Nested paging: a guest frame that the host has not mapped (NPF, EPT violation).
    NestedFault,
    /// Shadow paging: the shadow entry was missing or stale and was filled (KVM `pf_fixed`).
    ShadowFill,
    /// Shadow paging: first write to a page mapped read-only to catch the dirty bit.
    ShadowDirty,
    /// Shadow paging: the guest's own page fault, taken by the VMM and reflected (`pf_guest`).
    GuestFault,
    /// Shadow paging: a write to a protected page table, emulated (`mmu_pte_write`).
    TableWrite,
    /// Shadow paging: first write to a leaf table, which then goes unsync.
    Unsync,
    /// Shadow paging: first write to a frame that was a table above the leaves; the VMM stops
    /// shadowing it.
    Unprotect,
    /// Shadow paging: INVLPG.
    Invlpg,
    /// Shadow paging: a load of CR3 (context switch, or kernel entry and exit with isolation).
    LoadCr3,
    /// The overflow of the policy's instruction counter.
    Policy,
    /// Anything the paging mode does not decide: interrupts, port I/O, HLT.
    Other,
}

impl Exit {
    pub const COUNT: usize = 11;
    /// All causes, in the order of [`Counters::exits`].
    pub const ALL: [Self; Self::COUNT] = [
        Self::NestedFault,
        Self::ShadowFill,
        Self::ShadowDirty,
        Self::GuestFault,
        Self::TableWrite,
        Self::Unsync,
        Self::Unprotect,
        Self::Invlpg,
        Self::LoadCr3,
        Self::Policy,
        Self::Other,
    ];

    /// The name in tables and files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NestedFault => "nested_fault",
            Self::ShadowFill => "shadow_fill",
            Self::ShadowDirty => "shadow_dirty",
            Self::GuestFault => "guest_fault",
            Self::TableWrite => "table_write",
            Self::Unsync => "unsync",
            Self::Unprotect => "unprotect",
            Self::Invlpg => "invlpg",
            Self::LoadCr3 => "load_cr3",
            Self::Policy => "policy",
            Self::Other => "other",
        }
    }

    /// Whether DAV2M counts the exit in `count_vexit`: exits that paging causes under shadow
    /// paging (the DAV2M paper, section 4).
    pub const fn is_shadow_paging(self) -> bool {
        !matches!(self, Self::NestedFault | Self::Policy | Self::Other)
    }
}

/// Where a reference of a page walk was served.
pub const WALK_SOURCES: usize = 5;
/// Names of the levels: up to four cache levels of the machine, nearest first, then memory last.
pub const WALK_SOURCE_NAMES: [&str; WALK_SOURCES] = ["l1", "l2", "l3", "l4", "memory"];

/// Cycles by what they were spent on. Modelled.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cycles {
    /// The workload's own: instructions times its CPI without any translation cost.
    pub base: f64,
    /// Hits in the second TLB.
    pub tlb: f64,
    pub walks: f64,
    /// Leaving the guest, the VMM's work, and coming back; refills are counted separately.
    pub exits: f64,
    /// The guest kernel's own work: page faults, system calls, context switches. Same in all modes.
    pub guest: f64,
    /// Changing the paging mode.
    pub switches: f64,
    /// Filling shadow tables again after a switch threw them away.
    pub refill: f64,
}

impl Cycles {
    pub fn total(&self) -> f64 {
        self.base + self.beyond_base()
    }

    /// All but the workload's own.
    pub fn beyond_base(&self) -> f64 {
        self.tlb + self.walks + self.exits + self.guest + self.switches + self.refill
    }
}

/// Everything one core counted since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counters {
    /// Retired instructions.
    pub instructions: f64,
    /// Data references.
    pub references: f64,
    /// References that missed the first TLB.
    pub l1_tlb_misses: f64,
    /// References that missed both TLBs: page walks.
    pub l2_tlb_misses: f64,
    /// Memory references of page walks by where they were served.
    pub walk_references: [f64; WALK_SOURCES],
    /// Exits by cause, in the order of [`Exit::ALL`].
    pub exits: [f64; Exit::COUNT],
    /// Shadow pages thrown away because their guest table was written three times without a use
    /// (KVM `mmu_flooded`).
    pub flooded: f64,
    /// Changes of the paging mode.
    pub switches: f64,
    pub cycles: Cycles,
}

impl Counters {
    pub fn total_exits(&self) -> f64 {
        self.exits.iter().sum()
    }

    /// Exits that DAV2M counts in `count_vexit`.
    pub fn shadow_paging_exits(&self) -> f64 {
        let counted = Exit::ALL
            .iter()
            .zip(self.exits)
            .filter(|(exit, _)| exit.is_shadow_paging());
        counted.map(|(_, count)| count).sum()
    }

    /// References of page walks, wherever served.
    pub fn total_walk_references(&self) -> f64 {
        self.walk_references.iter().sum()
    }

    /// Cycles per instruction; 0 before the first instruction.
    pub fn cpi(&self) -> f64 {
        if self.instructions > 0.0 {
            self.cycles.total() / self.instructions
        } else {
            0.0
        }
    }

    /// Every counter times `factor`: a sample of a window stands for the whole window.
    #[must_use]
    pub fn scaled(&self, factor: f64) -> Self {
        self.zip(self, |own, _| own * factor)
    }

    fn zip(&self, other: &Self, f: impl Fn(f64, f64) -> f64) -> Self {
        let (a, b) = (self.cycles, other.cycles);
        Self {
            instructions: f(self.instructions, other.instructions),
            references: f(self.references, other.references),
            l1_tlb_misses: f(self.l1_tlb_misses, other.l1_tlb_misses),
            l2_tlb_misses: f(self.l2_tlb_misses, other.l2_tlb_misses),
            walk_references: std::array::from_fn(|i| {
                f(self.walk_references[i], other.walk_references[i])
            }),
            exits: std::array::from_fn(|i| f(self.exits[i], other.exits[i])),
            flooded: f(self.flooded, other.flooded),
            switches: f(self.switches, other.switches),
            cycles: Cycles {
                base: f(a.base, b.base),
                tlb: f(a.tlb, b.tlb),
                walks: f(a.walks, b.walks),
                exits: f(a.exits, b.exits),
                guest: f(a.guest, b.guest),
                switches: f(a.switches, b.switches),
                refill: f(a.refill, b.refill),
            },
        }
    }
}

impl Add for Counters {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.zip(&other, |a, b| a + b)
    }
}

impl Sub for Counters {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self.zip(&other, |a, b| a - b)
    }
}
