//! Sets of any number of ways: hash buckets find a key, a list through the ways orders them.

// Ways are below 2^21.
#![allow(clippy::cast_possible_truncation)]

use super::order;
use super::tag::{Key, Stored};
use crate::model::machine::Replacement;

const NONE: u32 = u32::MAX;

/// Sets of any number of ways.
pub struct ManyWays {
    sets: Vec<Set>,
    nodes: Vec<Node>,
    /// The first node of each bucket; meaningless unless that node is in use and says the same.
    heads: Vec<u32>,
    /// Base-2 logarithm of the buckets of one set.
    bucket_bits: u32,
    mask: u64,
    ways: usize,
    generation: u32,
    replacement: Replacement,
    random: u64,
    /// Tree pseudo-LRU: `words` words per set.
    trees: Vec<u64>,
    words: usize,
}

#[derive(Clone, Copy)]
struct Set {
    /// The array's generation when the set was last emptied; sets of older ones are empty.
    generation: u32,
    /// Ways used since then; those above are empty.
    used: u32,
    /// Ways below `used` that were emptied one by one.
    holes: u32,
    newest: u32,
    oldest: u32,
}

/// One way of one set; all links are indices of nodes.
#[derive(Clone, Copy)]
struct Node {
    entry: Stored,
    bucket: u32,
    next: u32,
    newer: u32,
    older: u32,
}

impl ManyWays {
    /// Empty sets.
    pub fn new(sets: usize, ways: usize, replacement: Replacement, seed: u64) -> Self {
        // Sparse buckets make an absent key an empty bucket nearly always; large arrays are kept
        // small instead.
        let per_way = if ways <= 256 { 8 } else { 2 };
        let bucket_bits = (ways * per_way).next_power_of_two().trailing_zeros();
        let words = match replacement {
            Replacement::TreePlru => ways.div_ceil(64),
            _ => 0,
        };
        let node = Node {
            entry: Stored::EMPTY,
            bucket: NONE,
            next: NONE,
            newer: NONE,
            older: NONE,
        };
        let set = Set {
            generation: 0,
            used: 0,
            holes: 0,
            newest: NONE,
            oldest: NONE,
        };
        Self {
            sets: vec![set; sets],
            nodes: vec![node; sets * ways],
            heads: vec![NONE; sets << bucket_bits],
            bucket_bits,
            mask: sets as u64 - 1,
            ways,
            generation: 0,
            replacement,
            random: order::seed(seed),
            trees: vec![0; sets * words],
            words,
        }
    }

    /// See [`super::array::Array::look_up`].
    #[inline(never)]
    pub fn look_up(&mut self, key: Key, needed: bool) -> Option<bool> {
        let set = self.set(key);
        let at = self.find(set, key)?;
        let flag = self.nodes[at].entry.flag();
        if needed && !flag {
            self.empty_way(set, at);
            return None;
        }
        self.touch(set, at, false);
        Some(flag)
    }

    /// See [`super::array::Array::insert`].
    #[inline(never)]
    pub fn insert(&mut self, key: Key, flag: bool) {
        let set = self.set(key);
        let (way, fresh) = self.way(set);
        let at = set * self.ways + way;
        if fresh {
            // What it says is from before the set was emptied.
            self.nodes[at].bucket = NONE;
        } else {
            self.unlink(at);
        }
        let bucket = self.bucket(set, key);
        let next = self.first(set, bucket).unwrap_or(NONE);
        self.heads[bucket] = at as u32;
        let node = &mut self.nodes[at];
        node.entry = key.with(flag);
        (node.bucket, node.next) = (bucket as u32, next);
        self.touch(set, at, fresh);
    }

    /// See [`super::array::Array::remove`].
    pub fn remove(&mut self, key: Key) {
        let set = self.set(key);
        if let Some(at) = self.find(set, key) {
            self.empty_way(set, at);
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

    #[cold]
    fn empty(&mut self, set: usize) {
        self.sets[set] = Set {
            generation: self.generation,
            used: 0,
            holes: 0,
            newest: NONE,
            oldest: NONE,
        };
        self.trees[set * self.words..][..self.words].fill(0);
    }

    fn empty_way(&mut self, set: usize, at: usize) {
        self.unlink(at);
        self.nodes[at].entry = Stored::EMPTY;
        self.sets[set].holes += 1;
    }

    #[inline]
    fn bucket(&self, set: usize, key: Key) -> usize {
        (set << self.bucket_bits) | (key.hash() >> (32 - self.bucket_bits)) as usize
    }

    /// The first node of a bucket, if it has any.
    #[inline]
    fn first(&self, set: usize, bucket: usize) -> Option<u32> {
        let at = self.heads[bucket];
        // A head left over from before the set was emptied names an unused way, or one that is in
        // use again and says which bucket it is in.
        let way = (at as usize).wrapping_sub(set * self.ways);
        let used = way < self.sets[set].used as usize;
        (used && self.nodes[at as usize].bucket as usize == bucket).then_some(at)
    }

    #[inline]
    fn find(&self, set: usize, key: Key) -> Option<usize> {
        let mut at = self.first(set, self.bucket(set, key))?;
        loop {
            let node = self.nodes.get(at as usize)?;
            if node.entry.is(key) {
                return Some(at as usize);
            }
            at = node.next;
        }
    }

    /// Takes a node out of its bucket, if it is in one.
    #[inline]
    fn unlink(&mut self, at: usize) {
        let Node { bucket, next, .. } = self.nodes[at];
        self.nodes[at].bucket = NONE;
        let Some(head) = self.heads.get_mut(bucket as usize) else {
            return;
        };
        if *head as usize == at {
            *head = next;
            return;
        }
        let mut before = *head as usize;
        while let Some(node) = self.nodes.get_mut(before) {
            if node.next as usize == at {
                node.next = next;
                return;
            }
            before = node.next as usize;
        }
    }

    /// A way for a new entry, and whether it was never used since the set was emptied. Empty ways
    /// are filled, the lowest first, before any entry goes.
    #[inline]
    fn way(&mut self, set: usize) -> (usize, bool) {
        let state = &mut self.sets[set];
        if state.holes > 0 {
            state.holes -= 1;
            let nodes = &self.nodes[set * self.ways..][..state.used as usize];
            let hole = nodes.iter().position(|node| node.entry.is_empty());
            return (hole.unwrap_or_default(), false);
        }
        if (state.used as usize) < self.ways {
            state.used += 1;
            return (state.used as usize - 1, true);
        }
        let way = match self.replacement {
            Replacement::Lru => state.oldest as usize - set * self.ways,
            Replacement::TreePlru => {
                order::follow(&self.trees[set * self.words..][..self.words], self.ways)
            }
            Replacement::Random => order::draw(&mut self.random, self.ways),
        };
        (way, false)
    }

    /// A node was used; `fresh` when it has not been used since its set was emptied.
    #[inline]
    fn touch(&mut self, set: usize, at: usize, fresh: bool) {
        match self.replacement {
            Replacement::Lru => self.renew(set, at, fresh),
            Replacement::TreePlru => {
                let tree = &mut self.trees[set * self.words..][..self.words];
                order::point_away(tree, at - set * self.ways, self.ways);
            }
            Replacement::Random => {}
        }
    }

    #[inline]
    fn renew(&mut self, set: usize, at: usize, fresh: bool) {
        let ends = &mut self.sets[set];
        let Node { newer, older, .. } = self.nodes[at];
        if !fresh {
            let Some(after) = self.nodes.get_mut(newer as usize) else {
                return; // it is the newest already
            };
            after.older = older;
            match self.nodes.get_mut(older as usize) {
                Some(before) => before.newer = newer,
                None => ends.oldest = newer,
            }
        }
        match self.nodes.get_mut(ends.newest as usize) {
            Some(second) => second.newer = at as u32,
            None => ends.oldest = at as u32,
        }
        (self.nodes[at].newer, self.nodes[at].older) = (NONE, ends.newest);
        ends.newest = at as u32;
    }
}
