//! The data caches as the page walker sees them: only lines of page tables, each level LRU.
//!
//! Every level decides on its own (neither inclusive nor exclusive): a reference fills all levels
//! nearer than the one that serves it. A level keeps `pte_ways` lines per set.

// Ways are at most 64; a tag that would not fit 32 bits is refused when the machine is taken.
#![allow(clippy::cast_possible_truncation)]

use crate::error::ModelError;
use crate::model::address::Hpa;
use crate::model::counters::WALK_SOURCES;
use crate::model::machine::CacheLevel;

const EMPTY: u32 = u32::MAX;

/// The cache levels and how many references each of them and memory served.
pub struct DataCaches {
    levels: Vec<Level>,
    served: [u64; WALK_SOURCES],
}

impl DataCaches {
    /// Empty caches for addresses below `end`.
    ///
    /// Fails, naming the level, when its sets times its line are too small for addresses up to
    /// `end`.
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
    /// [`crate::model::counters::WALK_SOURCE_NAMES`].
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

/// The sets, by how many ways they have room for. As in
/// [`super::array::Array`], a tag of its own makes the choice cheap.
#[repr(u8)]
enum Sets {
    One(Lines<1>),
    Four(Lines<4>),
    Eight(Lines<8>),
    Sixteen(Lines<16>),
    Many(Lines<64>),
}

/// The tags of each set, the newest first.
struct Lines<const N: usize> {
    sets: Vec<[u32; N]>,
    ways: usize,
}

impl Level {
    fn new(at: usize, level: &CacheLevel, end: Hpa) -> Result<Self, ModelError> {
        let (line_bits, set_bits) = (level.line.trailing_zeros(), level.sets().trailing_zeros());
        if end.0 >> (line_bits + set_bits) >= u64::from(EMPTY) {
            let reason = "line x sets is too small for the guest's memory";
            return Err(ModelError::field(format!("caches[{at}].bytes"), reason));
        }
        let (count, ways) = (level.sets() as usize, level.pte_ways as usize);
        let sets = match ways {
            0..=1 => Sets::One(Lines::new(count, ways)),
            2..=4 => Sets::Four(Lines::new(count, ways)),
            5..=8 => Sets::Eight(Lines::new(count, ways)),
            9..=16 => Sets::Sixteen(Lines::new(count, ways)),
            _ => Sets::Many(Lines::new(count, ways)),
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
            Sets::One(lines) => lines.read(set, tag),
            Sets::Four(lines) => lines.read(set, tag),
            Sets::Eight(lines) => lines.read(set, tag),
            Sets::Sixteen(lines) => lines.read(set, tag),
            Sets::Many(lines) => lines.read(set, tag),
        }
    }
}

impl<const N: usize> Lines<N> {
    fn new(sets: usize, ways: usize) -> Self {
        Self {
            sets: vec![[EMPTY; N]; sets],
            ways,
        }
    }

    /// Whether the tag was there; it is the newest now.
    #[inline]
    fn read(&mut self, set: usize, tag: u32) -> bool {
        let Some(tags) = self.sets.get_mut(set) else {
            return false;
        };
        // Most references miss. Without an early exit all tags are compared at once, and a shift
        // of fixed length is a few moves.
        let alike: u32 = tags.iter().map(|&held| u32::from(held == tag)).sum();
        let found = alike != 0;
        if found {
            let position = tags.iter().position(|&held| held == tag);
            tags.copy_within(..position.unwrap_or_default(), 1);
        } else {
            tags.copy_within(..N - 1, 1);
        }
        tags[0] = tag;
        if let Some(beyond) = tags.get_mut(self.ways) {
            *beyond = EMPTY;
        }
        found
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
