//! The guest's page tables: a radix tree whose nodes live in guest frames.

// Frames have 30 bits, and positions in the arena have fewer: nothing is truncated.
#![allow(clippy::cast_possible_truncation)]

use crate::model::address::{Gfn, Gva, MAX_LEVELS, PageSize, TableFormat};
use crate::model::guest_event::{PartialWalk, Translation};

const PRESENT: u64 = 1;
const WRITABLE: u64 = 1 << 1;
const DIRTY: u64 = 1 << 2;
const LARGE: u64 = 1 << 3;
const OLD: u64 = 1 << 4;
const FRAME_SHIFT: u32 = 5;
const FRAME_BITS: u32 = 30;
const CLOCK_SHIFT: u32 = FRAME_SHIFT + FRAME_BITS;
const CLOCK_MAX: u64 = (1 << (64 - CLOCK_SHIFT)) - 1;
/// The most guest memory: what the frame field of an entry can address (4 TiB).
pub const MAX_MEMORY_BYTES: u64 = 1 << (FRAME_BITS + crate::model::address::PAGE_SHIFT);

#[expect(clippy::struct_excessive_bools)] // they are bits of the entry
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuestEntry {
    /// The next table's frame, or the first frame of the page.
    pub frame: Gfn,
    /// Does the entry map something?
    pub present: bool,
    /// Does it allow writes?
    pub writable: bool,
    /// Was the page written (leaf entries)?
    pub dirty: bool,
    /// Does an entry above level 1 map a page?
    pub large: bool,
    /// Is the accessed bit clear (leaf entries)?
    pub old: bool,
    /// [`GuestTables::clock`] when the guest's kernel last wrote the entry.
    pub written_at: u64,
}

impl GuestEntry {
    pub(super) const ABSENT: Self = Self {
        frame: Gfn(0),
        present: false,
        writable: false,
        dirty: false,
        large: false,
        old: false,
        written_at: 0,
    };

    fn pack(self) -> u64 {
        flag(self.present, PRESENT)
            | flag(self.writable, WRITABLE)
            | flag(self.dirty, DIRTY)
            | flag(self.large, LARGE)
            | flag(self.old, OLD)
            | (self.frame.0 << FRAME_SHIFT)
            | (self.written_at.min(CLOCK_MAX) << CLOCK_SHIFT)
    }

    const fn unpack(bits: u64) -> Self {
        Self {
            frame: Gfn((bits >> FRAME_SHIFT) & ((1 << FRAME_BITS) - 1)),
            present: bits & PRESENT != 0,
            writable: bits & WRITABLE != 0,
            dirty: bits & DIRTY != 0,
            large: bits & LARGE != 0,
            old: bits & OLD != 0,
            written_at: bits >> CLOCK_SHIFT,
        }
    }
}

const fn flag(set: bool, bit: u64) -> u64 {
    if set { bit } else { 0 }
}

/// Frames in one piece of [`Slots`].
const PIECE: usize = 128;

/// For each frame: 1 + the position in `arena`, or 0. A table in a high frame needs one piece, not
/// memory for all frames below it.
#[derive(Debug, Default)]
struct Slots(Vec<Option<Box<[u32; PIECE]>>>);

impl Slots {
    #[inline]
    fn get(&self, frame: Gfn) -> Option<u32> {
        let frame = usize::try_from(frame.0).ok()?;
        let piece = self.0.get(frame / PIECE)?.as_ref()?;
        Some(piece[frame % PIECE])
    }

    fn set(&mut self, frame: Gfn, slot: u32) {
        let frame = frame.0 as usize;
        let at = frame / PIECE;
        if self.0.len() <= at {
            self.0.resize_with(at + 1, || None);
        }
        self.0[at].get_or_insert_with(|| Box::new([0; PIECE]))[frame % PIECE] = slot;
    }
}

#[derive(Debug)]
struct Table {
    frame: Gfn,
    level: u8,
    present: u16,
}

/// All page tables of the guest. The VMM may read them; only the guest writes.
#[derive(Debug)]
pub struct GuestTables {
    format: TableFormat,
    slots: Slots,
    arena: Vec<Table>,
    /// The entries of all tables, by their position in `arena`.
    entries: Vec<u64>,
    free: Vec<u32>,
    clock: u64,
    /// Grows when a table is added or removed, or an entry above the lowest level is written.
    shape: u64,
}

/// The path to a table whose entry maps a page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    pub(super) tables: [Gfn; MAX_LEVELS],
    pub(super) depth: u8,
    pub(super) end: End,
}

/// The table at the end of a path.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    shape: u64,
    position: u32,
    level: u8,
}

impl Path {
    /// No path that holds.
    pub(super) const NONE: Self = Self {
        tables: [Gfn(0); MAX_LEVELS],
        depth: 0,
        end: End {
            shape: u64::MAX,
            position: 0,
            level: 1,
        },
    };
}

impl End {
    /// The size of the pages that the table's entries map.
    #[inline]
    pub(super) const fn size(&self) -> PageSize {
        PageSize::ALL[(self.level - 1) as usize % PageSize::ALL.len()]
    }
}

/// An entry that may map a page.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Leaf(u64);

impl Leaf {
    /// Would [`GuestTables::walk`] find a page here and change no bit?
    #[inline]
    pub(super) const fn allows(self, write: bool) -> bool {
        let needed = PRESENT | if write { WRITABLE | DIRTY } else { 0 };
        self.0 & (needed | OLD) == needed
    }

    /// Do writes to the page change nothing in the entry?
    #[inline]
    pub(super) const fn is_written(self) -> bool {
        self.0 & (WRITABLE | DIRTY) == WRITABLE | DIRTY
    }

    #[inline]
    pub(super) const fn frame(self) -> Gfn {
        GuestEntry::unpack(self.0).frame
    }

    /// What [`GuestTables::walk`] along the path finds for `address`.
    pub(super) fn translation(self, path: &Path, format: TableFormat, address: Gva) -> Translation {
        let entry = GuestEntry::unpack(self.0);
        let span = format.span(path.end.level);
        Translation {
            page: Gva(address.0 >> span << span),
            frame: entry.frame,
            size: path.end.size(),
            writable: entry.writable,
            dirty: entry.dirty,
            tables: path.tables,
            depth: path.depth,
            written_at: entry.written_at,
        }
    }
}

/// The result of a walk of the guest's tables.
pub(super) type Walked = Result<Translation, PartialWalk>;

impl GuestTables {
    pub(super) fn new(format: TableFormat) -> Self {
        Self {
            format,
            slots: Slots::default(),
            arena: Vec::new(),
            entries: Vec::new(),
            free: Vec::new(),
            clock: 0,
            shape: 0,
        }
    }

    /// Forgets all tables, and every path to them.
    pub(super) fn clear(&mut self) {
        let shape = self.shape + 1;
        *self = Self::new(self.format);
        self.shape = shape;
    }

    /// The radix geometry.
    pub fn format(&self) -> TableFormat {
        self.format
    }

    /// The number of entries that the guest has written; it stops at 2^30 - 1.
    pub fn clock(&self) -> u64 {
        self.clock
    }

    /// The level of the table in `frame` (1 is the lowest), or `None` when it holds no table.
    pub fn level(&self, frame: Gfn) -> Option<u8> {
        self.table(frame).map(|table| table.level)
    }

    /// An entry, or `None` when `frame` holds no table or the index lies outside.
    pub fn entry(&self, frame: Gfn, index: u16) -> Option<GuestEntry> {
        let position = self.position(frame)?;
        let entries = self.entries_at(position);
        let bits = *entries.get(usize::from(index))?;
        Some(GuestEntry::unpack(bits))
    }

    pub fn len(&self) -> usize {
        self.arena.len() - self.free.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Pages mapped, of whatever size.
    pub(super) fn pages(&self) -> u64 {
        let small = self.arena.iter().filter(|table| table.level == 1);
        let lower: u64 = small.map(|table| u64::from(table.present)).sum();
        let tables = self.arena.iter().zip(0..);
        let large = tables.filter(|(table, _)| table.level > 1 && table.present > 0);
        let upper = large.flat_map(|(_, position)| self.entries_at(position));
        lower
            + upper
                .filter(|&&bits| bits & PRESENT != 0 && bits & LARGE != 0)
                .count() as u64
    }

    pub(super) fn present(&self, frame: Gfn) -> u16 {
        self.table(frame).map_or(0, |table| table.present)
    }

    /// Makes an empty table in `frame`.
    pub(super) fn add(&mut self, frame: Gfn, level: u8) {
        self.shape += 1;
        let table = Table {
            frame,
            level,
            present: 0,
        };
        let position = if let Some(position) = self.free.pop() {
            self.arena[position as usize] = table;
            let at = self.at(position as usize, 0);
            self.entries[at..][..1 << self.format.index_bits()].fill(0);
            position
        } else {
            self.arena.push(table);
            let entries = self.arena.len() << self.format.index_bits();
            self.entries.resize(entries, 0);
            (self.arena.len() - 1) as u32
        };
        self.slots.set(frame, position + 1);
    }

    pub(super) fn remove(&mut self, frame: Gfn) {
        if let Some(position) = self.position(frame) {
            self.shape += 1;
            self.slots.set(frame, 0);
            self.arena[position].present = 0;
            self.free.push(position as u32);
        }
    }

    /// Writes an entry and stamps it; returns what was there.
    pub(super) fn set(&mut self, frame: Gfn, index: u16, mut entry: GuestEntry) -> GuestEntry {
        self.clock = (self.clock + 1).min(CLOCK_MAX);
        entry.written_at = self.clock;
        let Some(position) = self.position(frame) else {
            return GuestEntry::ABSENT;
        };
        let at = self.at(position, index);
        let slot = &mut self.entries[at];
        let before = GuestEntry::unpack(*slot);
        *slot = entry.pack();
        let table = &mut self.arena[position];
        self.shape += u64::from(table.level > 1);
        table.present += u16::from(entry.present);
        table.present -= u16::from(before.present);
        before
    }

    /// Walks from `root`; sets the accessed bit of the entry it finds, a write the dirty bit too.
    #[inline]
    pub(super) fn walk(&mut self, root: Gfn, address: Gva, write: bool) -> Walked {
        let levels = self.format.levels();
        let mut tables = [Gfn(0); MAX_LEVELS];
        let mut frame = root;
        for step in 0..levels {
            let level = levels - step;
            tables[usize::from(step)] = frame;
            let stop = |protection| PartialWalk {
                tables,
                depth: step + 1,
                protection,
            };
            let Some(position) = self.position(frame) else {
                return Err(stop(false));
            };
            let at = self.at(position, self.format.index(address.0, level));
            let bits = &mut self.entries[at];
            if *bits & PRESENT == 0 {
                return Err(stop(false));
            }
            if level > 1 && *bits & LARGE == 0 {
                frame = GuestEntry::unpack(*bits).frame;
                continue;
            }
            if write {
                if *bits & WRITABLE == 0 {
                    return Err(stop(true));
                }
                *bits |= DIRTY;
            }
            *bits &= !OLD;
            let entry = GuestEntry::unpack(*bits);
            let size = PageSize::ALL[usize::from(level - 1)];
            return Ok(Translation {
                page: Gva(address.0 >> self.format.span(level) << self.format.span(level)),
                frame: entry.frame,
                size,
                writable: entry.writable,
                dirty: entry.dirty,
                tables,
                depth: step + 1,
                written_at: entry.written_at,
            });
        }
        Err(PartialWalk {
            tables,
            depth: levels,
            protection: false,
        })
    }

    /// The path from `root` to the table whose entry maps `address`, if there is one; the entry may
    /// be absent when the table is of level 1.
    pub(super) fn path(&self, root: Gfn, address: Gva) -> Option<Path> {
        let levels = self.format.levels();
        let mut tables = [Gfn(0); MAX_LEVELS];
        let mut frame = root;
        for step in 0..levels {
            let level = levels - step;
            tables[usize::from(step)] = frame;
            let position = self.position(frame)?;
            let bits = self.bits(position, self.format.index(address.0, level));
            if level == 1 || bits & LARGE != 0 {
                let end = End {
                    shape: self.shape,
                    position: position as u32,
                    level,
                };
                return Some(Path {
                    tables,
                    depth: step + 1,
                    end,
                });
            }
            if bits & PRESENT == 0 {
                return None;
            }
            frame = GuestEntry::unpack(bits).frame;
        }
        None
    }

    /// Is the path still valid?
    #[inline]
    pub(super) fn holds(&self, end: &End) -> bool {
        end.shape == self.shape
    }

    /// Where the entry for `address` is at the end of a valid path: an argument of [`Self::leaf`].
    #[inline]
    pub(super) fn leaf_index(&self, end: &End, address: Gva) -> usize {
        let index = self.format.index(address.0, end.level);
        self.at(end.position as usize, index)
    }

    #[inline]
    pub(super) fn leaf(&self, index: usize) -> Leaf {
        Leaf(self.entries.get(index).copied().unwrap_or_default())
    }

    /// All tables below and including `root`, the lowest first.
    pub(super) fn subtree(&self, root: Gfn) -> Vec<Gfn> {
        let mut found = vec![root];
        let mut at = 0;
        while at < found.len() {
            if self.level(found[at]).is_some_and(|level| level > 1) {
                let entries = self.entries(found[at]).map(|(_, entry)| entry);
                let below: Vec<_> = entries.filter(|e| !e.large).map(|e| e.frame).collect();
                found.extend(below);
            }
            at += 1;
        }
        found.reverse();
        found
    }

    /// Indices and contents of the present entries of a table.
    pub(super) fn entries(&self, frame: Gfn) -> impl Iterator<Item = (u16, GuestEntry)> + '_ {
        let position = self.position(frame);
        let entries = position.map_or(&[][..], |position| self.entries_at(position));
        entries.iter().zip(0..).filter_map(|(&bits, index)| {
            let entry = GuestEntry::unpack(bits);
            entry.present.then_some((index, entry))
        })
    }

    /// The index in `entries` of an entry of the table at `position`.
    #[inline]
    fn at(&self, position: usize, index: u16) -> usize {
        (position << self.format.index_bits()) | usize::from(index)
    }

    #[inline]
    fn bits(&self, position: usize, index: u16) -> u64 {
        let bits = self.entries.get(self.at(position, index));
        bits.copied().unwrap_or_default()
    }

    fn entries_at(&self, position: usize) -> &[u64] {
        let at = self.at(position, 0);
        let entries = self.entries.get(at..at + (1 << self.format.index_bits()));
        entries.unwrap_or_default()
    }

    fn position(&self, frame: Gfn) -> Option<usize> {
        (self.slots.get(frame)? as usize).checked_sub(1)
    }

    fn table(&self, frame: Gfn) -> Option<&Table> {
        let table = &self.arena[self.position(frame)?];
        (table.frame == frame).then_some(table)
    }
}
