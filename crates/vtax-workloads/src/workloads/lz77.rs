//! Matching against a window with hash chains, in the manner of deflate (RFC 1951, section 4).

use crate::cast;

/// The shortest match: as long as the hashed bytes.
const SHORTEST: usize = 4;

/// The longest match (RFC 1951).
const LONGEST: usize = 258;

/// Candidates that are tried for each position.
const CHAIN: usize = 32;

/// Bits of the hash, which selects a chain: zlib's default for this hash is 2^15 chains.
const HASH_BITS: u32 = 15;

/// A part of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Token {
    /// A single byte.
    Literal(u8),
    /// Bytes that occurred before.
    Match {
        /// How far back they are.
        distance: u32,
        /// How many bytes.
        length: u32,
    },
}

impl Token {
    /// The form in the output.
    pub fn to_bytes(self) -> [u8; 8] {
        let word = match self {
            Self::Literal(byte) => u64::from(byte),
            Self::Match { distance, length } => u64::from(length) << 32 | u64::from(distance),
        };
        word.to_le_bytes()
    }
}

/// The last bytes of the input, and the positions of each hash.
#[derive(Debug)]
pub struct Window {
    bytes: Vec<u8>,
    heads: Vec<u32>,
    /// For each position in the window, the previous position with the same hash.
    earlier: Vec<u32>,
    /// The position of the next byte, modulo 2^32.
    position: u32,
    block: usize,
}

impl Window {
    /// The memory in bytes that a window of this size needs.
    pub fn needed_bytes(bytes: u64) -> u64 {
        5 * bytes + (4 << HASH_BITS)
    }

    /// A window whose size is a power of two, for blocks of at most `block` bytes.
    pub fn new(bytes: usize, block: usize) -> Self {
        Self {
            bytes: vec![0; bytes],
            heads: vec![0; 1 << HASH_BITS],
            earlier: vec![0; bytes],
            position: 0,
            block,
        }
    }

    /// Take a block into the window; returns the tokens that make it up.
    pub fn compress(&mut self, block: &[u8]) -> Vec<Token> {
        for (offset, byte) in (0..).zip(block) {
            let at = self.slot(self.position.wrapping_add(offset));
            self.bytes[at] = *byte;
        }
        let mut tokens = Vec::new();
        let mut offset = 0;
        while offset < block.len() {
            let found = self.longest_match(block, offset);
            let token = found.unwrap_or(Token::Literal(block[offset]));
            let length = match token {
                Token::Literal(_) => 1,
                Token::Match { length, .. } => length as usize,
            };
            for covered in offset..offset + length {
                self.insert(block, covered);
            }
            offset += length;
            tokens.push(token);
        }
        self.position = self.at(block.len());
        tokens
    }

    fn slot(&self, position: u32) -> usize {
        position as usize & (self.bytes.len() - 1)
    }

    fn at(&self, offset: usize) -> u32 {
        // Positions are modulo 2^32; distances are far smaller.
        self.position
            .wrapping_add(u32::try_from(offset).unwrap_or(0))
    }

    /// The longest distance of a match: the block has overwritten what was further back.
    fn reach(&self) -> u32 {
        u32::try_from(self.bytes.len() - self.block).unwrap_or(u32::MAX)
    }

    fn longest_match(&self, block: &[u8], offset: usize) -> Option<Token> {
        let rest = &block[offset..];
        let here = self.at(offset);
        let mut candidate = self.heads[hash(rest)?];
        let mut best = (0, 0);
        for _ in 0..CHAIN {
            let distance = here.wrapping_sub(candidate);
            if distance == 0 || distance > self.reach() {
                break;
            }
            let length = self.common(rest, candidate);
            if length > best.1 {
                best = (distance, length);
            }
            let earlier = self.earlier[self.slot(candidate)];
            if here.wrapping_sub(earlier) <= distance {
                break;
            }
            candidate = earlier;
        }
        let (distance, length) = best;
        (length >= SHORTEST).then(|| Token::Match {
            distance,
            length: u32::try_from(length).unwrap_or(0),
        })
    }

    fn common(&self, rest: &[u8], candidate: u32) -> usize {
        let same = |(offset, byte): &(u32, &u8)| {
            self.bytes[self.slot(candidate.wrapping_add(*offset))] == **byte
        };
        (0..)
            .zip(rest.iter().take(LONGEST))
            .take_while(same)
            .count()
    }

    fn insert(&mut self, block: &[u8], offset: usize) {
        let Some(hash) = hash(&block[offset..]) else {
            return;
        };
        let here = self.at(offset);
        let slot = self.slot(here);
        self.earlier[slot] = std::mem::replace(&mut self.heads[hash], here);
    }

    /// Rebuild the last block from its tokens and the window before it; `None`: a token is
    /// impossible.
    pub fn decompress(&self, tokens: &[Token], length: usize) -> Option<Vec<u8>> {
        let begin = self.position.wrapping_sub(u32::try_from(length).ok()?);
        let mut block = Vec::with_capacity(length);
        for token in tokens {
            match *token {
                Token::Literal(byte) => block.push(byte),
                Token::Match { distance, length } => {
                    self.copy(&mut block, begin, distance, length)?;
                }
            }
        }
        (block.len() == length).then_some(block)
    }

    /// Copy a match. Bytes in the block come from the part rebuilt so far, not from the window.
    fn copy(&self, block: &mut Vec<u8>, begin: u32, distance: u32, length: u32) -> Option<()> {
        for _ in 0..length {
            let done = u32::try_from(block.len()).ok()?;
            let byte = match block.len().checked_sub(distance as usize) {
                Some(offset) => *block.get(offset)?,
                None => self.bytes[self.slot(begin.wrapping_add(done).wrapping_sub(distance))],
            };
            block.push(byte);
        }
        Some(())
    }
}

/// The hash of the next bytes; `None`: too few bytes are left for a match.
fn hash(bytes: &[u8]) -> Option<usize> {
    let (first, _) = bytes.split_first_chunk::<SHORTEST>()?;
    // Knuth's multiplicative hash, 2^32 divided by the golden ratio.
    let product = u32::from_le_bytes(*first).wrapping_mul(0x9e37_79b1);
    Some(cast::index(u64::from(product >> (32 - HASH_BITS))))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BLOCK: usize = 256;

    proptest! {
        #[test]
        fn what_was_compressed_comes_back(
            blocks in prop::collection::vec(prop::collection::vec(0..4_u8, 0..=BLOCK), 1..12),
            position in any::<u32>(),
        ) {
            let mut window = Window::new(1024, BLOCK);
            window.position = position;
            for block in blocks {
                let tokens = window.compress(&block);
                prop_assert_eq!(window.decompress(&tokens, block.len()), Some(block));
            }
        }
    }

    #[test]
    fn a_repetition_is_one_match() {
        let mut window = Window::new(1024, BLOCK);
        let tokens = window.compress(b"abcdefgh-abcdefgh");
        let expected = Token::Match {
            distance: 9,
            length: 8,
        };
        assert_eq!(tokens.last(), Some(&expected));
        assert_eq!(tokens.len(), 10);
    }

    #[test]
    fn damaged_tokens_give_another_block_or_none() {
        let mut window = Window::new(1024, BLOCK);
        let text = b"abcdefgh-abcdefgh";
        let mut tokens = window.compress(text);
        let last = tokens.len() - 1;
        for damaged in [
            Token::Literal(b'x'),
            Token::Match {
                distance: 8,
                length: 8,
            },
            Token::Match {
                distance: 9,
                length: 7,
            },
            Token::Match {
                distance: 0,
                length: 8,
            },
        ] {
            tokens[last] = damaged;
            assert_ne!(
                window.decompress(&tokens, text.len()).as_deref(),
                Some(&text[..])
            );
        }
    }
}
