//! The records of a payload.

use crate::model::address::{Gfn, Gva, PageSize, Reference};
use crate::step::{Operation, TableEntry};

use super::{INSTRUCTION_LIMIT, VECTOR_LIMIT, varint};
use crate::traces::block::{BLOCK_REFERENCES, Block, Item};

/// First bytes of records.
pub(super) mod tag {
    pub const REFERENCES: u8 = 0x01;
    pub const BASE_CPI: u8 = 0x02;
    pub const PHASE: u8 = 0x03;
    pub const INTERVAL: u8 = 0x04;
    pub const SPAWN: u8 = 0x10;
    pub const MAP: u8 = 0x11;
    pub const UNMAP: u8 = 0x12;
    pub const PROTECT: u8 = 0x13;
    pub const FORK: u8 = 0x14;
    pub const EXIT: u8 = 0x15;
    pub const SWITCH: u8 = 0x16;
    pub const SYSTEM_CALLS: u8 = 0x17;
    pub const OTHER_EXITS: u8 = 0x18;
    pub const TABLE: u8 = 0x20;
    pub const ENTRY: u8 = 0x21;
    pub const FREE_TABLE: u8 = 0x22;
    pub const LOAD_CR3: u8 = 0x23;
    pub const INVLPG: u8 = 0x24;
    pub const FAULT: u8 = 0x25;
    pub const FETCH: u8 = 0x26;
}

/// Bits of an Entry record.
pub(super) mod bit {
    pub const PRESENT: u64 = 1;
    pub const WRITABLE: u64 = 1 << 1;
    pub const DIRTY: u64 = 1 << 2;
    pub const LARGE: u64 = 1 << 3;
    pub const WRITTEN: u64 = 1 << 4;
    pub const OLD: u64 = 1 << 5;
}

/// Base-2 logarithm of the number of possible frames (4 TiB): what an entry can name.
pub(super) const FRAME_BITS: u32 = 30;

/// The state that carries over from record to record within a frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FrameState {
    /// The last reference's address divided by two.
    pub previous: u64,
    /// Base CPI of the blocks that follow.
    pub base_cpi: f32,
}

impl Default for FrameState {
    fn default() -> Self {
        Self {
            previous: 0,
            base_cpi: 1.0,
        }
    }
}

/// Take the next item from a payload; `None` at its end.
///
/// Fails when the record is cut, when its tag is unknown, or when a field is out of its range.
pub fn take(
    bytes: &mut &[u8],
    state: &mut FrameState,
    block: &mut Block,
) -> Result<Option<Item>, String> {
    while let Some((&tag, rest)) = bytes.split_first() {
        *bytes = rest;
        match tag {
            tag::BASE_CPI => state.base_cpi = take_cpi(bytes)?,
            tag::REFERENCES => {
                take_references(bytes, state, block)?;
                return Ok(Some(Item::References));
            }
            tag::INTERVAL => return take_interval(bytes, block).map(Some),
            tag::PHASE => return Ok(Some(Item::Phase(number(bytes)?))),
            _ => return take_operation(tag, bytes).map(|found| Some(Item::Operation(found))),
        }
    }
    Ok(None)
}

fn take_cpi(bytes: &mut &[u8]) -> Result<f32, String> {
    let (field, rest) = bytes.split_first_chunk().ok_or_else(cut)?;
    *bytes = rest;
    let cpi = f32::from_le_bytes(*field);
    if cpi.is_finite() && cpi > 0.0 {
        Ok(cpi)
    } else {
        Err(format!("base CPI {cpi} is not a positive number"))
    }
}

fn take_references(
    bytes: &mut &[u8],
    state: &mut FrameState,
    block: &mut Block,
) -> Result<(), String> {
    let count = field(bytes)?;
    let instructions = field(bytes)?;
    let count = usize::try_from(count)
        .ok()
        .filter(|&count| count <= BLOCK_REFERENCES)
        .ok_or_else(|| format!("a block of {count} references; at most {BLOCK_REFERENCES}"))?;
    if instructions > INSTRUCTION_LIMIT {
        return Err(format!(
            "a block of {instructions} instructions; at most 2^40"
        ));
    }
    block.instructions = instructions;
    block.base_cpi = Some(state.base_cpi);
    block.references.resize(count, Reference::default());
    let (mut rest, mut previous) = (*bytes, state.previous);
    for slot in &mut block.references {
        let token = varint::take(&mut rest).ok_or_else(cut)?;
        *slot = varint::reference(token, &mut previous);
    }
    (*bytes, state.previous) = (rest, previous);
    Ok(())
}

fn take_interval(bytes: &mut &[u8], block: &mut Block) -> Result<Item, String> {
    let recorded = take_bool("recorded", bytes)?;
    let count = field(bytes)?;
    let count = usize::try_from(count)
        .ok()
        .filter(|&count| count <= VECTOR_LIMIT)
        .ok_or_else(|| format!("a block vector of {count} elements; at most {VECTOR_LIMIT}"))?;
    block.vector.clear();
    for _ in 0..count {
        let instructions = field(bytes)?;
        if instructions > INSTRUCTION_LIMIT {
            return Err(format!("a block vector of {instructions}; at most 2^40"));
        }
        block.vector.push(instructions);
    }
    Ok(Item::Interval(recorded))
}

fn take_operation(tag: u8, bytes: &mut &[u8]) -> Result<Operation, String> {
    Ok(match tag {
        tag::SPAWN => Operation::Spawn {
            process: number(bytes)?,
        },
        tag::MAP => Operation::Map {
            start: Gva(field(bytes)?),
            bytes: field(bytes)?,
            size: take_size(bytes)?,
        },
        tag::UNMAP => Operation::Unmap {
            start: Gva(field(bytes)?),
            bytes: field(bytes)?,
        },
        tag::PROTECT => Operation::Protect {
            start: Gva(field(bytes)?),
            bytes: field(bytes)?,
            writable: take_bool("writable", bytes)?,
        },
        tag::FORK => Operation::Fork {
            child: number(bytes)?,
        },
        tag::EXIT => Operation::Exit {
            process: number(bytes)?,
        },
        tag::SWITCH => Operation::Switch {
            process: number(bytes)?,
        },
        tag::SYSTEM_CALLS => Operation::SystemCalls {
            count: number(bytes)?,
        },
        tag::OTHER_EXITS => Operation::OtherExits {
            count: number(bytes)?,
        },
        _ => return take_observed(tag, bytes),
    })
}

fn take_observed(tag: u8, bytes: &mut &[u8]) -> Result<Operation, String> {
    Ok(match tag {
        tag::TABLE => Operation::Table {
            frame: take_frame(bytes)?,
            level: take_level(bytes)?,
            start: Gva(field(bytes)?),
        },
        tag::ENTRY => take_entry(bytes)?,
        tag::FREE_TABLE => Operation::FreeTable {
            table: take_frame(bytes)?,
        },
        tag::LOAD_CR3 => Operation::LoadCr3 {
            root: take_frame(bytes)?,
            preserve: take_bool("preserve", bytes)?,
        },
        tag::INVLPG => Operation::Invlpg {
            address: Gva(field(bytes)?),
        },
        tag::FAULT => Operation::Fault {
            address: Gva(field(bytes)?),
        },
        tag::FETCH => Operation::Fetch {
            address: Gva(field(bytes)?),
        },
        _ => return Err(format!("no record has the tag {tag:#04x}")),
    })
}

fn take_entry(bytes: &mut &[u8]) -> Result<Operation, String> {
    let table = take_frame(bytes)?;
    let index = field(bytes)?;
    let index = u16::try_from(index)
        .ok()
        .filter(|&index| index < 1024)
        .ok_or_else(|| format!("index {index} in a page table; at most 1023"))?;
    let bits = field(bytes)?;
    if bits > (bit::OLD << 1) - 1 {
        return Err(format!("an entry's bits are {bits:#x}; at most 0x3f"));
    }
    let entry = TableEntry {
        frame: take_frame(bytes)?,
        present: bits & bit::PRESENT != 0,
        writable: bits & bit::WRITABLE != 0,
        dirty: bits & bit::DIRTY != 0,
        large: bits & bit::LARGE != 0,
        old: bits & bit::OLD != 0,
    };
    let written = bits & bit::WRITTEN != 0;
    Ok(Operation::Entry {
        table,
        index,
        entry,
        written,
    })
}

fn take_frame(bytes: &mut &[u8]) -> Result<Gfn, String> {
    let frame = field(bytes)?;
    if frame >> FRAME_BITS != 0 {
        return Err(format!("frame {frame:#x}; frames have {FRAME_BITS} bits"));
    }
    Ok(Gfn(frame))
}

fn take_level(bytes: &mut &[u8]) -> Result<u8, String> {
    let level = field(bytes)?;
    u8::try_from(level)
        .ok()
        .filter(|level| (1..=5).contains(level))
        .ok_or_else(|| format!("level {level} of a page table; 1 to 5 would be right"))
}

fn take_size(bytes: &mut &[u8]) -> Result<PageSize, String> {
    let size = number(bytes)?;
    PageSize::ALL
        .get(size as usize)
        .copied()
        .ok_or_else(|| format!("page size {size}; 0, 1 or 2 would be right"))
}

fn take_bool(name: &str, bytes: &mut &[u8]) -> Result<bool, String> {
    match number(bytes)? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(format!("{name} is {other}; 0 or 1 would be right")),
    }
}

fn number(bytes: &mut &[u8]) -> Result<u32, String> {
    let value = field(bytes)?;
    u32::try_from(value).map_err(|_| format!("{value} where a number of 32 bits should be"))
}

fn field(bytes: &mut &[u8]) -> Result<u64, String> {
    varint::take(bytes).ok_or_else(cut)
}

fn cut() -> String {
    "a record is cut, or a number in it exceeds 64 bits".into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of `docs/trace-format.md`.
    const EXAMPLE: [u8; 6] = [0x01, 0x02, 0x06, 0x80, 0x40, 0x11];

    #[test]
    fn the_example_of_the_documentation() {
        let references = [(0x1000, false), (0x1008, true)]
            .map(|(address, write)| Reference::new(Gva(address), write));
        let mut block = Block::new();
        let mut bytes = EXAMPLE.as_slice();
        let taken = take(&mut bytes, &mut FrameState::default(), &mut block);
        assert_eq!(taken, Ok(Some(Item::References)));
        assert_eq!(
            (block.references.as_slice(), block.instructions),
            (&references[..], 6)
        );
    }

    #[test]
    fn fields_out_of_range_are_named() {
        let cases: [(&[u8], &str); 16] = [
            (
                &[0x01, 0x81, 0x20, 0],
                "a block of 4097 references; at most 4096",
            ),
            (
                &[0x01, 0, 0x81, 0x80, 0x80, 0x80, 0x80, 0x20],
                "a block of 1099511627777",
            ),
            (&[0x01, 1, 0], "a record is cut"),
            (&[0x02, 0, 0, 0, 0], "base CPI 0 is not"),
            (
                &[0x03, 0x80, 0x80, 0x80, 0x80, 0x10],
                "4294967296 where a number of 32 bits",
            ),
            (&[0x04, 2, 0], "recorded is 2"),
            (&[0x04, 1, 65], "a block vector of 65 elements; at most 64"),
            (
                &[0x04, 0, 1, 0x81, 0x80, 0x80, 0x80, 0x80, 0x20],
                "a block vector of 1099511627777; at most 2^40",
            ),
            (&[0x11, 0, 0, 3], "page size 3; 0, 1 or 2"),
            (&[0x13, 0, 0, 2], "writable is 2"),
            (&[0x19], "no record has the tag 0x19"),
            (&[0x20, 1, 6, 0], "level 6 of a page table"),
            (&[0x21, 1, 0x80, 0x08], "index 1024 in a page table"),
            (&[0x21, 1, 0, 0x40], "an entry's bits are 0x40"),
            (&[0x22, 0x80, 0x80, 0x80, 0x80, 0x04], "frame 0x40000000"),
            (&[0x23, 1, 2], "preserve is 2"),
        ];
        for (mut bytes, message) in cases {
            let taken = take(&mut bytes, &mut FrameState::default(), &mut Block::new());
            let reason = taken.unwrap_err();
            assert!(reason.starts_with(message), "{reason}");
        }
    }
}
