//! Two-dimensional walks: every guest table's frame, and the final frame, is translated by the
//! host's tables, through the nested TLB and the walk caches of the host's dimension.
//!
//! A page-walk cache of the guest's dimension names the next table's *host* frame (Intel's combined
//! mappings, SDM volume 3 "Caching translation information"; AMD's 2D page-walk cache, Bhargava et
//! al. 2008), so a hit skips the translation of that table too.

use super::Core;
use super::array::Array;
use super::native::table_of;
use super::tag::Key;
use super::walk_cache::{self, WalkCaches};
use crate::model::address::{Gfn, Gpa, Gva, Hpa, MAX_LEVELS, PageSize, TableFormat};
use crate::model::counters::Exit;
use crate::model::host_pages::HostPages;
use crate::model::machine::WalkCaches as Description;

/// Host address of the host's level-1 entries; 4 TiB of guest memory need 8 GiB of them.
const HOST_TABLES: u64 = 0;
/// Distance between the upper levels' entries, above the level-1 entries. The odd number of pages
/// keeps the levels from all starting in cache set 0; separately allocated tables would not start
/// there either.
const LEVEL_STRIDE: u64 = (1 << 28) + 37 * 4096;
const UPPER_LEVELS: u64 = 1 << 33;

/// The host's side of nested paging. It survives a change of the mode.
pub struct Host {
    levels: u8,
    pub(super) pages: HostPages,
    tlb: Option<Array>,
    walk: WalkCaches,
    /// One bit for each piece of guest memory that has the smallest size of the host's pages: is it
    /// the first of a mapped page?
    mapped: Vec<u64>,
    /// Base-2 logarithm of that size in bytes.
    piece_shift: u32,
}

impl Host {
    /// A host that has mapped nothing yet.
    pub fn new(
        description: &Description,
        tables: TableFormat,
        pages: HostPages,
        bytes: u64,
    ) -> Self {
        let smallest = pages.sizes().min().unwrap_or_default();
        let words = (bytes >> smallest.shift()) / 64 + 1;
        Self {
            levels: tables.levels(),
            pages,
            tlb: description.nested_tlb.as_ref().map(walk_cache::array),
            walk: WalkCaches::new(&description.nested_walk, tables),
            mapped: vec![0; usize::try_from(words).unwrap_or(0)],
            piece_shift: smallest.shift(),
        }
    }

    /// Empties the nested TLB and the walk caches.
    pub fn clear_caches(&mut self) {
        if let Some(tlb) = &mut self.tlb {
            tlb.clear();
        }
        self.walk.clear();
    }

    /// The word and the bit in `mapped` for the page around `address`.
    #[inline]
    fn place(&self, address: Gpa) -> (Option<usize>, u64) {
        let shift = self.pages.at(address).shift();
        let piece = (address.0 >> shift << shift) >> self.piece_shift;
        (usize::try_from(piece / 64).ok(), 1 << (piece % 64))
    }

    /// Is the page around `address` mapped, or can none be?
    #[inline]
    pub fn has(&self, address: Gpa) -> bool {
        let (word, bit) = self.place(address);
        let word = word.and_then(|word| self.mapped.get(word));
        word.is_none_or(|word| word & bit != 0)
    }

    /// Maps the page around `address`; returns whether it was unmapped before. There is nothing
    /// outside the guest's memory.
    #[inline]
    pub fn map(&mut self, address: Gpa) -> bool {
        let (word, bit) = self.place(address);
        let Some(word) = word.and_then(|word| self.mapped.get_mut(word)) else {
            return false;
        };
        let before = *word;
        *word |= bit;
        before != *word
    }
}

/// The key of the host page of this size around `address` in the nested TLB.
#[inline]
const fn key(address: Gpa, size: PageSize) -> Key {
    Key::new(address.0 >> size.shift(), size as u8, 0)
}

/// Where the host's entry of `level` for a guest physical address lies: the entries of one level
/// are dense, in the order of the addresses. Four- and five-level tables have the same entries.
#[inline]
pub const fn host_entry_address(address: Gpa, level: u8) -> Hpa {
    let base = match level {
        1 => HOST_TABLES,
        _ => UPPER_LEVELS + level as u64 * LEVEL_STRIDE,
    };
    Hpa(base + (address.0 >> TableFormat::Four.span(level)) * TableFormat::Four.entry_bytes())
}

impl Core {
    /// A complete two-dimensional walk to the page that holds `data`.
    #[inline]
    pub(super) fn walk_nested(
        &mut self,
        address: Gva,
        tables: &[Gfn; MAX_LEVELS],
        depth: u8,
        data: Gpa,
    ) {
        self.walk_nested_tables(address, tables, depth);
        self.translate(data);
    }

    /// A walk without the final frame: all of it when the guest's entry is absent.
    #[inline]
    pub(super) fn walk_nested_tables(
        &mut self,
        address: Gva,
        tables: &[Gfn; MAX_LEVELS],
        depth: u8,
    ) {
        let leaf = self.guest.leaf(depth);
        let top = self.first_level(address, leaf, self.guest.levels);
        self.walk_guest_tables(address, tables, leaf, top);
    }

    /// Reads the guest's tables from level `top` down to `leaf`.
    ///
    /// Unless the table at `top` is the root, an entry of a page-walk cache or agile paging's
    /// switching entry names it, and both give its host frame.
    #[inline]
    pub(super) fn walk_guest_tables(
        &mut self,
        address: Gva,
        tables: &[Gfn; MAX_LEVELS],
        leaf: u8,
        top: u8,
    ) {
        let radix = self.guest;
        let mut level = top;
        while level >= leaf {
            let table = table_of(tables, radix.levels, level);
            if level == radix.levels || level != top {
                self.translate(table.address());
            }
            self.data.read(radix.entry_address(table, address, level));
            self.remember(address, level, leaf);
            level -= 1;
        }
    }

    /// Finds the host frame of a guest frame, in the nested TLB or by a walk of the host's tables.
    ///
    /// At the first touch of a host page the walk finds nothing and the VMM maps it. The walk then
    /// continues where it was: the references that a real walker repeats are not counted.
    #[inline]
    pub(super) fn translate(&mut self, address: Gpa) {
        let size = self.host.pages.at(address);
        let (key, leaf) = (key(address, size), size.level());
        if let Some(tlb) = &mut self.host.tlb
            && tlb.look_up(key, false).is_some()
        {
            self.tally.walk_cache_hits += 1;
            return;
        }
        if self.host.map(address) {
            self.exit(Exit::NestedFault, self.machine.costs.nested_fault);
        }
        let host = &mut self.host;
        let mut level = host.levels;
        if let Some(held) = host.walk.deepest(address.0, leaf, host.levels, 0) {
            self.tally.walk_cache_hits += 1;
            level = held - 1;
        }
        while level >= leaf {
            self.data.read(host_entry_address(address, level));
            if level > leaf {
                host.walk.insert(address.0, level, 0);
            }
            level -= 1;
        }
        if let Some(tlb) = &mut host.tlb {
            tlb.insert(key, false);
        }
    }
}
