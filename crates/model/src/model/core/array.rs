//! A set-associative or fully associative array of tags: the basis of TLBs and walk caches.
//!
//! The model computes every address from the guest's tables, so an entry needs only one bit of
//! payload (whether the translation allows writes): only presence decides hits and misses.

use super::rings::Rings;
use super::scanned::Scanned;
use super::tag::Key;
use crate::model::machine::Replacement;

/// An array of tags, in the layout that suits its ways. A separate tag makes the choice cheaper
/// than one that is derived from a length.
#[repr(u8)]
pub enum Array {
    /// LRU, up to 4 ways.
    Four(Rings<4, 32>),
    /// LRU, up to 16 ways.
    Sixteen(Rings<16, 128>),
    /// LRU, up to 64 ways.
    SixtyFour(Rings<64, 1024>),
    Other(Scanned),
}

macro_rules! each {
    ($array:expr, $ways:ident => $call:expr) => {
        match $array {
            Self::Four($ways) => $call,
            Self::Sixteen($ways) => $call,
            Self::SixtyFour($ways) => $call,
            Self::Other($ways) => $call,
        }
    };
}

impl Array {
    /// An empty array. The geometry has passed [`crate::model::machine::Machine::check`].
    pub fn new(entries: u32, ways: u32, replacement: Replacement, seed: u64) -> Self {
        let ways = (ways as usize).max(1);
        let sets = (entries as usize / ways).max(1);
        match (replacement, ways) {
            (Replacement::Lru, 0..=4) => Self::Four(Rings::new(sets, ways)),
            (Replacement::Lru, 5..=16) => Self::Sixteen(Rings::new(sets, ways)),
            (Replacement::Lru, 17..=64) => Self::SixtyFour(Rings::new(sets, ways)),
            _ => Self::Other(Scanned::new(sets, ways, replacement, seed)),
        }
    }

    /// The flag of the key's entry, if the entry exists; finding it counts as a use.
    ///
    /// An entry without the flag is dropped when the flag is `needed`: a walk follows, which brings
    /// the entry back (Intel SDM volume 3: a page fault invalidates the entries for its address).
    #[inline]
    pub fn look_up(&mut self, key: Key, needed: bool) -> Option<bool> {
        each!(self, ways => ways.look_up(key, needed))
    }

    /// Inserts a key that is not in the array.
    #[inline]
    pub fn insert(&mut self, key: Key, flag: bool) {
        each!(self, ways => ways.insert(key, flag));
    }

    /// Removes a key, if it is in the array.
    pub fn remove(&mut self, key: Key) {
        each!(self, ways => ways.remove(key));
    }

    /// Removes everything at once: each set notices at its next use.
    pub fn clear(&mut self) {
        each!(self, ways => ways.clear());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The machines of the differential test have no LRU sets with more ways than rings support.
    #[test]
    fn rings_and_the_search_agree() {
        for (sets, ways) in [(1, 1), (4, 3), (8, 4), (2, 12), (1, 48), (1, 64)] {
            let mut rings = Array::new(sets * ways, ways, Replacement::Lru, 0);
            let mut scanned = Scanned::new(sets as usize, ways as usize, Replacement::Lru, 0);
            let mut random = 1;
            for step in 0..20_000 {
                let key = Key::new(super::super::order::draw(&mut random, 80) as u64, 0, 0);
                let [flag, needed] = [1, 2].map(|bit| (step % 7) & bit != 0);
                let found = rings.look_up(key, needed);
                assert_eq!(
                    found,
                    scanned.look_up(key, needed),
                    "{sets} x {ways}, {step}"
                );
                match (found, step % 97) {
                    (_, 0) => {
                        rings.clear();
                        scanned.clear();
                    }
                    (_, 1..5) => {
                        rings.remove(key);
                        scanned.remove(key);
                    }
                    (None, _) => {
                        rings.insert(key, flag);
                        scanned.insert(key, flag);
                    }
                    (Some(_), _) => {}
                }
            }
        }
    }
}
