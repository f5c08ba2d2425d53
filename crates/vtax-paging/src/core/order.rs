//! Which way of a set is replaced: true LRU, tree pseudo-LRU, random.

// Ways are at most 2^20.
#![allow(clippy::cast_possible_truncation)]

use crate::machine::Replacement;

/// Most ways whose order fits one word of four-bit ranks.
pub const FEW_WAYS: usize = 16;

/// The replacement state of all sets of an array.
pub enum Order {
    /// LRU of at most [`FEW_WAYS`] ways: one word per set, the ways as nibbles, newest lowest.
    Ranks(Vec<u64>),
    /// LRU of many ways: a list through the ways of each set.
    Lists(Lists),
    /// Tree pseudo-LRU: node n of a set's heap is bit n; a set bit points to the right.
    Trees {
        /// `words` words per set.
        bits: Vec<u64>,
        /// Words of one set.
        words: usize,
    },
    /// Random: an xorshift generator per array.
    Random(u64),
}

/// Doubly linked lists of ways, newest first, one per set.
pub struct Lists {
    ends: Vec<Ends>,
    links: Vec<Link>,
    ways: usize,
}

#[derive(Clone, Copy)]
struct Ends {
    newest: u32,
    oldest: u32,
}

#[derive(Clone, Copy)]
struct Link {
    newer: u32,
    older: u32,
}

const NONE: u32 = u32::MAX;
const ORDERED: u64 = 0xfedc_ba98_7654_3210;
const ONES: u64 = 0x1111_1111_1111_1111;

impl Order {
    /// The state of `sets` sets; `seed` is used by random replacement.
    pub fn new(replacement: Replacement, sets: usize, ways: usize, seed: u64) -> Self {
        match replacement {
            Replacement::Lru if ways <= FEW_WAYS => Self::Ranks(vec![ORDERED; sets]),
            Replacement::Lru => Self::Lists(Lists::new(sets, ways)),
            Replacement::TreePlru => {
                let words = ways.div_ceil(64);
                let bits = vec![0; sets * words];
                Self::Trees { bits, words }
            }
            Replacement::Random => Self::Random(mix(seed) | 1),
        }
    }

    /// Forgets a set's history; random replacement has none.
    pub fn reset(&mut self, set: usize) {
        match self {
            Self::Ranks(ranks) => ranks[set] = ORDERED,
            Self::Lists(lists) => {
                lists.ends[set] = Ends {
                    newest: NONE,
                    oldest: NONE,
                };
            }
            Self::Trees { bits, words } => bits[set * *words..][..*words].fill(0),
            Self::Random(_) => {}
        }
    }

    /// `way` was used; `fresh` when it has not been used since the reset.
    #[inline]
    pub fn touch(&mut self, set: usize, way: usize, ways: usize, fresh: bool) {
        match self {
            Self::Ranks(ranks) => ranks[set] = to_front(ranks[set], way as u64),
            Self::Lists(lists) => lists.touch(set, way, fresh),
            Self::Trees { bits, words } => {
                point_away(&mut bits[set * *words..][..*words], way, ways);
            }
            Self::Random(_) => {}
        }
    }

    /// The way that goes; every way of the set is in use.
    #[inline]
    pub fn victim(&mut self, set: usize, ways: usize) -> usize {
        match self {
            Self::Ranks(ranks) => ((ranks[set] >> (4 * (ways - 1))) & 15) as usize,
            Self::Lists(lists) => lists.ends[set].oldest as usize,
            Self::Trees { bits, words } => follow(&bits[set * *words..][..*words], ways),
            Self::Random(state) => draw(state, ways),
        }
    }
}

impl Lists {
    fn new(sets: usize, ways: usize) -> Self {
        let ends = Ends {
            newest: NONE,
            oldest: NONE,
        };
        let link = Link {
            newer: NONE,
            older: NONE,
        };
        Self {
            ends: vec![ends; sets],
            links: vec![link; sets * ways],
            ways,
        }
    }

    fn touch(&mut self, set: usize, way: usize, fresh: bool) {
        let links = &mut self.links[set * self.ways..][..self.ways];
        let ends = &mut self.ends[set];
        let way32 = way as u32;
        if ends.newest == way32 {
            return;
        }
        if !fresh {
            // Not the newest, so there is a newer one.
            let Link { newer, older } = links[way];
            links[newer as usize].older = older;
            if older == NONE {
                ends.oldest = newer;
            } else {
                links[older as usize].newer = newer;
            }
        }
        links[way] = Link {
            newer: NONE,
            older: ends.newest,
        };
        if ends.newest == NONE {
            ends.oldest = way32;
        } else {
            links[ends.newest as usize].newer = way32;
        }
        ends.newest = way32;
    }
}

/// Moves the nibble `way` to the lowest place.
fn to_front(ranks: u64, way: u64) -> u64 {
    // The lowest zero nibble of the difference is the way's place: every way is there once, and
    // borrows can only spoil nibbles above the first zero.
    let difference = ranks ^ (ONES * way);
    let zeros = difference.wrapping_sub(ONES) & !difference & (ONES << 3);
    let place = zeros.trailing_zeros() & !3;
    let below = (1_u64 << place) - 1;
    let kept = ranks & !(below | (15 << place));
    kept | ((ranks & below) << 4) | way
}

fn point_away(bits: &mut [u64], way: usize, ways: usize) {
    let mut node = ways + way;
    while node > 1 {
        let (parent, right) = (node / 2, node & 1 == 1);
        let mask = 1_u64 << (parent % 64);
        if right {
            bits[parent / 64] &= !mask;
        } else {
            bits[parent / 64] |= mask;
        }
        node = parent;
    }
}

fn follow(bits: &[u64], ways: usize) -> usize {
    let mut node = 1;
    while node < ways {
        node = 2 * node + (bits[node / 64] >> (node % 64) & 1) as usize;
    }
    node - ways
}

/// One step of xorshift64* (Marsaglia 2003, Vigna 2016), scaled to `ways`.
fn draw(state: &mut u64, ways: usize) -> usize {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    let high = state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
    ((high * ways as u64) >> 32) as usize
}

/// Spreads a seed over all bits (the finaliser of `SplitMix64`), so that seeds 0, 1, 2 differ.
fn mix(seed: u64) -> u64 {
    let mut x = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_give_the_least_recently_used_way() {
        let mut order = Order::new(Replacement::Lru, 1, 16, 0);
        for way in 0..16 {
            order.touch(0, way, 16, false);
        }
        for way in [3, 15, 0, 7] {
            order.touch(0, way, 16, false);
        }
        for expected in [1, 2, 4, 5, 6, 8] {
            let victim = order.victim(0, 16);
            assert_eq!(victim, expected);
            order.touch(0, victim, 16, false);
        }
    }

    #[test]
    fn the_tree_points_away_from_the_last_uses() {
        let mut order = Order::new(Replacement::TreePlru, 2, 4, 0);
        for way in 0..4 {
            order.touch(1, way, 4, false);
        }
        assert_eq!(order.victim(1, 4), 0);
        order.touch(1, 0, 4, false);
        assert_eq!(order.victim(1, 4), 2);
        order.reset(1);
        assert_eq!(order.victim(1, 4), 0);
    }

    #[test]
    fn random_ways_stay_inside_and_repeat_with_the_seed() {
        let mut a = Order::new(Replacement::Random, 1, 5, 7);
        let mut b = Order::new(Replacement::Random, 1, 5, 7);
        let ways: Vec<usize> = (0..100).map(|_| a.victim(0, 5)).collect();
        assert!(ways.iter().all(|&way| way < 5));
        assert!((0..5).all(|way| ways.contains(&way)));
        assert_eq!(ways, (0..100).map(|_| b.victim(0, 5)).collect::<Vec<_>>());
    }
}
