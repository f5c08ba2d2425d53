//! LRU sets of up to 64 ways: each set is a ring of tags from the newest to the oldest, so that a
//! new entry takes the slot in front of the newest and nothing moves.
//!
//! A reference that misses the TLB misses most walk caches too. A count of the tags with the same
//! hash answers nearly all of these look-ups with one byte; only for the others is the ring
//! searched, the newest tag first. Hits that are spread evenly over a wide set are slower than in a
//! hash table, but references have locality, so most hits are near the newest tag.

// Ways are at most 64, and so are counts.
#![allow(clippy::cast_possible_truncation)]

use super::tag::{Key, Stored};

/// Sets of up to `N` ways, each replacing its least recently used entry; with `C` counts of tags,
/// an absent key meets a tag with the same hash with a probability of at most `N / C`. Both are
/// powers of two.
pub struct Rings<const N: usize, const C: usize> {
    sets: Vec<Ring<N, C>>,
    mask: u64,
    ways: usize,
    generation: u32,
}

#[derive(Clone)]
struct Ring<const N: usize, const C: usize> {
    /// The array's generation when the set was last emptied; sets of older generations are empty.
    generation: u32,
    /// The slot of the newest tag; older tags follow it.
    newest: u16,
    used: u16,
    /// How many of the tags have each hash.
    counts: [u8; C],
    slots: [Stored; N],
}

impl<const N: usize, const C: usize> Rings<N, C> {
    pub fn new(sets: usize, ways: usize) -> Self {
        Self {
            sets: vec![Ring::new(0); sets],
            mask: sets as u64 - 1,
            ways: ways.clamp(1, N),
            generation: 0,
        }
    }

    /// See [`super::array::Array::look_up`].
    #[inline]
    pub fn look_up(&mut self, key: Key, needed: bool) -> Option<bool> {
        let generation = self.generation;
        let set = self.sets.get_mut(key.set(self.mask))?;
        // The counts of a set that is not emptied yet are never too low.
        if set.counts[Ring::<N, C>::count(key)] == 0 {
            return None;
        }
        set.search(key, needed, generation)
    }

    /// See [`super::array::Array::insert`].
    #[inline]
    pub fn insert(&mut self, key: Key, flag: bool) {
        let (generation, ways) = (self.generation, self.ways);
        if let Some(set) = self.sets.get_mut(key.set(self.mask)) {
            if set.generation == generation {
                set.insert(key, flag, ways);
            } else {
                set.begin(generation, key, flag, ways);
            }
        }
    }

    /// See [`super::array::Array::remove`].
    pub fn remove(&mut self, key: Key) {
        let generation = self.generation;
        if let Some(set) = self.sets.get_mut(key.set(self.mask)) {
            set.bring_up_to(generation);
            if let Some(age) = set.age(key) {
                set.take_out(age, key);
            }
        }
    }

    /// See [`super::array::Array::clear`].
    pub fn clear(&mut self) {
        self.generation = self.generation.wrapping_add(1);
        if self.generation == 0 {
            // A set last used 2^32 generations ago must not become valid again.
            self.sets.fill(Ring::new(0));
        }
    }
}

impl<const N: usize, const C: usize> Ring<N, C> {
    const fn new(generation: u32) -> Self {
        Self {
            generation,
            newest: 0,
            used: 0,
            counts: [0; C],
            slots: [Stored::EMPTY; N],
        }
    }

    #[inline]
    fn bring_up_to(&mut self, generation: u32) {
        if self.generation != generation {
            self.empty(generation);
        }
    }

    #[cold]
    #[inline(never)]
    fn empty(&mut self, generation: u32) {
        *self = Self::new(generation);
    }

    /// Inserts the first entry since the array was emptied; a separate function keeps the usual
    /// path short.
    #[cold]
    #[inline(never)]
    fn begin(&mut self, generation: u32, key: Key, flag: bool, ways: usize) {
        self.empty(generation);
        self.insert(key, flag, ways);
    }

    /// The index of a key's count.
    #[inline]
    const fn count(key: Key) -> usize {
        (key.hash() >> 16) as usize % C
    }

    /// The slot of the tag with an age; the newest has age 0.
    #[inline]
    const fn slot(&self, age: usize) -> usize {
        (self.newest as usize + age) % N
    }

    #[inline]
    fn insert(&mut self, key: Key, flag: bool, ways: usize) {
        if usize::from(self.used) == ways {
            let oldest = self.slots[self.slot(ways - 1)].key();
            self.counts[Self::count(oldest)] -= 1;
        } else {
            self.used += 1;
        }
        self.newest = self.slot(N - 1) as u16;
        self.slots[self.slot(0)] = key.with(flag);
        self.counts[Self::count(key)] += 1;
    }

    /// The look-up of a key whose hash is there; a separate function keeps the other look-ups
    /// short.
    #[inline(never)]
    fn search(&mut self, key: Key, needed: bool, generation: u32) -> Option<bool> {
        self.bring_up_to(generation);
        let age = self.age(key)?;
        let found = self.slots[self.slot(age)];
        if needed && !found.flag() {
            self.take_out(age, key);
            return None;
        }
        self.close(age);
        self.slots[self.slot(0)] = found;
        Some(found.flag())
    }

    #[inline]
    fn age(&self, key: Key) -> Option<usize> {
        (0..usize::from(self.used)).find(|&age| self.slots[self.slot(age)].is(key))
    }

    /// Moves the tags newer than `age` by one slot; the newest slot is then free.
    #[inline]
    fn close(&mut self, age: usize) {
        for age in (0..age).rev() {
            self.slots[self.slot(age + 1)] = self.slots[self.slot(age)];
        }
    }

    fn take_out(&mut self, age: usize, key: Key) {
        self.close(age);
        self.counts[Self::count(key)] -= 1;
        self.newest = self.slot(1) as u16;
        self.used -= 1;
    }
}
