//! The data caches as the page walker sees them: only lines of page tables, each level LRU.
//!
//! Every level decides on its own (neither inclusive nor exclusive): a reference fills all levels
//! nearer than the one that serves it. A level keeps `pte_ways` lines per set.

// Ways are at most 64; a tag that would not fit 32 bits is refused when the machine is taken.
#![allow(clippy::cast_possible_truncation)]

use super::fingerprints::Fingerprints;
use super::order;
use crate::address::Hpa;
use crate::counters::WALK_SOURCES;
use crate::error::ModelError;
use crate::machine::{CacheLevel, Replacement};

const EMPTY: u32 = u32::MAX;

/// The cache levels and how many references each of them and memory served.
pub struct DataCaches {
    levels: Vec<Level>,
    served: [u64; WALK_SOURCES],
}

impl DataCaches {
    /// Empty caches for addresses below `end`.
    pub fn new(levels: &[CacheLevel], end: Hpa) -> Result<Self, ModelError> {
        let levels = levels.iter().enumerate();
        Ok(Self {
            levels: levels
                .map(|(at, level)| Level::new(at, level, end))
                .collect::<Result<_, _>>()?,
            served: [0; WALK_SOURCES],
        })
    }

    /// A reference of the page walker.
    #[inline]
    pub fn read(&mut self, address: Hpa) {
        for (level, served) in self.levels.iter_mut().zip(&mut self.served) {
            if level.read(address) {
                *served += 1;
                return;
            }
        }
        self.served[WALK_SOURCES - 1] += 1;
    }

    /// References by where they were served, in the order of
    /// [`crate::counters::WALK_SOURCE_NAMES`].
    pub fn served(&self) -> [u64; WALK_SOURCES] {
        self.served
    }
}

/// One level.
struct Level {
    line_bits: u32,
    set_bits: u32,
    sets: Sets,
}

/// The sets, by how many ways they have room for.
enum Sets {
    Eight(FewWays<1, 8>),
    Sixteen(FewWays<2, 16>),
    Many(ManyWays),
}

/// At most 16 ways, compared at once.
struct FewWays<const WORDS: usize, const N: usize> {
    sets: Vec<Set<WORDS, N>>,
    ways: u32,
}

#[derive(Clone, Copy)]
struct Set<const WORDS: usize, const N: usize> {
    fingerprints: Fingerprints<WORDS>,
    /// The ways as nibbles, the newest lowest.
    order: u64,
    tags: [u32; N],
}

/// More ways than that: the tags of each set, the newest first.
struct ManyWays {
    tags: Vec<u32>,
    ways: usize,
}

impl Level {
    fn new(at: usize, level: &CacheLevel, end: Hpa) -> Result<Self, ModelError> {
        let (line_bits, set_bits) = (level.line.trailing_zeros(), level.sets().trailing_zeros());
        if end.0 >> (line_bits + set_bits) >= u64::from(EMPTY) {
            let reason = "line x sets is too small for the guest's memory";
            return Err(ModelError::field(format!("caches[{at}].bytes"), reason));
        }
        let (count, ways) = (level.sets() as usize, level.pte_ways);
        let sets = match ways {
            0..=8 => Sets::Eight(FewWays::new(count, ways)),
            9..=16 => Sets::Sixteen(FewWays::new(count, ways)),
            _ => Sets::Many(ManyWays {
                tags: vec![EMPTY; count * ways as usize],
                ways: ways as usize,
            }),
        };
        Ok(Self {
            line_bits,
            set_bits,
            sets,
        })
    }

    #[inline]
    fn read(&mut self, address: Hpa) -> bool {
        let line = address.0 >> self.line_bits;
        let set = (line & ((1 << self.set_bits) - 1)) as usize;
        let tag = (line >> self.set_bits) as u32;
        match &mut self.sets {
            Sets::Eight(sets) => sets.read(set, tag),
            Sets::Sixteen(sets) => sets.read(set, tag),
            Sets::Many(sets) => sets.read(set, tag),
        }
    }
}

impl<const WORDS: usize, const N: usize> FewWays<WORDS, N> {
    fn new(sets: usize, ways: u32) -> Self {
        let set = Set {
            fingerprints: Fingerprints::ZERO,
            order: order::first(Replacement::Lru),
            tags: [EMPTY; N],
        };
        Self {
            sets: vec![set; sets],
            ways: ways.max(1),
        }
    }

    /// Whether the tag was there; it is the newest now.
    #[inline]
    fn read(&mut self, set: usize, tag: u32) -> bool {
        let set = &mut self.sets[set];
        // The high byte of a multiplicative hash: lines of one set differ in any bits.
        let fingerprint = (tag.wrapping_mul(0x9e37_79b1) >> 24) as u8;
        let check = |way: usize| set.tags[way % N] == tag;
        if let Some(way) = set.fingerprints.find(fingerprint, check) {
            set.order = order::to_front(set.order, way as u64);
            return true;
        }
        let way = order::oldest(set.order, self.ways);
        set.tags[way % N] = tag;
        set.fingerprints.set(way, fingerprint);
        set.order = order::insert(set.order, way as u64);
        false
    }
}

impl ManyWays {
    fn read(&mut self, set: usize, tag: u32) -> bool {
        let tags = &mut self.tags[set * self.ways..][..self.ways];
        let found = tags.iter().position(|&held| held == tag);
        let place = found.unwrap_or(self.ways - 1);
        tags.copy_within(..place, 1);
        tags[0] = tag;
        found.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(pte_ways: u32) -> CacheLevel {
        CacheLevel {
            bytes: 64 * 4 * 2,
            ways: 4,
            line: 64,
            latency: 3,
            pte_ways,
        }
    }

    #[test]
    fn a_set_keeps_the_newest_lines() {
        let mut caches = DataCaches::new(&[level(3)], Hpa(1 << 30)).unwrap();
        // Lines 0, 2, 4, 6 share set 0.
        for line in [0, 2, 4, 0, 6, 0, 2] {
            caches.read(Hpa(line * 64));
        }
        assert_eq!(caches.served(), [2, 0, 0, 0, 5]);
    }

    #[test]
    fn a_cache_too_small_for_its_tags_is_refused() {
        let error = DataCaches::new(&[level(1)], Hpa(1 << 40)).err().unwrap();
        assert!(
            error.to_string().starts_with("caches[0].bytes: "),
            "{error}"
        );
    }
}
