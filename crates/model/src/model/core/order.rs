//! Decides which way of a set is replaced: tree pseudo-LRU, random.

// Ways are at most 2^20.
#![allow(clippy::cast_possible_truncation)]

/// Tree pseudo-LRU: `way` was used, so all nodes above it point to the other side. Node n of the
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

/// Spreads a seed over all bits (the finaliser of `SplitMix64`), so that seeds 0, 1, 2 give
/// different sequences.
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
