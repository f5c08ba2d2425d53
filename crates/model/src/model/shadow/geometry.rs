//! How guest tables map to shadow pages.
//!
//! Shadow pages always have 512 eight-byte entries. A guest with 64-bit entries has one shadow
//! page per table. A 32-bit guest's table has 1,024 entries: its page table is shadowed by two
//! pages and its page directory by four, the *quadrants* of the kernel's documentation, under a
//! PAE root of four entries.

use crate::model::address::{Gfn, TableFormat};
use crate::model::guest_event::Translation;

/// Base-2 logarithm of the entries in a shadow page.
pub(super) const INDEX_BITS: u32 = 9;
pub(super) const ENTRIES: usize = 1 << INDEX_BITS;

/// What a shadow page shadows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key {
    /// The guest table's frame, or the first frame that a direct page maps.
    pub(super) frame: Gfn,
    /// The level of the shadow page: 1 holds entries of 4 KiB.
    pub(super) level: u8,
    /// Table, or piece of a large page.
    pub(super) role: Role,
}

/// The two kinds of shadow pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Role {
    /// Shadows a guest table, or the given quarter or half of a 32-bit guest's table.
    Table(u8),
    /// Splits a large page of the guest into smaller ones; no guest table stands behind it. The
    /// guest's single entry decides for all of them whether they may be written.
    Direct {
        /// Is that entry writable and dirty?
        writable: bool,
    },
}

impl Key {
    /// Does a guest table stand behind the page?
    pub(super) const fn is_table(self) -> bool {
        matches!(self.role, Role::Table(_))
    }
}

/// The shape of the shadow tables of one guest format.
#[derive(Clone, Copy, Debug)]
pub(super) struct Geometry {
    format: TableFormat,
}

impl Geometry {
    pub(super) const fn new(format: TableFormat) -> Self {
        Self { format }
    }

    /// The number of shadow levels: the guest's own number; three (PAE) for a 32-bit guest.
    pub(super) const fn levels(self) -> u8 {
        match self.format {
            TableFormat::Two => 3,
            TableFormat::Four => 4,
            TableFormat::Five => 5,
        }
    }

    /// Levels that a walk reads from memory: the processor holds the four entries of a PAE root
    /// in registers since the CR3 load (AMD64 manual volume 2, section 5.2.4).
    pub(super) const fn levels_in_memory(self) -> u8 {
        self.format.levels()
    }

    /// Base-2 logarithm of the bytes that a shadow entry of `level` covers.
    pub(super) const fn span(level: u8) -> u32 {
        crate::model::address::PAGE_SHIFT + INDEX_BITS * (level as u32 - 1)
    }

    /// The index of `address` in a shadow page of `level`.
    #[expect(clippy::cast_possible_truncation)] // nine bits are left
    pub(super) const fn index(address: u64, level: u8) -> usize {
        (address >> Self::span(level)) as usize & (ENTRIES - 1)
    }

    /// The key of the root's shadow page.
    pub(super) const fn root(self, root: Gfn) -> Key {
        Key {
            frame: root,
            level: self.levels(),
            role: Role::Table(0),
        }
    }

    /// The key of the page of `level` on the path to `address` in the guest table of that level.
    #[expect(clippy::cast_possible_truncation)] // two bits are left
    pub(super) const fn table(self, frame: Gfn, level: u8, address: u64) -> Key {
        let quadrant = match (self.format, level) {
            (TableFormat::Two, 1) => (address >> 21) as u8 & 1,
            (TableFormat::Two, 2) => (address >> 30) as u8 & 3,
            _ => 0,
        };
        Key {
            frame,
            level,
            role: Role::Table(quadrant),
        }
    }

    /// The guest table of `level` on the path to `found`.
    pub(super) fn guest_table(self, found: &Translation, level: u8) -> Gfn {
        let step = usize::from(self.format.levels().saturating_sub(level));
        found.tables.get(step).copied().unwrap_or_default()
    }

    /// Does the page shadow a guest table of the same level? The PAE root does not.
    pub(super) const fn mirrors(self, key: Key) -> bool {
        key.is_table() && key.level <= self.format.levels()
    }

    /// The index in the guest table for entry `index` of the page.
    #[expect(clippy::cast_possible_truncation)] // at most ten bits
    pub(super) const fn guest_index(self, key: Key, index: usize) -> u16 {
        let index = index as u16;
        match (self.format, key.level, key.role) {
            (TableFormat::Two, 1, Role::Table(half)) => ((half as u16) << 9) | index,
            (TableFormat::Two, 2, Role::Table(quarter)) => ((quarter as u16) << 8) | (index >> 1),
            _ => index,
        }
    }

    /// The entries of the page that entry `index` of the guest's table determines; there may be
    /// none.
    pub(super) fn shadow_indices(self, key: Key, index: u16) -> std::ops::Range<usize> {
        let index = usize::from(index);
        let own = match key.role {
            Role::Table(quadrant) => usize::from(quadrant),
            Role::Direct { .. } => return 0..0,
        };
        let (quadrant, first, count) = match (self.format, key.level) {
            (TableFormat::Two, 1) => (index >> 9, index & 511, 1),
            (TableFormat::Two, 2) => (index >> 8, (index & 255) * 2, 2),
            _ => (0, index & 511, 1),
        };
        if quadrant == own && self.mirrors(key) {
            first..first + count
        } else {
            0..0
        }
    }

    /// The first frame that a shadow entry of `level` maps for `address`.
    pub(super) const fn frame(self, found: &Translation, address: u64, level: u8) -> Gfn {
        let size = 1 << self.format.span(found.size.level());
        let offset = (address & (size - 1)) >> Self::span(level) << Self::span(level);
        // Wraps only for frames that no guest has.
        Gfn(found
            .frame
            .0
            .wrapping_add(offset >> crate::model::address::PAGE_SHIFT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_32_bit_table_has_two_halves_and_its_directory_four_quarters() {
        let geometry = Geometry::new(TableFormat::Two);
        let address = 0xc060_3000;
        let table = geometry.table(Gfn(7), 1, address);
        let directory = geometry.table(Gfn(8), 2, address);
        assert_eq!(
            (table.role, directory.role),
            (Role::Table(1), Role::Table(3))
        );
        let in_table = TableFormat::Two.index(address, 1);
        let in_directory = TableFormat::Two.index(address, 2);
        assert_eq!(geometry.shadow_indices(table, in_table), 3..4);
        assert_eq!(geometry.shadow_indices(directory, in_directory), 2..4);
        assert_eq!(geometry.guest_index(table, 3), in_table);
        assert_eq!(geometry.guest_index(directory, 3), in_directory);
        assert_eq!(geometry.shadow_indices(table, 0), 0..0);
        assert_eq!(
            geometry.shadow_indices(geometry.root(Gfn(8)), in_directory),
            0..0
        );
    }

    #[test]
    fn a_64_bit_table_and_its_page_have_the_same_indices() {
        let geometry = Geometry::new(TableFormat::Four);
        for level in 1..=4 {
            let key = geometry.table(Gfn(7), level, u64::MAX);
            assert_eq!(geometry.shadow_indices(key, 511), 511..512);
            assert_eq!(geometry.guest_index(key, 511), 511);
        }
    }
}
