//! Keeping shadow pages in step with what the guest does.

use super::entry::Entry;
use super::geometry::{ENTRIES, Geometry};
use super::pages::Pages;
use super::{Flush, ShadowStyle, ShadowTables};
use crate::model::address::{Gfn, Gva};
use crate::model::cost_account::CostAccount;
use crate::model::counters::Exit;
use crate::model::guest::GuestTables;

/// Free pages that a fault may need: one for each level of the deepest tables.
const FREE_BEFORE_FILL: usize = 5;
/// Free pages after an eviction (KVM's `KVM_REFILL_PAGES`).
const FREE_AFTER_EVICTION: usize = 25;

impl ShadowTables {
    /// Handles the guest's write to entry `index` of a table.
    pub(super) fn table_write(
        &mut self,
        table: Gfn,
        index: u16,
        address: Gva,
        account: &mut CostAccount<'_>,
    ) -> Flush {
        self.charge_scans(account);
        if self.agile.is_some() {
            return self.agile_write(table, index, address, account);
        }
        let pages: Vec<usize> = self.mirrors_of(table).collect();
        if pages.is_empty() {
            self.make_writable(table, account);
            return Flush::None;
        }
        let leaf = pages
            .iter()
            .all(|&page| self.pages.page(page).key.level == 1);
        if leaf && self.setup.style.unsync() {
            self.go_unsync(&pages, account);
            return Flush::None;
        }
        account.exit(Exit::TableWrite, account.costs().table_write);
        self.emulate_write(&pages, index, address, account)
    }

    /// The guest writes to a frame that was a table.
    ///
    /// The guest does not tell KVM that it freed a table: KVM shadows the frame until the frame's
    /// next use, which begins with clearing it. A leaf table goes unsync and stays; any other is
    /// taken down, because clearing is no instruction that writes tables
    /// (`x86_page_table_writing_insn`), and the write faults once more. Palacios and agile paging learn of it when it happens.
    pub(super) fn table_freed(&mut self, table: Gfn, account: &mut CostAccount<'_>) -> Flush {
        self.charge_scans(account);
        self.agile_freed(table);
        let pages: Vec<usize> = self.pages.of_table(table).collect();
        if self.setup.style.unsync() && self.agile.is_none() && !pages.is_empty() {
            if pages
                .iter()
                .all(|&page| self.pages.page(page).key.level == 1)
            {
                self.go_unsync(&pages, account);
                return Flush::None;
            }
            account.exit(Exit::Unprotect, account.costs().table_write);
        }
        let zapped: usize = pages.into_iter().map(|page| self.zap(page)).sum();
        charge_zaps(zapped, account);
        self.make_writable(table, account);
        flush_if(zapped > 0)
    }

    /// A write to a frame that nothing shadows: KVM lets it pass from the next fault on.
    fn make_writable(&mut self, frame: Gfn, account: &mut CostAccount<'_>) {
        if self.setup.style.flood().is_some()
            && self.agile.is_none()
            && self.pages.make_writable(frame)
        {
            account.exit(Exit::ShadowFill, account.costs().shadow_fill);
        }
    }

    /// INVLPG brings the entry of that page in step, under every root that the VMM remembers.
    pub(super) fn invlpg(
        &mut self,
        address: Gva,
        tables: &GuestTables,
        account: &mut CostAccount<'_>,
    ) -> Flush {
        self.charge_scans(account);
        if self.agile.is_none() {
            account.exit(Exit::Invlpg, account.costs().invlpg);
            let roots: Vec<usize> = self.roots.pages().collect();
            for root in roots {
                if let Some((page, index)) = self.unsync_entry(root, address) {
                    let changed = self.sync_entry(page, index, tables);
                    account.work(u64::from(changed) * u64::from(account.costs().sync_entry));
                }
            }
        }
        Flush::Page(address)
    }

    pub(super) fn load_cr3(
        &mut self,
        root: Gfn,
        preserve: bool,
        tables: &GuestTables,
        account: &mut CostAccount<'_>,
    ) -> Flush {
        self.charge_scans(account);
        let flush = flush_if(!preserve);
        if self.is_nested(root) {
            self.roots.leave();
            return flush;
        }
        let known = self.roots.activate(root) || self.keeps_root(root);
        let costs = account.costs();
        match (known, self.agile.is_some()) {
            (true, true) => {}
            (true, false) => account.exit(Exit::LoadCr3, costs.load_cr3),
            (false, _) => account.exit(Exit::LoadCr3, costs.build_root),
        }
        let evicted = self.roots.page_of(root).is_none() && self.make_room(account) > 0;
        let page = self.root_page(root, tables, account);
        self.note_use(page);
        if !(preserve && known) {
            self.sync_below(page, tables, account);
        }
        if evicted { Flush::All } else { flush }
    }

    /// The root's shadow page, found or made, which becomes the current one.
    pub(super) fn root_page(
        &mut self,
        root: Gfn,
        tables: &GuestTables,
        account: &mut CostAccount<'_>,
    ) -> usize {
        if let Some(page) = self.roots.page_of(root) {
            return page;
        }
        let page = self.obtain(self.geometry.root(root), tables, account);
        self.roots.enter(root, page);
        page
    }

    /// The pages that mirror entries of the guest table.
    pub(super) fn mirrors_of(&self, table: Gfn) -> impl Iterator<Item = usize> + '_ {
        let pages = self.pages.of_table(table);
        pages.filter(|&page| self.geometry.mirrors(self.pages.page(page).key))
    }

    /// Drops the shadow entries of the guest's entry `index`.
    pub(super) fn drop_entries(&mut self, pages: &[usize], index: u16, address: Gva) -> Flush {
        let mut flush = Flush::None;
        for &page in pages {
            let key = self.pages.page(page).key;
            for at in self.geometry.shadow_indices(key, index) {
                let before = self.pages.unlink(Pages::slot(page, at));
                if before.is_present() && flush != Flush::All {
                    let leaf = key.level == 1;
                    flush = if leaf {
                        Flush::Page(address)
                    } else {
                        Flush::All
                    };
                }
            }
        }
        flush
    }

    /// Frees pages, the oldest first, when few free pages are left; returns how many it freed.
    pub(super) fn make_room(&mut self, account: &mut CostAccount<'_>) -> usize {
        let limit = self.setup.page_limit;
        if self.pages.len() + FREE_BEFORE_FILL <= limit {
            return 0;
        }
        let roots: Vec<usize> = self.roots.pages().collect();
        let mut zapped = 0;
        while self.pages.len() + FREE_AFTER_EVICTION > limit {
            let Some(oldest) = self.pages.by_age().find(|page| !roots.contains(page)) else {
                break;
            };
            zapped += self.zap(oldest);
        }
        charge_zaps(zapped, account);
        zapped
    }

    /// Takes a page and the unsync pages below it down, as KVM does; returns how many.
    pub(super) fn zap(&mut self, page: usize) -> usize {
        let unsync = self.unsync_pages(page);
        let below = unsync.iter().filter(|&&other| other != page);
        let zapped: usize = below.map(|&other| self.remove(other)).sum();
        zapped + self.remove(page)
    }

    /// Takes one page down; returns 0 when it was down already.
    pub(super) fn remove(&mut self, page: usize) -> usize {
        self.roots.forget(page);
        usize::from(self.pages.remove(page))
    }

    /// Removes the unsync leaf pages of a table before the table is shadowed at an upper level,
    /// which protects it.
    pub(super) fn zap_unsync_of(&mut self, table: Gfn, account: &mut CostAccount<'_>) {
        let unsync = |&page: &usize| self.pages.page(page).unsync;
        let pages: Vec<usize> = self.pages.of_table(table).filter(unsync).collect();
        let zapped = pages.into_iter().map(|page| self.zap(page)).sum();
        charge_zaps(zapped, account);
    }

    /// Brings all entries of a page in step and charges for it.
    pub(super) fn refresh(
        &mut self,
        page: usize,
        tables: &GuestTables,
        account: &mut CostAccount<'_>,
    ) {
        let changed = (0..ENTRIES).filter(|&index| self.sync_entry(page, index, tables));
        let changed = changed.count() as u64;
        let costs = account.costs();
        account.work(u64::from(costs.sync_table) + changed * u64::from(costs.sync_entry));
    }

    fn emulate_write(
        &mut self,
        pages: &[usize],
        index: u16,
        address: Gva,
        account: &mut CostAccount<'_>,
    ) -> Flush {
        let flush = self.drop_entries(pages, index, address);
        let Some(flood) = self.setup.style.flood() else {
            return flush;
        };
        let (mut flooded, mut zapped) = (0, 0);
        for &page in pages {
            // The write's own fault is a use of the root (`shadow_page_table_clear_flood`).
            if self.roots.is_active(page) {
                self.note_use(page);
            }
            let page_state = self.pages.page_mut(page);
            page_state.writes = page_state.writes.saturating_add(1);
            if page_state.key.level > 1 && page_state.writes >= flood {
                flooded += 1;
                zapped += self.zap(page);
            }
        }
        account.flooded(flooded);
        charge_zaps(zapped, account);
        if zapped > 0 { Flush::All } else { flush }
    }

    fn go_unsync(&mut self, pages: &[usize], account: &mut CostAccount<'_>) {
        if pages.iter().all(|&page| self.pages.page(page).unsync) {
            return;
        }
        account.exit(Exit::Unsync, account.costs().unsync);
        for &page in pages {
            self.pages.set_unsync(page);
        }
    }

    /// Does a load of the root find it although it is not among the last ones? Palacios searches
    /// all its shadow pages.
    fn keeps_root(&self, root: Gfn) -> bool {
        self.setup.style == ShadowStyle::Palacios
            && self.pages.find(self.geometry.root(root)).is_some()
    }

    /// Brings the unsync pages below a root in step; their guest tables are protected again.
    pub(super) fn sync_below(
        &mut self,
        root: usize,
        tables: &GuestTables,
        account: &mut CostAccount<'_>,
    ) {
        for page in self.unsync_pages(root) {
            self.refresh(page, tables, account);
            self.pages.page_mut(page).unsync = false;
        }
    }

    /// The unsync pages below a page, itself included, each once. The marks that lead to them are
    /// cleared, so code that leaves a page unsync has to set them again.
    fn unsync_pages(&mut self, top: usize) -> Vec<usize> {
        let mut found = Vec::new();
        let mut todo = vec![top];
        while let Some(page) = todo.pop() {
            let state = self.pages.page_mut(page);
            if state.unsync {
                found.push(page);
            }
            if std::mem::take(&mut state.unsync_below) {
                todo.extend(self.pages.children(page));
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// The entry for `address` below `root`, if an unsync page has it.
    fn unsync_entry(&self, root: usize, address: Gva) -> Option<(usize, usize)> {
        let mut page = root;
        for level in (2..=self.geometry.levels()).rev() {
            let slot = Pages::slot(page, Geometry::index(address.0, level));
            page = self.pages.entry(slot).child()?;
        }
        let unsync = self.pages.page(page).unsync;
        unsync.then_some((page, Geometry::index(address.0, 1)))
    }

    /// Brings one leaf entry in step; returns whether it changed. Absent entries are not filled.
    fn sync_entry(&mut self, page: usize, index: usize, tables: &GuestTables) -> bool {
        let slot = Pages::slot(page, index);
        let entry = self.pages.entry(slot);
        if !entry.is_present() {
            return false;
        }
        let key = self.pages.page(page).key;
        let guest = tables.entry(key.frame, self.geometry.guest_index(key, index));
        let now = match guest.filter(|guest| guest.present && guest.frame == entry.frame()) {
            Some(guest) => Entry::leaf(guest.frame, guest.writable, guest.dirty),
            None => Entry::ABSENT,
        };
        self.pages.set(slot, now);
        now != entry
    }
}

/// Charges for pages taken down.
pub(super) fn charge_zaps(zapped: usize, account: &mut CostAccount<'_>) {
    account.work(zapped as u64 * u64::from(account.costs().zap));
}

const fn flush_if(flush: bool) -> Flush {
    if flush { Flush::All } else { Flush::None }
}
