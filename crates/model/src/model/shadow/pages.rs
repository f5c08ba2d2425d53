//! The store of shadow pages: entries, links, lookup by guest frame, and age.

use std::collections::{HashMap, HashSet};

use super::entry::Entry;
use super::geometry::{ENTRIES, INDEX_BITS, Key};
use crate::model::address::{Gfn, Hpa, PAGE_SHIFT};

/// Host physical address of the first shadow page. The host's own tables lie below and guest memory
/// above ([`crate::model::core::GUEST_BASE`]); a real host scatters them, which the model ignores.
pub const SHADOW_BASE: u64 = 1 << 34;

const NONE: usize = usize::MAX;

/// What is kept about a page besides its entries.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) key: Key,
    /// Writes to the guest table without a use between them; under agile paging, writes in the
    /// current interval.
    pub(super) writes: u8,
    /// The guest writes the table freely; entries may be stale.
    pub(super) unsync: bool,
    /// Somewhere below there may be an unsync page.
    pub(super) unsync_below: bool,
    /// Slots of the entries that point here.
    parents: Vec<usize>,
    /// The next page of the same guest frame.
    next_same: usize,
    older: usize,
    newer: usize,
    live: bool,
}

/// All shadow pages. A *slot* is the number of an entry: page x 512 + index.
#[derive(Debug)]
pub(super) struct Pages {
    entries: Vec<Entry>,
    states: Vec<Page>,
    free: Vec<usize>,
    /// The first page of each guest frame, by whether it is a table.
    by_frame: HashMap<(Gfn, bool), usize>,
    /// Frames that lost a page which was in step, and that nobody has made writable since.
    read_only: HashSet<Gfn>,
    oldest: usize,
    newest: usize,
    work: u64,
}

impl Pages {
    pub(super) fn new() -> Self {
        Self {
            entries: Vec::new(),
            states: Vec::new(),
            free: Vec::new(),
            by_frame: HashMap::new(),
            read_only: HashSet::new(),
            oldest: NONE,
            newest: NONE,
            work: 0,
        }
    }

    /// Visits of entries and of pages, in groups of 32, where one change leads to many.
    pub(super) fn work(&self) -> u64 {
        self.work
    }

    fn worked(&mut self, visits: usize) {
        self.work = self.work.saturating_add((visits / 32) as u64);
    }

    /// The number of pages in use.
    pub(super) fn len(&self) -> usize {
        self.states.len() - self.free.len()
    }

    pub(super) const fn slot(page: usize, index: usize) -> usize {
        (page << INDEX_BITS) | index
    }

    /// The host physical address of an entry.
    pub(super) const fn address(slot: usize) -> Hpa {
        Hpa(SHADOW_BASE + (slot as u64) * ((1 << PAGE_SHIFT) / ENTRIES as u64))
    }

    #[inline]
    pub(super) fn entry(&self, slot: usize) -> Entry {
        self.entries[slot]
    }

    pub(super) fn set(&mut self, slot: usize, entry: Entry) {
        self.entries[slot] = entry;
    }

    pub(super) fn page(&self, page: usize) -> &Page {
        &self.states[page]
    }

    pub(super) fn page_mut(&mut self, page: usize) -> &mut Page {
        &mut self.states[page]
    }

    pub(super) fn live(&mut self) -> impl Iterator<Item = &mut Page> {
        self.worked(self.states.len());
        self.states.iter_mut().filter(|page| page.live)
    }

    pub(super) fn find(&self, key: Key) -> Option<usize> {
        self.chain((key.frame, key.is_table()))
            .find(|&page| self.states[page].key == key)
    }

    /// The pages that shadow the guest table in `frame`.
    pub(super) fn of_table(&self, frame: Gfn) -> impl Iterator<Item = usize> + '_ {
        self.chain((frame, true))
    }

    /// Makes a new, empty page.
    pub(super) fn create(&mut self, key: Key) -> usize {
        let chain = (key.frame, key.is_table());
        let page = Page {
            key,
            writes: 0,
            unsync: false,
            unsync_below: false,
            parents: Vec::new(),
            next_same: self.by_frame.get(&chain).copied().unwrap_or(NONE),
            older: self.newest,
            newer: NONE,
            live: true,
        };
        let at = if let Some(at) = self.free.pop() {
            self.states[at] = page;
            at
        } else {
            self.states.push(page);
            self.entries
                .resize(self.states.len() * ENTRIES, Entry::ABSENT);
            self.states.len() - 1
        };
        self.by_frame.insert(chain, at);
        if self.newest == NONE {
            self.oldest = at;
        } else {
            self.states[self.newest].newer = at;
        }
        self.newest = at;
        at
    }

    /// Lets the entry at `slot` point to `child`.
    pub(super) fn link(&mut self, slot: usize, child: usize) {
        self.unlink(slot);
        self.entries[slot] = Entry::directory(child);
        self.states[child].parents.push(slot);
        if self.states[child].unsync || self.states[child].unsync_below {
            self.mark_above(child);
        }
    }

    /// Empties an entry; returns what was there.
    pub(super) fn unlink(&mut self, slot: usize) -> Entry {
        let before = std::mem::take(&mut self.entries[slot]);
        if let Some(child) = before.child() {
            let parents = &mut self.states[child].parents;
            if let Some(at) = parents.iter().position(|&parent| parent == slot) {
                parents.swap_remove(at);
                self.worked(at);
            }
        }
        before
    }

    /// Does no entry point to the page?
    pub(super) fn is_orphan(&self, page: usize) -> bool {
        self.states[page].parents.is_empty()
    }

    /// The pages that the entries of `page` point to.
    pub(super) fn children(&mut self, page: usize) -> Vec<usize> {
        self.worked(ENTRIES);
        let first = Self::slot(page, 0);
        let entries = &self.entries[first..first + ENTRIES];
        entries.iter().filter_map(|entry| entry.child()).collect()
    }

    /// Marks the page's guest table as freely written.
    pub(super) fn set_unsync(&mut self, page: usize) {
        self.states[page].unsync = true;
        self.read_only.remove(&self.states[page].key.frame);
        self.mark_above(page);
    }

    /// Whether a write to a frame that no page shadows faults; the next one does not.
    ///
    /// To shadow a table, KVM takes the right to write it from the entries that map its frame, and
    /// gives it back at the next fault only, not when the shadow page is taken down
    /// (Linux 6.1, `account_shadowed` and `unaccount_shadowed`).
    pub(super) fn make_writable(&mut self, frame: Gfn) -> bool {
        self.read_only.remove(&frame)
    }

    /// Removes a page: no entry points to it, it points to no page, and no look-up finds it.
    /// Returns whether it was in use.
    pub(super) fn remove(&mut self, page: usize) -> bool {
        if !std::mem::replace(&mut self.states[page].live, false) {
            return false;
        }
        for slot in std::mem::take(&mut self.states[page].parents) {
            self.entries[slot] = Entry::ABSENT;
        }
        for index in 0..ENTRIES {
            self.unlink(Self::slot(page, index));
        }
        self.unchain(page);
        let Page { key, unsync, .. } = self.states[page];
        if key.is_table() && !unsync {
            self.read_only.insert(key.frame);
        }
        self.forget_age(page);
        self.free.push(page);
        true
    }

    /// The pages from the oldest to the newest.
    pub(super) fn by_age(&self) -> impl Iterator<Item = usize> + '_ {
        let next = |&page: &usize| Some(self.states[page].newer).filter(|&page| page != NONE);
        std::iter::successors(Some(self.oldest).filter(|&page| page != NONE), next)
    }

    fn chain(&self, frame: (Gfn, bool)) -> impl Iterator<Item = usize> + '_ {
        let next = |&page: &usize| Some(self.states[page].next_same).filter(|&page| page != NONE);
        std::iter::successors(self.by_frame.get(&frame).copied(), next)
    }

    /// Marks the pages above as having an unsync page below. Stops at pages that are marked
    /// already.
    fn mark_above(&mut self, page: usize) {
        let mut todo = vec![page];
        while let Some(page) = todo.pop() {
            self.worked(self.states[page].parents.len());
            for at in 0..self.states[page].parents.len() {
                let parent = self.states[page].parents[at] >> INDEX_BITS;
                if !std::mem::replace(&mut self.states[parent].unsync_below, true) {
                    todo.push(parent);
                }
            }
        }
    }

    fn unchain(&mut self, page: usize) {
        let chain = (
            self.states[page].key.frame,
            self.states[page].key.is_table(),
        );
        let next = self.states[page].next_same;
        let before = self
            .chain(chain)
            .find(|&other| self.states[other].next_same == page);
        if let Some(before) = before {
            self.states[before].next_same = next;
        } else if next == NONE {
            self.by_frame.remove(&chain);
        } else {
            self.by_frame.insert(chain, next);
        }
    }

    fn forget_age(&mut self, page: usize) {
        let (older, newer) = (self.states[page].older, self.states[page].newer);
        if older == NONE {
            self.oldest = newer;
        } else {
            self.states[older].newer = newer;
        }
        if newer == NONE {
            self.newest = older;
        } else {
            self.states[newer].older = older;
        }
    }
}
