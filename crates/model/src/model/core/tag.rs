//! The keys of entries in TLBs and walk caches.

/// Bits of a key that are the caller's page number; the lowest bits choose the set.
pub const NUMBER_BITS: u32 = 45;
/// The most address spaces that keys can distinguish: PCID has twelve bits.
pub const MAX_SPACES: u16 = 1 << 12;

const NUMBER_MASK: u64 = (1 << NUMBER_BITS) - 1;
const KIND_BITS: u32 = 3;
const FLAG: u64 = 1 << 63;
const EMPTY: u64 = u64::MAX;

/// The key of an entry. It includes the kind (a page size, a level) and the address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(u64);

/// A key with the flag of its entry, or no entry.
#[derive(Clone, Copy, Debug)]
pub struct Stored(u64);

impl Key {
    /// A key; `number` is truncated to [`NUMBER_BITS`], enough for the pages of a 57-bit address.
    #[inline]
    pub const fn new(number: u64, kind: u8, space: u16) -> Self {
        let number = number & NUMBER_MASK;
        let above = (kind as u64 & 7) | ((space as u64 % MAX_SPACES as u64) << KIND_BITS);
        Self(number | (above << NUMBER_BITS))
    }

    /// The key's set; the number of sets is a power of two.
    #[inline]
    #[expect(clippy::cast_possible_truncation)] // sets are at most 2^20
    pub const fn set(self, mask: u64) -> usize {
        (self.0 & mask) as usize
    }

    /// 32 well-mixed bits, which two keys can share.
    #[inline]
    pub const fn hash(self) -> u32 {
        (self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
    }

    /// The entry with its flag.
    #[inline]
    pub const fn with(self, flag: bool) -> Stored {
        Stored(self.0 | if flag { FLAG } else { 0 })
    }
}

impl Stored {
    /// No entry; no key is equal to it.
    pub const EMPTY: Self = Self(EMPTY);

    /// Is it the key's entry?
    #[inline]
    pub const fn is(self, key: Key) -> bool {
        self.0 & !FLAG == key.0
    }

    #[inline]
    pub const fn key(self) -> Key {
        Key(self.0 & !FLAG)
    }

    #[inline]
    pub const fn flag(self) -> bool {
        self.0 & FLAG != 0
    }

    /// Is there no entry?
    pub const fn is_empty(self) -> bool {
        self.0 == EMPTY
    }
}
