//! Sets of up to 16 ways: all ways are compared at once, and the order of use fits one word.

// Ways are at most 16.
#![allow(clippy::cast_possible_truncation)]

use super::array::{Key, Stored};
use super::fingerprints::Fingerprints;
use super::order;
use crate::machine::Replacement;

/// Sets with room for `N` ways, eight per word.
pub struct FewWays<const WORDS: usize, const N: usize> {
    sets: Vec<Set<WORDS>>,
    /// Apart from the sets, because they are read only for a candidate.
    entries: Vec<[Stored; N]>,
    mask: u64,
    ways: u32,
    generation: u32,
    replacement: Replacement,
    random: u64,
}

#[derive(Clone, Copy)]
struct Set<const WORDS: usize> {
    fingerprints: Fingerprints<WORDS>,
    /// LRU: the ways as nibbles, the newest lowest. Tree pseudo-LRU: the tree's bits.
    order: u64,
    /// The array's generation when the set was last emptied; sets of older ones are empty.
    generation: u32,
    /// One bit per empty way.
    free: u32,
}

impl<const WORDS: usize, const N: usize> FewWays<WORDS, N> {
    /// Empty sets.
    pub fn new(sets: usize, ways: usize, replacement: Replacement, seed: u64) -> Self {
        let set = Set {
            fingerprints: Fingerprints::ZERO,
            order: order::first(replacement),
            generation: 0,
            free: (1 << ways) - 1,
        };
        Self {
            sets: vec![set; sets],
            entries: vec![[Stored::EMPTY; N]; sets],
            mask: sets as u64 - 1,
            ways: ways as u32,
            generation: 0,
            replacement,
            random: order::seed(seed),
        }
    }

    /// See [`super::array::Array::look_up`].
    #[inline]
    pub fn look_up(&mut self, key: Key, needed: bool) -> Option<bool> {
        let set = self.set(key);
        let way = self.find(set, key)?;
        let flag = self.entries[set][way % N].flag();
        if needed && !flag {
            self.empty_way(set, way);
            return None;
        }
        self.touch(set, way);
        Some(flag)
    }

    /// See [`super::array::Array::insert`].
    #[inline]
    pub fn insert(&mut self, key: Key, flag: bool) {
        let set = self.set(key);
        let way = self.way(set);
        self.sets[set].fingerprints.set(way, key.fingerprint());
        self.entries[set][way % N] = key.with(flag);
        self.touch(set, way);
    }

    /// See [`super::array::Array::remove`].
    pub fn remove(&mut self, key: Key) {
        let set = self.set(key);
        if let Some(way) = self.find(set, key) {
            self.empty_way(set, way);
        }
    }

    /// See [`super::array::Array::clear`].
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
        let set = key.set(self.mask);
        if self.sets[set].generation != self.generation {
            self.empty(set);
        }
        set
    }

    fn empty_way(&mut self, set: usize, way: usize) {
        self.entries[set][way % N] = Stored::EMPTY;
        self.sets[set].free |= 1 << way;
    }

    #[cold]
    fn empty(&mut self, set: usize) {
        self.entries[set] = [Stored::EMPTY; N];
        let set = &mut self.sets[set];
        set.order = order::first(self.replacement);
        set.generation = self.generation;
        set.free = (1 << self.ways) - 1;
    }

    #[inline]
    fn find(&self, set: usize, key: Key) -> Option<usize> {
        let entries = &self.entries[set];
        let check = |way: usize| entries[way % N].is(key);
        self.sets[set].fingerprints.find(key.fingerprint(), check)
    }

    #[inline]
    fn touch(&mut self, set: usize, way: usize) {
        let order = &mut self.sets[set].order;
        match self.replacement {
            Replacement::Lru => *order = order::to_front(*order, way as u64),
            Replacement::TreePlru => {
                order::point_away(std::slice::from_mut(order), way, self.ways as usize);
            }
            Replacement::Random => {}
        }
    }

    /// A way for a new entry. Empty ways are filled, the lowest first, before any entry goes.
    #[inline]
    fn way(&mut self, set: usize) -> usize {
        let held = &mut self.sets[set];
        if held.free != 0 {
            let way = held.free.trailing_zeros();
            held.free &= held.free - 1;
            return way as usize;
        }
        match self.replacement {
            Replacement::Lru => order::oldest(held.order, self.ways),
            Replacement::TreePlru => order::follow(&[held.order], self.ways as usize),
            Replacement::Random => order::draw(&mut self.random, self.ways as usize),
        }
    }
}
