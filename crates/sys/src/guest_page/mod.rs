//! The page in which a guest, or a program, publishes cumulative counters (docs/record.md).
//!
//! The agent in a guest writes it ([`Publisher`]), the recorder on the host samples it
//! ([`Reader`]). Applications register counters in pages of their own, which both collect
//! ([`applications::Collector`]).

pub mod applications;
mod publisher;
mod reader;

use thiserror::Error;

pub use publisher::Publisher;
pub use reader::{Reader, Sample};

pub const BYTES: usize = 4096;
/// The most counters of a page.
pub const COUNTERS: usize = 63;
/// The longest name in bytes.
pub const NAME_BYTES: usize = 56;

const WORDS: usize = BYTES / 8;
const MAGIC: u64 = u64::from_le_bytes(*b"VTAXPAGE");
const VERSION: u64 = 1;

// Words of the header, and of each counter.
const SEQUENCE: usize = 2;
const TSC: usize = 3;
const TIME: usize = 4;
const COUNT: usize = 5;
const GENERATION: usize = 6;
const FIRST: usize = 8;
const ENTRY: usize = 8;
const VALUE: usize = 7;

#[derive(Debug, Error, PartialEq, Eq)]
pub enum PageError {
    /// The page cannot be opened, read or written; the text has the reason.
    #[error("{0}")]
    File(String),
    /// The page does not begin as one of this version does.
    #[error("it is not a guest page of version {VERSION}")]
    NotAPage,
    /// The publisher was writing at each try.
    #[error("its publisher stopped in the middle of a publication")]
    Torn,
    /// A name that cannot be a column.
    #[error("counter {0:?} is not named layer.event, in at most {NAME_BYTES} letters")]
    Name(String),
    /// More counters than there is room for.
    #[error("{0} counters are more than {COUNTERS}")]
    TooMany(usize),
}

impl PageError {
    fn file(error: &std::io::Error) -> Self {
        Self::File(error.to_string())
    }
}

/// Is this a valid name of a counter: `layer.event`, of `a-z`, `0-9` and `_`?
pub fn is_name(name: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    let part = |part: &str| !part.is_empty() && part.bytes().all(letter);
    name.len() <= NAME_BYTES && name.contains('.') && name.split('.').all(part)
}

/// The word of a counter's value in the page.
fn value_word(index: usize) -> usize {
    FIRST + index * ENTRY + VALUE
}
