//! The data caches as the page walker sees them: only lines of page tables, each level LRU.
//!
//! Every level decides on its own (neither inclusive nor exclusive): a reference fills all levels
//! nearer than the one that serves it. A level keeps `pte_ways` lines per set.

// Ways are at most 64; a tag that would not fit 32 bits is refused when the machine is taken.
#![allow(clippy::cast_possible_truncation)]

use crate::address::Hpa;
use crate::counters::WALK_SOURCES;
use crate::error::ModelError;
use crate::machine::CacheLevel;

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

/// One level: for each set its tags, the newest first.
struct Level {
    line_bits: u32,
    set_bits: u32,
    last: u32,
    sets: Sets,
}

/// Sets by the number of tags they have room for, so that a set is compared and moved as a whole.
enum Sets {
    Two(Vec<[u32; 2]>),
    Four(Vec<[u32; 4]>),
    Eight(Vec<[u32; 8]>),
    Sixteen(Vec<[u32; 16]>),
    Many(Vec<[u32; 64]>),
}

impl Level {
    fn new(at: usize, level: &CacheLevel, end: Hpa) -> Result<Self, ModelError> {
        let (line_bits, set_bits) = (level.line.trailing_zeros(), level.sets().trailing_zeros());
        if end.0 >> (line_bits + set_bits) >= u64::from(EMPTY) {
            let reason = "line x sets is too small for the guest's memory";
            return Err(ModelError::field(format!("caches[{at}].bytes"), reason));
        }
        let count = level.sets() as usize;
        let sets = match level.pte_ways {
            0..=2 => Sets::Two(vec![[EMPTY; 2]; count]),
            3..=4 => Sets::Four(vec![[EMPTY; 4]; count]),
            5..=8 => Sets::Eight(vec![[EMPTY; 8]; count]),
            9..=16 => Sets::Sixteen(vec![[EMPTY; 16]; count]),
            _ => Sets::Many(vec![[EMPTY; 64]; count]),
        };
        Ok(Self {
            line_bits,
            set_bits,
            last: level.pte_ways.saturating_sub(1),
            sets,
        })
    }

    #[inline]
    fn read(&mut self, address: Hpa) -> bool {
        let line = address.0 >> self.line_bits;
        let set = (line & ((1 << self.set_bits) - 1)) as usize;
        let tag = (line >> self.set_bits) as u32;
        match &mut self.sets {
            Sets::Two(sets) => to_front(&mut sets[set], tag, self.last),
            Sets::Four(sets) => to_front(&mut sets[set], tag, self.last),
            Sets::Eight(sets) => to_front(&mut sets[set], tag, self.last),
            Sets::Sixteen(sets) => to_front(&mut sets[set], tag, self.last),
            Sets::Many(sets) => to_front(&mut sets[set], tag, self.last),
        }
    }
}

/// Makes `tag` the newest of a set, dropping the one at `last` if it was absent; whether it was
/// there. No branch depends on the outcome: in random walks it could not be predicted.
#[inline]
fn to_front<const N: usize>(set: &mut [u32; N], tag: u32, last: u32) -> bool {
    let old = *set;
    let mut matches = 0_u64;
    for (way, &held) in old.iter().enumerate() {
        matches |= u64::from(held == tag) << way;
    }
    let place = (matches | 1 << last).trailing_zeros();
    for way in 1..N {
        set[way] = if way as u32 <= place {
            old[way - 1]
        } else {
            old[way]
        };
    }
    set[0] = tag;
    matches != 0
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
