//! `gzip-like`: phases of a compressor.

use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;

use miniz_oxide::deflate::core::{CompressionStrategy, CompressorOxide};
use miniz_oxide::deflate::stream::deflate;
use miniz_oxide::inflate::stream::{InflateState, inflate};
use miniz_oxide::{DataFormat, MZFlush};
use nix::sys::memfd::{MFdFlags, memfd_create};
use serde_json::Map;

use crate::bound::Bound;
use crate::cast;
use crate::checksum::Checksum;
use crate::meter::Meter;
use crate::options::{Kind, OptionSpec, SEED};
use crate::workload::{Description, Job, Outcome, Workload};
use vtax_sys::calls::memory::map_allocations_from;
use vtax_sys::terminal::Error;

/// Bytes that are read, compressed and written at a time.
const BLOCK: usize = 64 << 10;

/// Bytes that a stream gets at a time: few, so that the work soon goes to another window.
const PIECE: usize = 512;

/// The window of a stream (RFC 1951).
const WINDOW_BYTES: u64 = 32 << 10;

/// The memory of a stream: window, hash chains and buffers of a compressor, and a decompressor.
const STREAM_BYTES: u64 = 384 << 10;

/// gzip's default.
const LEVEL: u8 = 6;

/// Buffers of at least this size are mapped when they are allocated and unmapped when they are
/// freed, so that each block works on fresh pages.
const MAPPED_BYTES: i32 = 32 << 10;

/// The output starts again at 0 when it has this many bytes.
const OUTPUT_BYTES: u64 = 4 << 20;

/// Words of the text's vocabulary.
const VOCABULARY: usize = 4096;

/// The most bytes of a word or number, including its space.
const LONGEST_WORD: usize = 11;

/// Compresses made-up text.
#[derive(Debug)]
pub struct GzipLike;

static DESCRIPTION: Description = Description {
    name: "gzip-like",
    summary: "Phases of a compressor: a new buffer is filled with text, deflated in pieces of \
              512 bytes by one stream after the other, and the output is written to a file in memory; \
              with each block a stream ends and a new one begins",
    stresses: "Alternating locality: streaming over fresh buffers (faults), scattered reads of \
               the windows and their chains (dTLB misses), system calls",
    unit: "blocks of 64 KiB",
    default_bound: Bound::Count(15),
    options: &[
        OptionSpec {
            name: "mem",
            kind: Kind::Bytes,
            default: Some("1M"),
            help: "The windows of all streams, 32K each, at least 128K; chains and buffers take \
                   eleven times as much",
        },
        SEED,
    ],
};

impl Workload for GzipLike {
    fn description(&self) -> &'static Description {
        &DESCRIPTION
    }

    fn run(&self, job: &mut Job<'_>) -> Result<Outcome, Error> {
        if !map_allocations_from(MAPPED_BYTES) {
            return Err(Error::failure(
                "mallopt",
                "the C library refused",
                "report this as a bug",
            ));
        }
        let mut compressor = Compressor::new(job)?;
        let meter = Meter::start();
        while job.limit.grant(1).is_some() {
            compressor.do_block()?;
        }
        let usage = meter.stop();
        let mut details = Map::new();
        details.insert("output_bytes".into(), compressor.packed.into());
        details.insert("wrong_blocks".into(), compressor.wrong.into());
        Ok(Outcome {
            usage,
            operations: job.limit.done(),
            checksum: Some(compressor.checksum.value()),
            verified: compressor.wrong == 0,
            details,
        })
    }
}

struct Compressor {
    text: Text,
    streams: Vec<Stream>,
    /// The stream that gets the next piece.
    turn: usize,
    /// The stream that ends with the next block, after 64 KiB of its own.
    oldest: usize,
    output: File,
    /// Where the next output goes in the file.
    written: u64,
    /// The bytes of all outputs.
    packed: u64,
    wrong: u64,
    checksum: Checksum,
}

impl Compressor {
    fn new(job: &Job<'_>) -> Result<Self, Error> {
        let bytes = job.parameters.number("mem");
        if !(2 * cast::count(BLOCK)..=1 << 31).contains(&bytes) {
            return Err(Error::misuse(
                "--mem",
                format!("windows of {bytes} bytes"),
                "give from 128K to 2G",
            ));
        }
        let streams = bytes / WINDOW_BYTES;
        job.context
            .require_memory(streams * STREAM_BYTES + OUTPUT_BYTES)?;
        let output = memfd_create("gzip-like", MFdFlags::MFD_CLOEXEC)
            .map_err(|errno| Error::system("memfd_create", errno, "use Linux 3.17 or later"))?;
        Ok(Self {
            text: Text::new(job.parameters.number("seed")),
            streams: (0..streams).map(|_| Stream::new()).collect(),
            turn: 0,
            oldest: 0,
            output: output.into(),
            written: 0,
            packed: 0,
            wrong: 0,
            checksum: Checksum::new(),
        })
    }

    fn do_block(&mut self) -> Result<(), Error> {
        let block = black_box(self.text.block());
        let mut output = Vec::with_capacity(BLOCK);
        let mut whole = true;
        for piece in block.chunks(PIECE) {
            let stream = &mut self.streams[self.turn];
            let packed = black_box(stream.pack(piece));
            whole &= stream.unpack(&packed, PIECE) == piece;
            output.extend_from_slice(&packed);
            self.turn = (self.turn + 1) % self.streams.len();
        }
        self.streams[self.oldest] = Stream::new();
        self.oldest = (self.oldest + 1) % self.streams.len();
        self.wrong += u64::from(!whole);
        self.packed += cast::count(output.len());
        self.checksum.extend(words(&output));
        self.write(&output)
    }

    /// Append to the output, and read it back.
    fn write(&mut self, output: &[u8]) -> Result<(), Error> {
        let refused = |error| Error::input_output("the output", &error, "give the guest memory");
        if self.written >= OUTPUT_BYTES {
            self.written = 0;
        }
        self.output
            .write_all_at(output, self.written)
            .map_err(refused)?;
        let mut back = vec![0; output.len()];
        self.output
            .read_exact_at(&mut back, self.written)
            .map_err(refused)?;
        self.wrong += u64::from(back != output);
        self.written += cast::count(output.len());
        Ok(())
    }
}

/// The bytes as words, the last with zeros.
fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    })
}

/// A compressor, and a decompressor that follows it.
struct Stream {
    packer: CompressorOxide,
    unpacker: Box<InflateState>,
}

impl Stream {
    fn new() -> Self {
        let strategy = CompressionStrategy::Default;
        Self {
            packer: CompressorOxide::with_params(DataFormat::Raw, LEVEL, strategy, 15),
            unpacker: InflateState::new_boxed(DataFormat::Raw),
        }
    }

    /// Compress a piece, all of it, so that it can be decompressed before the next.
    fn pack(&mut self, piece: &[u8]) -> Vec<u8> {
        let mut packed = vec![0; 2 * PIECE];
        let done = deflate(&mut self.packer, piece, &mut packed, MZFlush::Sync);
        packed.truncate(done.bytes_written);
        packed
    }

    /// Decompress the last piece. What is damaged gives other bytes, or fewer or more than `length`.
    fn unpack(&mut self, packed: &[u8], length: usize) -> Vec<u8> {
        // Room for one byte more: with a full buffer the end of the piece would not be read.
        let mut piece = vec![0; length + 1];
        let done = inflate(&mut self.unpacker, packed, &mut piece, MZFlush::None);
        piece.truncate(done.bytes_written);
        piece
    }
}

/// Made-up text: words of a small vocabulary, early words more often, and some numbers.
struct Text {
    random: fastrand::Rng,
    words: Vec<Vec<u8>>,
}

impl Text {
    fn new(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let words = (0..VOCABULARY).map(|_| word(&mut random)).collect();
        Self { random, words }
    }

    fn block(&mut self) -> Vec<u8> {
        let mut block = Vec::with_capacity(BLOCK + LONGEST_WORD);
        while block.len() < BLOCK {
            if self.random.u8(..16) == 0 {
                block.extend_from_slice(self.random.u32(..).to_string().as_bytes());
            } else {
                // The smaller of two random numbers: early words are more likely.
                let at = self
                    .random
                    .usize(..VOCABULARY)
                    .min(self.random.usize(..VOCABULARY));
                block.extend_from_slice(&self.words[at]);
            }
            block.push(b' ');
        }
        block.truncate(BLOCK);
        block
    }
}

fn word(random: &mut fastrand::Rng) -> Vec<u8> {
    let length = random.usize(2..10);
    std::iter::repeat_with(|| random.u8(b'a'..=b'z'))
        .take(length)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_packed_comes_back() {
        let mut text = Text::new(1);
        let mut stream = Stream::new();
        let mut packed_bytes = 0;
        for _ in 0..8 {
            for piece in text.block().chunks(PIECE) {
                let packed = stream.pack(piece);
                assert_eq!(stream.unpack(&packed, PIECE), piece);
                packed_bytes += packed.len();
            }
        }
        assert!(packed_bytes < 8 * BLOCK * 2 / 3, "{packed_bytes}");
    }

    #[test]
    fn damage_is_seen() {
        let block = Text::new(1).block();
        let piece = &block[..PIECE];
        let packed = Stream::new().pack(piece);
        let mut other_tree = packed.clone();
        other_tree[4] ^= 1;
        for damaged in [&other_tree, &packed[..packed.len() / 2], &[]] {
            assert_ne!(Stream::new().unpack(damaged, PIECE), piece);
        }
    }
}
