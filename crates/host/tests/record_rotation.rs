//! Counters that take turns, with software events of which only some may be on at a time.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

#[path = "common/record.rs"]
mod common;

use std::collections::HashMap;
use std::path::Path;
use std::process::{Child, Command};

use common::{Rows, described, json, recorded};
use serde_json::Value;

/// Shell programs that constantly take page faults and switch, one for each of two CPUs.
struct Work([Child; 2]);

impl Work {
    fn begin() -> Self {
        let script = "while :; do /bin/true; done";
        Self([(); 2].map(|()| Command::new("sh").args(["-c", script]).spawn().unwrap()))
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The columns of each group.
fn groups(record: &Value) -> Vec<Vec<String>> {
    serde_json::from_value(record["rotation"]["groups"].clone()).unwrap()
}

/// The share of the time of all rows in which this column has a value, computed from the rows.
#[allow(clippy::cast_precision_loss, reason = "a ratio")]
fn covered(rows: &Rows, column: &str) -> f64 {
    let lengths = rows.numbers("length_ns");
    let with_value = rows.numbers(column).into_iter().zip(&lengths);
    let covered: u64 = with_value
        .filter_map(|(value, length)| value.and(*length))
        .sum();
    covered as f64 / lengths.iter().flatten().sum::<u64>() as f64
}

#[test]
fn groups_take_turns_and_each_value_is_of_a_whole_interval() {
    recording_or_skip!();
    let out = tempfile::tempdir().unwrap();
    let work = Work::begin();
    let events = "sw,faults.user,faults.kernel,sched";
    let arguments = ["--every", "1ms", "--counters", "2", "--events", events];
    let record = recorded(out.path(), &[&arguments[..], &["--for", "3s"]].concat());
    drop(work);
    let rows = Rows::read(out.path());
    let groups = groups(&record);
    assert_eq!(groups.iter().map(Vec::len).collect::<Vec<_>>(), [2; 4]);
    assert_eq!(record["counters"], 2);
    assert!(
        record["rotation"]["turns"].as_u64().unwrap() > 20,
        "{record}"
    );
    let warnings = record["warnings"].to_string();
    assert!(warnings.contains("4 groups took turns"), "{warnings}");
    for column in groups.iter().flatten() {
        let described = described(out.path(), column);
        let coverage = described["coverage"].as_f64().unwrap();
        // A quarter, minus the rows at the turns; a recorder that waits for a busy CPU makes single
        // turns longer.
        assert!((0.5 / 4.0..0.4).contains(&coverage), "{column}: {coverage}");
        assert!((coverage - covered(&rows, column)).abs() < 1e-9);
        assert_eq!(described["sum"], rows.sum(column), "{column}");
    }
    let whole: f64 = groups.iter().map(|group| covered(&rows, &group[0])).sum();
    assert!(whole < 1.0, "the rows at the turns are for nobody: {whole}");
    one_group_a_row(&rows, &groups);
    agrees(&rows, "sw.page_faults", &["faults.user", "faults.kernel"]);
    agrees(&rows, "sw.context_switches", &["sched.switches"]);
    clock_agrees(&rows);
}

/// No row has values of two groups, the values of one group come together, and where a CPU's group
/// changes, a row without values lies between.
fn one_group_a_row(rows: &Rows, groups: &[Vec<String>]) {
    let columns: Vec<Vec<Vec<Option<u64>>>> = groups
        .iter()
        .map(|group| group.iter().map(|name| rows.numbers(name)).collect())
        .collect();
    let mut last: HashMap<u32, Option<usize>> = HashMap::new();
    let mut turns = 0;
    for (at, cpu) in rows.small("cpu").into_iter().enumerate() {
        let has = |group: &Vec<Vec<Option<u64>>>| {
            let values: Vec<bool> = group.iter().map(|column| column[at].is_some()).collect();
            assert!(values.iter().all(|one| *one == values[0]), "{values:?}");
            values[0]
        };
        let there: Vec<usize> = (0..groups.len()).filter(|g| has(&columns[*g])).collect();
        assert!(there.len() <= 1, "row {at} has values of groups {there:?}");
        let now = there.first().copied();
        if let Some(before) = last.insert(cpu.unwrap(), now).flatten() {
            assert!(now.is_none_or(|now| now == before), "row {at} is at a turn");
            turns += usize::from(now.is_none());
        }
    }
    assert!(turns > 20, "{turns}");
}

/// In the rows in which a perf event has a value, the value matches the programs' count, which
/// never takes turns.
///
/// A row may end between the tracepoint of a page fault and perf's count of it, which come one
/// after the other with interrupts on, so that single rows differ by faults in progress; and the
/// kernel counts a few more context switches than `sched_switch` tells, even without turns (22 of
/// 12,957 measured). A partly counted interval would be wrong by dozens, in one row in ten.
fn agrees(rows: &Rows, column: &str, counted: &[&str]) {
    let counted: Vec<_> = counted.iter().map(|name| rows.numbers(name)).collect();
    let (mut sum, mut apart, mut equal, mut number) = (0, 0, 0, 0);
    for (at, value) in rows.numbers(column).into_iter().enumerate() {
        let Some(value) = value else { continue };
        let other: u64 = counted.iter().map(|column| column[at].unwrap()).sum();
        sum += value;
        apart += value.abs_diff(other);
        equal += usize::from(value == other);
        number += 1;
    }
    assert!(sum > 100 && number > 100, "{column}: {sum} in {number}");
    assert!(apart <= sum / 50, "{column}: {apart} of {sum}");
    assert!(equal * 10 >= number * 9, "{column}: {equal} of {number}");
}

/// perf's clock matches the length of each row, except for the time from one reading to the other.
fn clock_agrees(rows: &Rows) {
    let lengths = rows.numbers("length_ns");
    let clock = rows.numbers("sw.cpu_clock");
    let pairs = clock.into_iter().zip(lengths);
    let both: Vec<(u64, u64)> = pairs
        .filter_map(|(clock, length)| Some((clock?, length?)))
        .collect();
    let near = both
        .iter()
        .filter(|(clock, length)| clock.abs_diff(*length) < 50_000);
    // The host may take the CPU away in between.
    assert!(near.count() * 20 >= both.len() * 19);
    let apart: u64 = both
        .iter()
        .map(|(clock, length)| clock.abs_diff(*length))
        .sum();
    let sum: u64 = both.iter().map(|(clock, _)| clock).sum();
    assert!(apart < sum / 50, "{apart} of {sum}");
}

#[test]
fn a_command_is_counted_in_turns_too() {
    recording_or_skip!();
    let out = tempfile::tempdir().unwrap();
    let script = "i=0; while [ $i -lt 800000 ]; do i=$((i+1)); done";
    let events = "sw.task_clock,sw.page_faults";
    let arguments = ["--every", "1ms", "--counters", "1", "--events", events];
    let record = recorded(
        out.path(),
        &[&arguments[..], &["--", "sh", "-c", script]].concat(),
    );
    let rows = Rows::read(out.path());
    assert_eq!(groups(&record).len(), 2);
    assert!(
        record["rotation"]["turns"].as_u64().unwrap() > 10,
        "{record}"
    );
    for column in ["sw.task_clock", "sw.page_faults"] {
        let coverage = covered(&rows, column);
        assert!((0.25..0.75).contains(&coverage), "{column}: {coverage}");
    }
    // Where the clock has a value, it is the row's length.
    let lengths = rows.numbers("length_ns").into_iter();
    let both: Vec<(u64, u64)> = lengths
        .zip(rows.numbers("sw.task_clock"))
        .filter_map(|(length, clock)| Some((length?, clock?)))
        .collect();
    let (length, clock) = both
        .iter()
        .fold((0, 0), |(a, b), (length, clock)| (a + length, b + clock));
    assert!(clock.abs_diff(length) < length / 20, "{clock} and {length}");
}

#[test]
fn events_that_fit_take_no_turns() {
    recording_or_skip!();
    let out = tempfile::tempdir().unwrap();
    let arguments = ["--every", "1ms", "--for", "200ms", "--events", "sw"];
    let record = recorded(out.path(), &[&arguments[..], &["--counters", "8"]].concat());
    assert!(record["rotation"].is_null(), "{record}");
    all_but_the_first(out.path());
    let out = tempfile::tempdir().unwrap();
    let record = recorded(out.path(), &arguments);
    assert!(record["rotation"].is_null() && record["counters"].is_null());
    all_but_the_first(out.path());
}

/// The counters are on before the rows begin: only the first row of a CPU has no values.
fn all_but_the_first(out: &Path) {
    let rows = Rows::read(out);
    let sequence = rows.numbers("seq");
    for column in json(&out.join("events.json"))["columns"]
        .as_array()
        .unwrap()
    {
        let values = rows.numbers(column["name"].as_str().unwrap());
        for (value, sequence) in values.iter().zip(&sequence) {
            assert_eq!(value.is_none(), *sequence == Some(0), "{column}");
        }
    }
}

#[test]
fn no_counter_at_all_is_refused() {
    let out = tempfile::tempdir().unwrap();
    let output = common::record(out.path(), &["--counters", "0", "--for", "10ms"]);
    assert_eq!(output.status.code(), Some(2));
}
