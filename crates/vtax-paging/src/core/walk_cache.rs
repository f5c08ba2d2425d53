//! Page-walk caches: from an address prefix to the table of the next level.

use super::array::{Array, Key};
use crate::address::TableFormat;
use crate::machine::{Replacement, WalkCache};

/// Levels are 1 to 5; 0 is not used.
const LEVELS: usize = 6;

/// The walk caches of one dimension, by the level whose entries they hold.
pub struct WalkCaches {
    arrays: Vec<Array>,
    /// The place in `arrays` for each level; of two caches for one level the first counts.
    by_level: [Option<u8>; LEVELS],
    format: TableFormat,
}

impl WalkCaches {
    /// Empty caches for tables of `format`.
    pub fn new(caches: &[WalkCache], format: TableFormat) -> Self {
        let mut by_level = [None; LEVELS];
        for (cache, at) in caches.iter().zip(0_u8..) {
            for &level in &cache.levels {
                if let Some(slot) = by_level.get_mut(usize::from(level)) {
                    slot.get_or_insert(at);
                }
            }
        }
        Self {
            arrays: caches.iter().map(array).collect(),
            by_level,
            format,
        }
    }

    /// The lowest level from `leaf` + 1 upwards whose entry for `address` is held: a walk to
    /// `leaf` can go on below it.
    ///
    /// Real walkers ask all levels at once and take the lowest; only that entry counts as used.
    #[inline]
    pub fn deepest(&mut self, address: u64, leaf: u8, space: u16) -> Option<u8> {
        (leaf + 1..=self.format.levels()).find(|&level| {
            let key = self.key(address, level, space);
            self.array(level)
                .is_some_and(|array| array.look_up(key).is_some())
        })
    }

    /// The walk has read the entry of `level` for `address`, which names a table.
    #[inline]
    pub fn insert(&mut self, address: u64, level: u8, space: u16) {
        let key = self.key(address, level, space);
        if let Some(array) = self.array(level) {
            array.insert(key, false);
        }
    }

    /// Walks go through tables of another format from now on.
    pub fn set_format(&mut self, format: TableFormat) {
        self.format = format;
        self.clear();
    }

    /// Takes everything out.
    pub fn clear(&mut self) {
        self.arrays.iter_mut().for_each(Array::clear);
    }

    #[inline]
    fn key(&self, address: u64, level: u8, space: u16) -> Key {
        Key::new(address >> self.format.span(level), level, space)
    }

    #[inline]
    fn array(&mut self, level: u8) -> Option<&mut Array> {
        let at = (*self.by_level.get(usize::from(level))?)?;
        self.arrays.get_mut(usize::from(at))
    }
}

/// The array of one walk cache: LRU.
pub fn array(cache: &WalkCache) -> Array {
    Array::new(cache.entries, cache.ways, Replacement::Lru, 0)
}
