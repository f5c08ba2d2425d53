//! `gzip-like`: phases of a compressor.

use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;

use nix::sys::memfd::{MFdFlags, memfd_create};
use serde_json::Map;

use crate::bound::Bound;
use crate::cast;
use crate::checksum::Checksum;
use crate::meter::Meter;
use crate::options::{Kind, OptionSpec, SEED};
use crate::workload::{Description, Job, Outcome, Workload};
use crate::workloads::lz77::{Token, Window};
use vtax_sys::calls::memory::map_allocations_from;
use vtax_sys::terminal::Error;

/// Bytes that are read, compressed and written at a time.
const BLOCK: usize = 64 << 10;

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
    summary: "Phases of a compressor: a new buffer is filled with text, matched against a window \
              with hash chains, and the output is written to a file in memory",
    stresses: "Alternating locality: streaming over fresh buffers (faults), scattered reads of \
               the window and its chains (dTLB misses), system calls",
    unit: "blocks of 64 KiB",
    default_bound: Bound::Count(15),
    options: &[
        OptionSpec {
            name: "mem",
            kind: Kind::Bytes,
            default: Some("1M"),
            help: "The window, at least 128K, rounded down to a power of two; its chains take \
                   four times as much",
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
        details.insert("literals".into(), compressor.literals.into());
        details.insert("matches".into(), compressor.matches.into());
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
    window: Window,
    output: File,
    written: u64,
    literals: u64,
    matches: u64,
    wrong: u64,
    checksum: Checksum,
}

impl Compressor {
    fn new(job: &Job<'_>) -> Result<Self, Error> {
        let bytes = 1 << job.parameters.number("mem").ilog2();
        if !(2 * cast::count(BLOCK)..=1 << 31).contains(&bytes) {
            return Err(Error::misuse(
                "--mem",
                format!("a window of {bytes} bytes"),
                "give from 128K to 2G",
            ));
        }
        job.context
            .require_memory(Window::needed_bytes(bytes) + OUTPUT_BYTES)?;
        let output = memfd_create("gzip-like", MFdFlags::MFD_CLOEXEC)
            .map_err(|errno| Error::system("memfd_create", errno, "use Linux 3.17 or later"))?;
        Ok(Self {
            text: Text::new(job.parameters.number("seed")),
            window: Window::new(cast::index(bytes), BLOCK),
            output: output.into(),
            written: 0,
            literals: 0,
            matches: 0,
            wrong: 0,
            checksum: Checksum::new(),
        })
    }

    fn do_block(&mut self) -> Result<(), Error> {
        let block = black_box(self.text.block());
        let tokens = black_box(self.window.compress(&block));
        let output = encode(&tokens);
        self.write(&output)?;
        let back = self.window.decompress(&tokens, block.len());
        self.wrong += u64::from(back.as_ref() != Some(&block));
        self.count(&tokens);
        Ok(())
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

    fn count(&mut self, tokens: &[Token]) {
        for token in tokens {
            match token {
                Token::Literal(_) => self.literals += 1,
                Token::Match { .. } => self.matches += 1,
            }
            self.checksum.add(u64::from_le_bytes(token.to_bytes()));
        }
    }
}

fn encode(tokens: &[Token]) -> Vec<u8> {
    tokens.iter().flat_map(|token| token.to_bytes()).collect()
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
