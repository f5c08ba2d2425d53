//! Page-walk caches: from an address prefix to the table of the next level.

use super::array::Array;
use super::tag::Key;
use crate::model::address::{PAGE_SHIFT, TableFormat};
use crate::model::machine::{Replacement, WalkCache};

/// Levels are 1 to 5; 0 is not used.
const LEVELS: usize = 6;
const NO_CACHE: u8 = u8::MAX;

/// The walk caches of one dimension, by the level of the entries that they hold.
pub struct WalkCaches {
    arrays: Vec<Array>,
    /// The index in `arrays` for each level; of two caches for one level, the first is used.
    by_level: [u8; LEVELS],
    index_bits: u32,
}

impl WalkCaches {
    /// Empty caches for tables of `format`.
    pub fn new(caches: &[WalkCache], format: TableFormat) -> Self {
        let mut by_level = [NO_CACHE; LEVELS];
        for (cache, at) in caches.iter().zip(0..NO_CACHE) {
            for &level in &cache.levels {
                if let Some(slot) = by_level.get_mut(usize::from(level)) {
                    *slot = (*slot).min(at);
                }
            }
        }
        Self {
            arrays: caches.iter().map(array).collect(),
            by_level,
            index_bits: format.index_bits(),
        }
    }

    /// The lowest level from `leaf` + 1 to `root` whose entry for `address` is held: a walk to
    /// `leaf` can continue below it.
    ///
    /// Real walkers ask all levels at once and take the lowest; only that entry counts as used.
    #[inline]
    pub fn deepest(&mut self, address: u64, leaf: u8, root: u8, space: u16) -> Option<u8> {
        let mut level = leaf + 1;
        while level <= root {
            let key = self.key(address, level, space);
            if let Some(array) = self.array(level)
                && array.look_up(key, false).is_some()
            {
                return Some(level);
            }
            level += 1;
        }
        None
    }

    /// Records that the walk has read the entry of `level` for `address`, which names a table.
    #[inline]
    pub fn insert(&mut self, address: u64, level: u8, space: u16) {
        let key = self.key(address, level, space);
        if let Some(array) = self.array(level) {
            array.insert(key, false);
        }
    }

    /// Walks go through tables of another format from here on.
    pub fn set_format(&mut self, format: TableFormat) {
        self.index_bits = format.index_bits();
        self.clear();
    }

    pub fn clear(&mut self) {
        self.arrays.iter_mut().for_each(Array::clear);
    }

    #[inline]
    fn key(&self, address: u64, level: u8, space: u16) -> Key {
        let span = PAGE_SHIFT + self.index_bits * (u32::from(level) - 1);
        Key::new(address >> span, level, space)
    }

    #[inline]
    fn array(&mut self, level: u8) -> Option<&mut Array> {
        let at = *self.by_level.get(usize::from(level))?;
        self.arrays.get_mut(usize::from(at))
    }
}

/// The array of a walk cache, with LRU.
pub fn array(cache: &WalkCache) -> Array {
    Array::new(cache.entries, cache.ways, Replacement::Lru, 0)
}
