//! Agile paging according to its definition, as plain as its counterpart for shadow paging.

use std::collections::{BTreeMap, BTreeSet};

use crate::expected::{Expected, Key, LEVELS, Outcome, key};
use vtax_model::model::address::{Gfn, Gva, TableFormat};
use vtax_model::model::cost_account::CostAccount;
use vtax_model::model::counters::Exit;
use vtax_model::model::guest::GuestTables;
use vtax_model::model::guest_event::{GuestEvent, PartialWalk, Translation};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Entry {
    Table(Key),
    Nested(Gfn),
    Page { frame: Gfn, writable: bool },
}

#[derive(Debug, Default)]
struct Page {
    entries: BTreeMap<u16, Entry>,
    writes: u8,
    age: u64,
}

#[derive(Debug)]
pub struct AgileReference {
    limit: usize,
    prefetch: u16,
    pages: BTreeMap<Key, Page>,
    active: Option<Gfn>,
    previous: Vec<Gfn>,
    created: u64,
    nested: BTreeSet<Gfn>,
    dirty: BTreeSet<Gfn>,
    scanned: u64,
}

/// Where a walk ended, and after how many references.
enum End {
    Missing,
    Nested,
    Page { writable: bool },
}

impl AgileReference {
    pub fn new(prefetch: u8, limit: usize) -> Self {
        Self {
            limit,
            prefetch: u16::from(prefetch),
            pages: BTreeMap::new(),
            active: None,
            previous: Vec::new(),
            created: 0,
            nested: BTreeSet::new(),
            dirty: BTreeSet::new(),
            scanned: 0,
        }
    }

    fn walk(&self, address: Gva, found: &Translation) -> (u8, End) {
        if self.active != Some(found.tables[0]) {
            return (0, End::Missing);
        }
        let mut own = (found.tables[0], LEVELS);
        for read in 1..=LEVELS {
            let index = TableFormat::Four.index(address.0, own.1);
            match self.pages[&own].entries.get(&index) {
                Some(Entry::Table(child)) => own = *child,
                Some(Entry::Nested(_)) => return (read, End::Nested),
                Some(Entry::Page { frame, writable }) => {
                    assert_eq!(
                        *frame, found.frame,
                        "a translation survived the guest's flush"
                    );
                    let writable = *writable;
                    return (read, End::Page { writable });
                }
                None => return (read, End::Missing),
            }
        }
        (LEVELS, End::Missing)
    }

    /// Makes the path to the leaf entry; `None` when the path turns nested.
    fn path(&mut self, address: Gva, found: &Translation) -> Option<Key> {
        self.enter(found.tables[0]);
        for level in (2..=LEVELS).rev() {
            let (own, child) = (key(found, level), key(found, level - 1));
            let index = TableFormat::Four.index(address.0, level);
            let nested = self.nested.contains(&child.0);
            let entry = if nested {
                Entry::Nested(child.0)
            } else {
                self.obtain(child);
                Entry::Table(child)
            };
            self.page(own).entries.insert(index, entry);
            if nested {
                return None;
            }
        }
        Some(key(found, 1))
    }

    fn fill(&mut self, own: Key, index: u16, tables: &GuestTables) {
        if let Some(guest) = tables.entry(own.0, index).filter(|guest| guest.present) {
            let entry = Entry::Page {
                frame: guest.frame,
                writable: guest.writable && guest.dirty,
            };
            self.page(own).entries.insert(index, entry);
        }
    }

    fn fill_block(&mut self, own: Key, index: u16, tables: &GuestTables) {
        if self.prefetch > 1 {
            let first = index / self.prefetch * self.prefetch;
            for neighbour in first..(first + self.prefetch).min(512) {
                if self.page(own).entries.contains_key(&neighbour) {
                    continue;
                }
                let guest = tables.entry(own.0, neighbour);
                if guest.is_none_or(|guest| !guest.present || guest.old) {
                    break;
                }
                self.fill(own, neighbour, tables);
            }
        }
    }

    fn write(&mut self, table: Gfn, index: u16, account: &mut CostAccount<'_>) {
        let keys = self.keys_of(table);
        if keys.is_empty() {
            self.dirty.insert(table);
            return;
        }
        account.exit(Exit::TableWrite, account.costs().table_write);
        for &own in &keys {
            self.page(own).writes += 1;
        }
        let busy = keys.iter().any(|own| self.pages[own].writes >= 2);
        for own in keys {
            if busy {
                // The table to which the entry led so far counts as below.
                self.zap_with_orphans(own, account);
            } else {
                self.page(own).entries.remove(&index);
            }
        }
        if busy {
            self.nested.insert(table);
            self.dirty.insert(table);
        }
    }

    /// Removes a page, and the pages below it to which nothing else leads.
    fn zap_with_orphans(&mut self, own: Key, account: &mut CostAccount<'_>) {
        let Some(page) = self.pages.get(&own) else {
            return;
        };
        let entries: Vec<Entry> = page.entries.values().copied().collect();
        self.zap(own, account);
        for entry in entries {
            let Entry::Table(child) = entry else {
                continue;
            };
            let mut all = self.pages.values().flat_map(|page| page.entries.values());
            if !all.any(|&other| other == entry) {
                self.zap_with_orphans(child, account);
            }
        }
    }

    fn zap(&mut self, own: Key, account: &mut CostAccount<'_>) {
        if self.pages.remove(&own).is_some() {
            account.work(u64::from(account.costs().zap));
        }
        for page in self.pages.values_mut() {
            page.entries.retain(|_, entry| *entry != Entry::Table(own));
        }
        if own.1 == LEVELS {
            self.active = self.active.filter(|&root| root != own.0);
            self.previous.retain(|&root| root != own.0);
        }
    }

    fn load(&mut self, root: Gfn, account: &mut CostAccount<'_>) {
        if self.nested.contains(&root) {
            self.leave();
            return;
        }
        if !self.roots().contains(&root) {
            account.exit(Exit::LoadCr3, account.costs().build_root);
            self.evict(account);
        }
        self.enter(root);
    }

    fn roots(&self) -> Vec<Gfn> {
        self.active.iter().chain(&self.previous).copied().collect()
    }

    fn enter(&mut self, root: Gfn) {
        self.obtain((root, LEVELS));
        let mut roots = self.roots();
        roots.retain(|&other| other != root);
        roots.truncate(3);
        self.active = Some(root);
        self.previous = roots;
    }

    fn leave(&mut self) {
        self.previous = self.roots();
        self.previous.truncate(3);
        self.active = None;
    }

    fn obtain(&mut self, own: Key) {
        if !self.pages.contains_key(&own) {
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
            self.zap(oldest, account);
            evicted = true;
        }
        evicted
    }

    fn charge_scans(&mut self, account: &mut CostAccount<'_>) {
        let scanned = std::mem::take(&mut self.scanned);
        account.work(scanned * u64::from(account.costs().sync_entry));
    }

    /// Dirty tables at or below a quiet table begin their own nested subtrees.
    fn keep_dirty_below(&mut self, quiet: Gfn, tables: &GuestTables) {
        if tables.level(quiet).is_none_or(|level| level == 1) {
            return;
        }
        for index in 0..512 {
            let Some(entry) = tables.entry(quiet, index).filter(|entry| entry.present) else {
                continue;
            };
            self.scanned += 1;
            if self.dirty.contains(&entry.frame) {
                self.nested.insert(entry.frame);
            } else {
                self.keep_dirty_below(entry.frame, tables);
            }
        }
    }

    fn keys_of(&self, table: Gfn) -> Vec<Key> {
        let keys = self.pages.keys().filter(|own| own.0 == table);
        keys.copied().collect()
    }

    fn page(&mut self, own: Key) -> &mut Page {
        self.pages.entry(own).or_default()
    }
}

impl Expected for AgileReference {
    fn pages(&self) -> usize {
        self.pages.len()
    }

    fn clear(&mut self, _clock: u64) {
        *self = Self {
            limit: self.limit,
            ..Self::new(u8::try_from(self.prefetch).unwrap_or(0), self.limit)
        };
    }

    fn fault(&mut self, walk: &PartialWalk, account: &mut CostAccount<'_>) {
        let tables = &walk.tables[..usize::from(walk.depth)];
        if !tables.iter().any(|table| self.nested.contains(table)) {
            account.exit(Exit::GuestFault, account.costs().reflect_fault);
        }
    }

    fn interval(&mut self, tables: &GuestTables) {
        for top in std::mem::take(&mut self.nested) {
            self.scanned += 1;
            if self.dirty.contains(&top) {
                self.nested.insert(top);
                continue;
            }
            for page in self.pages.values_mut() {
                page.entries.retain(|_, entry| *entry != Entry::Nested(top));
            }
            self.keep_dirty_below(top, tables);
        }
        self.dirty.clear();
        self.pages.values_mut().for_each(|page| page.writes = 0);
    }

    fn event(&mut self, event: &GuestEvent, _tables: &GuestTables, account: &mut CostAccount<'_>) {
        if matches!(event, GuestEvent::Kernel { .. } | GuestEvent::OtherExit) {
            return;
        }
        self.charge_scans(account);
        match *event {
            GuestEvent::TableWrite { table, index, .. } => self.write(table, index, account),
            GuestEvent::TableFreed { table } => {
                self.nested.remove(&table);
                self.dirty.remove(&table);
                for own in self.keys_of(table) {
                    self.zap(own, account);
                }
            }
            GuestEvent::LoadCr3 { root, .. } => self.load(root, account),
            _ => {}
        }
    }

    fn resolve(
        &mut self,
        address: Gva,
        found: &Translation,
        write: bool,
        tables: &GuestTables,
        account: &mut CostAccount<'_>,
    ) -> Outcome {
        let good = Outcome {
            failed_depth: 0,
            nested_from: LEVELS,
            writable: found.writable && found.dirty,
            flushed: false,
        };
        let (read, end) = self.walk(address, found);
        let by_hardware = match end {
            End::Nested => {
                return Outcome {
                    nested_from: read,
                    ..good
                };
            }
            End::Page { writable } if writable || !write => return Outcome { writable, ..good },
            // Only the dirty bit was missing: a read-only page would have faulted.
            End::Page { .. } => true,
            End::Missing => false,
        };
        self.charge_scans(account);
        if self.nested.contains(&found.tables[0]) {
            self.leave();
            return Outcome {
                nested_from: 0,
                ..good
            };
        }
        let flushed = self.evict(account);
        let mut work = account.costs().shadow_fill;
        if !self.roots().contains(&found.tables[0]) {
            work += account.costs().build_root;
        }
        let leaf = self.path(address, found);
        if !by_hardware {
            account.exit(Exit::ShadowFill, work);
        }
        if let Some(own) = leaf {
            let index = TableFormat::Four.index(address.0, 1);
            self.fill(own, index, tables);
            self.fill_block(own, index, tables);
        }
        Outcome {
            failed_depth: if by_hardware { 0 } else { read },
            nested_from: self.walk(address, found).0,
            flushed,
            ..good
        }
    }
}
