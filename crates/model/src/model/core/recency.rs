//! The order in which up to 16 ways of a set were used, in one word: LRU without moving tags.

const ONES: u64 = 0x1111_1111_1111_1111;

/// The ways from the newest to the oldest, four bits each; the newest way is in the lowest bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recency(u64);

impl Recency {
    /// An arbitrary order.
    pub const START: Self = Self(0xfedc_ba98_7654_3210);

    /// The way at a position of the order; the newest has position 0.
    #[inline]
    #[expect(clippy::cast_possible_truncation)] // four bits are left
    pub const fn at(self, place: u32) -> u32 {
        (self.0 >> (4 * place)) as u32 & 15
    }

    /// Marks the way as used: it becomes the newest.
    #[inline]
    pub const fn touch(&mut self, way: u32) {
        let newer = (1_u64 << self.place(way)) - 1;
        let moved = (newer << 4) | 15;
        self.0 = (self.0 & !moved) | ((self.0 & newer) << 4) | way as u64;
    }

    /// Base-2 logarithm of the value of the way's position.
    #[inline]
    const fn place(self, way: u32) -> u32 {
        // The lowest group of four bits that is zero: Warren, Hacker's Delight, section 6-1.
        let others = self.0 ^ (way as u64 * ONES);
        (others.wrapping_sub(ONES) & !others & (ONES << 3)).trailing_zeros() & !3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_follows_a_list() {
        for ways in [1_usize, 2, 4, 7, 16] {
            let mut list: Vec<u32> = (0..16).collect();
            let mut word = Recency::START;
            let mut random = 1;
            for step in 0..500 {
                let place = super::super::order::draw(&mut random, ways);
                let way = list.remove(place);
                assert_eq!(word.at(u32::try_from(place).unwrap()), way);
                list.insert(0, way);
                word.touch(way);
                let found: Vec<u32> = (0..16).map(|place| word.at(place)).collect();
                assert_eq!(found, list, "{ways}, {step}");
            }
        }
    }
}
