//! Errors of traces, each as one printable line that names the position.

use std::fmt;

use crate::error::ModelError;
use thiserror::Error;

/// A trace that cannot be read or read further, with its name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{name}: {fault}")]
pub struct TraceError {
    /// The caller's name for the trace, made printable.
    pub name: String,
    pub fault: Fault,
}

impl From<TraceError> for ModelError {
    fn from(error: TraceError) -> Self {
        Self::Source(error.to_string())
    }
}

impl TraceError {
    /// The error of a file that a caller cannot open.
    pub fn cannot_open(name: &str, error: &std::io::Error) -> Self {
        Self {
            name: printable(name),
            fault: Fault::Open(printable(&error.to_string())),
        }
    }
}

/// What is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Fault {
    /// The file is in none of the known formats.
    #[error(
        "not a trace: {0}; vtax reads its own .vtrace and ChampSim's traces, each plain or in gzip, xz or zstd"
    )]
    NotATrace(String),
    /// The file cannot be opened, with the operating system's reason.
    #[error("cannot open: {0}")]
    Open(String),
    /// The trace ends too early; everything before the position has been delivered.
    #[error("{position}: truncated: {reason}")]
    Truncated {
        /// How much was read.
        position: Position,
        /// What is missing.
        reason: String,
    },
    /// The trace holds something that its format does not allow.
    #[error("{position}: {reason}")]
    Corrupt {
        position: Position,
        /// What was found and what would be right.
        reason: String,
    },
    /// The operating system or the decompressor reports an error.
    #[error("{position}: cannot read further: {reason}")]
    Read {
        position: Position,
        /// The reason, in the system's or decompressor's words.
        reason: String,
    },
}

impl Fault {
    /// The fault of something that the format does not allow.
    pub(crate) fn corrupt(position: Position, reason: impl Into<String>) -> Self {
        Self::Corrupt {
            position,
            reason: reason.into(),
        }
    }

    /// The fault of a trace that ends too early.
    pub(crate) fn truncated(position: Position, reason: impl Into<String>) -> Self {
        Self::Truncated {
            position,
            reason: reason.into(),
        }
    }
}

/// A position in a trace. Bytes are counted from 0 after decompression, the others from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// Offset of a byte of the decompressed data.
    Byte(u64),
    /// A record of a trace with records of one size.
    Record(u64),
    /// A frame of a .vtrace file and the offset at which it begins.
    Frame {
        number: u64,
        /// Where it begins in the decompressed data.
        byte: u64,
    },
}

impl fmt::Display for Position {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Byte(byte) => write!(formatter, "byte {byte}"),
            Self::Record(record) => write!(formatter, "record {record}"),
            Self::Frame { number, byte } => write!(formatter, "frame {number} at byte {byte}"),
        }
    }
}

/// The most characters of foreign text that an error quotes.
const QUOTED: usize = 200;

/// Foreign text (a file's name, a reason) as part of one printable line.
pub(crate) fn printable(text: &str) -> String {
    let mut characters = text.chars();
    let mut line: String = characters
        .by_ref()
        .take(QUOTED)
        .map(|c| if is_printable(c) { c } else { '\u{fffd}' })
        .collect();
    if characters.next().is_some() {
        line.push('…');
    }
    line
}

/// Is the character neither a control character nor one that ends a line or reorders the text
/// around it?
fn is_printable(character: char) -> bool {
    let reorders = matches!(character,
        '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    !character.is_control() && !reorders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_stays_on_one_line_and_short() {
        assert_eq!(printable("a\nb\u{2028}c"), "a\u{fffd}b\u{fffd}c");
        assert_eq!(printable(&"x".repeat(1000)).chars().count(), QUOTED + 1);
    }
}
