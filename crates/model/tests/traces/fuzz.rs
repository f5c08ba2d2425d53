//! Feeds arbitrary bytes to every reader: never a panic, always steps and then an end or one clear
//! line.
//!
//! `crate::support::drain` checks what must hold. `PROPTEST_CASES=20000` searches longer.

use std::io::{self, Cursor, Read};

use crate::support::{Outcome, champsim, cloudsuite, drain, read, samples};
use proptest::prelude::*;

/// A beginning that makes the bytes after it count as one format, so that they reach its reader.
fn any_beginning() -> impl Strategy<Value = Vec<u8>> {
    prop::sample::select(vec![Vec::new(), sealed(&[]), champsim(64), cloudsuite(64)])
}

fn any_sample() -> impl Strategy<Value = Vec<u8>> {
    prop::sample::select(samples())
}

/// Gives its data in pieces of the given sizes, is interrupted in between, and fails at the end.
struct Ragged {
    data: Cursor<Vec<u8>>,
    pieces: Vec<usize>,
    turn: usize,
    fails: bool,
}

impl Read for Ragged {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        self.turn += 1;
        let piece = self.pieces[self.turn % self.pieces.len()];
        if piece == 0 {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let length = piece.min(target.len());
        let count = self.data.read(&mut target[..length])?;
        if count == 0 && self.fails {
            return Err(io::Error::other("the disk\nis gone"));
        }
        Ok(count)
    }
}

fn ragged(bytes: Vec<u8>, pieces: &[usize], fails: bool) -> Outcome {
    let reader = Ragged {
        data: Cursor::new(bytes),
        pieces: [pieces, &[1]].concat(),
        turn: 0,
        fails,
    };
    drain(Box::new(reader))
}

/// A `.vtrace` whose checksums are right, whatever its frames hold.
fn sealed(frames: &[(u32, Vec<u8>, u32)]) -> Vec<u8> {
    sealed_with("{}", frames)
}

fn sealed_with(json: &str, frames: &[(u32, Vec<u8>, u32)]) -> Vec<u8> {
    let length = u32::try_from(json.len()).unwrap().to_le_bytes();
    let header = [&[3, 0, 0, 0][..], &length, json.as_bytes()].concat();
    let mut file = b"\x89VTRC\r\n\x1a".to_vec();
    file.extend(&header[..8]);
    file.extend(crc32fast::hash(&header).to_le_bytes());
    file.extend(json.as_bytes());
    for (kind, payload, raw) in frames {
        let stored = u32::try_from(payload.len()).unwrap();
        let raw = if *raw == 0 { stored } else { *raw };
        let head = [stored.to_le_bytes(), raw.to_le_bytes(), kind.to_le_bytes()].concat();
        let crc = crc32fast::hash(&[head.as_slice(), payload].concat());
        file.extend(head);
        file.extend(crc.to_le_bytes());
        file.extend(payload);
    }
    file
}

/// Records that are right or nearly so: tags that exist, with short fields.
fn any_payload() -> impl Strategy<Value = Vec<u8>> {
    let tag = prop::sample::select(
        b"\x01\x02\x03\x04\x10\x11\x12\x13\x14\x15\x16\x17\x18\x20\x21\x22\x23\x24\x25".to_vec(),
    );
    let field = prop_oneof![0..4_u8, any::<u8>()];
    let record = (tag, prop::collection::vec(field, 0..12))
        .prop_map(|(tag, fields)| [vec![tag], fields].concat());
    prop::collection::vec(record, 0..20).prop_map(|records| records.concat())
}

fn any_frame() -> impl Strategy<Value = (u32, Vec<u8>, u32)> {
    prop_oneof![
        4 => any_payload().prop_map(|payload| (0, payload, 0)),
        2 => any_payload().prop_map(|payload| {
            let raw = u32::try_from(payload.len()).unwrap();
            (1, crate::support::zstd(&payload), raw)
        }),
        1 => (0..4_u32, any_payload(), any::<u32>()),
        1 => (1..3_u32, any_payload(), 0..100_u32),
    ]
}

proptest! {
    #[test]
    fn any_bytes(
        beginning in any_beginning(),
        bytes in prop::collection::vec(any::<u8>(), 0..3000),
    ) {
        let _ = read(&[beginning, bytes].concat());
    }

    #[test]
    fn mutated(
        mut bytes in any_sample(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        for (index, value) in changes {
            *index.get_mut(&mut bytes) = value;
        }
        let _ = read(&bytes);
    }

    #[test]
    fn truncated(bytes in any_sample(), cut: prop::sample::Index) {
        let (whole, _) = read(&bytes);
        let cut = &bytes[..cut.index(bytes.len())];
        let (before, _) = read(cut);
        let count = |steps: &[crate::support::Owned]| {
            steps.iter().map(|step| crate::support::references(step).len()).sum::<usize>()
        };
        prop_assert!(count(&before) <= count(&whole));
    }

    #[test]
    fn spliced(
        one in any_sample(),
        two in any_sample(),
        cuts: (prop::sample::Index, prop::sample::Index),
        wrapped in 0..4_u8,
    ) {
        let spliced = [&one[..cuts.0.index(one.len())], &two[cuts.1.index(two.len())..]].concat();
        let file = match wrapped {
            0 => spliced,
            1 => crate::support::gzip(&spliced),
            2 => crate::support::xz(&spliced),
            _ => crate::support::zstd(&spliced),
        };
        let _ = read(&file);
    }

    #[test]
    fn frames_with_right_checksums(frames in prop::collection::vec(any_frame(), 0..6)) {
        let _ = read(&sealed(&frames));
        let _ = read(&sealed_with(r#"{"interval_instructions":9}"#, &frames));
    }

    #[test]
    fn a_ragged_reader_changes_nothing(
        bytes in any_sample(),
        pieces in prop::collection::vec(0..200_usize, 0..8),
    ) {
        let whole = read(&bytes);
        prop_assert_eq!(ragged(bytes.clone(), &pieces, false), whole);
        let (_, end) = ragged(bytes, &pieces, true);
        let gone = end.unwrap_err().contains("cannot read further: the disk\u{fffd}is gone");
        prop_assert!(gone);
    }
}

#[test]
fn the_end_frame_must_fit_and_be_the_last() {
    let block = (0, vec![1, 0, 5], 0); // no references, 5 instructions
    let end = |references: u64, instructions: u64| {
        let totals = [references.to_le_bytes(), instructions.to_le_bytes()];
        (2, totals.concat(), 0)
    };
    let outcome = |frames: &[_]| read(&sealed(frames)).1;
    assert_eq!(outcome(&[block.clone(), end(0, 5)]), Ok(()));
    for wrong in [end(1, 5), end(0, 4)] {
        let text = outcome(&[block.clone(), wrong]).unwrap_err();
        assert!(
            text.contains("frame 2 at byte 41: the file should hold"),
            "{text}"
        );
    }
    let text = outcome(&[block.clone(), end(0, 5), block.clone()]).unwrap_err();
    assert!(text.ends_with("data follow the end frame"), "{text}");
    let text = outcome(&[block.clone(), (3, vec![0], 0)]).unwrap_err();
    assert!(text.ends_with("no frame is of kind 3"), "{text}");
    let text = outcome(&[(0, vec![1, 0, 5], 4)]).unwrap_err();
    assert!(text.ends_with("a frame's two lengths do not fit"), "{text}");
}

#[test]
fn an_interval_needs_the_length_in_the_header() {
    let records = (0, vec![1, 0, 5, 4, 1, 1, 5], 0);
    let end = (2, [0_u64.to_le_bytes(), 5_u64.to_le_bytes()].concat(), 0);
    let frames = [records, end];
    let outcome = |json: &str| read(&sealed_with(json, &frames)).1;
    assert_eq!(outcome(r#"{"interval_instructions":5}"#), Ok(()));
    let text = outcome("{}").unwrap_err();
    assert!(
        text.ends_with("an interval ends, but the header gives no length"),
        "{text}"
    );
    for json in [
        r#"{"interval_instructions":0}"#,
        r#"{"interval_instructions":2000000000000}"#,
        r#"{"interval_instructions":5,"instructions_per_reference":2.0}"#,
    ] {
        let text = outcome(json).unwrap_err();
        assert!(
            text.contains("interval_instructions must be 1 to 2^40"),
            "{text}"
        );
    }
}

#[test]
fn claims_of_size_are_refused_before_memory_is_taken() {
    let mut file = sealed(&[]);
    file.extend([0xff; 16]);
    let (_, end) = read(&file);
    assert!(
        end.unwrap_err()
            .contains("frame 1 at byte 22: a frame of 4294967295 bytes; at most")
    );
    let mut header = b"\x89VTRC\r\n\x1a\x01\0\0\0".to_vec();
    header.extend([0xff; 8]);
    let (_, end) = read(&header);
    assert!(
        end.unwrap_err()
            .contains("byte 12: a header of 4294967295 bytes; at most")
    );
    // A frame may claim a larger decompressed size than allowed; the claim is checked, not trusted.
    let bomb = crate::support::zstd(&vec![0; 5_000_000]);
    let (_, end) = read(&sealed(&[(1, bomb, 1 << 20)]));
    assert!(end.unwrap_err().contains("zstd: "));
}
