//! Words that depend on a seed and a position, so that memory can be checked without a copy.

/// The finaliser of `SplitMix64` (Steele, Lea and Flood, "Fast splittable pseudorandom number
/// generators", OOPSLA 2014, with the constants of Stafford's variant 13): a bijection whose
/// output bits each depend on every input bit.
pub fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// `SplitMix64`'s increment, 2^64 divided by the golden ratio, odd.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The word at a position of the pattern of a seed.
pub fn word(seed: u64, position: u64) -> u64 {
    mix(mix(seed.wrapping_add(GOLDEN)).wrapping_add(position.wrapping_mul(GOLDEN)))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_mixer_is_splitmix64() {
        // The first outputs of the reference program (splitmix64.c, Vigna) with seed 0.
        let outputs: Vec<u64> = (1..=3_u64).map(|n| mix(n.wrapping_mul(GOLDEN))).collect();
        assert_eq!(
            outputs,
            [
                0xe220_a839_7b1d_cdaf,
                0x6e78_9e6a_a1b9_65f4,
                0x06c4_5d18_8009_454f
            ]
        );
    }

    #[test]
    fn neighbouring_seeds_and_positions_differ() {
        let words: HashSet<u64> = (0..10)
            .flat_map(|seed| (0..1000).map(move |position| word(seed, position)))
            .collect();
        assert_eq!(words.len(), 10_000);
    }
}
