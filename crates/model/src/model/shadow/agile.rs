//! Agile paging decides which guest tables are walked nested.
//!
//! After Gandhi, Hill, Swift, ISCA 2016: an address space starts in shadow mode. A table that is
//! written more than once in an interval goes to nested mode with everything below it. At the end
//! of an interval, tables whose dirty bit is clear return to shadow mode, from the top down.
//!
//! The paper's two hardware extensions are assumed: a cache of shadow roots, so that the load of a
//! known root does not exit, and dirty bits that the hardware sets in both tables. As every table
//! in shadow mode is protected, nothing is ever out of step and INVLPG does not exit.

use std::collections::{BTreeMap, HashSet};

use super::upkeep::charge_zaps;
use super::{Flush, ShadowTables, ShadowWalk};
use crate::model::address::{Gfn, Gva, Hpa, MAX_LEVELS};
use crate::model::cost_account::CostAccount;
use crate::model::counters::Exit;
use crate::model::guest::GuestTables;
use crate::model::guest_event::Translation;

/// Writes in one interval that send a table to nested mode ("more than once").
const WRITES: u8 = 2;

/// The tables in nested mode.
#[derive(Debug, Default)]
pub(super) struct Agile {
    /// The topmost tables of nested subtrees, with the slots of the entries that lead to them.
    /// Ordered, so that the same input gives the same output.
    nested: BTreeMap<Gfn, Vec<usize>>,
    /// Unprotected tables that were written in this interval.
    dirty: HashSet<Gfn>,
    /// Tables whose dirty bit was scanned, where the scan is not charged yet.
    scanned: u64,
    /// Entries and slots that were visited.
    pub(super) work: u64,
}

impl Agile {
    /// Does a nested subtree begin at the table?
    pub(super) fn is_nested(&self, table: Gfn) -> bool {
        self.nested.contains_key(&table)
    }

    /// Remembers that the entry at `slot` leads to a nested table.
    fn enter_from(&mut self, table: Gfn, slot: usize) {
        let slots = self.nested.entry(table).or_default();
        self.work += slots.len() as u64 / 32;
        if !slots.contains(&slot) {
            slots.push(slot);
        }
    }

    fn free(&mut self, table: Gfn) {
        self.nested.remove(&table);
        self.dirty.remove(&table);
    }
}

impl ShadowTables {
    /// The walk that turns nested after `read` shadow entries.
    pub(super) fn nested_walk(
        &self,
        address: Gva,
        entries: [Hpa; MAX_LEVELS],
        read: u8,
        found: &Translation,
    ) -> ShadowWalk {
        ShadowWalk {
            entries,
            depth: found.depth,
            failed_depth: 0,
            size: self.largest_entry(address, found),
            writable: found.writable && found.dirty,
            nested_from: read,
            flushed: false,
        }
    }

    /// Does a nested subtree begin at the table?
    pub(super) fn is_nested(&self, table: Gfn) -> bool {
        self.agile
            .as_ref()
            .is_some_and(|agile| agile.is_nested(table))
    }

    /// Handles a write to a table under agile paging.
    pub(super) fn agile_write(
        &mut self,
        table: Gfn,
        index: u16,
        address: Gva,
        account: &mut CostAccount<'_>,
    ) -> Flush {
        let pages: Vec<usize> = self.mirrors_of(table).collect();
        if pages.is_empty() {
            if let Some(agile) = &mut self.agile {
                agile.dirty.insert(table);
            }
            return Flush::None;
        }
        account.exit(Exit::TableWrite, account.costs().table_write);
        let writes = pages.iter().map(|&page| {
            let page = self.pages.page_mut(page);
            page.writes = page.writes.saturating_add(1);
            page.writes
        });
        if writes.max().unwrap_or(0) < WRITES {
            return self.drop_entries(&pages, index, address);
        }
        self.go_nested(table, account);
        Flush::All
    }

    /// Remembers that the entry at `slot` leads to a nested table.
    pub(super) fn enter_nested(&mut self, table: Gfn, slot: usize) {
        if let Some(agile) = &mut self.agile {
            agile.enter_from(table, slot);
        }
    }

    /// Agile paging: forgets a freed table.
    pub(super) fn agile_freed(&mut self, table: Gfn) {
        if let Some(agile) = &mut self.agile {
            agile.free(table);
        }
    }

    /// Charges the scans that [`Self::end_interval`] made. It is an assumption that a scan costs as
    /// much as bringing one entry in step: both read and write one entry of a table.
    pub(super) fn charge_scans(&mut self, account: &mut CostAccount<'_>) {
        if let Some(agile) = &mut self.agile {
            let scanned = std::mem::take(&mut agile.scanned);
            account.work(scanned.saturating_mul(u64::from(account.costs().sync_entry)));
        }
    }

    /// Moves quiet tables back to shadow mode, from the top down.
    pub(super) fn end_interval(&mut self, tables: &GuestTables) {
        let Some(mut agile) = self.agile.take() else {
            return;
        };
        for (top, slots) in std::mem::take(&mut agile.nested) {
            agile.scanned += 1;
            agile.work += 1;
            if agile.dirty.contains(&top) {
                agile.nested.insert(top, slots);
                continue;
            }
            for slot in slots {
                let entry = self.pages.entry(slot);
                if entry.is_nested() && entry.frame() == top {
                    self.pages.unlink(slot);
                }
            }
            keep_dirty_below(&mut agile, top, tables);
        }
        agile.dirty.clear();
        self.agile = Some(agile);
        self.pages.live().for_each(|page| page.writes = 0);
    }

    fn go_nested(&mut self, table: Gfn, account: &mut CostAccount<'_>) {
        let pages: Vec<usize> = self.pages.of_table(table).collect();
        let mut zapped = 0;
        for page in pages {
            zapped += self.zap_subtree(page);
        }
        charge_zaps(zapped, account);
        if let Some(agile) = &mut self.agile {
            agile.nested.insert(table, Vec::new());
            agile.dirty.insert(table);
        }
    }

    /// Takes down a page and the pages below it that no other page uses.
    fn zap_subtree(&mut self, top: usize) -> usize {
        let mut zapped = 0;
        let mut todo = vec![top];
        while let Some(page) = todo.pop() {
            let children = self.pages.children(page);
            zapped += self.remove(page);
            for child in children {
                if self.pages.is_orphan(child) && !todo.contains(&child) {
                    todo.push(child);
                }
            }
        }
        zapped
    }
}

/// Below a table that returned to shadow mode, dirty tables stay nested.
fn keep_dirty_below(agile: &mut Agile, top: Gfn, tables: &GuestTables) {
    let mut todo = vec![top];
    // Observed tables may lead to themselves, or on many paths to one table.
    let mut seen = HashSet::from([top]);
    while let Some(table) = todo.pop() {
        if tables.level(table).is_none_or(|level| level < 2) {
            continue;
        }
        agile.work += 16;
        let entries = (0..1 << tables.format().index_bits())
            .map_while(|index| tables.entry(table, index))
            .filter(|entry| entry.present && !entry.large);
        for entry in entries {
            agile.scanned += 1;
            if agile.dirty.contains(&entry.frame) {
                agile.nested.entry(entry.frame).or_default();
            } else if seen.insert(entry.frame) {
                todo.push(entry.frame);
            }
        }
    }
}
