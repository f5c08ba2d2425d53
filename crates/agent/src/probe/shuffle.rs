//! Random orders, the same in each run of the program.

/// Fisher and Yates' shuffle, with Marsaglia's xorshift64 for the choice.
///
/// Linking the words in the shuffled order makes one random cycle through all of them, as Sattolo's
/// algorithm does.
pub fn shuffle(words: &mut [u32]) {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for last in (1..words.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        words.swap(last, below(state, last + 1));
    }
}

/// A random number below `bound`, from the upper bits of a product: no division, and a bias of less
/// than 2^-32.
fn below(random: u64, bound: usize) -> usize {
    let product = u128::from(random) * bound as u128;
    usize::try_from(product >> 64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_word_stays(count in 0_u32..2_000) {
            let mut words: Vec<u32> = (0..count).collect();
            shuffle(&mut words);
            let moved = words.iter().enumerate().filter(|(at, word)| *at as u64 != u64::from(**word)).count();
            prop_assert!(count < 100 || moved > 90);
            words.sort_unstable();
            prop_assert!(words.into_iter().eq(0..count));
        }
    }
}
