//! Addresses, page sizes and the radix geometry of page tables.

use serde::{Deserialize, Serialize};

use crate::error::ModelError;

/// Base-2 logarithm of the smallest page.
pub const PAGE_SHIFT: u32 = 12;
/// Addresses from here on are the kernel's, or belong to no one.
pub const USER_END: u64 = 1 << 47;
/// Most levels a page table can have (5-level paging).
pub const MAX_LEVELS: usize = 5;

/// A guest virtual address in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gva(pub u64);

/// A guest physical address in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gpa(pub u64);

/// A host physical address in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hpa(pub u64);

/// A guest frame number: a guest physical address divided by 4 KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gfn(pub u64);

impl Gfn {
    /// The first byte of the frame.
    pub const fn address(self) -> Gpa {
        Gpa(self.0 << PAGE_SHIFT)
    }
}

/// One data reference of the guest: an address whose bit 0 says whether the reference writes.
///
/// Translation works on pages, so the lowest address bit is free for this.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reference(u64);

impl Reference {
    /// A load or a store at `address`.
    pub const fn new(address: Gva, write: bool) -> Self {
        Self((address.0 & !1) | write as u64)
    }

    /// The address, its lowest bit cleared.
    pub const fn address(self) -> Gva {
        Gva(self.0 & !1)
    }

    pub const fn write(self) -> bool {
        self.0 & 1 == 1
    }
}

/// The size of a page: of the guest's mappings, of the host's, or of a TLB entry.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum PageSize {
    /// 4 KiB.
    #[default]
    #[serde(rename = "4K")]
    K4,
    /// 2 MiB (4 MiB in a two-level table: see [`TableFormat::span`]).
    #[serde(rename = "2M")]
    M2,
    /// 1 GiB.
    #[serde(rename = "1G")]
    G1,
}

impl PageSize {
    /// All sizes, smallest first; the position is the index in per-size arrays.
    pub const ALL: [Self; 3] = [Self::K4, Self::M2, Self::G1];

    /// The level of the entry that maps such a page: 1 is the lowest.
    pub const fn level(self) -> u8 {
        match self {
            Self::K4 => 1,
            Self::M2 => 2,
            Self::G1 => 3,
        }
    }

    /// Base-2 logarithm of the size in bytes, as TLBs hold it.
    pub const fn shift(self) -> u32 {
        match self {
            Self::K4 => 12,
            Self::M2 => 21,
            Self::G1 => 30,
        }
    }
}

/// The radix geometry of a page table: AMD64 manual volume 2, chapter 5.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum TableFormat {
    /// 32-bit paging without PAE: two levels of 1,024 four-byte entries.
    #[serde(rename = "2")]
    Two,
    /// Four levels of 512 eight-byte entries.
    #[default]
    #[serde(rename = "4")]
    Four,
    /// Five levels of 512 eight-byte entries.
    #[serde(rename = "5")]
    Five,
}

impl TableFormat {
    /// The number of levels that a walk to a 4 KiB page reads.
    pub const fn levels(self) -> u8 {
        match self {
            Self::Two => 2,
            Self::Four => 4,
            Self::Five => 5,
        }
    }

    /// Base-2 logarithm of the entries in one table.
    pub const fn index_bits(self) -> u32 {
        match self {
            Self::Two => 10,
            Self::Four | Self::Five => 9,
        }
    }

    pub const fn entry_bytes(self) -> u64 {
        match self {
            Self::Two => 4,
            Self::Four | Self::Five => 8,
        }
    }

    /// Base-2 logarithm of the bytes that one entry of `level` (1 is the lowest) covers.
    pub const fn span(self, level: u8) -> u32 {
        PAGE_SHIFT + self.index_bits() * (level as u32 - 1)
    }

    /// The index in a table of `level` for `address`.
    #[expect(clippy::cast_possible_truncation)] // at most ten bits are left
    pub const fn index(self, address: u64, level: u8) -> u16 {
        ((address >> self.span(level)) & ((1 << self.index_bits()) - 1)) as u16
    }

    /// How many references a walk to a page of `size` makes: one for each level down to the page's
    /// entry.
    pub const fn walk_length(self, size: PageSize) -> u8 {
        self.levels() - size.level() + 1
    }

    /// Base-2 logarithm of the address space.
    pub const fn address_bits(self) -> u32 {
        self.span(self.levels()) + self.index_bits()
    }

    /// Fails when the format has no page of `size`.
    pub fn check(self, size: PageSize) -> Result<(), ModelError> {
        if matches!((self, size), (Self::Two, PageSize::G1)) {
            return Err(ModelError::field(
                "pages",
                "a two-level table has no 1G pages",
            ));
        }
        Ok(())
    }
}

/// Memory references of one walk without any cache: (g+1)(h+1)-1 for g guest and h host levels.
///
/// With `host_levels` 0 it is the one-dimensional walk of a native or shadow table. Bhargava et
/// al., ASPLOS 2008; the DAV2M paper's section 2 gives 24 for 4 x 4.
pub const fn walk_references(guest_levels: u8, host_levels: u8) -> u32 {
    (guest_levels as u32 + 1) * (host_levels as u32 + 1) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_four_classic_walks_have_their_published_lengths() {
        let cases = [
            (4, 4, 24),
            (4, 3, 19),
            (3, 4, 19),
            (3, 3, 15),
            (5, 5, 35),
            (4, 0, 4),
        ];
        for (guest, host, references) in cases {
            assert_eq!(walk_references(guest, host), references, "{guest} x {host}");
        }
    }

    #[test]
    fn a_reference_keeps_its_address_and_its_direction() {
        let store = Reference::new(Gva(0x7fff_1235), true);
        assert_eq!((store.address(), store.write()), (Gva(0x7fff_1234), true));
        assert!(!Reference::new(Gva(0x7fff_1235), false).write());
    }

    #[test]
    fn geometry_of_the_three_formats() {
        assert_eq!(TableFormat::Two.span(2), 22);
        assert_eq!(TableFormat::Four.span(4), 39);
        assert_eq!(TableFormat::Five.address_bits(), 57);
        assert_eq!(TableFormat::Four.walk_length(PageSize::M2), 3);
        assert_eq!(TableFormat::Four.index(0x0000_7fff_ffff_f000, 4), 255);
    }
}
