//! Shadow paging according to its definition: maps of maps, searched from end to end for every
//! question.
//!
//! It covers a guest with four levels of 4 KiB pages; the rules are those of the documentation of
//! `vtax_model::model::shadow`.

use std::collections::{BTreeMap, BTreeSet};

use crate::expected::{Expected, Key, LEVELS, Outcome, key};
use vtax_model::model::address::{Gfn, Gva, TableFormat};
use vtax_model::model::cost_account::CostAccount;
use vtax_model::model::counters::Exit;
use vtax_model::model::guest::GuestTables;
use vtax_model::model::guest_event::{GuestEvent, PartialWalk, Translation};
use vtax_model::model::shadow::ShadowStyle;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Entry {
    Table(Key),
    Page(Leaf),
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Leaf {
    frame: Gfn,
    writable: bool,
    dirty: bool,
}

#[derive(Debug, Default)]
struct Page {
    entries: BTreeMap<u16, Entry>,
    writes: u8,
    unsync: bool,
    age: u64,
}

#[derive(Debug)]
pub struct Reference {
    style: ShadowStyle,
    limit: usize,
    pages: BTreeMap<Key, Page>,
    active: Option<Gfn>,
    /// The most recent root first, without the active one.
    previous: Vec<Gfn>,
    created: u64,
    clock: Option<u64>,
    filled: BTreeSet<(Gfn, u16)>,
    /// Frames that lost a page in step, until the fault of a write.
    read_only: BTreeSet<Gfn>,
}

impl Reference {
    pub fn new(style: ShadowStyle, limit: usize) -> Self {
        Self {
            style,
            limit,
            pages: BTreeMap::new(),
            active: None,
            previous: Vec::new(),
            created: 0,
            clock: None,
            filled: BTreeSet::new(),
            read_only: BTreeSet::new(),
        }
    }

    /// The number of references, and the leaf if the walk reaches it.
    fn walk(&self, address: Gva, found: &Translation) -> (u8, Option<Leaf>) {
        if self.active != Some(found.tables[0]) {
            return (0, None);
        }
        let mut own = (found.tables[0], LEVELS);
        for read in 1..=LEVELS {
            let index = TableFormat::Four.index(address.0, own.1);
            match self
                .pages
                .get(&own)
                .and_then(|page| page.entries.get(&index))
            {
                Some(Entry::Table(child)) => own = *child,
                Some(Entry::Page(leaf)) => return (read, Some(*leaf)),
                None => return (read, None),
            }
        }
        (LEVELS, None)
    }

    fn load(
        &mut self,
        root: Gfn,
        preserve: bool,
        tables: &GuestTables,
        account: &mut CostAccount<'_>,
    ) {
        let kept = self.style == ShadowStyle::Palacios && self.pages.contains_key(&(root, LEVELS));
        let known = self.remembers(root) || kept;
        let costs = account.costs();
        let work = if known {
            costs.load_cr3
        } else {
            costs.build_root
        };
        account.exit(Exit::LoadCr3, work);
        if !self.remembers(root) {
            self.evict(account);
        }
        self.enter(root, tables, account);
        if !preserve || !known {
            self.sync_all_below((root, LEVELS), tables, account);
        }
    }

    fn sync_all_below(&mut self, top: Key, tables: &GuestTables, account: &mut CostAccount<'_>) {
        for own in self.below(top) {
            if self.page(own).unsync {
                self.sync(own, tables, account);
                self.page(own).unsync = false;
            }
        }
    }

    fn write(&mut self, table: Gfn, index: u16, account: &mut CostAccount<'_>) {
        let keys = self.keys_of(table);
        if keys.is_empty() {
            self.write_again(table, account);
            return;
        }
        let (may_unsync, flood) = match self.style {
            ShadowStyle::Kvm { unsync, flood, .. } => (unsync, flood),
            ShadowStyle::Palacios => (false, u8::MAX),
        };
        if may_unsync && keys.iter().all(|own| own.1 == 1) {
            self.go_unsync(keys, account);
            return;
        }
        account.exit(Exit::TableWrite, account.costs().table_write);
        let root = self.active;
        for &own in &keys {
            let page = self.page(own);
            page.entries.remove(&index);
            if own.1 == LEVELS && root == Some(own.0) {
                page.writes = 0;
            }
            page.writes = page.writes.saturating_add(1);
        }
        let flooded = |own: &Key| own.1 > 1 && self.pages[own].writes >= flood;
        let flooded: Vec<Key> = keys.into_iter().filter(flooded).collect();
        account.flooded(flooded.len() as u64);
        self.zap_all(flooded, account);
    }

    /// A write to a frame that no page shadows.
    fn write_again(&mut self, frame: Gfn, account: &mut CostAccount<'_>) {
        let faults = self.read_only.remove(&frame) && self.style != ShadowStyle::Palacios;
        if faults {
            account.exit(Exit::ShadowFill, account.costs().shadow_fill);
        }
    }

    fn go_unsync(&mut self, keys: Vec<Key>, account: &mut CostAccount<'_>) {
        if keys.iter().all(|own| self.pages[own].unsync) {
            return;
        }
        account.exit(Exit::Unsync, account.costs().unsync);
        for own in keys {
            self.read_only.remove(&own.0);
            self.page(own).unsync = true;
        }
    }

    /// The frame of a table is written for another use.
    fn free(&mut self, table: Gfn, account: &mut CostAccount<'_>) {
        let keys = self.keys_of(table);
        let unsync = matches!(self.style, ShadowStyle::Kvm { unsync: true, .. });
        match keys.iter().map(|own| own.1).max() {
            Some(1) if unsync => self.go_unsync(keys, account),
            Some(_) if unsync => {
                account.exit(Exit::Unprotect, account.costs().table_write);
                self.zap_all(keys, account);
                self.write_again(table, account);
            }
            _ => {
                self.zap_all(keys, account);
                self.write_again(table, account);
            }
        }
    }

    fn remembers(&self, root: Gfn) -> bool {
        self.roots().contains(&root)
    }

    fn roots(&self) -> Vec<Gfn> {
        self.active.iter().chain(&self.previous).copied().collect()
    }

    fn enter(&mut self, root: Gfn, tables: &GuestTables, account: &mut CostAccount<'_>) {
        if !self.remembers(root) {
            self.obtain((root, LEVELS), tables, account);
        }
        let mut roots = self.roots();
        roots.retain(|&other| other != root);
        roots.truncate(3);
        self.active = Some(root);
        self.previous = roots;
        self.page((root, LEVELS)).writes = 0;
    }

    fn obtain(&mut self, own: Key, tables: &GuestTables, account: &mut CostAccount<'_>) {
        if let Some(page) = self.pages.get(&own) {
            let unsync = page.unsync;
            self.page(own).writes = 0;
            if unsync {
                self.sync(own, tables, account);
            } else {
                self.sync_all_below(own, tables, account);
            }
            return;
        }
        if own.1 > 1 {
            let unsync = |other: &Key| self.pages[other].unsync;
            let unsync: Vec<Key> = self.keys_of(own.0).into_iter().filter(unsync).collect();
            self.zap_all(unsync, account);
        }
        self.created += 1;
        let age = self.created;
        self.pages.insert(
            own,
            Page {
                age,
                ..Page::default()
            },
        );
    }

    fn evict(&mut self, account: &mut CostAccount<'_>) -> bool {
        if self.pages.len() + 5 <= self.limit {
            return false;
        }
        let mut evicted = false;
        while self.pages.len() + 25 > self.limit {
            let roots = self.roots();
            let candidates = self.pages.iter();
            let candidates =
                candidates.filter(|(own, _)| own.1 < LEVELS || !roots.contains(&own.0));
            let Some((&oldest, _)) = candidates.min_by_key(|(_, page)| page.age) else {
                break;
            };
            self.zap_all(vec![oldest], account);
            evicted = true;
        }
        evicted
    }

    /// Fills a leaf entry from the guest's entry; returns whether that is a refill.
    fn fill(&mut self, table: Gfn, index: u16, tables: &GuestTables) -> bool {
        let Some(guest) = tables.entry(table, index).filter(|guest| guest.present) else {
            return false;
        };
        let leaf = Leaf {
            frame: guest.frame,
            writable: guest.writable,
            dirty: guest.dirty,
        };
        self.page((table, 1))
            .entries
            .insert(index, Entry::Page(leaf));
        self.clock.is_some_and(|clock| guest.written_at <= clock)
            && self.filled.insert((table, index))
    }

    fn fill_block(&mut self, table: Gfn, index: u16, tables: &GuestTables) {
        let block = match self.style {
            ShadowStyle::Kvm { prefetch, .. } => u16::from(prefetch),
            ShadowStyle::Palacios => 0,
        };
        if block > 1 {
            let first = index / block * block;
            for neighbour in first..(first + block).min(512) {
                if self.page((table, 1)).entries.contains_key(&neighbour) {
                    continue;
                }
                let guest = tables.entry(table, neighbour);
                if guest.is_none_or(|guest| !guest.present || guest.old) {
                    break;
                }
                self.fill(table, neighbour, tables);
            }
        }
    }

    fn sync_address(
        &mut self,
        root: Gfn,
        address: Gva,
        tables: &GuestTables,
        account: &mut CostAccount<'_>,
    ) {
        let mut own = (root, LEVELS);
        while own.1 > 1 {
            let index = TableFormat::Four.index(address.0, own.1);
            match self.page(own).entries.get(&index) {
                Some(Entry::Table(child)) => own = *child,
                _ => return,
            }
        }
        let index = TableFormat::Four.index(address.0, 1);
        if self.page(own).unsync && self.sync_entry(own, index, tables) {
            account.work(u64::from(account.costs().sync_entry));
        }
    }

    fn sync(&mut self, own: Key, tables: &GuestTables, account: &mut CostAccount<'_>) {
        account.work(u64::from(account.costs().sync_table));
        for index in 0..512 {
            if self.sync_entry(own, index, tables) {
                account.work(u64::from(account.costs().sync_entry));
            }
        }
    }

    fn sync_entry(&mut self, own: Key, index: u16, tables: &GuestTables) -> bool {
        let guest = tables.entry(own.0, index).filter(|guest| guest.present);
        let page = self.page(own);
        let Some(Entry::Page(leaf)) = page.entries.get(&index).copied() else {
            return false;
        };
        let Some(guest) = guest.filter(|guest| guest.frame == leaf.frame) else {
            page.entries.remove(&index);
            return true;
        };
        let now = Leaf {
            writable: guest.writable,
            dirty: guest.dirty,
            ..leaf
        };
        page.entries.insert(index, Entry::Page(now));
        // The access is what the entry grants: a read-only page's dirty bit does not show in it.
        access(now) != access(leaf)
    }

    fn zap_all(&mut self, keys: Vec<Key>, account: &mut CostAccount<'_>) {
        let mut gone: BTreeSet<Key> = keys.iter().copied().collect();
        for own in keys {
            let below = self.below(own).into_iter();
            gone.extend(below.filter(|other| self.pages[other].unsync));
        }
        for own in gone {
            if let Some(page) = self.pages.remove(&own) {
                account.work(u64::from(account.costs().zap));
                if !page.unsync {
                    self.read_only.insert(own.0);
                }
            }
            for page in self.pages.values_mut() {
                page.entries.retain(|_, entry| *entry != Entry::Table(own));
            }
            if own.1 == LEVELS {
                self.active = self.active.filter(|&root| root != own.0);
                self.previous.retain(|&root| root != own.0);
            }
        }
    }

    /// All pages reachable from a page, including the page itself if it exists.
    fn below(&self, top: Key) -> BTreeSet<Key> {
        let mut seen = BTreeSet::new();
        let mut todo = vec![top];
        while let Some(own) = todo.pop() {
            let Some(page) = self.pages.get(&own) else {
                continue;
            };
            if seen.insert(own) {
                todo.extend(page.entries.values().filter_map(|entry| match entry {
                    Entry::Table(child) => Some(*child),
                    Entry::Page(_) => None,
                }));
            }
        }
        seen
    }

    fn keys_of(&self, table: Gfn) -> Vec<Key> {
        let keys = self.pages.keys().filter(|own| own.0 == table);
        keys.copied().collect()
    }

    fn page(&mut self, own: Key) -> &mut Page {
        self.pages.entry(own).or_default()
    }
}

impl Expected for Reference {
    fn pages(&self) -> usize {
        self.pages.len()
    }

    fn clear(&mut self, clock: u64) {
        *self = Self {
            clock: Some(clock),
            ..Self::new(self.style, self.limit)
        };
    }

    fn resolve(
        &mut self,
        address: Gva,
        found: &Translation,
        write: bool,
        tables: &GuestTables,
        account: &mut CostAccount<'_>,
    ) -> Outcome {
        let (read, leaf) = self.walk(address, found);
        let same = leaf.filter(|leaf| leaf.frame == found.frame);
        assert_eq!(leaf, same, "a translation survived the guest's flush");
        if let Some(leaf) = same.filter(|leaf| !write || (leaf.writable && leaf.dirty)) {
            return Outcome {
                failed_depth: 0,
                nested_from: LEVELS,
                writable: leaf.writable && leaf.dirty && found.writable,
                flushed: false,
            };
        }
        let flushed = self.evict(account);
        let mut work = account.costs().shadow_fill;
        if !self.remembers(found.tables[0]) {
            work += account.costs().build_root;
        }
        self.enter(found.tables[0], tables, account);
        for level in (1..=LEVELS).rev() {
            let own = key(found, level);
            self.page(own).writes = 0;
            if level > 1 {
                let child = key(found, level - 1);
                let index = TableFormat::Four.index(address.0, level);
                if self.page(own).entries.get(&index) != Some(&Entry::Table(child)) {
                    self.obtain(child, tables, account);
                    self.page(own).entries.insert(index, Entry::Table(child));
                }
            }
        }
        let index = TableFormat::Four.index(address.0, 1);
        let refill = self.fill(found.tables[3], index, tables);
        let cause = match same {
            Some(leaf) if leaf.writable && !leaf.dirty => Exit::ShadowDirty,
            _ => Exit::ShadowFill,
        };
        if refill {
            account.refill(cause, work);
        } else {
            account.exit(cause, work);
        }
        self.fill_block(found.tables[3], index, tables);
        Outcome {
            failed_depth: read,
            nested_from: LEVELS,
            writable: found.writable && found.dirty,
            flushed,
        }
    }

    fn event(&mut self, event: &GuestEvent, tables: &GuestTables, account: &mut CostAccount<'_>) {
        match *event {
            GuestEvent::TableWrite { table, index, .. } => self.write(table, index, account),
            GuestEvent::TableFreed { table } => self.free(table, account),
            GuestEvent::Invlpg { address } => {
                account.exit(Exit::Invlpg, account.costs().invlpg);
                for root in self.roots() {
                    self.sync_address(root, address, tables, account);
                }
            }
            GuestEvent::LoadCr3 { root, preserve } => self.load(root, preserve, tables, account),
            GuestEvent::Kernel { .. } | GuestEvent::OtherExit => {}
        }
    }

    fn fault(&mut self, _walk: &PartialWalk, account: &mut CostAccount<'_>) {
        account.exit(Exit::GuestFault, account.costs().reflect_fault);
    }

    fn interval(&mut self, _tables: &GuestTables) {}
}

fn access(leaf: Leaf) -> u8 {
    u8::from(leaf.writable) + u8::from(leaf.writable && leaf.dirty)
}
