//! How fast each format is read, from memory: best of five, with the spread.
//!
//! `cargo run --release -p vtax-trace --example throughput`

#![allow(clippy::cast_precision_loss)] // of counts far below 2^53

use std::error::Error;
use std::io::{Cursor, Write};
use std::time::Instant;

use vtax_paging::address::{Gva, Reference};
use vtax_paging::step::Step;
use vtax_trace::vtrace::{Codec, Header, Writer};
use vtax_trace::{Options, open};

const REFERENCES: u64 = 8_000_000;
const RECORDS: u64 = 1_000_000;
const LINES: u64 = 2_000_000;
const REPETITIONS: usize = 5;

type Anything<T> = Result<T, Box<dyn Error>>;

fn main() -> Anything<()> {
    println!("file                      bytes/unit  M units/s best  worst  unit");
    for codec in [Codec::Plain, Codec::Zstd] {
        let sequential = vtrace(codec, |i| 0x7000_0000 + 8 * i)?;
        let random = vtrace(codec, |i| 0x7000_0000 + scatter(i) % (1 << 30))?;
        measure(
            &format!("vtrace {codec:?} sequential"),
            &sequential,
            REFERENCES,
            "reference",
        )?;
        measure(
            &format!("vtrace {codec:?} random 1 GiB"),
            &random,
            REFERENCES,
            "reference",
        )?;
    }
    let records = champsim();
    measure("champsim", &records, RECORDS, "record")?;
    measure(
        "champsim zstd",
        &zstd::encode_all(records.as_slice(), 3)?,
        RECORDS,
        "record",
    )?;
    measure("champsim gzip", &gzip(&records)?, RECORDS, "record")?;
    measure("champsim xz", &xz(&records)?, RECORDS, "record")?;
    measure("lackey", &lackey()?, LINES, "line")
}

fn measure(name: &str, bytes: &[u8], units: u64, unit: &str) -> Anything<()> {
    let mut rates = Vec::new();
    for _ in 0..REPETITIONS {
        let reader = Cursor::new(bytes.to_vec());
        let begin = Instant::now();
        let mut trace = open(Box::new(reader), name, &Options::default())?;
        let mut check = 0;
        while let Some(step) = trace.step()? {
            if let Step::References { references, .. } = step {
                check ^= references.last().map_or(0, |last| last.address().0);
            }
        }
        std::hint::black_box(check);
        rates.push(units as f64 / begin.elapsed().as_secs_f64() / 1e6);
    }
    rates.sort_by(f64::total_cmp);
    let (worst, best) = (rates[0], rates[rates.len() - 1]);
    let size = bytes.len() as f64 / units as f64;
    println!("{name:26} {size:9.2}  {best:14.1} {worst:6.1}  {unit}");
    Ok(())
}

/// A number without a pattern for each `i` (splitmix64, public domain algorithm).
fn scatter(i: u64) -> u64 {
    let mut z = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn vtrace(codec: Codec, address: impl Fn(u64) -> u64) -> Anything<Vec<u8>> {
    let mut writer = Writer::new(Vec::new(), &Header::default(), codec)?;
    for start in (0..REFERENCES).step_by(4096) {
        let end = REFERENCES.min(start + 4096);
        let references: Vec<_> = (start..end)
            .map(|i| Reference::new(Gva(address(i)), i % 4 == 0))
            .collect();
        writer.step(&Step::References {
            references: &references,
            instructions: 3 * (end - start),
            base_cpi: 1.0,
        })?;
    }
    Ok(writer.finish()?)
}

/// A loop of 13 instructions; two in five have an address, which is near or random.
fn champsim() -> Vec<u8> {
    let mut bytes = Vec::new();
    for i in 0..RECORDS {
        bytes.extend((0x40_0000 + 4 * (i % 13)).to_le_bytes());
        bytes.extend([
            u8::from(i % 13 == 12),
            u8::from(i % 13 == 12),
            3,
            0,
            4,
            5,
            0,
            0,
        ]);
        let store = if i % 10 == 3 {
            0x7ffe_0000_0000 + 8 * (i % 100)
        } else {
            0
        };
        let load = if i % 10 < 3 {
            0x1000_0000 + scatter(i) % (1 << 26)
        } else {
            0
        };
        for address in [store, 0, load, 0, 0, 0] {
            bytes.extend(address.to_le_bytes());
        }
    }
    bytes
}

fn lackey() -> Anything<Vec<u8>> {
    let mut text = Vec::new();
    for i in 0..LINES {
        match i % 4 {
            0 => writeln!(text, " L {:08x},8", 0x1000_0000 + 8 * i)?,
            _ => writeln!(text, "I  {:08x},4", 0x40_0000 + 4 * (i % 100))?,
        }
    }
    Ok(text)
}

fn gzip(bytes: &[u8]) -> Anything<Vec<u8>> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?)
}

fn xz(bytes: &[u8]) -> Anything<Vec<u8>> {
    let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 6);
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?)
}
