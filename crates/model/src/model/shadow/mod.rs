//! Shadow page tables as KVM and Palacios keep them, and agile paging.
//!
//! The VMM mirrors the guest's tables in its own tables, which map guest virtual addresses directly
//! to host physical addresses. The cost of shadow paging is the work that keeps the two in step.
//! The rules follow the Linux kernel's documentation `virt/kvm/x86/mmu`, the DAV2M paper's section
//! 2 (Palacios) and Gandhi, Hill, Swift, "Agile Paging", ISCA 2016:
//!
//! - **Pages.** A shadow page belongs to a guest table and a level, and is shared by all tables
//!   above it. It survives CR3 loads. At the page limit the oldest pages go, as in KVM, which
//!   orders them by creation and not by use.
//! - **Fill.** A missing entry exits, is filled from the guest's tables, and its neighbours with
//!   it, all for the price of one fill. A page that the guest has not yet written is mapped
//!   read-only, so that the first write exits, at the same price, and sets the guest's dirty bit.
//!   The fill implies the guest's accessed bit.
//! - **Writes to tables.** Tables above the leaves are write-protected: each write exits, is
//!   emulated and drops the entry; after three without a use the page is zapped (flooding). A leaf
//!   table goes *unsync* at its first write and is then written freely, until a CR3 load brings it
//!   back in step. INVLPG brings one entry in step.
//! - **Palacios.** All tables are protected, and each write drops its entry.
//! - **Agile.** All tables are protected at first; one that is written twice in an interval goes
//!   to nested mode with everything below it, and returns after a quiet interval.
//!
//! Simplifications: the accesses of the guest's kernel to its own tables are not translated; a
//! flushing CR3 load with PCID keeps all remembered roots; one processor, so no lock and no remote
//! flush; frames of guest memory stand for host frames, and all may be prefetched (KVM takes those
//! that the host has mapped).

mod agile;
mod entry;
mod fill;
mod geometry;
mod pages;
mod refill;
mod roots;
mod upkeep;

use crate::model::address::{Gva, Hpa, MAX_LEVELS, PageSize, TableFormat};
use crate::model::cost_account::CostAccount;
use crate::model::counters::Exit;
use crate::model::guest::GuestTables;
use crate::model::guest_event::{GuestEvent, PartialWalk, Translation};
use crate::model::host_pages::HostPages;

use agile::Agile;
use geometry::Geometry;
use pages::Pages;
pub use pages::SHADOW_BASE;
use refill::Refills;
use roots::Roots;

/// The fewest shadow pages that a VMM works with, whatever the limit: KVM's
/// `KVM_MIN_ALLOC_MMU_PAGES`.
pub const MIN_PAGES: usize = 64;

/// Whose shadow paging is modelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShadowStyle {
    Kvm {
        /// May leaf tables go out of step? Otherwise they are protected like all others.
        unsync: bool,
        /// Length of the aligned block of leaf entries that one fault fills; 0 and 1: only the
        /// faulting entry. KVM: 8.
        prefetch: u8,
        /// The page of an upper table is zapped at this many writes without a use between. KVM: 3.
        flood: u8,
    },
    /// Palacios': all tables protected, a write drops the shadow entry, 4 KiB entries only.
    Palacios,
}

impl ShadowStyle {
    /// KVM with its own numbers.
    pub const KVM: Self = Self::Kvm {
        unsync: true,
        prefetch: 8,
        flood: 3,
    };

    const fn prefetch(self) -> usize {
        match self {
            Self::Kvm { prefetch, .. } => prefetch as usize,
            Self::Palacios => 0,
        }
    }

    const fn flood(self) -> Option<u8> {
        match self {
            Self::Kvm { flood, .. } => Some(flood),
            Self::Palacios => None,
        }
    }

    const fn unsync(self) -> bool {
        matches!(self, Self::Kvm { unsync: true, .. })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShadowSetup {
    /// Whose rules apply.
    pub style: ShadowStyle,
    /// The format of the guest's tables. It decides the depth of the shadow tables too, because
    /// under shadow paging the processor runs with the guest's own number of levels.
    pub guest_tables: TableFormat,
    /// The format of the host's tables. Shadow tables do not depend on it.
    pub host_tables: TableFormat,
    /// The size that the guest mostly maps. Not used: each translation brings its own size.
    pub guest_page: PageSize,
    /// The sizes in which the host backs guest memory: no shadow entry is larger.
    pub host_pages: HostPages,
    /// Page-table isolation. Not used: the guest's CR3 loads show it.
    pub isolation: bool,
    pub agile: bool,
    /// The most shadow pages; at least [`MIN_PAGES`] are kept.
    pub page_limit: usize,
}

impl ShadowSetup {
    /// Do shadow tables look like the guest's? Palacios shadows 32-bit tables with 32-bit tables
    /// (its `pte32_t` shadow tables), where KVM uses PAE tables of twice the size.
    pub const fn has_guest_layout(&self) -> bool {
        matches!(
            (self.style, self.guest_tables),
            (ShadowStyle::Palacios, TableFormat::Two)
        )
    }

    /// KVM's limit: 2 % of the guest's 4 KiB pages (`KVM_PERMILLE_MMU_PAGES`), at least 64.
    pub fn page_limit_of(memory_bytes: u64) -> usize {
        let pages = (memory_bytes >> crate::model::address::PAGE_SHIFT) / 50;
        usize::try_from(pages).unwrap_or(usize::MAX).max(MIN_PAGES)
    }
}

/// What a walk of the shadow tables reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShadowWalk {
    /// Host physical addresses of the entries read, root first; the first `nested_from` are used.
    pub entries: [Hpa; MAX_LEVELS],
    /// Levels of the walk: the number of entries read, when no part of it is nested.
    pub depth: u8,
    /// References of the failed walk that led to the exit; 0 when the walk did not fail. A 32-bit
    /// guest's walk can fail without any reference: at the PAE root, which is held in registers.
    pub failed_depth: u8,
    /// The size of the resulting TLB entry.
    pub size: PageSize,
    /// Does the TLB entry allow writes?
    pub writable: bool,
    /// The number of upper levels that were one-dimensional before the walk turned nested (agile
    /// paging); `depth` when it did not turn. The guest's tables after those levels are walked
    /// nested.
    pub nested_from: u8,
    /// Did the VMM take pages down and flush the TLB on the way?
    pub flushed: bool,
}

/// What is dropped from the TLB by the VMM or by the guest's own instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    None,
    /// The page of this address.
    Page(Gva),
    All,
}

/// The shadow tables of one guest.
#[derive(Debug)]
pub struct ShadowTables {
    setup: ShadowSetup,
    geometry: Geometry,
    pages: Pages,
    roots: Roots,
    refills: Refills,
    agile: Option<Agile>,
    /// Work of dropped pages.
    past_work: u64,
}

impl ShadowTables {
    pub fn new(setup: &ShadowSetup) -> Self {
        let setup = ShadowSetup {
            page_limit: setup.page_limit.max(MIN_PAGES),
            ..setup.clone()
        };
        Self {
            geometry: Geometry::new(setup.guest_tables),
            pages: Pages::new(),
            roots: Roots::default(),
            refills: Refills::default(),
            agile: setup.agile.then(Agile::default),
            setup,
            past_work: 0,
        }
    }

    /// Shadow pages in use.
    pub fn pages(&self) -> usize {
        self.pages.len()
    }

    /// Visits of pages and entries where one change leads to many.
    pub fn work(&self) -> u64 {
        let agile = self.agile.as_ref().map_or(0, |agile| agile.work);
        self.past_work
            .saturating_add(self.pages.work())
            .saturating_add(agile)
    }

    /// Walks for `found.page`: see [`Self::resolve_at`], which handles large pages.
    #[inline]
    pub fn resolve(
        &mut self,
        found: &Translation,
        write: bool,
        tables: &GuestTables,
        account: &mut CostAccount<'_>,
    ) -> ShadowWalk {
        self.resolve_at(found.page, found, write, tables, account)
    }

    /// Walks the shadow tables for `address`, which the guest translates as `found`.
    ///
    /// Afterwards the entry exists and allows the access; the cost is charged. `address`
    /// matters where a large page of the guest is shadowed by smaller entries.
    #[inline]
    pub fn resolve_at(
        &mut self,
        address: Gva,
        found: &Translation,
        write: bool,
        tables: &GuestTables,
        account: &mut CostAccount<'_>,
    ) -> ShadowWalk {
        let mut walk = match self.walk(address, found, write) {
            Walk::Done(walk) => walk,
            Walk::Failed(failure) => self.repair(address, found, failure, tables, account),
        };
        if self.setup.has_guest_layout() {
            walk.entries = self.guest_layout(address, found);
        }
        walk
    }

    /// The addresses of a walk's entries when each guest table has one shadow table in the guest's
    /// format.
    fn guest_layout(&self, address: Gva, found: &Translation) -> [Hpa; MAX_LEVELS] {
        let format = self.setup.guest_tables;
        let mut entries = [Hpa(0); MAX_LEVELS];
        let levels = (1..=format.levels()).rev();
        for ((entry, table), level) in entries.iter_mut().zip(found.tables).zip(levels) {
            let offset = u64::from(format.index(address.0, level)) * format.entry_bytes();
            // Wraps only for frames that no guest has.
            *entry = Hpa((SHADOW_BASE + offset).wrapping_add(table.address().0));
        }
        entries
    }

    /// Handles the guest's own page fault: the VMM takes it first and passes it on.
    ///
    /// Under agile paging a fault in a nested part of the tables goes straight to the guest.
    pub fn guest_fault(&mut self, walk: &PartialWalk, account: &mut CostAccount<'_>) {
        let mut tables = walk.tables.iter().take(usize::from(walk.depth));
        let nested = |agile: &Agile| tables.any(|&table| agile.is_nested(table));
        if !self.agile.as_ref().is_some_and(nested) {
            account.exit(Exit::GuestFault, account.costs().reflect_fault);
        }
    }

    /// Follows a change that the guest made.
    ///
    /// `tables` may be ahead: they have the state after all events of the same operation.
    pub fn event(
        &mut self,
        event: &GuestEvent,
        tables: &GuestTables,
        account: &mut CostAccount<'_>,
    ) -> Flush {
        match *event {
            GuestEvent::TableWrite {
                table,
                index,
                address,
                ..
            } => self.table_write(table, index, address, account),
            GuestEvent::TableFreed { table } => self.table_freed(table, account),
            GuestEvent::Invlpg { address } => self.invlpg(address, tables, account),
            GuestEvent::LoadCr3 { root, preserve } => {
                self.load_cr3(root, preserve, tables, account)
            }
            GuestEvent::Kernel { .. } | GuestEvent::OtherExit => Flush::None,
        }
    }

    /// Agile paging: ends an interval; quiet tables return to shadow mode.
    ///
    /// The scan for dirty tables is charged with the next exit or event.
    pub fn interval(&mut self, tables: &GuestTables) {
        self.end_interval(tables);
    }

    /// Drops everything, at a switch to shadow paging. After this, fills of entries that the guest
    /// had written by `clock` ([`GuestTables::clock`]) count as refills, each once.
    pub fn clear(&mut self, clock: u64) {
        self.past_work = self.work();
        self.pages = Pages::new();
        self.roots = Roots::default();
        self.refills = Refills::since(clock);
        self.agile = self.setup.agile.then(Agile::default);
    }

    /// The hot path: no hashing, no allocation.
    #[inline]
    fn walk(&self, address: Gva, found: &Translation, write: bool) -> Walk {
        let mut entries = [Hpa(0); MAX_LEVELS];
        let mut read = 0;
        let root = found.tables[0];
        let Some(mut page) = self.roots.page_of(root) else {
            return Walk::Failed(Failure::root());
        };
        for level in (1..=self.geometry.levels()).rev() {
            let slot = Pages::slot(page, Geometry::index(address.0, level));
            if level <= self.geometry.levels_in_memory() {
                entries[usize::from(read)] = Pages::address(slot);
                read += 1;
            }
            let entry = self.pages.entry(slot);
            if let Some(child) = entry.child() {
                page = child;
                continue;
            }
            if entry.is_nested() {
                return Walk::Done(self.nested_walk(address, entries, read, found));
            }
            let stale = !entry.is_present()
                || level > found.size.level()
                || entry.frame() != self.geometry.frame(found, address.0, level);
            if stale || (write && !entry.is_writable()) {
                let clean = !stale && entry.is_clean();
                return Walk::Failed(Failure {
                    entries,
                    read,
                    clean,
                });
            }
            return Walk::Done(ShadowWalk {
                entries,
                depth: read,
                failed_depth: 0,
                size: PageSize::ALL
                    .get(usize::from(level) - 1)
                    .copied()
                    .unwrap_or_default(),
                writable: entry.is_writable() && found.writable,
                nested_from: read,
                flushed: false,
            });
        }
        Walk::Failed(Failure::root())
    }
}

/// How a walk of the shadow tables ended.
enum Walk {
    Done(ShadowWalk),
    Failed(Failure),
}

/// Where a walk failed.
struct Failure {
    entries: [Hpa; MAX_LEVELS],
    read: u8,
    /// The entry exists and is read-only because the guest's dirty bit was clear.
    clean: bool,
}

impl Failure {
    /// A failure before the first entry.
    const fn root() -> Self {
        Self {
            entries: [Hpa(0); MAX_LEVELS],
            read: 0,
            clean: false,
        }
    }
}

#[cfg(test)]
mod tests;
