//! A bounded buffer over a stream that knows its position and keeps errors for their turn.

use std::io::{self, Read};

use crate::traces::error::{Fault, Position, printable};

/// The most bytes held: 4,096 `ChampSim` records, and several decompressor blocks.
pub(crate) const BUFFER_BYTES: usize = 256 * 1024;

/// How the stream ended.
#[derive(Clone, Debug)]
enum End {
    /// At the end of the data.
    Clean,
    /// The decompressor needed more input.
    Early(String),
    Failed(String),
}

/// A buffered stream. An error of the stream is kept until the bytes before it are consumed.
pub(crate) struct Input {
    reader: Box<dyn Read + Send>,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    position: u64,
    over: Option<End>,
}

impl Input {
    pub fn new(reader: Box<dyn Read + Send>) -> Self {
        Self {
            reader,
            buffer: vec![0; BUFFER_BYTES].into_boxed_slice(),
            start: 0,
            end: 0,
            position: 0,
            over: None,
        }
    }

    /// Offset of the first byte that is not consumed.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The bytes that are buffered and not consumed.
    pub fn buffered(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// At least `want` bytes (at most [`BUFFER_BYTES`]), or all remaining bytes.
    pub fn fill(&mut self, want: usize) -> &[u8] {
        if self.end - self.start < want && self.over.is_none() {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
            while self.end < want.min(BUFFER_BYTES) && self.over.is_none() {
                self.read_once();
            }
        }
        self.buffered()
    }

    fn read_once(&mut self) {
        match self.reader.read(&mut self.buffer[self.end..]) {
            Ok(0) => self.over = Some(End::Clean),
            // A wrapper around foreign code may claim more than fits.
            Ok(bytes) => self.end = (self.end + bytes).min(BUFFER_BYTES),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => self.over = Some(End::of(&error)),
        }
    }

    /// Drop the first `bytes` of [`Self::buffered`].
    pub fn consume(&mut self, bytes: usize) {
        let bytes = bytes.min(self.end - self.start);
        self.start += bytes;
        self.position += bytes as u64;
    }

    /// Move the next bytes into `target`; false when fewer are left.
    pub fn read_exact(&mut self, mut target: &mut [u8]) -> bool {
        while !target.is_empty() {
            let available = self.fill(target.len().min(BUFFER_BYTES));
            let count = available.len().min(target.len());
            if count == 0 {
                return false;
            }
            let (head, rest) = target.split_at_mut(count);
            head.copy_from_slice(&available[..count]);
            target = rest;
            self.consume(count);
        }
        true
    }

    /// Why there are no more bytes: an error of the stream, or `None` when it ended cleanly.
    pub fn failure(&self, position: Position) -> Option<Fault> {
        match self.over.as_ref()? {
            End::Clean => None,
            End::Early(reason) => Some(Fault::truncated(position, reason.clone())),
            End::Failed(reason) => Some(Fault::Read {
                position,
                reason: reason.clone(),
            }),
        }
    }
}

impl End {
    fn of(error: &io::Error) -> Self {
        let reason = printable(&error.to_string());
        if error.kind() == io::ErrorKind::UnexpectedEof {
            Self::Early(format!("the compressed data end early ({reason})"))
        } else {
            Self::Failed(reason)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives `data` in single bytes and then fails.
    struct Failing(Vec<u8>);

    impl Read for Failing {
        fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
            if self.0.is_empty() {
                return Err(io::Error::other("a\nb"));
            }
            target[0] = self.0.remove(0);
            Ok(1)
        }
    }

    #[test]
    fn an_error_waits_for_the_bytes_before_it() {
        let mut input = Input::new(Box::new(Failing(b"abc".to_vec())));
        assert_eq!(input.fill(10), b"abc");
        input.consume(2);
        assert_eq!((input.position(), input.fill(1)), (2, b"c".as_slice()));
        let text = input.failure(Position::Byte(2)).unwrap().to_string();
        assert_eq!(text, "byte 2: cannot read further: a\u{fffd}b");
    }
}
