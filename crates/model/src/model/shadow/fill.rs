//! The consequences of a failed walk: an exit, and the entries that the walk needs.

use super::entry::Entry;
use super::geometry::{ENTRIES, Geometry, Key, Role};
use super::pages::Pages;
use super::{Failure, ShadowStyle, ShadowTables, ShadowWalk, Walk};
use crate::model::address::{Gfn, Gva, PageSize};
use crate::model::cost_account::CostAccount;
use crate::model::counters::Exit;
use crate::model::guest::GuestTables;
use crate::model::guest_event::Translation;

/// Where the path to an address leads.
enum Path {
    /// The path leads to the shadow page with the leaf entry.
    Leaf(usize),
    /// The path leads to a table in nested mode.
    Nested,
}

impl ShadowTables {
    /// Repairs the cause of a failed walk, and walks again.
    #[cold]
    pub(super) fn repair(
        &mut self,
        address: Gva,
        found: &Translation,
        failure: Failure,
        tables: &GuestTables,
        account: &mut CostAccount<'_>,
    ) -> ShadowWalk {
        self.charge_scans(account);
        if self.is_nested(found.tables[0]) {
            self.roots.leave();
            return self.nested_walk(address, failure.entries, 0, found);
        }
        let by_hardware = failure.clean && self.agile.is_some();
        let flushed = self.make_room(account) > 0;
        let mut work = account.costs().shadow_fill;
        if !self.roots.activate(found.tables[0]) {
            work = work.saturating_add(account.costs().build_root);
        }
        match self.path(address, found, tables, account) {
            Path::Nested => account.exit(Exit::ShadowFill, work),
            Path::Leaf(page) => {
                let old = self.fill_leaf(page, address, found);
                let cause = if failure.clean {
                    Exit::ShadowDirty
                } else {
                    Exit::ShadowFill
                };
                match (by_hardware, old) {
                    (true, _) => {}
                    (false, true) => account.refill(cause, work),
                    (false, false) => account.exit(cause, work),
                }
                self.prefetch(page, address, tables);
            }
        }
        let walk = self.walk_again(address, found);
        ShadowWalk {
            failed_depth: if by_hardware { 0 } else { failure.read },
            flushed,
            ..walk
        }
    }

    /// The page for `key`, made if it does not exist.
    pub(super) fn obtain(
        &mut self,
        key: Key,
        tables: &GuestTables,
        account: &mut CostAccount<'_>,
    ) -> usize {
        let Some(page) = self.pages.find(key) else {
            if key.is_table() && key.level > 1 {
                self.zap_unsync_of(key.frame, account);
            }
            return self.pages.create(key);
        };
        self.note_use(page);
        if self.pages.page(page).unsync {
            // KVM brings the entries in step before it links the page, but leaves it unsync: the
            // guest has not flushed anything yet that would require protection.
            self.refresh(page, tables, account);
        } else if key.level > 1 {
            // The unsync pages below it are protected again (`FNAME(fetch)`, `mmu_sync_children`).
            self.sync_below(page, tables, account);
        }
        page
    }

    /// Records that a fault's walk used the page: earlier writes do not count as a flood any more.
    pub(super) fn note_use(&mut self, page: usize) {
        if self.agile.is_none() {
            self.pages.page_mut(page).writes = 0;
        }
    }

    /// Makes the path from the root down to the place of the leaf entry.
    fn path(
        &mut self,
        address: Gva,
        found: &Translation,
        tables: &GuestTables,
        account: &mut CostAccount<'_>,
    ) -> Path {
        let mut page = self.root_page(found.tables[0], tables, account);
        self.note_use(page);
        for level in (self.leaf_level(address, found) + 1..=self.geometry.levels()).rev() {
            let slot = Pages::slot(page, Geometry::index(address.0, level));
            let key = self.key_below(level, address, found);
            if key.is_table() && self.is_nested(key.frame) {
                self.pages.unlink(slot);
                self.pages.set(slot, Entry::nested(key.frame));
                self.enter_nested(key.frame, slot);
                return Path::Nested;
            }
            let child = self.pages.entry(slot).child();
            page = if let Some(child) = child.filter(|&page| self.pages.page(page).key == key) {
                child
            } else {
                let child = self.obtain(key, tables, account);
                self.pages.link(slot, child);
                child
            };
            self.note_use(page);
        }
        Path::Leaf(page)
    }

    /// What the entry of `level` on the path to `address` points to.
    fn key_below(&self, level: u8, address: Gva, found: &Translation) -> Key {
        let below = level - 1;
        if level > found.size.level() {
            let table = self.geometry.guest_table(found, below);
            return self.geometry.table(table, below, address.0);
        }
        let span = Geometry::span(level);
        let region = Gva(address.0 >> span << span);
        Key {
            frame: self.geometry.frame(found, region.0, level),
            level: below,
            role: Role::Direct {
                writable: found.writable && found.dirty,
            },
        }
    }

    /// The level of the shadow entry for `address`.
    fn leaf_level(&self, address: Gva, found: &Translation) -> u8 {
        match self.setup.style {
            ShadowStyle::Kvm { .. } => self.largest_entry(address, found).level(),
            ShadowStyle::Palacios => 1,
        }
    }

    /// The largest page that both the guest and the host have around `address`.
    pub(super) fn largest_entry(&self, address: Gva, found: &Translation) -> PageSize {
        let frame = self.geometry.frame(found, address.0, 1);
        found.size.min(self.setup.host_pages.at(frame.address()))
    }

    /// Writes the leaf entry; returns whether it refills what a switch threw away.
    fn fill_leaf(&mut self, page: usize, address: Gva, found: &Translation) -> bool {
        let key = self.pages.page(page).key;
        let index = Geometry::index(address.0, key.level);
        let frame = self.geometry.frame(found, address.0, key.level);
        let slot = Pages::slot(page, index);
        self.pages.unlink(slot);
        let entry = Entry::leaf(frame, found.writable, found.dirty);
        self.pages.set(slot, entry);
        self.refills.note(key, index, found.written_at)
    }

    /// Fills the absent neighbours of a leaf entry, up to the first that the guest has not mapped
    /// or not accessed (KVM's `pte_prefetch`).
    fn prefetch(&mut self, page: usize, address: Gva, tables: &GuestTables) {
        let key = self.pages.page(page).key;
        let block = self.setup.style.prefetch();
        if block < 2 || key.level > 1 {
            return;
        }
        let index = Geometry::index(address.0, key.level);
        let faulting = self.pages.entry(Pages::slot(page, index));
        let first = index - index % block;
        for neighbour in first..(first + block).min(ENTRIES) {
            let slot = Pages::slot(page, neighbour);
            if self.pages.entry(slot).is_present() {
                continue;
            }
            let Some((entry, written_at)) = self.mirror(key, neighbour, faulting, tables) else {
                break;
            };
            self.pages.set(slot, entry);
            self.refills.note(key, neighbour, written_at);
        }
    }

    /// The entry that the guest's tables, or the large page around `like`, require.
    fn mirror(
        &self,
        key: Key,
        index: usize,
        like: Entry,
        tables: &GuestTables,
    ) -> Option<(Entry, u64)> {
        if !key.is_table() {
            let entry = like.at(Gfn(key.frame.0.wrapping_add(index as u64)));
            return Some((entry, u64::MAX));
        }
        let guest = tables.entry(key.frame, self.geometry.guest_index(key, index))?;
        let entry = Entry::leaf(guest.frame, guest.writable, guest.dirty);
        (guest.present && !guest.old).then_some((entry, guest.written_at))
    }

    fn walk_again(&self, address: Gva, found: &Translation) -> ShadowWalk {
        match self.walk(address, found, false) {
            Walk::Done(walk) => walk,
            // Only for a self-contradictory translation, which is used as it is.
            Walk::Failed(failure) => ShadowWalk {
                nested_from: failure.read,
                depth: failure.read,
                ..self.nested_walk(address, failure.entries, failure.read, found)
            },
        }
    }
}
