//! Sets of any number of ways and any replacement: a search through the ways.
//!
//! These are for what [`super::rings`] do not support: tree pseudo-LRU, random replacement, and LRU
//! with more than 64 ways. Hash buckets instead of the search were not faster on the described
//! machines, whose sets of tree pseudo-LRU have 4 ways.

use super::order;
use super::tag::{Key, Stored};
use crate::model::machine::Replacement;

/// Sets of any number of ways.
pub struct Scanned {
    entries: Vec<Stored>,
    /// LRU: when each way was last used, on a clock that counts uses.
    last_use: Vec<u64>,
    clock: u64,
    /// Tree pseudo-LRU: `words` words per set.
    trees: Vec<u64>,
    words: usize,
    random: u64,
    /// The array's generation when each set was last emptied; sets of older generations are empty.
    generations: Vec<u32>,
    generation: u32,
    mask: u64,
    ways: usize,
    replacement: Replacement,
}

impl Scanned {
    pub fn new(sets: usize, ways: usize, replacement: Replacement, seed: u64) -> Self {
        let words = match replacement {
            Replacement::TreePlru => ways.div_ceil(64),
            _ => 0,
        };
        Self {
            entries: vec![Stored::EMPTY; sets * ways],
            last_use: vec![0; sets * ways],
            clock: 0,
            trees: vec![0; sets * words],
            words,
            random: order::seed(seed),
            generations: vec![0; sets],
            generation: 0,
            mask: sets as u64 - 1,
            ways,
            replacement,
        }
    }

    /// See [`super::array::Array::look_up`].
    #[inline(never)]
    pub fn look_up(&mut self, key: Key, needed: bool) -> Option<bool> {
        let set = self.set(key);
        let way = self.find(set, key)?;
        let entry = self.entries.get_mut(set * self.ways + way)?;
        let flag = entry.flag();
        if needed && !flag {
            *entry = Stored::EMPTY;
            return None;
        }
        self.touch(set, way);
        Some(flag)
    }

    /// See [`super::array::Array::insert`].
    #[inline(never)]
    pub fn insert(&mut self, key: Key, flag: bool) {
        let set = self.set(key);
        let way = self.way(set);
        if let Some(entry) = self.entries.get_mut(set * self.ways + way) {
            *entry = key.with(flag);
        }
        self.touch(set, way);
    }

    /// See [`super::array::Array::remove`].
    pub fn remove(&mut self, key: Key) {
        let set = self.set(key);
        if let Some(way) = self.find(set, key) {
            self.entries[set * self.ways + way] = Stored::EMPTY;
        }
    }

    /// See [`super::array::Array::clear`].
    pub fn clear(&mut self) {
        self.generation = self.generation.wrapping_add(1);
        if self.generation == 0 {
            // A set last used 2^32 generations ago must not become valid again.
            (0..self.generations.len()).for_each(|set| self.empty(set));
        }
    }

    /// The key's set, emptied if that is due.
    #[inline]
    fn set(&mut self, key: Key) -> usize {
        let set = key.set(self.mask);
        if self.generations[set] != self.generation {
            self.empty(set);
        }
        set
    }

    #[cold]
    fn empty(&mut self, set: usize) {
        self.generations[set] = self.generation;
        self.entries[set * self.ways..][..self.ways].fill(Stored::EMPTY);
        self.trees[set * self.words..][..self.words].fill(0);
    }

    #[inline]
    fn find(&self, set: usize, key: Key) -> Option<usize> {
        let entries = &self.entries[set * self.ways..][..self.ways];
        entries.iter().position(|entry| entry.is(key))
    }

    /// The way for a new entry: the lowest empty way, otherwise the way that is replaced.
    #[inline]
    fn way(&mut self, set: usize) -> usize {
        let (first, ways) = (set * self.ways, self.ways);
        let entries = &self.entries[first..][..ways];
        if let Some(empty) = entries.iter().position(|entry| entry.is_empty()) {
            return empty;
        }
        match self.replacement {
            Replacement::Lru => {
                let uses = self.last_use[first..][..ways].iter().zip(0..);
                uses.min().map_or(0, |(_, way)| way)
            }
            Replacement::TreePlru => {
                order::follow(&self.trees[set * self.words..][..self.words], ways)
            }
            Replacement::Random => order::draw(&mut self.random, ways),
        }
    }

    #[inline]
    fn touch(&mut self, set: usize, way: usize) {
        match self.replacement {
            Replacement::Lru => {
                self.clock += 1;
                self.last_use[set * self.ways + way] = self.clock;
            }
            Replacement::TreePlru => {
                let tree = &mut self.trees[set * self.words..][..self.words];
                order::point_away(tree, way, self.ways);
            }
            Replacement::Random => {}
        }
    }
}
