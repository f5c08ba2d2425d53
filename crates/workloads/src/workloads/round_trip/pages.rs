//! Memory with a pattern that is checked and replaced by the next pattern, slice by slice.

use std::hint::black_box;

use crate::cast;
use crate::checksum::Checksum;
use crate::pattern;
use vtax_sys::calls::memory::Region;

/// Words that are checked in a round: 64 KiB.
const SLICE_WORDS: usize = 8192;

/// The memory, and how far the next pattern has come.
#[derive(Debug)]
pub struct Pages {
    region: Region,
    seed: u64,
    cursor: usize,
    checksum: Checksum,
    /// Finished passes over the whole memory.
    pub passes: u64,
    /// Words that were wrong.
    pub errors: u64,
}

impl Pages {
    /// Fill the memory with the pattern of pass 0.
    pub fn new(region: Region, seed: u64) -> Self {
        let mut pages = Self {
            region,
            seed,
            cursor: 0,
            checksum: Checksum::new(),
            passes: 0,
            errors: 0,
        };
        for (position, word) in (0..).zip(pages.region.words_mut()) {
            *word = expected(seed, 0, position);
        }
        pages
    }

    /// Check the next slice, and write the pattern of the next pass into it.
    pub fn check_slice(&mut self) {
        let (seed, pass) = (self.seed, self.passes);
        let words = black_box(self.region.words_mut());
        let end = (self.cursor + SLICE_WORDS).min(words.len());
        let mut sum = 0_u64;
        for (position, word) in (cast::count(self.cursor)..).zip(&mut words[self.cursor..end]) {
            self.errors += u64::from(*word != expected(seed, pass, position));
            sum = sum.wrapping_add(*word);
            *word = expected(seed, pass + 1, position);
        }
        self.checksum.add(sum);
        self.cursor = end;
        if end == words.len() {
            self.cursor = 0;
            self.passes += 1;
        }
    }

    /// Check all words, including those of the unfinished pass.
    pub fn check_all(&mut self) {
        let words = black_box(self.region.words());
        for (position, word) in words.iter().enumerate() {
            let pass = self.passes + u64::from(position < self.cursor);
            let wrong = *word != expected(self.seed, pass, cast::count(position));
            self.errors += u64::from(wrong);
        }
    }

    pub fn checksum(&self) -> u64 {
        self.checksum.value()
    }
}

fn expected(seed: u64, pass: u64, position: u64) -> u64 {
    // A pass has fewer than 2^40 words.
    pattern::word(seed, pass << 40 | position)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_find_nothing_wrong_and_then_one_word() {
        let mut pages = Pages::new(Region::map(40).unwrap(), 1);
        for _ in 0..7 {
            pages.check_slice();
        }
        pages.check_all();
        assert_eq!((pages.passes, pages.errors), (2, 0));
        for position in [0, 20_000] {
            pages.region.words_mut()[position] ^= 1 << 63;
        }
        pages.check_all();
        assert_eq!(pages.errors, 2);
        for _ in 0..3 {
            pages.check_slice();
        }
        assert_eq!(pages.errors, 4);
    }
}
