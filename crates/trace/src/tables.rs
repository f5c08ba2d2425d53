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
mod tests {
    use super::*;

    const USER: u64 = PRESENT | WRITABLE | 1 << 2;

    /// Frames of a guest whose kernel has one page at the end of the address space.
    #[derive(Default)]
    struct Memory(HashMap<u64, Contents>);

    impl Memory {
        fn set(&mut self, frame: u64, index: usize, bits: u64) {
            let table = self
                .0
                .entry(frame)
                .or_insert_with(|| Box::new([0; ENTRIES]));
            table[index] = bits;
        }
    }

    impl GuestMemory for Memory {
        fn table(&mut self, frame: u64) -> Option<Contents> {
            Some(
                self.0
                    .entry(frame)
                    .or_insert_with(|| Box::new([0; ENTRIES]))
                    .clone(),
            )
        }

        fn entry(&mut self, frame: u64, index: usize) -> Option<u64> {
            self.0.get(&frame).map(|table| table[index])
        }
    }

    /// The tables, and all reported operations.
    struct World {
        memory: Memory,
        tables: Tables,
        told: Vec<Operation>,
    }

    impl World {
        /// A loaded root in frame 1, with one page in the kernel's half.
        fn new() -> Self {
            let mut memory = Memory::default();
            for (frame, next) in [(1, 2), (2, 3), (3, 4), (4, 99)] {
                memory.set(frame, 511, next << 12 | PRESENT | WRITABLE);
            }
            let mut world = Self {
                memory,
                tables: Tables::new(1000),
                told: Vec::new(),
            };
            world.load(1);
            world
        }

        fn load(&mut self, root: u64) -> Vec<Operation> {
            let tell = &mut |operation| self.told.push(operation);
            self.tables.load(root, false, &mut self.memory, tell);
            std::mem::take(&mut self.told)
        }

        /// The kernel writes an entry.
        fn store(&mut self, frame: u64, index: usize, bits: u64) -> Vec<Operation> {
            self.memory.set(frame, index, bits);
            assert!(self.tables.contains(frame));
            let tell = &mut |operation| self.told.push(operation);
            self.tables.store(frame, index, &mut self.memory, tell);
            std::mem::take(&mut self.told)
        }
    }

    fn freed(told: &[Operation]) -> Vec<u64> {
        let frame = |operation: &Operation| match operation {
            Operation::FreeTable { table } => Some(table.0),
            _ => None,
        };
        told.iter().filter_map(frame).collect()
    }

    #[test]
    fn a_loaded_root_is_read_whole_and_nothing_of_it_is_written() {
        let mut world = World::new();
        assert_eq!(world.tables.len(), 4);
        let told = world.load(1);
        let (root, preserve) = (Gfn(1), false);
        assert_eq!(told, [Operation::LoadCr3 { root, preserve }]);
        for frame in 0..1001 {
            assert_eq!(
                world.tables.contains(frame),
                (1..=4).contains(&frame),
                "{frame}"
            );
        }
        let starts = world.tables.known[&4].start;
        assert_eq!(starts, 0xffff_ffff_ffe0_0000);
    }

    #[test]
    fn tables_are_followed_from_their_link_to_the_end_of_it() {
        let mut world = World::new();
        world.memory.set(12, 7, 50 << 12 | USER);
        world.store(1, 0, 10 << 12 | USER);
        world.store(10, 0, 11 << 12 | USER);
        // This table had an entry before it was linked: the write of that entry could not be seen.
        let told = world.store(11, 1, 12 << 12 | USER);
        assert!(
            matches!(
                told[..],
                [
                    Operation::Table {
                        frame: Gfn(12),
                        level: 1,
                        start: Gva(0x20_0000)
                    },
                    Operation::Entry {
                        table: Gfn(12),
                        index: 7,
                        written: false,
                        ..
                    },
                    Operation::Entry {
                        table: Gfn(11),
                        index: 1,
                        written: true,
                        ..
                    },
                ]
            ),
            "{told:?}"
        );
        let told = world.store(12, 8, 51 << 12 | PRESENT | DIRTY);
        let entry = TableEntry {
            frame: Gfn(51),
            present: true,
            writable: false,
            dirty: true,
            large: false,
            old: true,
        };
        let expected = Operation::Entry {
            table: Gfn(12),
            index: 8,
            entry,
            written: true,
        };
        assert_eq!(told, [expected]);
        assert_eq!(freed(&world.store(11, 1, 0)), [0_u64; 0]);
        // A VMM that shadows the table learns of its end when the frame is used again.
        assert!(world.tables.contains(12));
        assert_eq!(
            world.store(12, 0, 0),
            [Operation::FreeTable { table: Gfn(12) }]
        );
        assert!(!world.tables.contains(12));
    }

    #[test]
    fn a_change_of_flags_alone_keeps_the_table_below() {
        let mut world = World::new();
        world.store(1, 0, 10 << 12 | USER);
        let told = world.store(1, 0, 10 << 12 | USER | 1 << 5);
        assert_eq!((told.len(), freed(&told).len()), (1, 0));
        assert!(world.tables.contains(10));
    }

    #[test]
    fn a_large_page_leads_nowhere() {
        let mut world = World::new();
        world.store(1, 0, 10 << 12 | USER);
        world.store(10, 0, 11 << 12 | USER);
        world.store(11, 0, 512 << 12 | USER | LARGE);
        assert!(!world.tables.contains(512));
    }

    #[test]
    fn an_ended_process_leaves_no_tables_but_the_kernels() {
        let mut world = World::new();
        for (frame, next) in [(21, 22), (22, 23), (23, 24), (24, 60)] {
            world.memory.set(frame, 0, next << 12 | USER);
        }
        world.memory.set(21, 511, 2 << 12 | USER);
        world.load(21);
        assert_eq!(world.tables.len(), 7);
        // The first root maps no user memory and is not in use: it is forgotten, but the kernel's
        // tables below it stay.
        assert!(!world.tables.known.contains_key(&1));
        assert!(world.tables.known.contains_key(&2));
        // Linux empties the tables from the lowest level up while the root is still loaded.
        for frame in [23, 22, 21] {
            assert_eq!(freed(&world.store(frame, 0, 0)), [0_u64; 0]);
        }
        assert!(world.tables.known.contains_key(&21));
        // It was left before, and is a table again.
        assert_eq!(freed(&world.load(1)), [1]);
        assert_eq!(world.tables.len(), 4);
        for frame in [24, 23, 22, 21] {
            assert_eq!(freed(&world.store(frame, 5, 0)), [frame]);
        }
        assert_eq!(world.tables.len(), 4);
    }

    #[test]
    fn frames_outside_the_memory_are_no_tables() {
        let mut world = World::new();
        world.store(1, 0, 1000 << 12 | USER);
        assert!(!world.tables.contains(1000));
        world.store(1, 1, ((1 << 40) - 1) << 12 | USER);
        assert_eq!(world.tables.len(), 4);
    }
}
