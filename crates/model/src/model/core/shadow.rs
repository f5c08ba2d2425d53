//! Walks of shadow tables, and of agile paging's mixture of shadow and nested tables.

use super::Core;
use crate::model::address::{Gva, Hpa, MAX_LEVELS, TableFormat};
use crate::model::cost_account::CostAccount;
use crate::model::guest::GuestTables;
use crate::model::guest_event::{GuestEvent, PartialWalk, Translation};
use crate::model::mode::Translating;
use crate::model::shadow::{Flush, ShadowSetup, ShadowTables, ShadowWalk};

/// Retired instructions between two scans of agile paging for quiet tables. The paper leaves the
/// length open ("an interval"); this is an assumption, short enough for a sampled phase.
const AGILE_INTERVAL: f64 = 1e6;

/// The VMM's side of shadow paging. It does not survive a change of the mode.
pub struct Shadow {
    setup: ShadowSetup,
    pub tables: ShadowTables,
    next_interval: f64,
}

impl Shadow {
    pub fn new(setup: ShadowSetup, translating: Translating) -> Self {
        let setup = ShadowSetup {
            agile: translating == Translating::Agile,
            ..setup
        };
        Self {
            tables: ShadowTables::new(&setup),
            setup,
            next_interval: AGILE_INTERVAL,
        }
    }
}

/// The format that the page-walk caches see under shadow paging: KVM runs a 32-bit guest on tables
/// with eight-byte entries (PAE).
pub fn walked_format(setup: &ShadowSetup) -> TableFormat {
    match setup.guest_tables {
        TableFormat::Two if setup.has_guest_layout() => TableFormat::Two,
        TableFormat::Two | TableFormat::Four => TableFormat::Four,
        TableFormat::Five => TableFormat::Five,
    }
}

impl Core {
    /// Translates through the shadow tables, after the exits that this takes. Returns whether the
    /// entry allows writes.
    pub(super) fn walk_shadow(
        &mut self,
        address: Gva,
        found: &Translation,
        write: bool,
        tables: &GuestTables,
    ) -> bool {
        self.end_interval(tables);
        let Some(shadow) = &mut self.shadow else {
            return false;
        };
        let mut account = CostAccount::new(&mut self.charged, &self.machine.costs);
        let walk = shadow
            .tables
            .resolve_at(address, found, write, tables, &mut account);
        let exits = account.exits();
        let nested = walk.nested_from < walk.depth;
        let (leaf, root) = self.shadow_levels(&walk);
        if walk.failed_depth > 0 {
            // The last entry of this walk was absent or forbade the write: no cache keeps it.
            let last = (root + 1).saturating_sub(walk.failed_depth);
            self.read_shadow(address, &walk.entries, root, last, last);
        }
        if exits > 0 && !self.machine.tlb.tagged {
            self.clear_all();
        } else if walk.flushed {
            self.clear_guest_dimension();
        }
        let last = (root + 1).saturating_sub(walk.nested_from);
        let next = self.read_shadow(address, &walk.entries, root, last, leaf);
        if nested {
            let data = self.data_address(address, found);
            self.walk_guest_tables(address, &found.tables, leaf, next);
            self.translate(data);
        }
        walk.writable
    }

    /// The shadow tables get the entry through which the guest fetches instructions.
    pub(super) fn fetch_shadow(&mut self, address: Gva, found: &Translation, tables: &GuestTables) {
        let Some(shadow) = &mut self.shadow else {
            return;
        };
        let mut account = CostAccount::new(&mut self.charged, &self.machine.costs);
        let walk = shadow
            .tables
            .resolve_at(address, found, false, tables, &mut account);
        let exits = account.exits();
        if walk.flushed {
            self.clear_guest_dimension();
        }
        self.after_exits(exits);
    }

    /// The guest's own fault under shadow paging: the VMM takes it and passes it on.
    pub(super) fn fault_shadow(&mut self, walk: &PartialWalk) {
        let Some(shadow) = &mut self.shadow else {
            return;
        };
        let mut account = CostAccount::new(&mut self.charged, &self.machine.costs);
        shadow.tables.guest_fault(walk, &mut account);
        let exits = account.exits();
        self.after_exits(exits);
    }

    /// Follows what the guest did to its tables and its CR3.
    pub(super) fn event_shadow(&mut self, event: &GuestEvent, tables: &GuestTables) {
        self.end_interval(tables);
        let Some(shadow) = &mut self.shadow else {
            return;
        };
        let mut account = CostAccount::new(&mut self.charged, &self.machine.costs);
        let flush = shadow.tables.event(event, tables, &mut account);
        let exits = account.exits();
        match flush {
            Flush::None => {}
            Flush::Page(address) => self.invalidate_page(address),
            Flush::All => self.clear_guest_dimension(),
        }
        self.after_exits(exits);
    }

    /// An untagged TLB does not survive an exit.
    fn after_exits(&mut self, exits: u32) {
        if exits > 0 {
            self.empty_untagged();
        }
    }

    /// The lowest and the highest level that a walk reads. A walk that turns nested ends in the
    /// guest's own tables.
    fn shadow_levels(&self, walk: &ShadowWalk) -> (u8, u8) {
        if walk.nested_from < walk.depth {
            return (self.guest.leaf(walk.depth), self.guest.levels);
        }
        let leaf = walk.size.level();
        (leaf, leaf + walk.depth.max(1) - 1)
    }

    /// Reads the entries from level `root` down to `last`, unless a page-walk cache helps; entries
    /// above `leaf` name tables and are kept. Returns the level whose table comes next.
    fn read_shadow(
        &mut self,
        address: Gva,
        entries: &[Hpa; MAX_LEVELS],
        root: u8,
        last: u8,
        leaf: u8,
    ) -> u8 {
        let mut level = self.first_level(address, leaf, root);
        while level >= last.max(1) {
            let step = usize::from(root - level);
            self.data
                .read(entries.get(step).copied().unwrap_or_default());
            self.remember(address, level, leaf);
            level -= 1;
        }
        level
    }

    /// Agile paging looks for quiet tables from time to time.
    fn end_interval(&mut self, tables: &GuestTables) {
        let Some(shadow) = &mut self.shadow else {
            return;
        };
        if shadow.setup.agile && self.charged.instructions >= shadow.next_interval {
            shadow.next_interval = self.charged.instructions + AGILE_INTERVAL;
            shadow.tables.interval(tables);
        }
    }
}
