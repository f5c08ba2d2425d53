//! An open trace of any format: options applied, errors named, a [`Source`].

use std::io::Read;

use crate::error::ModelError;
use crate::step::{Source, Step};

use crate::traces::block::{Block, Item, Reader};
use crate::traces::champsim::{ChampSimReader, CloudSuiteReader};
use crate::traces::compression::{self, Compression};
use crate::traces::detect;
use crate::traces::error::{Fault, Position, TraceError, printable};
use crate::traces::input::Input;
use crate::traces::lackey::LackeyReader;
use crate::traces::options::{ASSUMED_BASE_CPI, Format, Options};
use crate::traces::vtrace::{Header, VtraceReader};

/// Open the trace that `reader` supplies. `name` is what errors call it, and nothing else.
///
/// A compressed trace is decompressed as it is read. Without [`Options::format`] the format is
/// found by content; that fails for what is not a trace, and for a header that is damaged.
pub fn open(
    reader: Box<dyn Read + Send>,
    name: &str,
    options: &Options,
) -> Result<Trace, TraceError> {
    Trace::new(reader, options, printable(name)).map_err(|fault| named(name, fault))
}

fn named(name: &str, fault: Fault) -> TraceError {
    TraceError {
        name: printable(name),
        fault,
    }
}

fn cannot_read(error: &std::io::Error) -> Fault {
    Fault::Read {
        position: Position::Byte(0),
        reason: printable(&error.to_string()),
    }
}

/// A trace that is being read.
///
/// It gives the references, instructions and, from a `.vtrace`, the operations of the trace, and
/// nothing else: a trace of another format is one process ([`Self::map_on_touch`]). After an error every further step is the same error.
pub struct Trace {
    name: String,
    format: Format,
    compression: Compression,
    header: Option<Header>,
    reader: Box<dyn Reader>,
    block: Block,
    base_cpi: Option<f32>,
    ratio: Option<f64>,
    limit: Option<u64>,
    accept_truncated: bool,
    carry: f64,
    references: u64,
    instructions: u64,
    end: Option<Result<(), Fault>>,
    truncation: Option<Fault>,
}

impl Trace {
    fn new(reader: Box<dyn Read + Send>, options: &Options, name: String) -> Result<Self, Fault> {
        options.check()?;
        let (compression, stream) =
            compression::decompress(reader).map_err(|error| cannot_read(&error))?;
        let mut input = Input::new(stream);
        let format = find_format(&mut input, options)?;
        let mut header = None;
        let reader: Box<dyn Reader> = match format {
            Format::Vtrace => {
                let reader = VtraceReader::new(input)?;
                header = Some(reader.header().clone());
                Box::new(reader)
            }
            Format::ChampSim => Box::new(ChampSimReader::new(input)),
            Format::CloudSuite => Box::new(CloudSuiteReader::new(input)),
            Format::Lackey => {
                let uncounted = options.instructions_per_reference.is_some();
                Box::new(LackeyReader::new(input, uncounted))
            }
        };
        let recorded = header.as_ref().and_then(|h| h.instructions_per_reference);
        Ok(Self {
            name,
            format,
            compression,
            header,
            reader,
            block: Block::new(),
            base_cpi: options.base_cpi,
            ratio: options.instructions_per_reference.or(recorded),
            limit: options.reference_limit,
            accept_truncated: options.accept_truncated,
            carry: 0.0,
            references: 0,
            instructions: 0,
            end: None,
            truncation: None,
        })
    }

    /// The trace's format.
    pub fn format(&self) -> Format {
        self.format
    }

    /// How the trace is compressed as a whole.
    pub fn compression(&self) -> Compression {
        self.compression
    }

    /// What a `.vtrace` says about itself.
    pub fn header(&self) -> Option<&Header> {
        self.header.as_ref()
    }

    /// Whether the trace does not say what is mapped, so that any touched page must count as
    /// mapped: all but a `.vtrace` that says otherwise.
    pub fn map_on_touch(&self) -> bool {
        self.header
            .as_ref()
            .is_none_or(|header| header.map_on_touch)
    }

    /// References given so far.
    pub fn references(&self) -> u64 {
        self.references
    }

    /// Instructions given so far.
    pub fn instructions(&self) -> u64 {
        self.instructions
    }

    /// How the trace was truncated, where that was accepted and its end has been reached.
    pub fn truncation(&self) -> Option<TraceError> {
        let fault = self.truncation.clone()?;
        Some(named(&self.name, fault))
    }

    /// The next step, or `None` at the end.
    ///
    /// Fails when the trace is corrupt or cannot be read on, or when it is truncated and that was
    /// not accepted. Every later call fails in the same way.
    pub fn step(&mut self) -> Result<Option<Step<'_>>, TraceError> {
        if self.end.is_none() {
            if self.limit.is_some_and(|limit| self.references >= limit) {
                self.end = Some(Ok(()));
            } else {
                self.block.clear();
                match self.reader.next(&mut self.block) {
                    Ok(Item::Operation(operation)) => return Ok(Some(Step::Operation(operation))),
                    Ok(Item::Phase(phase)) => return Ok(Some(Step::Phase(phase))),
                    Ok(Item::References) => return Ok(Some(self.references_step())),
                    Ok(Item::End) => self.end = Some(Ok(())),
                    Err(fault) => self.stop(fault),
                }
            }
        }
        match &self.end {
            Some(Err(fault)) => Err(named(&self.name, fault.clone())),
            _ => Ok(None),
        }
    }

    fn stop(&mut self, fault: Fault) {
        self.end = Some(match fault {
            Fault::Truncated { .. } if self.accept_truncated => {
                self.truncation = Some(fault);
                Ok(())
            }
            _ => Err(fault),
        });
    }

    fn references_step(&mut self) -> Step<'_> {
        self.cut_at_limit();
        self.assume_instructions();
        self.references += self.block.references.len() as u64;
        self.instructions = self.instructions.saturating_add(self.block.instructions);
        Step::References {
            references: &self.block.references,
            instructions: self.block.instructions,
            base_cpi: self
                .base_cpi
                .or(self.block.base_cpi)
                .unwrap_or(ASSUMED_BASE_CPI),
        }
    }

    /// Drop what exceeds the limit, with its share of the instructions.
    fn cut_at_limit(&mut self) {
        let Some(limit) = self.limit else { return };
        let length = self.block.references.len() as u64;
        let left = limit - self.references.min(limit);
        if left < length {
            let share = u128::from(self.block.instructions) * u128::from(left) / u128::from(length);
            self.block.instructions = u64::try_from(share).unwrap_or(self.block.instructions);
            self.block
                .references
                .truncate(usize::try_from(left).unwrap_or(0));
        }
    }

    /// Replace the counted instructions where a ratio is to be used; fractions carry over.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    #[expect(clippy::cast_precision_loss)] // a block has at most 4,096 references
    fn assume_instructions(&mut self) {
        if let Some(ratio) = self.ratio {
            let exact = self.block.references.len() as f64 * ratio + self.carry;
            self.carry = exact.fract();
            self.block.instructions = exact.trunc() as u64;
        }
    }
}

/// The format that is asked for, else the one that is found.
fn find_format(input: &mut Input, options: &Options) -> Result<Format, Fault> {
    let found = match options.format {
        Some(format) => return Ok(format),
        None => detect::detect(input),
    };
    match (found, input.failure(Position::Byte(0))) {
        // What cannot be read is reported as such, not by what little came out of it.
        (Err(_), Some(fault)) => Err(fault),
        (found, _) => found,
    }
}

impl Source for Trace {
    fn next_step(&mut self) -> Result<Option<Step<'_>>, ModelError> {
        Ok(self.step()?)
    }
}
