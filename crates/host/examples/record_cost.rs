//! What the recorder itself costs: CPU time and memory for each row, from the rings to the file.
//!
//! This program makes the rows in the rings' layout, as a machine with two busy CPUs and hardware
//! counters would; all later steps are the recorder's own code.
//!
//! `cargo run --release -p vtax-record --example cost -- [ROWS [COUNTERS]]`

#![allow(
    clippy::unwrap_used,
    reason = "a measurement ends with what went wrong"
)]

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::time::{ClockId, clock_gettime};
use vtax_host::record::clock::Pair;
use vtax_host::record::consumer::{Beside, Consumer};
use vtax_host::record::difference::{Location, Start};
use vtax_host::record::files::Folder;
use vtax_host::record::parquet;
use vtax_host::record::plan::Columns;
use vtax_host::record::reference::throttling::Throttling;
use vtax_host::record::ring::{Rings, STATE_BYTES, Shape};
use vtax_host::record::rotation::Groups;
use vtax_host::record::row::HEADER_WORDS;
use vtax_host::record::sources;

const CPUS: u32 = 2;
/// Hardware counters, with three values each, besides the counters of programs.
const PERF: usize = 4;
/// Nanoseconds from one row of a CPU to its next.
const EVERY_NS: u64 = 100_000;

fn main() {
    let mut arguments = std::env::args()
        .skip(1)
        .map(|number| number.parse().unwrap());
    let rows: u64 = arguments.next().unwrap_or(2_400_000);
    let counted = usize::try_from(arguments.next().unwrap_or(20)).unwrap();
    let before = high_water();
    let folder = tempfile::tempdir().unwrap();
    let out = Folder::create(folder.path()).unwrap();
    let mut machine = Machine::new(counted);
    let mut consumer = machine.consumer(&out);
    let mut throttling = Throttling::default();
    let (mut drain, mut write) = (0, 0);
    while machine.seq * u64::from(CPUS) < rows {
        // The recorder wakes when a third of a ring is full.
        machine.run(u64::from(machine.shape.rows / 3));
        drain += cpu_ns(|| consumer.drain(&mut throttling));
        if consumer.full() {
            write += cpu_ns(|| consumer.flush().unwrap());
        }
    }
    write += cpu_ns(|| consumer.finish().unwrap());
    let recording = high_water();
    let (rows, lost, _) = consumer.rows();
    assert_eq!(lost, 0);
    drop((consumer, machine));
    let stream = std::fs::metadata(out.stream()).unwrap().len();
    let mut written = None;
    let finish =
        cpu_ns(|| written = Some(parquet::finish(&out.stream(), &out.rows(), &[]).unwrap()));
    let bytes = written.unwrap().bytes;
    #[allow(clippy::cast_precision_loss, reason = "shown with one digit")]
    let each = |sum: u64| sum as f64 / rows as f64;
    println!("{rows} rows of {} counters", counted + PERF);
    println!("rings to batch   {:8.1} ns of CPU time a row", each(drain));
    println!("batch to stream  {:8.1} ns of CPU time a row", each(write));
    println!("stream to file   {:8.1} ns of CPU time a row", each(finish));
    println!("stream           {:8.1} bytes a row", each(stream));
    println!("file             {:8.1} bytes a row", each(bytes));
    println!("memory before    {before:8} KiB at most");
    println!("while recording  {recording:8} KiB at most");
    println!("at the end       {:8} KiB at most", high_water());
}

fn cpu_ns(work: impl FnOnce()) -> u64 {
    let now = || {
        let time = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).unwrap();
        u64::try_from(time.tv_sec() * 1_000_000_000 + time.tv_nsec()).unwrap()
    };
    let before = now();
    work();
    now() - before
}

/// The peak memory of this process, in KiB.
fn high_water() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    line.unwrap()
        .split_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap()
}

/// Two CPUs whose programs write rows.
struct Machine {
    counted: usize,
    states: File,
    rows: File,
    columns: Columns,
    shape: Shape,
    random: u64,
    seq: u64,
    values: Vec<Vec<u64>>,
}

impl Machine {
    fn new(counted: usize) -> Self {
        let programs = (0..counted).map(Location::Counted);
        let perf = (0..PERF).map(|event| Location::Perf(counted + 3 * event));
        let columns = Columns {
            events: sources::all().into_iter().take(counted + PERF).collect(),
            locations: programs.chain(perf).collect(),
            slots: counted + 3 * PERF,
            ..Columns::default()
        };
        let shape = columns.shape(CPUS, None, false);
        let memory = |bytes: u32| {
            let file = File::from(memfd_create(c"ring", MFdFlags::empty()).unwrap());
            file.set_len(bytes.into()).unwrap();
            file
        };
        Self {
            counted,
            columns,
            states: memory(STATE_BYTES * CPUS),
            rows: memory(shape.row_bytes() * shape.all_rows()),
            shape,
            random: 1,
            seq: 0,
            values: vec![vec![0; shape.slots]; CPUS as usize],
        }
    }

    fn consumer(&self, out: &Folder) -> Consumer {
        let rings = Rings::map(self.states.as_fd(), self.rows.as_fd(), self.shape).unwrap();
        let groups = Groups {
            turns: Vec::new(),
            always: (self.counted..self.counted + PERF).collect(),
        };
        let start = Start {
            run_ns: 0,
            read_ns: Some(0),
        };
        Consumer::new(
            rings,
            &self.columns,
            &groups,
            start,
            Pair::now(),
            out,
            Beside::default(),
        )
        .unwrap()
    }

    /// Let each CPU make this many rows.
    fn run(&mut self, rows: u64) {
        for cpu in 0..CPUS {
            for seq in self.seq..self.seq + rows {
                self.row(cpu, seq);
            }
            let head = u64::from(cpu * STATE_BYTES);
            let next = self.seq + rows;
            // The head of the ring, and the overflows.
            for offset in [0, 128] {
                self.states
                    .write_all_at(&next.to_le_bytes(), head + offset)
                    .unwrap();
            }
        }
        self.seq += rows;
    }

    fn row(&mut self, cpu: u32, seq: u64) {
        let jitter = self.below(2_000);
        let now = (seq + 1) * EVERY_NS + jitter;
        let process = 1_000 + self.below(4);
        let low = |low: u64, high: u64| low | high << 32;
        let layer = self.below(3);
        self.count(cpu, jitter);
        let name = u64::from_le_bytes(*b"compiler");
        let number = process - 1_000 + u64::from(b'0');
        let header: [u64; HEADER_WORDS] = [
            seq,
            seq,
            now,
            now,
            now,
            now,
            low(cpu.into(), process),
            low(process, 0),
            low(u32::MAX.into(), layer),
            name,
            number,
        ];
        let words = header.iter().chain(&self.values[cpu as usize]);
        let bytes: Vec<u8> = words.flat_map(|word| word.to_le_bytes()).collect();
        let in_ring = u64::from(cpu * self.shape.rows) + seq % u64::from(self.shape.rows);
        let offset = in_ring * u64::from(self.shape.row_bytes());
        self.rows.write_all_at(&bytes, offset).unwrap();
    }

    /// Most events are rare; cycles, instructions and the like occur all the time.
    fn count(&mut self, cpu: u32, jitter: u64) {
        for slot in 0..self.counted {
            let often = [1, 8, 64, 1_000][slot % 4];
            if self.below(often) == 0 {
                let amount = 1 + self.below(3);
                self.values[cpu as usize][slot] += amount;
            }
        }
        for event in 0..PERF {
            let amount = (250_000 >> (4 * event)) + self.below(20_000 >> (4 * event));
            let slot = self.counted + 3 * event;
            let values = &mut self.values[cpu as usize][slot..slot + 3];
            values[0] += amount;
            values[1] += EVERY_NS + jitter;
            values[2] += EVERY_NS + jitter;
        }
    }

    /// An even number below a limit; the sequence is the same in each run (xorshift).
    fn below(&mut self, limit: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % limit
    }
}
