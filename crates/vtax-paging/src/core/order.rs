//! Which way of a set is replaced: true LRU, tree pseudo-LRU, random.

// Ways are at most 2^20.
#![allow(clippy::cast_possible_truncation)]

use crate::machine::Replacement;

const ORDERED: u64 = 0xfedc_ba98_7654_3210;
const ONES: u64 = 0x1111_1111_1111_1111;

/// The order word of an empty set of at most 16 ways.
pub const fn first(replacement: Replacement) -> u64 {
    match replacement {
        Replacement::Lru => ORDERED,
        Replacement::TreePlru | Replacement::Random => 0,
    }
}

/// LRU: moves the nibble `way` to the lowest place.
#[inline]
pub const fn to_front(ranks: u64, way: u64) -> u64 {
    // The lowest zero nibble of the difference is the way's place: every way is there once, and
    // borrows can only spoil nibbles above the first zero.
    let difference = ranks ^ (ONES * way);
    let zeros = difference.wrapping_sub(ONES) & !difference & (ONES << 3);
    let place = zeros.trailing_zeros() & !3;
    let below = (1_u64 << place) - 1;
    let kept = ranks & !(below | (15 << place));
    kept | ((ranks & below) << 4) | way
}

/// LRU: the oldest way is the newest from now on. What lies above the last place means nothing.
#[inline]
pub const fn insert(ranks: u64, oldest: u64) -> u64 {
    (ranks << 4) | oldest
}

/// LRU: the way in the last of `ways` places.
#[inline]
pub const fn oldest(ranks: u64, ways: u32) -> usize {
    ((ranks >> (4 * (ways - 1))) & 15) as usize
}

/// Tree pseudo-LRU: `way` was used, so all nodes above it point to their other side. Node n of the
/// heap is bit n; a set bit points to the right.
#[inline]
pub fn point_away(bits: &mut [u64], way: usize, ways: usize) {
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

/// Tree pseudo-LRU: the way to which the nodes point.
#[inline]
pub fn follow(bits: &[u64], ways: usize) -> usize {
    let mut node = 1;
    while node < ways {
        node = 2 * node + (bits[node / 64] >> (node % 64) & 1) as usize;
    }
    node - ways
}

/// One step of xorshift64* (Marsaglia 2003, Vigna 2016), scaled to `ways`.
#[inline]
pub fn draw(state: &mut u64, ways: usize) -> usize {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    let high = state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
    ((high * ways as u64) >> 32) as usize
}

/// Spreads a seed over all bits (the finaliser of `SplitMix64`), so that seeds 0, 1, 2 differ.
pub const fn seed(seed: u64) -> u64 {
    let mut x = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    // The generator's state must not be 0.
    (x ^ (x >> 31)) | 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_give_the_least_recently_used_way() {
        let mut ranks = (0..16).fold(first(Replacement::Lru), to_front);
        ranks = [3, 15, 0, 7].into_iter().fold(ranks, to_front);
        for expected in [1, 2, 4, 5, 6, 8] {
            let victim = oldest(ranks, 16);
            assert_eq!(victim, expected);
            ranks = to_front(ranks, victim as u64);
        }
    }

    #[test]
    fn the_tree_points_away_from_the_last_uses() {
        let mut tree = [0; 2];
        for way in 0..128 {
            point_away(&mut tree, way, 128);
        }
        assert_eq!(follow(&tree, 128), 0);
        point_away(&mut tree, 0, 128);
        assert_eq!(follow(&tree, 128), 64);
    }

    #[test]
    fn random_ways_stay_inside_and_repeat_with_the_seed() {
        let ways = || {
            let mut state = seed(7);
            (0..100).map(|_| draw(&mut state, 5)).collect::<Vec<_>>()
        };
        assert!((0..5).all(|way| ways().contains(&way)));
        assert!(ways().iter().all(|&way| way < 5));
        assert_eq!(ways(), ways());
    }
}
