//! `ChampSim`'s traces: fixed-size records, one per instruction.
//!
//! The layouts are `input_instr` and `cloudsuite_instr` of `ChampSim`'s `inc/trace_instruction.h`,
//! little-endian with the C compiler's padding:
//!
//! | field | `ChampSim` | `CloudSuite` |
//! | --- | --- | --- |
//! | ip, u64 | 0 | 0 |
//! | `is_branch`, `branch_taken`, u8 each | 8, 9 | 8, 9 |
//! | destination registers, u8 each | 10, 2 of them | 10, 4 of them |
//! | source registers, u8 each | 12, 4 of them | 14, 4 of them |
//! | destination addresses, u64 each | 16, 2 of them | 24, 4 of them |
//! | source addresses, u64 each | 32, 4 of them | 56, 4 of them |
//! | address-space number, 2 u8 | | 88 |
//! | size in bytes | 64 | 96 |
//!
//! An address of 0 is an empty slot. Sources are loads and come before destinations, the stores.
//! Sizes are not recorded, so no access is split at a page's end. Fetches are not references. The
//! address-space number of `CloudSuite` is ignored: a trace is of one process.

use crate::traces::block::{Block, Item, Reader};
use crate::traces::error::{Fault, Position};
use crate::traces::input::{BUFFER_BYTES, Input};

/// Bytes of a `ChampSim` record.
pub(crate) const CHAMPSIM_BYTES: usize = 64;
/// Bytes of a `CloudSuite` record.
pub(crate) const CLOUDSUITE_BYTES: usize = 96;
/// Offsets of `is_branch` and `branch_taken`.
const FLAGS: [usize; 2] = [8, 9];

/// A reader of records of `SIZE` bytes with addresses from offset `STORES`.
pub(crate) struct RecordReader<const SIZE: usize, const STORES: usize, const LOADS: usize> {
    input: Input,
    records: u64,
}

/// The reader of `input_instr`.
pub(crate) type ChampSimReader = RecordReader<CHAMPSIM_BYTES, 16, 32>;
/// The reader of `cloudsuite_instr`.
pub(crate) type CloudSuiteReader = RecordReader<CLOUDSUITE_BYTES, 24, 56>;

impl<const SIZE: usize, const STORES: usize, const LOADS: usize> RecordReader<SIZE, STORES, LOADS> {
    /// Four loads come directly after the stores.
    const SLOTS: usize = 4 + (LOADS - STORES) / 8;

    pub fn new(input: Input) -> Self {
        Self { input, records: 0 }
    }

    /// The end of the trace where no whole record is left.
    fn end(&self) -> Result<Item, Fault> {
        let rest = self.input.buffered().len();
        let position = self.position();
        match self.input.failure(position) {
            Some(fault) => Err(fault),
            None if rest == 0 => Ok(Item::End),
            None => {
                let reason = format!("{rest} bytes are left, a record has {SIZE}");
                Err(Fault::truncated(position, reason))
            }
        }
    }
}

impl<const SIZE: usize, const STORES: usize, const LOADS: usize> Reader
    for RecordReader<SIZE, STORES, LOADS>
{
    fn next(&mut self, block: &mut Block) -> Result<Item, Fault> {
        let (records, _) = self.input.fill(BUFFER_BYTES).as_chunks::<SIZE>();
        if records.is_empty() {
            return self.end();
        }
        let mut taken = 0;
        let mut flags = 0;
        for record in records {
            if !block.has_room(Self::SLOTS) {
                break;
            }
            flags |= record[FLAGS[0]] | record[FLAGS[1]];
            push_all(block, &record[LOADS..LOADS + 32], false);
            push_all(block, &record[STORES..LOADS], true);
            taken += 1;
        }
        if flags > 1 {
            let whole = records
                .iter()
                .take_while(|record| is_flagged(*record))
                .count();
            let position = Position::Record(self.records + whole as u64 + 1);
            let reason = format!(
                "is_branch or branch_taken is neither 0 nor 1: damaged, or records of another size than {SIZE} bytes"
            );
            return Err(Fault::corrupt(position, reason));
        }
        self.input.consume(taken * SIZE);
        self.records += taken as u64;
        block.instructions = taken as u64;
        Ok(Item::References)
    }

    fn position(&self) -> Position {
        Position::Record(self.records + 1)
    }
}

/// Push the addresses of `slots` that are not 0.
#[inline]
fn push_all(block: &mut Block, slots: &[u8], write: bool) {
    for slot in slots.as_chunks::<8>().0 {
        let address = u64::from_le_bytes(*slot);
        if address != 0 {
            block.push(address, write);
        }
    }
}

/// Are the two flags valid flags?
fn is_flagged(record: &[u8]) -> bool {
    FLAGS
        .iter()
        .all(|&offset| record.get(offset).is_some_and(|&flag| flag <= 1))
}

/// Could the first bytes of a file be records of `SIZE` bytes? Then the flags are valid, and the
/// instruction pointers are canonical and not 0. At least one whole record is needed.
pub(crate) fn is_plausible<const SIZE: usize>(start: &[u8]) -> bool {
    let (records, _) = start.as_chunks::<SIZE>();
    let plausible = |record: &[u8; SIZE]| {
        let ip = record.first_chunk().map_or(0, |ip| i64::from_le_bytes(*ip));
        // Five-level paging has 57 bits of address.
        is_flagged(record) && ip != 0 && matches!(ip >> 56, 0 | -1)
    };
    !records.is_empty() && records.iter().all(plausible)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::address::{Gva, Reference};
    use std::io::Cursor;

    /// A record laid out by hand: `(ip, stores, loads)`.
    fn record(ip: u64, stores: [u64; 2], loads: [u64; 4]) -> Vec<u8> {
        let mut bytes = ip.to_le_bytes().to_vec();
        bytes.extend([0, 0, 3, 0, 4, 5, 0, 0]);
        for address in stores.into_iter().chain(loads) {
            bytes.extend(address.to_le_bytes());
        }
        assert_eq!(bytes.len(), CHAMPSIM_BYTES);
        bytes
    }

    fn reader<const SIZE: usize, const S: usize, const L: usize>(
        bytes: Vec<u8>,
    ) -> RecordReader<SIZE, S, L> {
        RecordReader::new(Input::new(Box::new(Cursor::new(bytes))))
    }

    #[test]
    fn sources_are_loads_and_destinations_stores() {
        let mut bytes = record(
            0x40_1000,
            [0, 0x7000],
            [0x1000, 0, 0, 0xffff_8000_0000_2000],
        );
        bytes.extend(record(0x40_1004, [0; 2], [0; 4]));
        let mut reader: ChampSimReader = reader(bytes);
        let mut block = Block::new();
        assert_eq!(reader.next(&mut block), Ok(Item::References));
        let expected = [
            (0x1000, false),
            (0xffff_8000_0000_2000, false),
            (0x7000, true),
        ]
        .map(|(address, write)| Reference::new(Gva(address), write));
        assert_eq!(
            (block.references.as_slice(), block.instructions),
            (&expected[..], 2)
        );
        assert_eq!(reader.next(&mut block), Ok(Item::End));
    }

    #[test]
    fn cloudsuite_has_four_destinations() {
        let mut bytes = vec![0; CLOUDSUITE_BYTES];
        bytes[0] = 1;
        bytes[48] = 0x20; // the fourth destination
        bytes[80] = 0x40; // the fourth source
        bytes[88] = 7; // the address-space number
        assert!(is_plausible::<CLOUDSUITE_BYTES>(&bytes.repeat(3)));
        assert!(!is_plausible::<CHAMPSIM_BYTES>(&bytes.repeat(3)));
        let mut reader: CloudSuiteReader = reader(bytes);
        let mut block = Block::new();
        reader.next(&mut block).unwrap();
        let expected = [(0x40, false), (0x20, true)].map(|(a, w)| Reference::new(Gva(a), w));
        assert_eq!(block.references, expected);
    }

    #[test]
    fn a_part_of_a_record_is_truncated_and_a_bad_flag_names_its_record() {
        let whole = record(0x40_1000, [0; 2], [0x1000, 0, 0, 0]);
        let mut block = Block::new();
        let mut cut: ChampSimReader = reader([&whole[..], &whole[..10]].concat());
        cut.next(&mut block).unwrap();
        let text = cut.next(&mut block).unwrap_err().to_string();
        assert_eq!(
            text,
            "record 2: truncated: 10 bytes are left, a record has 64"
        );
        let mut bad = whole.repeat(3);
        bad[64 * 2 + 9] = 2;
        let mut bad: ChampSimReader = reader(bad);
        let text = bad.next(&mut block).unwrap_err().to_string();
        assert!(text.starts_with("record 3: is_branch or"), "{text}");
    }
}
