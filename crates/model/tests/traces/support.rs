//! Valid traces of every kind, and a reader that checks what must hold for any input.

use std::io::{Cursor, Read, Write};

use vtax_model::model::address::{Gva, PageSize, Reference};
use vtax_model::step::{Operation, Step};
use vtax_model::traces::vtrace::{Codec, Header, Writer};
use vtax_model::traces::{BLOCK_REFERENCES, TraceError, open};

/// A step that owns its references.
#[derive(Clone, Debug, PartialEq)]
pub enum Owned {
    References(Vec<Reference>, u64, f32),
    Operation(Operation),
    Phase(u32),
    Interval(bool, Vec<u64>),
}

impl Owned {
    pub fn of(step: Step<'_>) -> Self {
        match step {
            Step::References {
                references,
                instructions,
                base_cpi,
            } => Self::References(references.to_vec(), instructions, base_cpi),
            Step::Operation(operation) => Self::Operation(operation),
            Step::Phase(phase) => Self::Phase(phase),
            Step::Interval { recorded, blocks } => Self::Interval(recorded, blocks.to_vec()),
        }
    }

    pub fn step(&self) -> Step<'_> {
        match self {
            Self::References(references, instructions, base_cpi) => Step::References {
                references,
                instructions: *instructions,
                base_cpi: *base_cpi,
            },
            Self::Operation(operation) => Step::Operation(*operation),
            Self::Phase(phase) => Step::Phase(*phase),
            Self::Interval(recorded, blocks) => Step::Interval {
                recorded: *recorded,
                blocks,
            },
        }
    }
}

/// All steps of a trace and how it ended.
pub type Outcome = (Vec<Owned>, Result<(), String>);

/// Open the bytes, read them to the end and check what must hold for any input.
pub fn read(bytes: &[u8]) -> Outcome {
    drain(Box::new(Cursor::new(bytes.to_vec())))
}

pub fn drain(reader: Box<dyn Read + Send>) -> Outcome {
    let mut steps = Vec::new();
    let mut trace = match open(reader, "a\ntrace") {
        Ok(trace) => trace,
        Err(error) => return (steps, Err(line(&error))),
    };
    loop {
        match trace.step() {
            Ok(Some(step)) => {
                check(&step);
                steps.push(Owned::of(step));
            }
            Ok(None) => break assert_eq!(trace.step().unwrap(), None),
            Err(error) => {
                assert_eq!(trace.step(), Err(error.clone()), "an error stays");
                return (steps, Err(line(&error)));
            }
        }
    }
    (steps, Ok(()))
}

fn check(step: &Step<'_>) {
    if let Step::References {
        references,
        base_cpi,
        ..
    } = step
    {
        assert!(references.len() <= BLOCK_REFERENCES);
        assert!(base_cpi.is_finite() && *base_cpi > 0.0);
    }
}

/// The text of an error, which must be one printable line.
fn line(error: &TraceError) -> String {
    let text = error.to_string();
    assert!(!text.chars().any(char::is_control), "{text:?}");
    assert!(
        text.starts_with("a\u{fffd}trace: ") && text.len() < 1500,
        "{text:?}"
    );
    text
}

pub fn references(step: &Owned) -> &[Reference] {
    match step {
        Owned::References(references, _, _) => references,
        _ => &[],
    }
}

pub fn vtrace(steps: &[Owned], codec: Codec, frames: usize) -> Vec<u8> {
    let header = Header {
        recorder: "test".into(),
        page_size: Some(PageSize::M2),
        interval_instructions: Some(1000),
        ..Header::default()
    };
    let mut writer = Writer::new(Vec::new(), &header, codec).unwrap();
    for (index, step) in steps.iter().enumerate() {
        writer.step(&step.step()).unwrap();
        if index % frames == frames - 1 {
            writer.flush().unwrap();
        }
    }
    writer.finish().unwrap()
}

/// Steps of every kind, with addresses near and far.
pub fn steps() -> Vec<Owned> {
    let walk = |start: u64, stride: u64, count: u64| {
        (0..count)
            .map(|i| Reference::new(Gva(start.wrapping_add(i * stride)), i % 3 == 0))
            .collect::<Vec<_>>()
    };
    let start = Gva(0x7000_0000);
    let (bytes, size) = (0x20_0000, PageSize::M2);
    vec![
        Owned::Operation(Operation::Spawn { process: 1 }),
        Owned::Operation(Operation::Switch { process: 1 }),
        Owned::Operation(Operation::Map { start, bytes, size }),
        Owned::Phase(7),
        Owned::Interval(true, vec![1, 1 << 40, 0]),
        Owned::References(walk(0x7000_0000, 8, 300), 900, 0.75),
        Owned::References(walk(u64::MAX - 5000, 4096, 20), 20, 1.5),
        Owned::References(Vec::new(), 1000, 1.5),
        Owned::Operation(Operation::Fork { child: u32::MAX }),
        Owned::Operation(Operation::Protect {
            start,
            bytes: 4096,
            writable: false,
        }),
        Owned::Operation(Operation::SystemCalls { count: 3 }),
        Owned::Operation(Operation::OtherExits { count: 4 }),
        Owned::References(walk(0x1000, 0x12_3456_7891, 50), 70, 1.0),
        Owned::Operation(Operation::Unmap { start, bytes }),
        Owned::Operation(Operation::Exit { process: u32::MAX }),
    ]
}

/// Records as a tracer on x86 would write them: `stores` and the record's size decide the layout.
fn records(count: u64, stores: usize, size: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for i in 0..count {
        let mut record = (0x40_0000 + 4 * i).to_le_bytes().to_vec();
        let branch = u8::from(i % 5 == 0);
        record.extend([branch, branch & u8::from(i % 2 == 0)]);
        record.resize(if stores == 2 { 16 } else { 24 }, 25);
        for slot in 0..stores as u64 {
            let used = slot == 0 && i % 4 == 0;
            let address = if used { 0x7ffe_0000_1000 - 8 * i } else { 0 };
            record.extend(address.to_le_bytes());
        }
        for slot in 0..4 {
            let used = slot == 0 && i % 3 == 0;
            let address = if used { 0x60_0000 + 64 * i } else { 0 };
            record.extend(address.to_le_bytes());
        }
        record.resize(size, 0);
        bytes.extend(record);
    }
    bytes
}

pub fn champsim(count: u64) -> Vec<u8> {
    records(count, 2, 64)
}

pub fn cloudsuite(count: u64) -> Vec<u8> {
    records(count, 4, 96)
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub fn xz(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 1);
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).unwrap()
}

/// A small valid file of every kind.
pub fn samples() -> Vec<Vec<u8>> {
    let steps = steps();
    let mut files = vec![
        vtrace(&steps, Codec::Plain, 3),
        vtrace(&steps, Codec::Zstd, 5),
        champsim(100),
        cloudsuite(100),
    ];
    for index in [0, 2, 3] {
        let plain = files[index].clone();
        files.extend([gzip(&plain), xz(&plain), zstd(&plain)]);
    }
    files
}
