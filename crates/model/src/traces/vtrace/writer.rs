//! Writes `.vtrace`.

use std::io::{self, Write};

use thiserror::Error;

use super::record::{FrameState, bit, tag};
use super::{
    FRAME_HEADER, FRAME_LIMIT, HEADER_LIMIT, Header, INSTRUCTION_LIMIT, MAGIC, VECTOR_LIMIT,
    VERSION, crc, kind,
};
use crate::error::ModelError;
use crate::model::address::Reference;
use crate::step::{Operation, Step, StepSource, TableEntry};
use crate::traces::block::BLOCK_REFERENCES;

/// A frame is written after this many bytes of records. One more record cannot reach the limit.
const FRAME_TARGET: usize = 256 * 1024;
const _: () = assert!(FRAME_TARGET + 64 + 10 * BLOCK_REFERENCES < FRAME_LIMIT);

/// zstd's level: 1 to 19, higher levels are smaller and slower. Frames are small, so low levels do
/// well.
const ZSTD_LEVEL: i32 = 3;

/// How payloads are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Codec {
    Plain,
    #[default]
    Zstd,
}

/// A trace that cannot be written.
#[derive(Debug, Error)]
pub enum WriteError {
    /// The target failed.
    #[error("cannot write the trace: {0}")]
    Io(#[from] io::Error),
    /// A step or a header that the format cannot hold.
    #[error("cannot write the trace: {0}")]
    Value(String),
    /// The recorded source failed; the steps before that are written.
    #[error("cannot record the trace: {0}")]
    Source(#[from] ModelError),
}

/// Writes steps into a `.vtrace`. Without [`Writer::finish`] the file counts as truncated.
pub struct Writer<W: Write> {
    target: W,
    codec: Codec,
    raw: Vec<u8>,
    packed: Vec<u8>,
    compressor: zstd::bulk::Compressor<'static>,
    state: FrameState,
    references: u64,
    instructions: u64,
}

impl<W: Write> Writer<W> {
    pub fn new(mut target: W, header: &Header, codec: Codec) -> Result<Self, WriteError> {
        target.write_all(&header_bytes(header)?)?;
        Ok(Self {
            target,
            codec,
            raw: Vec::with_capacity(FRAME_TARGET + 10 * BLOCK_REFERENCES),
            packed: Vec::with_capacity(zstd::zstd_safe::compress_bound(FRAME_LIMIT)),
            compressor: zstd::bulk::Compressor::new(ZSTD_LEVEL)?,
            state: FrameState::default(),
            references: 0,
            instructions: 0,
        })
    }

    /// Append a step. Blocks over 4,096 references are split.
    pub fn step(&mut self, step: &Step<'_>) -> Result<(), WriteError> {
        match *step {
            Step::Operation(operation) => put_operation(&mut self.raw, &operation),
            Step::Phase(phase) => put_phase(&mut self.raw, phase),
            Step::Interval { recorded, blocks } => put_interval(&mut self.raw, recorded, blocks)?,
            Step::References {
                references,
                instructions,
                base_cpi,
            } => return self.references(references, instructions, base_cpi),
        }
        self.flush_full()
    }

    /// Appends all remaining steps of `source`.
    pub fn record(&mut self, source: &mut dyn StepSource) -> Result<(), WriteError> {
        while let Some(step) = source.next_step()? {
            self.step(&step)?;
        }
        Ok(())
    }

    /// Writes the buffered records as a frame: after that, a crash cannot lose them.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        self.write_frame()?;
        Ok(self.target.flush()?)
    }

    /// Writes the end frame and returns the target, flushed.
    pub fn finish(mut self) -> Result<W, WriteError> {
        self.write_frame()?;
        let totals = [
            self.references.to_le_bytes(),
            self.instructions.to_le_bytes(),
        ];
        let totals = totals.as_flattened();
        self.target
            .write_all(&frame_head(totals, totals.len(), kind::END)?)?;
        self.target.write_all(totals)?;
        self.target.flush()?;
        Ok(self.target)
    }

    fn references(
        &mut self,
        references: &[Reference],
        instructions: u64,
        base_cpi: f32,
    ) -> Result<(), WriteError> {
        if !(base_cpi.is_finite() && base_cpi > 0.0) {
            let reason = format!("base CPI {base_cpi} is not a positive number");
            return Err(WriteError::Value(reason));
        }
        if instructions > INSTRUCTION_LIMIT {
            let reason = format!("a block of {instructions} instructions; at most 2^40");
            return Err(WriteError::Value(reason));
        }
        let (mut rest, mut left) = (references, instructions);
        loop {
            let (piece, tail) = rest.split_at(rest.len().min(BLOCK_REFERENCES));
            let share = share(left, piece.len(), rest.len());
            self.piece(piece, share, base_cpi)?;
            (rest, left) = (tail, left - share);
            if rest.is_empty() {
                return Ok(());
            }
        }
    }

    fn piece(
        &mut self,
        references: &[Reference],
        instructions: u64,
        base_cpi: f32,
    ) -> Result<(), WriteError> {
        let (raw, state) = (&mut self.raw, &mut self.state);
        put_references(raw, state, references, instructions, base_cpi);
        self.references += references.len() as u64;
        self.instructions = self.instructions.wrapping_add(instructions);
        self.flush_full()
    }

    fn flush_full(&mut self) -> Result<(), WriteError> {
        if self.raw.len() >= FRAME_TARGET {
            self.write_frame()?;
        }
        Ok(())
    }

    fn write_frame(&mut self) -> Result<(), WriteError> {
        if self.raw.is_empty() {
            return Ok(());
        }
        let (payload, kind) = match self.codec {
            Codec::Plain => (&self.raw, kind::PLAIN),
            Codec::Zstd => {
                self.packed.clear();
                self.compressor
                    .compress_to_buffer(&self.raw, &mut self.packed)?;
                // Random addresses hardly shrink, and are read about twice as fast when plain.
                if self.packed.len() < self.raw.len() / 8 * 7 {
                    (&self.packed, kind::ZSTD)
                } else {
                    (&self.raw, kind::PLAIN)
                }
            }
        };
        self.target
            .write_all(&frame_head(payload, self.raw.len(), kind)?)?;
        self.target.write_all(payload)?;
        self.raw.clear();
        self.state = FrameState::default();
        Ok(())
    }
}

/// The part of `instructions` that belongs to `piece` of `references`; the last piece gets the
/// rest.
fn share(instructions: u64, piece: usize, references: usize) -> u64 {
    if piece == references {
        return instructions;
    }
    let exact = u128::from(instructions) * piece as u128 / references as u128;
    u64::try_from(exact).unwrap_or(instructions)
}

fn header_bytes(header: &Header) -> Result<Vec<u8>, WriteError> {
    let json = serde_json::to_vec(header).map_err(|error| WriteError::Value(error.to_string()))?;
    if json.len() > HEADER_LIMIT {
        let reason = format!("a header of {} bytes; at most {HEADER_LIMIT}", json.len());
        return Err(WriteError::Value(reason));
    }
    let mut checked = Vec::with_capacity(8);
    checked.extend(VERSION.to_le_bytes());
    checked.extend([0; 2]);
    checked.extend(length(json.len())?);
    let crc = crc(&[&checked, &json]).to_le_bytes();
    Ok([&MAGIC, checked.as_slice(), &crc, &json].concat())
}

fn frame_head(payload: &[u8], raw: usize, kind: u32) -> Result<Vec<u8>, WriteError> {
    let mut head = Vec::with_capacity(FRAME_HEADER);
    head.extend(length(payload.len())?);
    head.extend(length(raw)?);
    head.extend(kind.to_le_bytes());
    let crc = crc(&[&head, payload]);
    head.extend(crc.to_le_bytes());
    Ok(head)
}

fn length(bytes: usize) -> Result<[u8; 4], WriteError> {
    u32::try_from(bytes)
        .map(u32::to_le_bytes)
        .map_err(|_| WriteError::Value(format!("a part of {bytes} bytes")))
}

/// Appends a block of at most [`BLOCK_REFERENCES`], with its base CPI if that changes.
fn put_references(
    target: &mut Vec<u8>,
    state: &mut FrameState,
    references: &[Reference],
    instructions: u64,
    base_cpi: f32,
) {
    if base_cpi.to_bits() != state.base_cpi.to_bits() {
        state.base_cpi = base_cpi;
        target.push(tag::BASE_CPI);
        target.extend(base_cpi.to_le_bytes());
    }
    target.push(tag::REFERENCES);
    put(target, references.len() as u64);
    put(target, instructions);
    for &reference in references {
        let token = token(reference, &mut state.previous);
        put(target, token);
    }
}

fn put_phase(target: &mut Vec<u8>, phase: u32) {
    put_fields(target, tag::PHASE, &[phase.into()]);
}

fn put_interval(target: &mut Vec<u8>, recorded: bool, blocks: &[u64]) -> Result<(), WriteError> {
    if blocks.len() > VECTOR_LIMIT || blocks.iter().any(|&each| each > INSTRUCTION_LIMIT) {
        let reason = format!("a block vector beyond {VECTOR_LIMIT} elements of 2^40");
        return Err(WriteError::Value(reason));
    }
    put_fields(
        target,
        tag::INTERVAL,
        &[recorded.into(), blocks.len() as u64],
    );
    for &each in blocks {
        put(target, each);
    }
    Ok(())
}

fn put_operation(target: &mut Vec<u8>, operation: &Operation) {
    let mut append = |tag, fields: &[u64]| put_fields(target, tag, fields);
    match *operation {
        Operation::Spawn { process } => append(tag::SPAWN, &[process.into()]),
        Operation::Map { start, bytes, size } => {
            append(tag::MAP, &[start.0, bytes, u64::from(size.level()) - 1]);
        }
        Operation::Unmap { start, bytes } => append(tag::UNMAP, &[start.0, bytes]),
        Operation::Protect {
            start,
            bytes,
            writable,
        } => append(tag::PROTECT, &[start.0, bytes, writable.into()]),
        Operation::Fork { child } => append(tag::FORK, &[child.into()]),
        Operation::Exit { process } => append(tag::EXIT, &[process.into()]),
        Operation::Switch { process } => append(tag::SWITCH, &[process.into()]),
        Operation::SystemCalls { count } => append(tag::SYSTEM_CALLS, &[count.into()]),
        Operation::OtherExits { count } => append(tag::OTHER_EXITS, &[count.into()]),
        Operation::Table {
            frame,
            level,
            start,
        } => append(tag::TABLE, &[frame.0, level.into(), start.0]),
        Operation::Entry {
            table,
            index,
            entry,
            written,
        } => {
            let bits = entry_bits(entry, written);
            append(tag::ENTRY, &[table.0, index.into(), bits, entry.frame.0]);
        }
        Operation::FreeTable { table } => append(tag::FREE_TABLE, &[table.0]),
        Operation::LoadCr3 { root, preserve } => append(tag::LOAD_CR3, &[root.0, preserve.into()]),
        Operation::Invlpg { address } => append(tag::INVLPG, &[address.0]),
        Operation::Fault { address } => append(tag::FAULT, &[address.0]),
        Operation::Fetch { address } => append(tag::FETCH, &[address.0]),
    }
}

fn entry_bits(entry: TableEntry, written: bool) -> u64 {
    let flag = |set, bit| if set { bit } else { 0 };
    flag(entry.present, bit::PRESENT)
        | flag(entry.writable, bit::WRITABLE)
        | flag(entry.dirty, bit::DIRTY)
        | flag(entry.old, bit::OLD)
        | flag(entry.large, bit::LARGE)
        | flag(written, bit::WRITTEN)
}

fn put_fields(target: &mut Vec<u8>, tag: u8, fields: &[u64]) {
    target.push(tag);
    for &field in fields {
        put(target, field);
    }
}

/// Append a varint.
fn put(target: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        target.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    target.push(value.to_le_bytes()[0]);
}

/// The token of `reference`, which follows a reference at `previous` (an address divided by two).
fn token(reference: Reference, previous: &mut u64) -> u64 {
    let half = reference.address().0 >> 1;
    // Shifted by one, the 63-bit delta has its sign in the top bit and room for it at the bottom.
    let delta = half.wrapping_sub(*previous) << 1;
    *previous = half;
    let sign = (delta.cast_signed() >> 63).cast_unsigned();
    let zigzag = delta ^ sign;
    zigzag << 1 | u64::from(reference.write())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::address::Gva;

    #[test]
    fn a_small_stride_takes_one_byte() {
        let mut previous = 0;
        token(Reference::new(Gva(0x7fff_0000), false), &mut previous);
        let next = token(Reference::new(Gva(0x7fff_0008), true), &mut previous);
        assert_eq!(next, 17);
        let mut bytes = Vec::new();
        put(&mut bytes, next);
        assert_eq!(bytes.len(), 1);
    }

    #[test]
    fn the_example_of_the_documentation() {
        let references = [(0x1000, false), (0x1008, true)]
            .map(|(address, write)| Reference::new(Gva(address), write));
        let mut bytes = Vec::new();
        put_references(&mut bytes, &mut FrameState::default(), &references, 6, 1.0);
        assert_eq!(bytes, [0x01, 0x02, 0x06, 0x80, 0x40, 0x11]);
    }
}
