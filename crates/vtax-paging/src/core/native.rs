//! One-dimensional walks: native tables and shadow tables.

use super::Core;
use crate::address::{Gfn, Gpa, Gva, Hpa, MAX_LEVELS, TableFormat};

/// Host address of guest frame 0. Guest memory is contiguous above it and the host's tables lie
/// below: a simplification that costs nothing but the host's own placement noise.
pub const GUEST_BASE: Hpa = Hpa(1 << 34);

/// Where a guest physical address lies in host memory.
#[inline]
pub const fn host_address(address: Gpa) -> Hpa {
    Hpa(GUEST_BASE.0.wrapping_add(address.0))
}

/// The host address of the entry for `address` in the guest's `table` of `level`.
#[inline]
pub(super) fn entry_address(format: TableFormat, table: Gfn, address: Gva, level: u8) -> Hpa {
    let offset = u64::from(format.index(address.0, level)) * format.entry_bytes();
    host_address(Gpa(table.address().0.wrapping_add(offset)))
}

impl Core {
    /// Walks the guest's tables directly: `depth` tables, root first.
    #[inline]
    pub(super) fn walk_native(&mut self, address: Gva, tables: &[Gfn; MAX_LEVELS], depth: u8) {
        let format = self.guest_tables;
        let leaf = leaf_level(format, depth);
        let top = self.first_level(address, leaf, format.levels());
        for level in (leaf..=top).rev() {
            let table = tables[usize::from(format.levels() - level)];
            self.data.read(entry_address(format, table, address, level));
            self.remember(address, level, leaf);
        }
    }

    /// The level whose table a walk to `leaf` reads first, with the page-walk caches' help.
    #[inline]
    pub(super) fn first_level(&mut self, address: Gva, leaf: u8, root: u8) -> u8 {
        let space = self.spaces.current();
        match self.page_walk.deepest(address.0, leaf, space) {
            Some(level) => {
                self.tally.walk_cache_hits += 1;
                level - 1
            }
            None => root,
        }
    }

    /// The walk read an entry above its leaf: the page-walk caches keep it.
    #[inline]
    pub(super) fn remember(&mut self, address: Gva, level: u8, leaf: u8) {
        if level > leaf {
            let space = self.spaces.current();
            self.page_walk.insert(address.0, level, space);
        }
    }
}

/// The level of the last of `depth` tables of a walk.
#[inline]
pub(super) fn leaf_level(format: TableFormat, depth: u8) -> u8 {
    format
        .levels()
        .saturating_sub(depth)
        .saturating_add(1)
        .max(1)
}
