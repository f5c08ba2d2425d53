//! A set-associative or fully associative array of tags: what TLBs and walk caches are made of.
//!
//! The model computes every address anew from the guest's tables, so an entry needs no payload but
//! one bit (whether the translation allows writes): presence is all that decides hits and misses.

// Slots and ways are below 2^21, set numbers below 2^20.
#![allow(clippy::cast_possible_truncation)]

use super::order::{FEW_WAYS, Order};
use crate::machine::Replacement;

/// Bits of a key that are the caller's page number; the lowest of them choose the set.
pub const NUMBER_BITS: u32 = 45;
/// Most address spaces a key can tell apart: PCID has twelve bits.
pub const MAX_SPACES: u16 = 1 << 12;

const NUMBER_MASK: u64 = (1 << NUMBER_BITS) - 1;
const KIND_BITS: u32 = 3;
const FLAG: u64 = 1 << 63;
const EMPTY: u64 = u64::MAX;
const NONE: u32 = u32::MAX;
/// Slots of a set are scanned in chunks of this many 32-bit fingerprints (one SSE register).
const CHUNK: usize = 4;

/// What an entry is found by. The kind (a page size, a level) and the address space belong to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(u64);

impl Key {
    /// A key; `number` is cut to [`NUMBER_BITS`], enough for the pages of a 57-bit address.
    #[inline]
    pub const fn new(number: u64, kind: u8, space: u16) -> Self {
        let number = number & NUMBER_MASK;
        let above = (kind as u64 & 7) | ((space as u64 % MAX_SPACES as u64) << KIND_BITS);
        Self(number | (above << NUMBER_BITS))
    }

    #[inline]
    const fn fingerprint(self) -> u32 {
        (self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
    }
}

/// An array of tags.
pub struct Array {
    ways: usize,
    /// Slots between two sets: the ways, rounded up to a chunk when scanned.
    stride: usize,
    set_mask: u64,
    generation: u32,
    sets: Vec<Set>,
    keys: Vec<u64>,
    finder: Finder,
    order: Order,
}

#[derive(Clone, Copy)]
struct Set {
    /// The array's generation when the set was last emptied; sets of older ones are empty.
    generation: u32,
    /// Ways used since then; those above are empty.
    used: u32,
    /// Ways below `used` that were emptied one by one.
    holes: u32,
}

/// How a key's slot is found.
enum Finder {
    /// Few ways: compare the fingerprints of all, then the key of a match.
    Scan(Vec<u32>),
    /// Many ways: hash buckets.
    Buckets(Buckets),
}

struct Buckets {
    /// The first slot of each bucket; meaningless unless that slot is in use and says the same.
    heads: Vec<u32>,
    chains: Vec<Chain>,
    /// Base-2 logarithm of the buckets of one set.
    bits: u32,
}

#[derive(Clone, Copy)]
struct Chain {
    bucket: u32,
    next: u32,
}

impl Array {
    /// An empty array. The geometry has passed [`crate::machine::Machine::check`].
    pub fn new(entries: u32, ways: u32, replacement: Replacement, seed: u64) -> Self {
        let ways = (ways as usize).max(1);
        let count = (entries as usize / ways).max(1);
        let few = ways <= FEW_WAYS;
        let stride = if few {
            ways.next_multiple_of(CHUNK)
        } else {
            ways
        };
        let empty = Set {
            generation: 0,
            used: 0,
            holes: 0,
        };
        let finder = if few {
            Finder::Scan(vec![0; count * stride])
        } else {
            Finder::Buckets(Buckets::new(count, ways))
        };
        Self {
            ways,
            stride,
            set_mask: count as u64 - 1,
            generation: 0,
            sets: vec![empty; count],
            keys: vec![EMPTY; count * stride],
            finder,
            order: Order::new(replacement, count, ways, seed),
        }
    }

    /// Whether the key is there, counting as a use; with its flag.
    #[inline]
    pub fn look_up(&mut self, key: Key) -> Option<bool> {
        self.look_up_if(key, false)
    }

    /// The same, but an entry without the flag is not there when the flag is `needed`.
    #[inline]
    pub fn look_up_if(&mut self, key: Key, needed: bool) -> Option<bool> {
        let set = self.set(key);
        let slot = self.find(set, key)?;
        let flag = self.keys[slot] & FLAG != 0;
        if needed && !flag {
            return None;
        }
        self.order
            .touch(set, slot - set * self.stride, self.ways, false);
        Some(flag)
    }

    /// Puts the key in, or changes the flag of the entry that is there.
    #[inline]
    pub fn insert(&mut self, key: Key, flag: bool) {
        let set = self.set(key);
        let stored = key.0 | if flag { FLAG } else { 0 };
        if let Some(slot) = self.find(set, key) {
            self.keys[slot] = stored;
            self.order
                .touch(set, slot - set * self.stride, self.ways, false);
            return;
        }
        let (way, fresh) = self.way(set);
        let slot = set * self.stride + way;
        match &mut self.finder {
            Finder::Scan(fingerprints) => fingerprints[slot] = key.fingerprint(),
            Finder::Buckets(buckets) => {
                if !fresh {
                    buckets.unlink(slot);
                }
                let base = set * self.stride;
                buckets.link(set, slot, key, base..base + self.sets[set].used as usize);
            }
        }
        self.keys[slot] = stored;
        self.order.touch(set, way, self.ways, fresh);
    }

    /// Takes one key out.
    pub fn remove(&mut self, key: Key) {
        let set = self.set(key);
        if let Some(slot) = self.find(set, key) {
            if let Finder::Buckets(buckets) = &mut self.finder {
                buckets.unlink(slot);
            }
            self.keys[slot] = EMPTY;
            self.sets[set].holes += 1;
        }
    }

    /// Takes everything out; sets notice when they are next used.
    pub fn clear(&mut self) {
        self.generation = self.generation.wrapping_add(1);
        if self.generation == 0 {
            // A set last used 2^32 generations ago must not come back to life.
            (0..self.sets.len()).for_each(|set| self.empty(set));
        }
    }

    /// The key's set, emptied if that is due.
    #[inline]
    fn set(&mut self, key: Key) -> usize {
        let set = (key.0 & self.set_mask) as usize;
        if self.sets[set].generation != self.generation {
            self.empty(set);
        }
        set
    }

    #[cold]
    fn empty(&mut self, set: usize) {
        self.sets[set] = Set {
            generation: self.generation,
            used: 0,
            holes: 0,
        };
        if matches!(self.finder, Finder::Scan(_)) {
            self.keys[set * self.stride..][..self.stride].fill(EMPTY);
        }
        self.order.reset(set);
    }

    #[inline]
    fn find(&self, set: usize, key: Key) -> Option<usize> {
        let base = set * self.stride;
        match &self.finder {
            Finder::Scan(fingerprints) => {
                let keys = &self.keys[base..][..self.stride];
                let way = scan(&fingerprints[base..][..self.stride], keys, key)?;
                Some(base + way)
            }
            Finder::Buckets(buckets) => {
                let used = base..base + self.sets[set].used as usize;
                let mut slot = buckets.first(set, key, &used)?;
                while self.keys[slot] & !FLAG != key.0 {
                    let next = buckets.chains[slot].next;
                    if next == NONE {
                        return None;
                    }
                    slot = next as usize;
                }
                Some(slot)
            }
        }
    }

    /// A way for a new entry, and whether it was never used since the set was emptied. Empty ways
    /// are filled, the lowest first, before any entry goes.
    #[inline]
    fn way(&mut self, set: usize) -> (usize, bool) {
        let state = &mut self.sets[set];
        if state.holes > 0 {
            state.holes -= 1;
            let ways = &self.keys[set * self.stride..][..state.used as usize];
            let hole = ways.iter().position(|&key| key == EMPTY);
            return (hole.unwrap_or_default(), false);
        }
        if (state.used as usize) < self.ways {
            state.used += 1;
            return (state.used as usize - 1, true);
        }
        (self.order.victim(set, self.ways), false)
    }
}

/// The way that holds `key`. Two keys can share a fingerprint, so the key itself decides.
#[inline]
fn scan(fingerprints: &[u32], keys: &[u64], key: Key) -> Option<usize> {
    let wanted = key.fingerprint();
    let mut matches = 0_u32;
    for (at, chunk) in fingerprints.as_chunks::<CHUNK>().0.iter().enumerate() {
        let bits = std::array::from_fn::<u32, CHUNK, _>(|i| u32::from(chunk[i] == wanted) << i);
        matches |= (bits[0] | bits[1] | bits[2] | bits[3]) << (CHUNK * at);
    }
    while matches != 0 {
        let way = matches.trailing_zeros() as usize;
        if keys[way] & !FLAG == key.0 {
            return Some(way);
        }
        matches &= matches - 1;
    }
    None
}

impl Buckets {
    fn new(sets: usize, ways: usize) -> Self {
        // Sparse buckets make an absent key an empty bucket nearly always; large arrays are kept
        // small instead.
        let per_way = if ways <= 256 { 8 } else { 2 };
        let bits = (ways * per_way).next_power_of_two().trailing_zeros();
        let chain = Chain {
            bucket: NONE,
            next: NONE,
        };
        Self {
            heads: vec![NONE; sets << bits],
            chains: vec![chain; sets * ways],
            bits,
        }
    }

    #[inline]
    fn bucket(&self, set: usize, key: Key) -> usize {
        (set << self.bits) | (key.fingerprint() >> (32 - self.bits)) as usize
    }

    /// The first slot of the key's bucket, among the slots in use.
    #[inline]
    fn first(&self, set: usize, key: Key, used: &std::ops::Range<usize>) -> Option<usize> {
        let bucket = self.bucket(set, key);
        let slot = self.heads[bucket] as usize;
        (used.contains(&slot) && self.chains[slot].bucket as usize == bucket).then_some(slot)
    }

    #[inline]
    fn link(&mut self, set: usize, slot: usize, key: Key, used: std::ops::Range<usize>) {
        // The slot itself is in use already, but in no bucket: a head that names it is stale.
        self.chains[slot].bucket = NONE;
        let next = self.first(set, key, &used).map_or(NONE, |slot| slot as u32);
        let bucket = self.bucket(set, key);
        self.chains[slot] = Chain {
            bucket: bucket as u32,
            next,
        };
        self.heads[bucket] = slot as u32;
    }

    /// Takes a slot out of its bucket, if it is in one.
    #[inline]
    fn unlink(&mut self, slot: usize) {
        let Chain { bucket, next } = self.chains[slot];
        self.chains[slot].bucket = NONE;
        let Some(head) = self.heads.get_mut(bucket as usize) else {
            return;
        };
        if *head == slot as u32 {
            *head = next;
            return;
        }
        let mut at = *head as usize;
        while let Some(chain) = self.chains.get_mut(at) {
            if chain.next == slot as u32 {
                chain.next = next;
                return;
            }
            at = chain.next as usize;
        }
    }
}
