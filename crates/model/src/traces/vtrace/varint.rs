//! Varints, and the tokens of references.

use crate::model::address::{Gva, Reference};

/// The most bytes of a varint.
const LONGEST: usize = 10;

/// Take a varint from the front of `bytes`; `None` when it is cut or exceeds 64 bits.
#[inline]
pub fn take(bytes: &mut &[u8]) -> Option<u64> {
    let &first = bytes.first()?;
    if first < 0x80 {
        *bytes = &bytes[1..];
        return Some(u64::from(first));
    }
    if let Some(&word) = bytes.first_chunk::<8>() {
        let word = u64::from_le_bytes(word);
        let ends = !word & 0x8080_8080_8080_8080;
        if ends != 0 {
            let bits = ends.trailing_zeros() + 1;
            *bytes = &bytes[(bits / 8) as usize..];
            return Some(pack(word & (u64::MAX >> (64 - bits))));
        }
    }
    take_slowly(bytes)
}

/// Closes the gaps that the top bits of up to eight bytes leave.
#[inline]
fn pack(word: u64) -> u64 {
    let word = word & 0x7f7f_7f7f_7f7f_7f7f;
    let word = (word & 0x007f_007f_007f_007f) | ((word & 0x7f00_7f00_7f00_7f00) >> 1);
    let word = (word & 0x0000_3fff_0000_3fff) | ((word & 0x3fff_0000_3fff_0000) >> 2);
    (word & 0x0fff_ffff) | ((word & 0x0fff_ffff_0000_0000) >> 4)
}

/// Takes varints of nine and ten bytes, and those near the end of a payload.
#[cold]
fn take_slowly(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for (index, &byte) in bytes.iter().take(LONGEST).enumerate() {
        if index == LONGEST - 1 && byte > 1 {
            return None;
        }
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            *bytes = &bytes[index + 1..];
            return Some(value);
        }
    }
    None
}

#[inline]
pub fn reference(token: u64, previous: &mut u64) -> Reference {
    let zigzag = token >> 1;
    let delta = (zigzag >> 1) ^ (zigzag & 1).wrapping_neg();
    let half = previous.wrapping_add(delta) & (u64::MAX >> 1);
    *previous = half;
    Reference::new(Gva(half << 1), token & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encoded(mut value: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        while value >= 0x80 {
            bytes.push(value.to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        bytes.push(value.to_le_bytes()[0]);
        bytes
    }

    proptest! {
        #[test]
        fn varints_come_back(shift in 0..64_u32, value: u64, tail in 0..12_usize) {
            let value = value >> shift;
            let mut bytes = encoded(value);
            bytes.resize(bytes.len() + tail, 0xff);
            let mut rest = bytes.as_slice();
            prop_assert_eq!(take(&mut rest), Some(value));
            prop_assert_eq!(rest.len(), tail);
        }
    }

    #[test]
    fn cut_and_overlong_varints_are_refused() {
        for bytes in [&[][..], &[0x80], &[0xff; 9], &[0xff; 10], &[0xff; 20]] {
            assert_eq!(take(&mut { bytes }), None, "{bytes:x?}");
        }
        let mut largest = [0xff; 10];
        largest[9] = 1;
        assert_eq!(take(&mut largest.as_slice()), Some(u64::MAX));
    }
}
