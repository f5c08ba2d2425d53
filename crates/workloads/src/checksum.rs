//! A checksum of 64-bit words in order.

use crate::pattern::mix;

/// Depends on each word and on their order; it is no defence against intent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checksum(u64);

impl Checksum {
    /// The checksum of no words.
    pub fn new() -> Self {
        // Not 0, so that leading zeros count.
        Self(0x243f_6a88_85a3_08d3)
    }

    pub fn add(&mut self, word: u64) {
        self.0 = mix(self.0 ^ word);
    }

    pub fn extend(&mut self, words: impl IntoIterator<Item = u64>) {
        for word in words {
            self.add(word);
        }
    }

    /// The checksum of the words so far.
    pub fn value(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(words: &[u64]) -> u64 {
        let mut checksum = Checksum::new();
        checksum.extend(words.iter().copied());
        checksum.value()
    }

    proptest! {
        #[test]
        fn one_changed_bit_changes_it(
            mut words in prop::collection::vec(any::<u64>(), 1..50),
            at in any::<prop::sample::Index>(),
            bit in 0..64_u32,
        ) {
            let before = of(&words);
            let at = at.index(words.len());
            words[at] ^= 1 << bit;
            prop_assert_ne!(before, of(&words));
        }
    }

    #[test]
    fn order_and_number_of_words_count() {
        assert_ne!(of(&[1, 2]), of(&[2, 1]));
        assert_ne!(of(&[0]), of(&[0, 0]));
        assert_ne!(of(&[]), of(&[0]));
    }
}
