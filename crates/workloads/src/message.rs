//! The numbered messages of `round-trip` and `echo`.

use crate::cast;
use crate::pattern;

pub const MESSAGE_BYTES: usize = 64;

/// The seed of all messages; both ends know it.
const SEED: u64 = 0x6d65_7373;

/// A message, or a record of a file, of eight words.
pub type Message = [u8; MESSAGE_BYTES];

/// The message with a number: the number, then seven words that depend on it.
pub fn message(number: u64) -> Message {
    record(SEED, number)
}

pub fn record(seed: u64, number: u64) -> Message {
    let mut bytes = [0; MESSAGE_BYTES];
    for (position, chunk) in bytes.chunks_exact_mut(8).enumerate() {
        let word = if position == 0 {
            number
        } else {
            pattern::word(pattern::word(seed, number), cast::count(position))
        };
        chunk.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// The number of a message, if the other words match it.
pub fn number(bytes: &Message) -> Option<u64> {
    let (first, _) = bytes.split_first_chunk()?;
    let number = u64::from_le_bytes(*first);
    (*bytes == message(number)).then_some(number)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_message_has_its_number_and_a_damaged_one_has_none(
            expected in any::<u64>(), at in 0..MESSAGE_BYTES, bit in 0..8_u32,
        ) {
            let mut bytes = message(expected);
            prop_assert_eq!(number(&bytes), Some(expected));
            bytes[at] ^= 1 << bit;
            prop_assert_eq!(number(&bytes), None);
        }
    }
}
