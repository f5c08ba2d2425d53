//! Every format from a file that is known to be right, and the error for each kind of damage.

use std::io::{Cursor, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::support::*;
use proptest::prelude::*;
use vtax_model::model::address::{Gfn, Gva, PageSize, Reference};
use vtax_model::step::{Operation, StepSource, TableEntry};
use vtax_model::traces::vtrace::{Codec, Header, WriteError, Writer};
use vtax_model::traces::{Format, TraceError, open};

fn ok((steps, end): Outcome) -> Vec<Owned> {
    end.unwrap();
    steps
}

fn error((_, end): Outcome) -> String {
    end.unwrap_err()
}

/// All references, all instructions, and the operations and phases with their positions between the
/// references.
fn joined(steps: &[Owned]) -> (Vec<Reference>, u64, Vec<(usize, Owned)>) {
    let (mut all, mut instructions, mut others) = (Vec::new(), 0, Vec::new());
    for step in steps {
        match step {
            Owned::References(references, count, _) => {
                all.extend_from_slice(references);
                instructions += count;
            }
            other => others.push((all.len(), other.clone())),
        }
    }
    (all, instructions, others)
}

fn any_operation() -> impl Strategy<Value = Operation> {
    let size = prop::sample::select(PageSize::ALL.to_vec());
    prop_oneof![
        any::<u32>().prop_map(|process| Operation::Spawn { process }),
        (any::<u64>(), any::<u64>(), size).prop_map(|(start, bytes, size)| Operation::Map {
            start: Gva(start),
            bytes,
            size
        }),
        any::<(u64, u64)>().prop_map(|(start, bytes)| Operation::Unmap {
            start: Gva(start),
            bytes
        }),
        any::<(u64, u64, bool)>().prop_map(|(start, bytes, writable)| Operation::Protect {
            start: Gva(start),
            bytes,
            writable
        }),
        any::<u32>().prop_map(|child| Operation::Fork { child }),
        any::<u32>().prop_map(|process| Operation::Exit { process }),
        any::<u32>().prop_map(|process| Operation::Switch { process }),
        any::<u32>().prop_map(|count| Operation::SystemCalls { count }),
        any::<u32>().prop_map(|count| Operation::OtherExits { count }),
        any_observed(),
    ]
}

fn any_observed() -> impl Strategy<Value = Operation> {
    let frame = || (0..1_u64 << 30).prop_map(Gfn);
    let entry = (frame(), any::<[bool; 5]>()).prop_map(|(frame, bits)| TableEntry {
        frame,
        present: bits[0],
        writable: bits[1],
        dirty: bits[2],
        large: bits[3],
        old: bits[4],
    });
    prop_oneof![
        (frame(), 1..=5_u8, any::<u64>()).prop_map(|(frame, level, start)| Operation::Table {
            frame,
            level,
            start: Gva(start)
        }),
        (frame(), 0..1024_u16, entry, any::<bool>()).prop_map(|(table, index, entry, written)| {
            Operation::Entry {
                table,
                index,
                entry,
                written,
            }
        }),
        frame().prop_map(|table| Operation::FreeTable { table }),
        (frame(), any::<bool>()).prop_map(|(root, preserve)| Operation::LoadCr3 { root, preserve }),
        any::<u64>().prop_map(|address| Operation::Invlpg {
            address: Gva(address)
        }),
        any::<u64>().prop_map(|address| Operation::Fault {
            address: Gva(address)
        }),
        any::<u64>().prop_map(|address| Operation::Fetch {
            address: Gva(address)
        }),
    ]
}

#[test]
fn old_versions_are_read_and_an_unknown_one_is_named() {
    let steps = steps();
    let mut bytes = vtrace(&steps, Codec::Plain, 3);
    let header = u32::from_le_bytes(*bytes[12..].first_chunk().unwrap()) as usize;
    let mut as_version = |version: u8| {
        bytes[8] = version;
        let checked = [&bytes[8..16], &bytes[20..20 + header]].concat();
        bytes[16..20].copy_from_slice(&crc32fast::hash(&checked).to_le_bytes());
        read(&bytes)
    };
    assert_eq!(ok(as_version(1)), steps);
    assert_eq!(ok(as_version(2)), steps);
    assert_eq!(ok(as_version(3)), steps);
    assert!(error(as_version(4)).contains("version 4, flags 0; versions 1 to 3"));
}

fn any_step() -> impl Strategy<Value = Owned> {
    let reference = (any::<u64>(), 0..64_u32, any::<bool>())
        .prop_map(|(address, shift, write)| Reference::new(Gva(address >> shift), write));
    let references = prop::collection::vec(reference, 0..200);
    prop_oneof![
        (references, 0..=1_u64 << 40, 0.01..10_f32)
            .prop_map(|(all, count, cpi)| Owned::References(all, count, cpi)),
        any_operation().prop_map(Owned::Operation),
        any::<u32>().prop_map(Owned::Phase),
        (
            any::<bool>(),
            prop::collection::vec(0..=1_u64 << 40, 0..=64)
        )
            .prop_map(|(recorded, blocks)| Owned::Interval(recorded, blocks)),
    ]
}

proptest! {
    #[test]
    fn every_step_comes_back(
        steps in prop::collection::vec(any_step(), 0..20),
        frames in 1..9_usize,
        packed: bool,
    ) {
        let codec = if packed { Codec::Zstd } else { Codec::Plain };
        prop_assert_eq!(ok(read(&vtrace(&steps, codec, frames))), steps);
    }

    #[test]
    fn large_blocks_are_split_and_nothing_is_lost(count in 0..40_000_u64, instructions in 0..1_u64 << 40) {
        let references = (0..count).map(|i| Reference::new(Gva(i * 72), i % 2 == 0)).collect();
        let steps = [Owned::References(references, instructions, 1.0)];
        let back = ok(read(&vtrace(&steps, Codec::Zstd, 1)));
        prop_assert_eq!(joined(&back), joined(&steps));
    }
}

#[test]
fn a_cut_vtrace_gives_its_whole_frames_and_says_that_it_is_truncated() {
    let steps = steps();
    let bytes = vtrace(&steps, Codec::Plain, 3);
    for length in 80..bytes.len() {
        let (before, end) = read(&bytes[..length]);
        let text = end.unwrap_err();
        assert!(text.contains(": truncated: "), "{length}: {text}");
        assert!(steps.starts_with(&before));
    }
    let whole = [&bytes[..bytes.len() - 32], &[0; 4096]].concat();
    let (before, end) = read(&whole);
    assert!(
        end.unwrap_err()
            .ends_with("truncated: zeros instead of a frame")
    );
    assert_eq!(before, steps);
}

#[test]
fn no_changed_bit_of_a_vtrace_passes() {
    let steps = steps();
    let bytes = vtrace(&steps, Codec::Zstd, 3);
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let (before, end) = read(&damaged);
        assert!(end.is_err(), "bit {bit}");
        assert!(steps.starts_with(&before), "bit {bit}");
    }
}

#[test]
fn compressed_files_are_known_by_their_content() {
    let plain = champsim(3000);
    let expected = joined(&ok(read(&plain)));
    assert_eq!((expected.0.len(), expected.1), (1000 + 750, 3000));
    for bytes in [
        gzip(&plain),
        xz(&plain),
        zstd(&plain),
        [xz(&plain[..6400]), xz(&plain[6400..])].concat(),
        [gzip(&plain[..6400]), gzip(&plain[6400..])].concat(),
    ] {
        let trace = open(Box::new(Cursor::new(bytes.clone())), "x").unwrap();
        assert_eq!(trace.format(), Format::ChampSim);
        assert_eq!(joined(&ok(read(&bytes))), expected);
        let cut = error(read(&bytes[..bytes.len() - 5]));
        assert!(
            cut.contains("truncated: the compressed data end early"),
            "{cut}"
        );
    }
}

#[test]
fn formats_are_known_by_their_content() {
    let files = [
        (vtrace(&steps(), Codec::Zstd, 3), Format::Vtrace),
        (champsim(1), Format::ChampSim),
        (champsim(200), Format::ChampSim),
        (cloudsuite(200), Format::CloudSuite),
    ];
    for (bytes, format) in files {
        let trace = open(Box::new(Cursor::new(bytes)), "x").unwrap();
        assert_eq!(trace.format(), format);
        assert_eq!(trace.map_on_touch(), format != Format::Vtrace);
    }
}

#[test]
fn other_files_are_not_traces() {
    let mut program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    program.truncate(100_000);
    let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x01\0\0\0\x01\0\x08\x06\0\0\0".repeat(9);
    let text = "a text of some length, as it might be given by mistake\n".repeat(9);
    let lackey = "==7== Lackey\nI  0401ab70,3\n S 1fff000758,8\n".repeat(9);
    let files = [
        &b""[..],
        b"\x89VT",
        b"\n",
        &[0; 5000],
        text.as_bytes(),
        lackey.as_bytes(),
        &png,
        &program,
    ];
    for bytes in files
        .into_iter()
        .flat_map(|file| [file.to_vec(), gzip(file)])
    {
        let text = error(read(&bytes));
        assert!(
            text.contains("not a trace: it") && text.contains("ChampSim's"),
            "{text}"
        );
    }
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let name = "/nonexistent/trace";
    let error = std::fs::File::open(name).err().unwrap();
    let error = TraceError::cannot_open(name, &error);
    let expected = "/nonexistent/trace: cannot open: No such file or directory (os error 2)";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn the_header_comes_back_and_its_ratio_is_used() {
    let header = Header {
        recorder: "vtax paging trace 0.1".into(),
        page_size: None,
        instructions_per_reference: Some(2.5),
        memory_bytes: Some(1 << 30),
        map_on_touch: true,
        interval_instructions: None,
    };
    let mut writer = Writer::new(Vec::new(), &header, Codec::Plain).unwrap();
    let reference = [Reference::new(Gva(8), false)];
    for _ in 0..3 {
        writer
            .step(&Owned::References(reference.to_vec(), 0, 1.0).step())
            .unwrap();
    }
    let bytes = writer.finish().unwrap();
    let trace = open(Box::new(Cursor::new(bytes.clone())), "x").unwrap();
    assert_eq!(trace.header(), Some(&header));
    assert_eq!(joined(&ok(read(&bytes))).1, 7);
}

#[test]
fn a_header_with_an_impossible_ratio_is_refused() {
    for ratio in [-1.0, 1e7] {
        let header = Header {
            instructions_per_reference: Some(ratio),
            ..Header::default()
        };
        let writer = Writer::new(Vec::new(), &header, Codec::Plain).unwrap();
        let text = error(read(&writer.finish().unwrap()));
        assert!(
            text.contains("instructions_per_reference must be a number from 0 to 1000000"),
            "{text}"
        );
    }
}

#[test]
fn a_trace_is_converted_through_the_writer() {
    let plain = champsim(20_000);
    let mut trace = open(Box::new(Cursor::new(plain.clone())), "x").unwrap();
    let mut writer = Writer::new(Vec::new(), &Header::default(), Codec::Zstd).unwrap();
    writer.record(&mut trace).unwrap();
    let bytes = writer.finish().unwrap();
    assert_eq!(ok(read(&bytes)), ok(read(&plain)));
}

#[test]
fn the_writer_refuses_what_the_format_cannot_hold() {
    let mut writer = Writer::new(Vec::new(), &Header::default(), Codec::Zstd).unwrap();
    for step in [
        Owned::References(Vec::new(), 1, f32::INFINITY),
        Owned::References(Vec::new(), 1, 0.0),
        Owned::References(Vec::new(), (1 << 40) + 1, 1.0),
    ] {
        assert!(
            matches!(writer.step(&step.step()), Err(WriteError::Value(_))),
            "{step:?}"
        );
    }
    let header = Header {
        recorder: "x".repeat(100_000),
        ..Header::default()
    };
    assert!(Writer::new(Vec::new(), &header, Codec::Zstd).is_err());
}

/// An endless stream that counts what is taken from it.
struct Endless(Arc<AtomicU64>);

impl Read for Endless {
    fn read(&mut self, target: &mut [u8]) -> std::io::Result<usize> {
        let record = champsim(1);
        let taken = self.0.load(Ordering::Relaxed);
        for (i, byte) in target.iter_mut().enumerate() {
            *byte = record[(usize::try_from(taken).unwrap() + i) % record.len()];
        }
        self.0.fetch_add(target.len() as u64, Ordering::Relaxed);
        Ok(target.len())
    }
}

#[test]
fn an_endless_trace_is_streamed() {
    let taken = Arc::new(AtomicU64::new(0));
    let mut trace = open(Box::new(Endless(taken.clone())), "x").unwrap();
    let mut given = 0;
    while given < 10_000 {
        let step = trace.next_step().unwrap().map(Owned::of).unwrap();
        given += references(&step).len();
    }
    assert!(taken.load(Ordering::Relaxed) < 2_000_000);
}

#[test]
fn a_decoder_that_would_need_too_much_memory_is_refused() {
    // A zstd frame that asks for a window of 2^41 bytes.
    let text = error(read(b"\x28\xb5\x2f\xfd\x00\xf8\x01\x00\x00"));
    assert!(text.contains("cannot read further"), "{text}");
    // An xz block whose header (after 12 bytes of stream header) asks for a dictionary of 4 GiB.
    let mut file = xz(&champsim(100));
    assert_eq!(file[12..16], [2, 0, 0x21, 1]);
    file[16] = 40;
    let crc = crc32fast::hash(&file[12..20]).to_le_bytes();
    file[20..24].copy_from_slice(&crc);
    let text = error(read(&file));
    assert!(text.contains("cannot read further"), "{text}");
}
