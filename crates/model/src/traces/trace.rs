//! An open trace of any format: a [`StepSource`] whose errors name the trace.

use std::io::Read;

use crate::error::ModelError;
use crate::limits::Limits;
use crate::step::{Step, StepSource};

use crate::traces::block::{Block, Item, Reader};
use crate::traces::champsim::{ChampSimReader, CloudSuiteReader};
use crate::traces::compression;
use crate::traces::detect::{self, Format};
use crate::traces::error::{Fault, Position, TraceError, printable};
use crate::traces::input::Input;
use crate::traces::vtrace::{Header, VtraceReader};

/// Cycles per instruction without translation cost where the trace does not give it.
///
/// An assumption, not a measurement: it is the unit in which translation cost is compared.
const ASSUMED_BASE_CPI: f32 = 1.0;

/// Open the trace that `reader` supplies. `name` is used only in errors.
///
/// A compressed trace is decompressed as it is read. The format is found by content; this fails for
/// a file that is not a trace, and for a damaged header.
pub fn open(reader: Box<dyn Read + Send>, name: &str) -> Result<Trace, TraceError> {
    Trace::new(reader, printable(name)).map_err(|fault| named(name, fault))
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
/// It gives only the references, instructions and, from a `.vtrace`, the operations of the trace: a
/// trace of another format is one process ([`Self::map_on_touch`]). After an error every further
/// step is the same error.
pub struct Trace {
    name: String,
    format: Format,
    header: Option<Header>,
    reader: Box<dyn Reader>,
    block: Block,
    carry: f64,
    end: Option<Result<(), Fault>>,
}

impl Trace {
    fn new(reader: Box<dyn Read + Send>, name: String) -> Result<Self, Fault> {
        let stream = compression::decompress(reader).map_err(|error| cannot_read(&error))?;
        let mut input = Input::new(stream);
        let format = find_format(&mut input)?;
        let mut header = None;
        let reader: Box<dyn Reader> = match format {
            Format::Vtrace => {
                let reader = VtraceReader::new(input)?;
                header = Some(reader.header().clone());
                Box::new(reader)
            }
            Format::ChampSim => Box::new(ChampSimReader::new(input)),
            Format::CloudSuite => Box::new(CloudSuiteReader::new(input)),
        };
        Ok(Self {
            name,
            format,
            header,
            reader,
            block: Block::new(),
            carry: 0.0,
            end: None,
        })
    }

    pub fn format(&self) -> Format {
        self.format
    }

    /// What a `.vtrace` says about itself.
    pub fn header(&self) -> Option<&Header> {
        self.header.as_ref()
    }

    /// Must any touched page count as mapped, because the trace does not say what is mapped? True
    /// for all traces but a `.vtrace` that says otherwise.
    pub fn map_on_touch(&self) -> bool {
        self.header
            .as_ref()
            .is_none_or(|header| header.map_on_touch)
    }

    /// The next step, or `None` at the end.
    ///
    /// Fails when the trace is corrupt or truncated, or cannot be read further. Every later call
    /// fails in the same way.
    pub fn step(&mut self) -> Result<Option<Step<'_>>, TraceError> {
        if self.end.is_none() {
            self.block.clear();
            match self.reader.next(&mut self.block) {
                Ok(Item::Operation(operation)) => return Ok(Some(Step::Operation(operation))),
                Ok(Item::Phase(phase)) => return Ok(Some(Step::Phase(phase))),
                Ok(Item::Interval(recorded)) => {
                    let blocks = &self.block.vector;
                    return Ok(Some(Step::Interval { recorded, blocks }));
                }
                Ok(Item::References) => return Ok(Some(self.references_step())),
                Ok(Item::End) => self.end = Some(Ok(())),
                Err(fault) => self.end = Some(Err(fault)),
            }
        }
        match &self.end {
            Some(Err(fault)) => Err(named(&self.name, fault.clone())),
            _ => Ok(None),
        }
    }

    fn references_step(&mut self) -> Step<'_> {
        self.assume_instructions();
        Step::References {
            references: &self.block.references,
            instructions: self.block.instructions,
            base_cpi: self.block.base_cpi.unwrap_or(ASSUMED_BASE_CPI),
        }
    }

    /// Replace the counted instructions where the header gives a ratio; fractions carry over.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    #[expect(clippy::cast_precision_loss)] // a block has at most 4,096 references
    fn assume_instructions(&mut self) {
        let header = self.header.as_ref();
        if let Some(ratio) = header.and_then(|header| header.instructions_per_reference) {
            let exact = self.block.references.len() as f64 * ratio + self.carry;
            self.carry = exact.fract();
            self.block.instructions = exact.trunc() as u64;
        }
    }
}

/// Finds the format by content.
fn find_format(input: &mut Input) -> Result<Format, Fault> {
    let found = detect::detect(input);
    match (found, input.failure(Position::Byte(0))) {
        // A read error is reported as such, not as a format error of the few bytes that were read.
        (Err(_), Some(fault)) => Err(fault),
        (found, _) => found,
    }
}

impl StepSource for Trace {
    fn next_step(&mut self) -> Result<Option<Step<'_>>, ModelError> {
        Ok(self.step()?)
    }

    fn limits(&self) -> Limits {
        Limits::TRACE
    }

    fn interval(&self) -> Option<u64> {
        self.header.as_ref()?.interval_instructions
    }
}
