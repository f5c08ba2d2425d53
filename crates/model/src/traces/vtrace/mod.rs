//! vtax's own trace format, `.vtrace`: references, instruction counts, operations and phases.
//!
//! All numbers are little-endian. A *varint* is LEB128: seven bits a byte, lowest first, the top
//! bit set in all but the last byte, at most ten bytes.
//!
//! ```text
//! file   = magic version flags header-length header-crc header frame* end-frame
//! magic          8 bytes   89 56 54 52 43 0D 0A 1A ("\x89VTRC\r\n\x1a": a transfer as text shows)
//! version        u16       3; 1 (no records 20 to 26) and 2 (no records 04, 26) are read too
//! flags          u16       0
//! header-length  u32       bytes of the header, at most 65,536
//! header-crc     u32       CRC-32 (IEEE) of version, flags, header-length and header
//! header         JSON      an object, see `Header`; unknown fields are ignored
//!
//! frame  = stored-length raw-length kind crc payload
//! stored-length  u32       bytes of the payload in the file, at most 1,048,576
//! raw-length     u32       bytes of the payload decompressed, at most 1,048,576
//! kind           u32       0 plain, 1 one zstd frame, 2 end
//! crc            u32       CRC-32 (IEEE) of the three fields before and the stored payload
//! payload        bytes     kind 0 and 1: whole records; kind 2: references u64, instructions u64,
//!                          the totals of the file; nothing follows it
//!
//! record = 01 count instructions token*count    a block of references
//!        | 02 f32                               base CPI of the blocks that follow in the frame
//!        | 03 phase                             Step::Phase
//!        | 04 recorded count instructions*count an interval ends: Step::Interval
//!        | 10 process | 11 start bytes size | 12 start bytes | 13 start bytes writable
//!        | 14 child | 15 process | 16 process | 17 count | 18 count
//!        | 20 frame level start | 21 table index bits frame | 22 table
//!        | 23 root preserve | 24 address | 25 address | 26 address
//! ```
//!
//! Tags (in hexadecimal) are one byte, all other fields but the f32 are varints. `count` is at most
//! 4,096 in a block and 64 in a block vector, `instructions` at most 2^40. Operations 10 to 18 are Spawn, Map, Unmap, Protect, Fork,
//! Exit, Switch, `SystemCalls` and `OtherExits`; `size` is 0, 1, 2 for 4K, 2M, 1G, `writable` 0
//! or 1. Operations 20 to 26 are Table, Entry, `FreeTable`, `LoadCr3`, Invlpg, Fault and Fetch;
//! `bits` are 1 present, 2 writable, 4 dirty, 8 large, 16 written now, 32 not accessed (since 3).
//!
//! A token is `zigzag(delta) << 1 | write`, where `delta` is the difference, as a signed number of
//! 63 bits that wraps, between this reference's address divided by two and that of the reference
//! before it. The lowest bit of an address is not kept: translation does not see it. A frame begins
//! with the address before it 0 and base CPI 1.0, so every frame can be read by itself.
//!
//! A writer that dies leaves whole frames and perhaps a part of one; the missing end frame shows
//! it. A reader delivers all whole frames and then says that the trace is truncated. Zeros where a
//! frame should begin, as a file system may leave them after a power cut, count as truncated too.

mod reader;
mod record;
mod varint;
mod writer;

use crate::model::address::PageSize;
use serde::{Deserialize, Serialize};

pub(crate) use reader::VtraceReader;
pub use writer::{Codec, WriteError, Writer};

/// The first bytes of a file.
pub(crate) const MAGIC: [u8; 8] = *b"\x89VTRC\r\n\x1a";
/// The version that is written.
const VERSION: u16 = 3;
/// The oldest version that is read: it has no operations that were observed in a real guest, and no
/// intervals.
const OLDEST_VERSION: u16 = 1;
/// Bytes before the header: magic, version, flags, length, checksum.
const PREAMBLE: usize = 20;
const HEADER_LIMIT: usize = 64 * 1024;
/// Bytes before a frame's payload.
const FRAME_HEADER: usize = 16;
/// The most bytes of a payload, stored and decompressed.
const FRAME_LIMIT: usize = 1024 * 1024;
/// Bytes of an end frame's payload.
const TOTALS: usize = 16;
/// The most guest memory that a header may state: the host's mappings of it take a bit for each
/// page in each mode.
const MEMORY_LIMIT: u64 = 1 << 40;
const INSTRUCTION_LIMIT: u64 = 1 << 40;
/// The most elements of a block vector.
const VECTOR_LIMIT: usize = 64;

mod kind {
    pub const PLAIN: u32 = 0;
    pub const ZSTD: u32 = 1;
    pub const END: u32 = 2;
}

/// What a `.vtrace` says about itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// What recorded it: a program and its version, a command line.
    #[serde(default)]
    pub recorder: String,
    /// The page size that the recorder suggests for mappings; a hint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_size: Option<PageSize>,
    /// Given when the recorder did not count instructions: the instructions to assume per
    /// reference. The blocks' own counts are then ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions_per_reference: Option<f64>,
    /// The memory of the observed guest in bytes; frames beyond it are devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// The trace has no Map operations for what it touches (it was recorded from outside, or
    /// converted): any touched page counts as mapped.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub map_on_touch: bool,
    /// Given when only some intervals of the run have their references: an interval's length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_instructions: Option<u64>,
}

impl Header {
    fn check(&self) -> Result<(), String> {
        let ratio = self.instructions_per_reference.unwrap_or_default();
        if !(0.0..=1e6).contains(&ratio) {
            return Err("instructions_per_reference must be a number from 0 to 1000000".into());
        }
        if self
            .interval_instructions
            .is_some_and(|length| length == 0 || length > INSTRUCTION_LIMIT || ratio > 0.0)
        {
            return Err(
                "interval_instructions must be 1 to 2^40, of instructions that were counted".into(),
            );
        }
        if self.memory_bytes.is_some_and(|bytes| bytes > MEMORY_LIMIT) {
            return Err(format!(
                "memory_bytes must be at most {MEMORY_LIMIT} (1 TiB)"
            ));
        }
        Ok(())
    }
}

/// The checksum of consecutive pieces.
fn crc(pieces: &[&[u8]]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    for piece in pieces {
        hasher.update(piece);
    }
    hasher.finalize()
}

/// The u32 at `offset` of a complete header.
fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    let field = bytes.get(offset..).and_then(|rest| rest.first_chunk());
    u32::from_le_bytes(*field.unwrap_or(&[0; 4]))
}

/// The u64 at `offset` of a complete payload.
fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    let field = bytes.get(offset..).and_then(|rest| rest.first_chunk());
    u64::from_le_bytes(*field.unwrap_or(&[0; 8]))
}
