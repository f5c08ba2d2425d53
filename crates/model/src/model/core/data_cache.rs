//! The data caches as the page walker sees them: only lines of page tables, each level LRU.
//!
//! Every level decides on its own (neither inclusive nor exclusive): a reference fills all levels
//! nearer than the level that serves it. A level keeps `pte_ways` lines per set.

// Ways are at most 64; a tag that would not fit in 32 bits is refused when the machine is checked.
#![allow(clippy::cast_possible_truncation)]

use super::recency::Recency;
use crate::error::ModelError;
use crate::model::address::Hpa;
use crate::model::counters::WALK_SOURCES;
use crate::model::machine::CacheLevel;

const EMPTY: u32 = u32::MAX;

/// The cache levels, and how many references each level and memory served.
pub struct DataCaches {
    levels: Vec<Level>,
    /// References that no level has seen yet.
    pending: Vec<Hpa>,
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
            pending: Vec::new(),
            served: [0; WALK_SOURCES],
        })
    }

    /// Takes a reference of the page walker, to be served.
    #[inline]
    pub fn read(&mut self, address: Hpa) {
        self.pending.push(address);
    }

    /// Serves the pending references. Nothing else depends on where they are served, so each level
    /// gets all references that the previous level missed.
    pub fn serve(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let mut pending = &mut self.pending[..];
        for (level, served) in self.levels.iter_mut().zip(&mut self.served) {
            let missed = level.serve(pending);
            *served += (pending.len() - missed) as u64;
            pending = &mut pending[..missed];
        }
        self.served[WALK_SOURCES - 1] += pending.len() as u64;
        self.pending.clear();
    }

    /// References by where they were served, in the order of
    /// [`crate::model::counters::WALK_SOURCE_NAMES`].
    pub fn served(&self) -> [u64; WALK_SOURCES] {
        self.served
    }
}

struct Level {
    line_bits: u32,
    set_bits: u32,
    sets: Sets,
}

/// The sets, by the number of ways that they have room for. As in [`super::array::Array`], a
/// separate tag makes the choice cheap.
#[repr(u8)]
enum Sets {
    One(Vec<u32>),
    Four(Ordered<4>),
    Eight(Ordered<8>),
    Sixteen(Ordered<16>),
    Many(Moved<64>),
}

/// Tags that stay where they are, and the order of their uses.
struct Ordered<const N: usize> {
    sets: Vec<[u32; N]>,
    uses: Vec<Recency>,
    /// The position of the oldest way in the order.
    last: u32,
}

/// The tags of each set, the newest first.
struct Moved<const N: usize> {
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
            0..=1 => Sets::One(vec![EMPTY; count]),
            2..=4 => Sets::Four(Ordered::new(count, ways)),
            5..=8 => Sets::Eight(Ordered::new(count, ways)),
            9..=16 => Sets::Sixteen(Ordered::new(count, ways)),
            _ => Sets::Many(Moved::new(count, ways)),
        };
        Ok(Self {
            line_bits,
            set_bits,
            sets,
        })
    }

    /// Moves the references that this level misses to the front, in order; returns how many they
    /// are.
    fn serve(&mut self, pending: &mut [Hpa]) -> usize {
        let split = Split {
            line_bits: self.line_bits,
            set_bits: self.set_bits,
        };
        match &mut self.sets {
            Sets::One(tags) => split.serve(pending, |set, tag| replace(tags, set, tag)),
            Sets::Four(sets) => split.serve(pending, |set, tag| sets.read(set, tag)),
            Sets::Eight(sets) => split.serve(pending, |set, tag| sets.read(set, tag)),
            Sets::Sixteen(sets) => split.serve(pending, |set, tag| sets.read(set, tag)),
            Sets::Many(sets) => split.serve(pending, |set, tag| sets.read(set, tag)),
        }
    }
}

/// How a level divides an address.
#[derive(Clone, Copy)]
struct Split {
    line_bits: u32,
    set_bits: u32,
}

impl Split {
    /// The set, and the tag in it.
    #[inline]
    const fn of(self, address: Hpa) -> (usize, u32) {
        let line = address.0 >> self.line_bits;
        let set = line & ((1 << self.set_bits) - 1);
        (set as usize, (line >> self.set_bits) as u32)
    }

    /// Moves the references that are not found to the front, in order; returns how many they are.
    #[inline]
    fn serve(self, pending: &mut [Hpa], mut read: impl FnMut(usize, u32) -> bool) -> usize {
        let mut missed = 0;
        for at in 0..pending.len() {
            let address = pending[at];
            let (set, tag) = self.of(address);
            pending[missed] = address;
            missed += usize::from(!read(set, tag));
        }
        missed
    }
}

/// For sets of one way: was the tag there? It is afterwards.
#[inline]
fn replace(tags: &mut [u32], set: usize, tag: u32) -> bool {
    tags.get_mut(set)
        .is_some_and(|held| std::mem::replace(held, tag) == tag)
}

impl<const N: usize> Ordered<N> {
    fn new(sets: usize, ways: usize) -> Self {
        Self {
            sets: vec![[EMPTY; N]; sets],
            uses: vec![Recency::START; sets],
            last: ways as u32 - 1,
        }
    }

    /// Was the tag there? It is the newest afterwards.
    ///
    /// Hits and misses come in an order that a processor cannot predict, so both take the same
    /// path.
    #[inline]
    fn read(&mut self, set: usize, tag: u32) -> bool {
        let (Some(tags), Some(uses)) = (self.sets.get_mut(set), self.uses.get_mut(set)) else {
            return false;
        };
        let mut alike = 0_u32;
        for (held, way) in tags.iter().zip(0..) {
            alike |= u32::from(*held == tag) << way;
        }
        let found = alike != 0;
        let oldest = uses.at(self.last);
        let way = if found {
            alike.trailing_zeros()
        } else {
            oldest
        };
        uses.touch(way);
        tags[way as usize % N] = tag;
        found
    }
}

impl<const N: usize> Moved<N> {
    fn new(sets: usize, ways: usize) -> Self {
        Self {
            sets: vec![[EMPTY; N]; sets],
            ways,
        }
    }

    /// Was the tag there? It is the newest afterwards.
    fn read(&mut self, set: usize, tag: u32) -> bool {
        let Some(tags) = self.sets.get_mut(set) else {
            return false;
        };
        let found = tags.iter().position(|&held| held == tag);
        tags.copy_within(..found.unwrap_or(N - 1), 1);
        tags[0] = tag;
        if let Some(beyond) = tags.get_mut(self.ways) {
            *beyond = EMPTY;
        }
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
        caches.serve();
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
