//! Comparing a tag with all tags of a set at once: each has a byte in a word, and a few operations
//! on the word find the bytes that are alike. What they find is only a candidate.

const LOW: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = LOW << 7;

/// One byte for each of `8 * WORDS` ways.
#[derive(Clone, Copy)]
pub struct Fingerprints<const WORDS: usize>([u64; WORDS]);

impl<const WORDS: usize> Fingerprints<WORDS> {
    /// All zero; ways without an entry are told apart by their entries.
    pub const ZERO: Self = Self([0; WORDS]);

    /// The first way that has the fingerprint and passes the `check` of its whole tag.
    #[inline]
    pub fn find(&self, fingerprint: u8, check: impl Fn(usize) -> bool) -> Option<usize> {
        let wanted = u64::from(fingerprint) * LOW;
        for (at, word) in self.0.iter().enumerate() {
            // Zero bytes of the difference get their high bit, and perhaps bytes above one.
            let difference = word ^ wanted;
            let mut matches = difference.wrapping_sub(LOW) & !difference & HIGH;
            while matches != 0 {
                let way = 8 * at + matches.trailing_zeros() as usize / 8;
                if check(way) {
                    return Some(way);
                }
                matches &= matches - 1;
            }
        }
        None
    }

    /// Sets the fingerprint of a way.
    #[inline]
    pub fn set(&mut self, way: usize, fingerprint: u8) {
        let shift = 8 * (way % 8);
        let word = &mut self.0[way / 8 % WORDS];
        *word = (*word & !(0xff << shift)) | (u64::from(fingerprint) << shift);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_is_found_and_checked() {
        let mut fingerprints = Fingerprints::<2>::ZERO;
        for way in 0..16 {
            fingerprints.set(way, 0xf8 + way as u8 / 2);
        }
        for way in 0..16 {
            let found = fingerprints.find(0xf8 + way as u8 / 2, |candidate| candidate == way);
            assert_eq!(found, Some(way));
        }
        assert_eq!(fingerprints.find(0xff, |_| false), None);
        assert_eq!(fingerprints.find(7, |_| true), None);
    }
}
