//! What the guest does to its own address spaces, as every paging mode sees it.
//!
//! The guest's behaviour does not depend on the paging mode, so it is simulated once and its
//! events go to every core of a simulation: all modes of one workload in one pass.

use crate::model::address::{Gfn, Gva, MAX_LEVELS, PageSize};

/// A valid mapping of the guest's own page tables, found by [`crate::model::guest::Guest::translate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Translation {
    /// The page's first byte, aligned to the mapped size: 2 MiB or 1 GiB, or 4 MiB in a two-level
    /// table.
    pub page: Gva,
    /// Its first guest frame.
    pub frame: Gfn,
    /// The page size that the guest mapped.
    pub size: PageSize,
    /// Does the guest's entry allow writes?
    pub writable: bool,
    /// Is the dirty bit of the guest's entry set, this reference included?
    pub dirty: bool,
    /// The tables of the walk, root first; `depth` of them are used.
    pub tables: [Gfn; MAX_LEVELS],
    /// The number of tables that the walk read.
    pub depth: u8,
    /// [`crate::model::guest::Guest::clock`] when the leaf entry was last written.
    pub written_at: u64,
}

/// A reference that the guest's tables translate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    pub address: Gva,
    pub write: bool,
    /// The result from the guest's tables; the same for all references of a block.
    pub found: Translation,
}

/// What TLBs need to know of a reference that the guest's tables translate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub address: Gva,
    pub write: bool,
    /// The first guest frame of the page.
    pub frame: Gfn,
    /// The page size that the guest mapped.
    pub size: PageSize,
    /// Does the guest's entry allow writes, and is its dirty bit set?
    pub writable: bool,
}

/// Successive references that the guest's tables translate; the tables of the walks are found only
/// for those that miss the TLBs.
pub trait Translated {
    fn seen(&self) -> impl Iterator<Item = Seen>;

    /// The tables of the walk for the reference at a position, root first, and how many are used.
    fn tables(&self, at: usize) -> Option<(&[Gfn; MAX_LEVELS], u8)>;
}

impl Translated for [Access] {
    fn seen(&self) -> impl Iterator<Item = Seen> {
        self.iter().map(|access| Seen {
            address: access.address,
            write: access.write,
            frame: access.found.frame,
            size: access.found.size,
            writable: access.found.writable && access.found.dirty,
        })
    }

    fn tables(&self, at: usize) -> Option<(&[Gfn; MAX_LEVELS], u8)> {
        let found = &self.get(at)?.found;
        Some((&found.tables, found.depth))
    }
}

/// How far a walk of the guest's tables got before it found an absent or forbidding entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartialWalk {
    /// The tables read, root first; `depth` of them are used (at least 1).
    pub tables: [Gfn; MAX_LEVELS],
    /// The number of tables that the walk read.
    pub depth: u8,
    /// Did an entry exist that forbade the write (copy-on-write, protection)?
    pub protection: bool,
}

/// A change the guest made, in the order in which it made them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuestEvent {
    /// An entry of a page table was written.
    TableWrite {
        table: Gfn,
        /// Its level: 1 holds the 4 KiB entries.
        level: u8,
        /// The entry's index in the table.
        index: u16,
        /// The first address that the entry maps.
        address: Gva,
        /// Was the entry present before?
        was_present: bool,
        /// Is it present afterwards?
        present: bool,
    },
    /// A page-table page was given back to the guest's allocator; its frame will be used again.
    TableFreed { table: Gfn },
    Invlpg {
        /// Any address in the page.
        address: Gva,
    },
    LoadCr3 {
        root: Gfn,
        /// PCID with the no-flush bit: TLB entries of other address spaces stay.
        preserve: bool,
    },
    /// The guest kernel worked for this many cycles: a fault handler, a system call, a switch.
    Kernel {
        /// The cycles, the same in all modes.
        cycles: u32,
    },
    /// An exit that the paging mode does not decide (interrupt, port I/O, HLT).
    OtherExit,
}
