//! A reference event that perf stops, because the kernel's limit is low for a moment.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

#[path = "common/record.rs"]
mod common;

use std::fs;
use std::process::{Child, Command};
use std::sync::{Mutex, MutexGuard};
use std::thread::{sleep, spawn};
use std::time::Duration;

use common::{Rows, recorded};

const LIMIT: &str = "/proc/sys/kernel/perf_event_max_sample_rate";
/// At 250 ticks a second an event stops after 32 overflows, at 1,000 ticks after 8: rows of 100 us
/// stop, and the longer rows of other tests do not.
const LOW: &str = "8000";
const EVERY_NS: u64 = 100_000;

/// All tests share one limit.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The values of a column in one CPU's rows.
fn of_cpu(rows: &Rows, column: &str, cpu: u64) -> Vec<u64> {
    let numbers = rows.numbers(column).into_iter().zip(rows.small("cpu"));
    let own = numbers.filter(|(_, own)| own.map(u64::from) == Some(cpu));
    own.filter_map(|(number, _)| number).collect()
}

/// The time from a CPU's first row to its last.
fn span(rows: &Rows, column: &str, cpu: u64) -> u64 {
    let numbers = of_cpu(rows, column, cpu);
    let ends = numbers.first().zip(numbers.last());
    ends.map_or(0, |(first, last)| last - first)
}

/// The limit before the test.
struct Lowered(String);

impl Lowered {
    /// Lower the limit; `None` where that is not allowed, or where it is already low.
    fn begin() -> Option<Self> {
        let before = fs::read_to_string(LIMIT).ok()?;
        let higher = before.trim().parse::<u64>().ok()? > LOW.parse().ok()?;
        higher.then(|| fs::write(LIMIT, LOW).ok()).flatten()?;
        Some(Self(before))
    }
}

impl Drop for Lowered {
    fn drop(&mut self) {
        let _ = fs::write(LIMIT, self.0.trim());
    }
}

/// Keeps a CPU busy: its tick then comes every 1 to 10 ms, and the event goes on.
struct Busy(Child);

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_time_in_which_perf_stops_the_reference_is_named() {
    recording_or_skip!();
    let _alone = alone();
    let Some(lowered) = Lowered::begin() else {
        eprintln!("skipped: {LIMIT} cannot be lowered");
        return;
    };
    let loops = ["-c", "while :; do :; done"];
    let busy = Busy(Command::new("sh").args(loops).spawn().unwrap());
    let again = lowered.0.trim().to_owned();
    let raises = spawn(move || {
        sleep(Duration::from_millis(700));
        drop(lowered);
    });
    let out = tempfile::tempdir().unwrap();
    let arguments = ["--every", "100us", "--events", "sched", "--for", "1s"];
    let record = recorded(out.path(), &arguments);
    raises.join().unwrap();
    drop(busy);

    let rows = Rows::read(out.path());
    let before_rows = rows.sum("throttled_ns");
    assert!(record["throttled"].as_u64().unwrap() > 10, "{record}");
    // There may be more in a CPU's first row or after its last row.
    let all = record["throttled_ns"].as_u64().unwrap();
    assert!(
        before_rows > 0 && before_rows <= all,
        "{before_rows} of {all}"
    );
    // By its own count, the event's periods exclude the time in which it stood still.
    let (mut missing, mut named) = (0, 0);
    for cpu in record["cpus"].as_array().unwrap() {
        let cpu = cpu.as_u64().unwrap();
        let periods = EVERY_NS * span(&rows, "interval", cpu);
        missing += span(&rows, "time_ns", cpu).saturating_sub(periods);
        let stopped = of_cpu(&rows, "throttled_ns", cpu);
        named += stopped.iter().skip(1).sum::<u64>();
    }
    assert!(
        missing.abs_diff(named) < missing / 10 + 5_000_000,
        "{missing} ns in no interval, {named} of them named"
    );
    let warnings = record["warnings"].to_string();
    assert!(
        warnings.contains("throttling stopped the reference"),
        "{warnings}"
    );
    let rates = format!("went from {LOW} to {again}");
    assert!(warnings.contains(&rates), "{warnings}");
}

#[test]
fn the_periods_of_a_recording_of_targets_exclude_it_too() {
    recording_or_skip!();
    let _alone = alone();
    let Some(lowered) = Lowered::begin() else {
        eprintln!("skipped: {LIMIT} cannot be lowered");
        return;
    };
    let out = tempfile::tempdir().unwrap();
    let script = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
    let arguments = [
        "--every", "100us", "--events", "sched", "--", "sh", "-c", script,
    ];
    let record = recorded(out.path(), &arguments);
    drop(lowered);

    assert_eq!(record["reference"], "task_clock");
    assert!(record["throttled"].as_u64().unwrap() > 5, "{record}");
    let rows = Rows::read(out.path());
    for cpu in record["cpus"].as_array().unwrap() {
        let cpu = cpu.as_u64().unwrap();
        let periods = EVERY_NS * span(&rows, "interval", cpu);
        let time = span(&rows, "time_ns", cpu);
        // A period begins before the first row.
        assert!(
            periods <= time + EVERY_NS,
            "{periods} ns of periods in {time} ns of CPU {cpu}"
        );
    }
}
