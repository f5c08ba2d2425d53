//! Reads `.vtrace`.

use super::record::{self, FrameState};
use super::{
    FRAME_HEADER, FRAME_LIMIT, HEADER_LIMIT, Header, MAGIC, OLDEST_VERSION, PREAMBLE, TOTALS,
    VERSION, crc, kind, u32_at, u64_at,
};
use crate::traces::block::{Block, Item, Reader};
use crate::traces::error::{Fault, Position, printable};
use crate::traces::input::Input;

/// The fields before a frame's payload.
struct FrameHead {
    bytes: [u8; FRAME_HEADER],
    stored: usize,
    raw: usize,
    kind: u32,
}

/// A reader of `.vtrace` after its header.
pub(crate) struct VtraceReader {
    input: Input,
    header: Header,
    decompressor: zstd::bulk::Decompressor<'static>,
    stored: Vec<u8>,
    raw: Vec<u8>,
    offset: usize,
    state: FrameState,
    frame: u64,
    frame_start: u64,
    references: u64,
    instructions: u64,
    ended: bool,
}

impl VtraceReader {
    /// Reads the header.
    ///
    /// Fails when the header is cut, corrupt or of another version, or when the input cannot be
    /// read.
    pub fn new(mut input: Input) -> Result<Self, Fault> {
        let header = read_header(&mut input)?;
        let decompressor = zstd::bulk::Decompressor::new().map_err(|error| Fault::Read {
            position: Position::Byte(0),
            reason: printable(&error.to_string()),
        })?;
        Ok(Self {
            input,
            header,
            decompressor,
            stored: Vec::new(),
            raw: Vec::new(),
            offset: 0,
            state: FrameState::default(),
            frame: 0,
            frame_start: 0,
            references: 0,
            instructions: 0,
            ended: false,
        })
    }

    /// What the file says about itself.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Load the next frame; false at the end frame.
    fn load(&mut self) -> Result<bool, Fault> {
        self.frame += 1;
        self.frame_start = self.input.position();
        let head = self.read_head()?;
        self.stored.resize(head.stored, 0);
        if !self.input.read_exact(&mut self.stored) {
            return Err(self.early("a frame is cut"));
        }
        if crc(&[&head.bytes[..12], &self.stored]) != u32_at(&head.bytes, 12) {
            return Err(self.corrupt("the checksum does not match"));
        }
        (self.offset, self.state) = (0, FrameState::default());
        match head.kind {
            kind::PLAIN if head.raw == head.stored => {
                std::mem::swap(&mut self.raw, &mut self.stored);
                Ok(true)
            }
            kind::ZSTD => self.inflate(head.raw).map(|()| true),
            kind::END if (head.raw, head.stored) == (TOTALS, TOTALS) => {
                self.check_end().map(|()| false)
            }
            kind::PLAIN | kind::END => Err(self.corrupt("a frame's two lengths do not fit")),
            other => Err(self.corrupt(&format!("no frame is of kind {other}"))),
        }
    }

    fn read_head(&mut self) -> Result<FrameHead, Fault> {
        let mut bytes = [0; FRAME_HEADER];
        if !self.input.read_exact(&mut bytes) {
            return Err(self.early("there is no end frame"));
        }
        if bytes == [0; FRAME_HEADER] {
            return Err(Fault::truncated(
                self.position(),
                "zeros instead of a frame",
            ));
        }
        let (stored, raw) = (u32_at(&bytes, 0) as usize, u32_at(&bytes, 4) as usize);
        if stored > FRAME_LIMIT || raw > FRAME_LIMIT {
            let longest = stored.max(raw);
            return Err(self.corrupt(&format!(
                "a frame of {longest} bytes; at most {FRAME_LIMIT}"
            )));
        }
        Ok(FrameHead {
            bytes,
            stored,
            raw,
            kind: u32_at(&bytes, 8),
        })
    }

    fn inflate(&mut self, raw: usize) -> Result<(), Fault> {
        self.raw.resize(raw, 0);
        let written = self
            .decompressor
            .decompress_to_buffer(&self.stored, self.raw.as_mut_slice());
        match written {
            Ok(bytes) if bytes == raw => Ok(()),
            Ok(bytes) => Err(self.corrupt(&format!("{bytes} bytes come out instead of {raw}"))),
            Err(error) => Err(self.corrupt(&format!("zstd: {}", printable(&error.to_string())))),
        }
    }

    fn check_end(&mut self) -> Result<(), Fault> {
        let totals = (u64_at(&self.stored, 0), u64_at(&self.stored, 8));
        if totals != (self.references, self.instructions) {
            return Err(self.corrupt(&format!(
                "the file should hold {} references and {} instructions, but holds {} and {}",
                totals.0, totals.1, self.references, self.instructions
            )));
        }
        if !self.input.fill(1).is_empty() {
            return Err(self.corrupt("data follow the end frame"));
        }
        self.ended = true;
        match self.input.failure(self.position()) {
            Some(fault) => Err(fault),
            None => Ok(()),
        }
    }

    fn early(&self, reason: &str) -> Fault {
        let position = self.position();
        let whole = self.frame - 1;
        self.input.failure(position).unwrap_or_else(|| {
            let reason = format!("{reason}; {whole} whole frames were read");
            Fault::truncated(position, reason)
        })
    }

    fn corrupt(&self, reason: &str) -> Fault {
        Fault::corrupt(self.position(), reason)
    }
}

impl Reader for VtraceReader {
    fn next(&mut self, block: &mut Block) -> Result<Item, Fault> {
        while !self.ended {
            let mut rest = self.raw.get(self.offset..).unwrap_or_default();
            let taken = record::take(&mut rest, &mut self.state, block);
            self.offset = self.raw.len() - rest.len();
            match taken {
                Err(reason) => return Err(self.corrupt(&reason)),
                Ok(Some(Item::Interval(_))) if self.header.interval_instructions.is_none() => {
                    return Err(self.corrupt("an interval ends, but the header gives no length"));
                }
                Ok(Some(item)) => {
                    self.references += block.references.len() as u64;
                    self.instructions = self.instructions.wrapping_add(block.instructions);
                    return Ok(item);
                }
                Ok(None) => {
                    self.load()?;
                }
            }
        }
        Ok(Item::End)
    }

    fn position(&self) -> Position {
        Position::Frame {
            number: self.frame,
            byte: self.frame_start,
        }
    }
}

fn read_header(input: &mut Input) -> Result<Header, Fault> {
    let mut preamble = [0; PREAMBLE];
    if !input.read_exact(&mut preamble) {
        return Err(header_cut(input));
    }
    let version = u32_at(&preamble, 8) & 0xffff;
    let flags = u32_at(&preamble, 8) >> 16;
    let corrupt = |byte, reason: String| Err(Fault::corrupt(Position::Byte(byte), reason));
    if preamble[..8] != MAGIC {
        return corrupt(0, "not a .vtrace: its first eight bytes differ".into());
    }
    let known = u32::from(OLDEST_VERSION)..=u32::from(VERSION);
    if !known.contains(&version) || flags != 0 {
        let reason = format!(
            "version {version}, flags {flags}; versions {OLDEST_VERSION} to {VERSION}, flags 0 are known"
        );
        return corrupt(8, reason);
    }
    let length = u32_at(&preamble, 12) as usize;
    if length > HEADER_LIMIT {
        return corrupt(
            12,
            format!("a header of {length} bytes; at most {HEADER_LIMIT}"),
        );
    }
    let mut json = vec![0; length];
    if !input.read_exact(&mut json) {
        return Err(header_cut(input));
    }
    if crc(&[&preamble[8..16], &json]) != u32_at(&preamble, 16) {
        return corrupt(16, "the header's checksum does not match".into());
    }
    let parsed = serde_json::from_slice::<Header>(&json)
        .map_err(|error| error.to_string())
        .and_then(|header| header.check().map(|()| header));
    parsed.or_else(|reason| corrupt(PREAMBLE as u64, format!("header: {}", printable(&reason))))
}

fn header_cut(input: &Input) -> Fault {
    let position = Position::Byte(input.position());
    input
        .failure(position)
        .unwrap_or_else(|| Fault::truncated(position, "the header is cut"))
}
