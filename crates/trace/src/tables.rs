//! The guest's page tables, followed by the stores of its kernel.
//!
//! They are learnt by reading them from a loaded root; after that, every store to a page that is a
//! table is examined. A table is left when the last entry that leads to it is gone. A root is left
//! when it maps no user memory any more and is not in use: Linux empties it before it frees it. The
//! frame is freed at the first store to it after that: then a VMM that shadows tables learns of it. The content of a process's tables before their root is first loaded is read
//! at that time, and counts as found, not as written: a VMM that shadows them would not see those
//! writes either.

use std::collections::{HashMap, HashSet};

use vtax_model::model::address::{Gfn, Gva};
use vtax_model::step::{Operation, TableEntry};

const LEVELS: u8 = 4;
pub const ENTRIES: usize = 512;
/// Entries of a root that map user memory.
const USER_ENTRIES: usize = ENTRIES / 2;
/// Frames that a trace can name.
const MOST_FRAMES: u64 = 1 << 30;

const PRESENT: u64 = 1;
const WRITABLE: u64 = 1 << 1;
const ACCESSED: u64 = 1 << 5;
const DIRTY: u64 = 1 << 6;
const LARGE: u64 = 1 << 7;

pub type Contents = Box<[u64; ENTRIES]>;

pub trait GuestMemory {
    /// The content of a frame that is a table; `None` when it cannot be read.
    fn table(&mut self, frame: u64) -> Option<Contents>;
    fn entry(&mut self, frame: u64, index: usize) -> Option<u64>;
}

struct Table {
    level: u8,
    start: u64,
    /// The number of entries that lead to this table.
    parents: u32,
    entries: Contents,
}

pub struct Tables {
    known: HashMap<u64, Table>,
    /// Frames that were tables and were not stored to since.
    left: HashSet<u64>,
    /// A bit for each frame of the guest's memory.
    member: Vec<u64>,
    frames: u64,
    root: Option<u64>,
}

impl Tables {
    /// No known tables, for a guest with this many frames of memory.
    pub fn new(frames: u64) -> Self {
        let words = usize::try_from(frames.div_ceil(64)).unwrap_or(0);
        Self {
            known: HashMap::new(),
            left: HashSet::new(),
            member: vec![0; words],
            frames,
            root: None,
        }
    }

    /// Is a frame a page table, or was it one and was not stored to since?
    #[inline]
    pub fn contains(&self, frame: u64) -> bool {
        let word = usize::try_from(frame / 64)
            .ok()
            .and_then(|at| self.member.get(at));
        word.is_some_and(|word| word >> (frame % 64) & 1 == 1)
    }

    /// The number of known tables.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Called when CR3 is loaded.
    pub fn load(
        &mut self,
        root: u64,
        preserve: bool,
        memory: &mut dyn GuestMemory,
        tell: &mut dyn FnMut(Operation),
    ) {
        self.know(root, LEVELS, 0, memory, tell);
        if !self.known.contains_key(&root) {
            return;
        }
        let before = self.root.replace(root);
        let root = Gfn(root);
        tell(Operation::LoadCr3 { root, preserve });
        if let Some(before) = before {
            self.drop_empty_root(before);
        }
    }

    /// Called when the TLB is flushed without a load of CR3.
    pub fn flush(&self, tell: &mut dyn FnMut(Operation)) {
        if let Some(root) = self.root {
            let (root, preserve) = (Gfn(root), false);
            tell(Operation::LoadCr3 { root, preserve });
        }
    }

    /// Called when the guest stores to an entry of a frame that [`Self::contains`].
    pub fn store(
        &mut self,
        frame: u64,
        index: usize,
        memory: &mut dyn GuestMemory,
        tell: &mut dyn FnMut(Operation),
    ) {
        self.free(frame, tell);
        let (Some(now), Some(table)) = (memory.entry(frame, index), self.known.get_mut(&frame))
        else {
            return;
        };
        let Some(slot) = table.entries.get_mut(index) else {
            return;
        };
        let before = std::mem::replace(slot, now);
        let (level, start) = (table.level, table.start);
        let (old, new) = (child(before, level), child(now, level));
        if old != new
            && let Some(new) = new
        {
            self.link(new, level - 1, start | span(level, index), memory, tell);
        }
        tell(entry(frame, index, now, level, true));
        if old != new {
            if let Some(old) = old {
                self.unlink(old);
            }
            if level == LEVELS {
                self.drop_empty_root(frame);
            }
        }
    }

    /// Called when an entry leads to a table.
    fn link(
        &mut self,
        frame: u64,
        level: u8,
        start: u64,
        memory: &mut dyn GuestMemory,
        tell: &mut dyn FnMut(Operation),
    ) {
        self.know(frame, level, start, memory, tell);
        if let Some(table) = self.known.get_mut(&frame) {
            table.parents += 1;
        }
    }

    /// Reads a table, unless it is known at this level.
    fn know(
        &mut self,
        frame: u64,
        level: u8,
        start: u64,
        memory: &mut dyn GuestMemory,
        tell: &mut dyn FnMut(Operation),
    ) {
        let known = self.known.get(&frame);
        if known.is_none_or(|table| table.level != level) {
            self.drop_table(frame);
            self.find(frame, level, start, memory, tell);
        }
    }

    /// Reads an unknown table, and all tables below it.
    fn find(
        &mut self,
        frame: u64,
        level: u8,
        start: u64,
        memory: &mut dyn GuestMemory,
        tell: &mut dyn FnMut(Operation),
    ) {
        if frame >= self.frames {
            return;
        }
        let Some(entries) = memory.table(frame) else {
            return;
        };
        self.free(frame, tell);
        tell(Operation::Table {
            frame: Gfn(frame),
            level,
            start: Gva(start),
        });
        let table = Table {
            level,
            start,
            parents: 0,
            entries: entries.clone(),
        };
        self.known.insert(frame, table);
        self.mark(frame, true);
        for (index, &bits) in entries.iter().enumerate() {
            if bits & PRESENT == 0 {
                continue;
            }
            if let Some(next) = child(bits, level) {
                self.link(next, level - 1, start | span(level, index), memory, tell);
            }
            tell(entry(frame, index, bits, level, false));
        }
    }

    /// Called when an entry that led to a table is gone.
    fn unlink(&mut self, frame: u64) {
        let Some(table) = self.known.get_mut(&frame) else {
            return;
        };
        table.parents = table.parents.saturating_sub(1);
        if table.parents == 0 {
            self.drop_table(frame);
        }
    }

    fn drop_empty_root(&mut self, frame: u64) {
        let Some(table) = self.known.get(&frame) else {
            return;
        };
        let empty = table.entries[..USER_ENTRIES]
            .iter()
            .all(|bits| bits & PRESENT == 0);
        if empty && table.level == LEVELS && self.root != Some(frame) {
            self.drop_table(frame);
        }
    }

    fn drop_table(&mut self, frame: u64) {
        let Some(table) = self.known.remove(&frame) else {
            return;
        };
        self.left.insert(frame);
        for &bits in table.entries.iter() {
            if let Some(below) = child(bits, table.level) {
                self.unlink(below);
            }
        }
    }

    /// Called when a frame is stored to, or becomes a table again.
    fn free(&mut self, frame: u64, tell: &mut dyn FnMut(Operation)) {
        if self.left.remove(&frame) {
            self.mark(frame, false);
            tell(Operation::FreeTable { table: Gfn(frame) });
        }
    }

    fn mark(&mut self, frame: u64, is_table: bool) {
        let word = usize::try_from(frame / 64)
            .ok()
            .and_then(|at| self.member.get_mut(at));
        if let Some(word) = word {
            let bit = 1 << (frame % 64);
            *word = if is_table { *word | bit } else { *word & !bit };
        }
    }
}

/// The address bits that an index in a table of `level` stands for, sign-extended for a root.
const fn span(level: u8, index: usize) -> u64 {
    let address = (index as u64) << (12 + 9 * (level as u32 - 1));
    if level == LEVELS && index >= USER_ENTRIES {
        address | 0xffff << 48
    } else {
        address
    }
}

fn frame_of(bits: u64) -> u64 {
    (bits >> 12) & ((1 << 40) - 1)
}

/// The table that an entry leads to.
fn child(bits: u64, level: u8) -> Option<u64> {
    let leads = level > 1 && bits & PRESENT != 0 && bits & LARGE == 0;
    leads.then(|| frame_of(bits))
}

fn entry(table: u64, index: usize, bits: u64, level: u8, written: bool) -> Operation {
    let has = |bit| bits & bit != 0;
    let entry = if has(PRESENT) {
        TableEntry {
            // Devices far above all memory share one frame number: they are devices in any case.
            frame: Gfn(frame_of(bits).min(MOST_FRAMES - 1)),
            present: true,
            writable: has(WRITABLE),
            dirty: has(DIRTY),
            large: level > 1 && has(LARGE),
            old: !has(ACCESSED),
        }
    } else {
        TableEntry::default()
    };
    Operation::Entry {
        table: Gfn(table),
        index: u16::try_from(index).unwrap_or(u16::MAX),
        entry,
        written,
    }
}

#[cfg(test)]
mod tests;
