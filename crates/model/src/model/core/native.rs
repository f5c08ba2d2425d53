//! One-dimensional walks: native tables and shadow tables.

use super::Core;
use crate::model::address::{Gfn, Gpa, Gva, Hpa, MAX_LEVELS, PAGE_SHIFT, TableFormat};

/// Host address of guest frame 0. Guest memory is contiguous above it; the host's tables and the
/// shadow pages lie below. Host placement noise is not modelled.
pub const GUEST_BASE: Hpa = Hpa(1 << 37);

/// Where a guest physical address lies in host memory.
#[inline]
pub const fn host_address(address: Gpa) -> Hpa {
    Hpa(GUEST_BASE.0.wrapping_add(address.0))
}

/// The geometry of a guest's tables in the form that a walk needs.
#[derive(Clone, Copy)]
pub(super) struct Radix {
    pub(super) levels: u8,
    index_bits: u32,
    /// Base-2 logarithm of the bytes of an entry.
    entry_bits: u32,
}

impl Radix {
    pub(super) const fn new(format: TableFormat) -> Self {
        Self {
            levels: format.levels(),
            index_bits: format.index_bits(),
            entry_bits: format.entry_bytes().trailing_zeros(),
        }
    }

    /// The host address of the entry for `address` in `table` of `level`.
    #[inline]
    pub(super) const fn entry_address(self, table: Gfn, address: Gva, level: u8) -> Hpa {
        let span = PAGE_SHIFT + self.index_bits * (level as u32 - 1);
        let index = (address.0 >> span) & ((1 << self.index_bits) - 1);
        let offset = index << self.entry_bits;
        host_address(Gpa(table.address().0.wrapping_add(offset)))
    }

    /// The level of the last of `depth` tables of a walk.
    #[inline]
    pub(super) const fn leaf(self, depth: u8) -> u8 {
        let leaf = (self.levels + 1).saturating_sub(depth);
        if leaf == 0 { 1 } else { leaf }
    }
}

impl Core {
    /// Walks the guest's tables directly: `depth` tables, root first.
    #[inline]
    pub(super) fn walk_native(&mut self, address: Gva, tables: &[Gfn; MAX_LEVELS], depth: u8) {
        let radix = self.guest;
        let leaf = radix.leaf(depth);
        let mut level = self.first_level(address, leaf, radix.levels);
        while level >= leaf {
            let table = table_of(tables, radix.levels, level);
            let entry = radix.entry_address(table, address, level);
            self.data.read(entry);
            if let Some(counts) = &mut self.entries {
                counts.read(entry, address, level == leaf);
            }
            self.remember(address, level, leaf);
            level -= 1;
        }
    }

    /// The level whose table a walk to `leaf` reads first, with the help of the page-walk caches.
    #[inline]
    pub(super) fn first_level(&mut self, address: Gva, leaf: u8, root: u8) -> u8 {
        let space = self.spaces.current();
        match self.page_walk.deepest(address.0, leaf, root, space) {
            Some(level) => {
                self.tally.walk_cache_hits += 1;
                level - 1
            }
            None => root,
        }
    }

    /// A walk read an entry above its leaf: the page-walk caches keep it.
    #[inline]
    pub(super) fn remember(&mut self, address: Gva, level: u8, leaf: u8) {
        if level > leaf {
            let space = self.spaces.current();
            self.page_walk.insert(address.0, level, space);
        }
    }
}

/// The table of `level` in a walk's tables, root first.
#[inline]
pub(super) fn table_of(tables: &[Gfn; MAX_LEVELS], levels: u8, level: u8) -> Gfn {
    let step = usize::from(levels.wrapping_sub(level));
    tables.get(step).copied().unwrap_or_default()
}
