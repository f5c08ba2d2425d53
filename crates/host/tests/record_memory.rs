//! The recorder's memory does not grow with the recording.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

#[path = "common/record.rs"]
mod common;

use std::env;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use common::{PROGRAM, Rows, json};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use vtax_host::record::difference::Interval;
use vtax_host::record::parquet::{self, Written};
use vtax_host::record::row::{Layer, MAX_SLOTS, Row};
use vtax_host::record::stream::{self, Batch, Lengths, Stream};

const LIMIT_KIB: u64 = 32 << 10;

/// A line of `/proc/PROCESS/status` in KiB: `VmRSS`, the current memory; `VmHWM`, the peak.
fn memory(process: &str, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// The row of this number; each of its counters has a different distribution.
fn interval(number: u64, counters: u64) -> Interval {
    let counter = |counter: u64| match counter % 4 {
        0 => Some(0),
        1 => Some(number % (counter + 2)),
        2 => (!number.is_multiple_of(7)).then_some(counter),
        _ => Some(number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 44),
    };
    Interval {
        row: Row {
            seq: number,
            interval: number,
            time_ns: number * 100_000,
            run_ns: number * 100_000,
            enabled_ns: number * 100_000,
            running_ns: number * 100_000,
            cpu: 0,
            pid: 1000,
            tid: 1000,
            vm: 0,
            vcpu: -1,
            layer: Some(Layer::HostUser),
            comm: "program".to_owned(),
            values: Vec::new(),
            stack: Vec::new(),
        },
        lost: 0,
        length_ns: 100_000,
        throttled_ns: 0,
        stack: None,
        columns: (0..counters).map(counter).collect(),
    }
}

/// Write a stream of `rows` rows, and finish it.
fn finished(out: &Path, rows: u64, counters: u64) -> Written {
    let path = out.join("intervals.arrows");
    let names: Vec<String> = (0..counters).map(|name| format!("test.{name}")).collect();
    let schema = stream::schema(&names);
    let mut stream = Stream::create(&path, &schema).unwrap();
    let mut batch = Batch::new(schema, Lengths::default());
    for number in 0..rows {
        batch.push(&interval(number, counters), number);
        if batch.full() {
            stream.flush(&mut batch).unwrap();
        }
    }
    stream.flush(&mut batch).unwrap();
    stream.finish().unwrap();
    parquet::finish(&path, &out.join("intervals.parquet"), &[]).unwrap()
}

/// The peak memory of this process in KiB while `work` runs.
fn most(work: impl FnOnce()) -> u64 {
    // Begin again with the memory that it has.
    fs::write("/proc/self/clear_refs", "5").unwrap();
    work();
    memory("self", "VmHWM")
}

/// Set in the processes that `alone` starts.
const ALONE: &str = "VTAX_TEST_ALONE";

/// Does this process run only the test of this name? If not, the test is run in a process that
/// does, because the allocator keeps memory that other tests have freed.
fn alone(test: &str) -> bool {
    if env::var_os(ALONE).is_some() {
        return true;
    }
    let done = Command::new(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(ALONE, "")
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(said.contains("1 passed"), "{said}");
    false
}

/// The long file has more than one row group.
#[test]
fn a_long_file_needs_no_more_memory_than_a_short_one() {
    if !alone("a_long_file_needs_no_more_memory_than_a_short_one") {
        return;
    }
    let out = tempfile::tempdir().unwrap();
    let make = |rows| assert_eq!(finished(out.path(), rows, 8).rows, rows);
    let rows = (1 << 21) + 1000;
    let short = most(|| make(1 << 16));
    let long = most(|| make(rows));
    eprintln!("{short} KiB for 65536 rows, {long} KiB for {rows} rows");
    // The pages would be 20 MiB more.
    assert!(long < short + (6 << 10), "{short} KiB, then {long} KiB");
    assert!(long < LIMIT_KIB, "{long} KiB");
    assert!(!out.path().join("intervals.pages.tmp").exists());
}

/// As many counters as a row holds.
#[test]
fn a_wide_file_needs_no_more_memory_than_allowed() {
    if !alone("a_wide_file_needs_no_more_memory_than_allowed") {
        return;
    }
    let out = tempfile::tempdir().unwrap();
    let most = most(|| {
        finished(out.path(), 20_000, MAX_SLOTS as u64);
    });
    eprintln!("{most} KiB");
    assert!(most < LIMIT_KIB, "{most} KiB");
}

#[test]
fn each_value_is_in_the_finished_file() {
    let out = tempfile::tempdir().unwrap();
    // More rows than a page, and not a whole number of pages or batches.
    let (rows, counters) = (20_001, 9);
    finished(out.path(), rows, counters);
    let read = Rows::read(out.path());
    assert!(read.numbers("seq").into_iter().flatten().eq(0..rows));
    for counter in 0..counters {
        let expected =
            |number| interval(number, counters).columns[usize::try_from(counter).unwrap()];
        let column = read.numbers(&format!("test.{counter}"));
        assert!(column.into_iter().eq((0..rows).map(expected)), "{counter}");
    }
}

/// 60 s at 100 us.
#[test]
#[ignore = "takes a minute, and a debug build needs 33,628,160 bytes at its end, 74 KB too many"]
fn a_long_recording_needs_no_more_memory() {
    recording_or_skip!();
    let out = tempfile::tempdir().unwrap();
    let mut recorder = Command::new(PROGRAM)
        .args(["record", "--every", "100us", "--out"])
        .arg(out.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let process = recorder.id();
    sleep(Duration::from_secs(20));
    let early = memory(&process.to_string(), "VmRSS");
    sleep(Duration::from_secs(40));
    let late = memory(&process.to_string(), "VmRSS");
    kill(Pid::from_raw(process.cast_signed()), Signal::SIGINT).unwrap();
    assert!(recorder.wait().unwrap().success());
    eprintln!("{early} KiB after 20 s, {late} KiB after 60 s");
    assert!(
        late < early + early / 10 + 512,
        "{early} KiB, then {late} KiB"
    );
    let record = json(&out.path().join("record.json"));
    eprintln!(
        "{} rows, at most {} bytes",
        record["rows"], record["max_rss_bytes"]
    );
    assert!(record["max_rss_bytes"].as_u64().unwrap() < LIMIT_KIB << 10);
}
