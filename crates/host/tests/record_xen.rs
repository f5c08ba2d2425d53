//! Traces that a real Xen recorded, compared with what Xen's own xenalyze says about them
//! (`data/xen/README.md`).

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

#[path = "common/record.rs"]
mod common;

use std::collections::BTreeMap;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::{PROGRAM, Rows, described, json};
use serde_json::Value;
use vtax_host::record::xen::{Record, Records};

/// `TRC_TRACE_WRAP_BUFFER`: only xenalyze shows it.
const WRAP_BUFFER: &str = "1f002";
/// `TRC_LOST_RECORDS`.
const LOST_RECORDS: &str = "1f001";
/// `TRC_HVM_VMENTRY`.
const VMENTRY: &str = "81001";
/// `TRC_HVM_VMEXIT64` of Xen 4.17.
const VMEXIT: &str = "81102";
/// `TRC_PV_MATH_STATE_RESTORE`, which has no name here.
const MATH_STATE_RESTORE: &str = "xen.0x201008";
/// The domain that runs when no other does.
const IDLE_DOMAIN: &str = "32767";

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/xen")
        .join(name)
}

fn text(name: &str) -> String {
    std::fs::read_to_string(data(name)).unwrap()
}

fn unpacked(name: &str) -> Vec<u8> {
    zstd::decode_all(std::fs::File::open(data(name)).unwrap()).unwrap()
}

fn records(trace: &str) -> Vec<Record> {
    let bytes = unpacked(&format!("{trace}.trace.zst"));
    let mut records = Records::new(Cursor::new(bytes));
    let all = std::iter::from_fn(|| records.next_record().unwrap()).collect();
    assert!(!records.cut_off);
    all
}

/// Run the program on a trace in the folder, where it also writes its files.
fn import(folder: &Path, trace: &str, tsc_hz: u64, more: &[&str]) -> Output {
    let bytes = unpacked(&format!("{trace}.trace.zst"));
    std::fs::write(folder.join("trace"), bytes).unwrap();
    Command::new(PROGRAM)
        .current_dir(folder)
        .args(["import-xen", "trace", "--out", ".", "--every", "1ms"])
        .args(["--tsc-hz", &tsc_hz.to_string()])
        .args(more)
        .output()
        .unwrap()
}

/// An import by the program: the folder, and `record.json`.
fn imported(trace: &str, tsc_hz: u64) -> (tempfile::TempDir, Value) {
    let folder = tempfile::tempdir().unwrap();
    let output = import(folder.path(), trace, tsc_hz, &[]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{message}");
    let record = json(&folder.path().join("record.json"));
    (folder, record)
}

/// The sum of the numbers behind a label over all virtual CPUs in xenalyze's summary.
fn summed(summary: &str, label: &str) -> u64 {
    let lines = summary.lines().filter_map(|line| {
        let rest = line.trim_start().strip_prefix(label)?;
        let mut words = rest.split_whitespace();
        words
            .next()
            .filter(|_| rest.starts_with(' '))?
            .parse::<u64>()
            .ok()
    });
    lines.sum()
}

/// The counts of hypercalls by their numbers, over all virtual CPUs: lines such as
/// "iret [23]: 684".
fn hypercalls(summary: &str) -> BTreeMap<u32, u64> {
    let mut counts = BTreeMap::new();
    for line in summary.lines() {
        let call = line
            .split_once('[')
            .and_then(|(name, rest)| Some((name, rest.split_once("]:")?)));
        let Some((_, (number, count))) = call.filter(|(name, _)| !name.trim().is_empty()) else {
            continue;
        };
        let (number, count) = (number.trim().parse(), count.trim().parse::<u64>());
        if let (Ok(number), Ok(count)) = (number, count) {
            *counts.entry(number).or_default() += count;
        }
    }
    counts
}

/// The name and the sum of the only column that is described in such words.
fn summed_columns(out: &Path, about: &str) -> (String, u64) {
    let events = json(&out.join("events.json"));
    let columns = events["columns"].as_array().unwrap();
    let mut found = columns.iter().filter(|column| {
        let text = column["about"].as_str().unwrap();
        text.contains(about)
    });
    let column = found.next().unwrap();
    assert!(found.next().is_none(), "{about}");
    let name = column["name"].as_str().unwrap().to_owned();
    (name, column["sum"].as_u64().unwrap())
}

/// Ticks that the virtual CPUs of domains ran, and by how much xenalyze's rounding may be off:
/// xenalyze gives a count and a mean.
fn ran(summary: &str) -> (u64, u64) {
    let (mut ticks, mut times, mut domain) = (0, 0, "");
    for line in summary.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["|--", "Domain", number, "--|"] => domain = number,
            ["running:", count, _, mean, ..] if domain != IDLE_DOMAIN => {
                let count: u64 = count.parse().unwrap();
                ticks += count * mean.parse::<u64>().unwrap();
                times += count;
            }
            _ => {}
        }
    }
    (ticks, times)
}

/// Ticks between the entries and the exits that follow them, as xenalyze reads the trace.
fn ticks_in_guest() -> u64 {
    let theirs = String::from_utf8(unpacked("pvh.records.zst")).unwrap();
    let (mut entered, mut ticks) = (BTreeMap::new(), 0);
    for line in theirs.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let tsc = words[2].parse::<u64>();
        match words[1] {
            VMENTRY => {
                entered.insert(words[0], tsc.unwrap());
            }
            VMEXIT => {
                let since = entered.remove(words[0]);
                ticks += since.map_or(0, |since| tsc.unwrap() - since);
            }
            _ => {}
        }
    }
    ticks
}

fn nanoseconds(ticks: u64, tsc_hz: u64) -> u64 {
    let ns = u128::from(ticks) * 1_000_000_000 / u128::from(tsc_hz);
    u64::try_from(ns).unwrap()
}

/// A column's sum, which is the same in `events.json` and over the rows.
fn sum(out: &Path, rows: &Rows, name: &str) -> u64 {
    let sum = rows.sum(name);
    assert_eq!(described(out, name)["sum"], sum, "{name}");
    sum
}

#[test]
fn every_record_is_as_xenalyze_reads_it() {
    for trace in ["pvh", "lost"] {
        let theirs = String::from_utf8(unpacked(&format!("{trace}.records.zst"))).unwrap();
        let mut by_cpu: BTreeMap<u32, Vec<&str>> = BTreeMap::new();
        for line in theirs.lines() {
            let (cpu, record) = line.split_once(' ').unwrap();
            if !record.starts_with(WRAP_BUFFER) {
                by_cpu.entry(cpu.parse().unwrap()).or_default().push(record);
            }
        }
        let mut ours: BTreeMap<u32, Vec<String>> = BTreeMap::new();
        for record in records(trace) {
            let tsc = record.tsc.map_or_else(|| "-".into(), |tsc| tsc.to_string());
            let words = record.extra().iter().map(|word| format!(" {word:x}"));
            let words: String = words.collect();
            let line = format!("{:x} {tsc}{words}", record.event);
            ours.entry(record.cpu).or_default().push(line);
        }
        assert!(ours.keys().eq(by_cpu.keys()));
        for (cpu, lines) in &ours {
            let theirs = &by_cpu[cpu];
            assert_eq!(lines.len(), theirs.len(), "{trace}, CPU {cpu}");
            for (our, their) in lines.iter().zip(theirs) {
                assert_eq!(our, their, "{trace}, CPU {cpu}");
            }
        }
    }
}

#[test]
fn each_cpu_has_as_many_of_each_event() {
    for trace in ["pv", "pvh", "lost"] {
        let mut ours: BTreeMap<(u32, u32), u64> = BTreeMap::new();
        for record in records(trace) {
            *ours.entry((record.cpu, record.event)).or_default() += 1;
        }
        let theirs = text(&format!("{trace}.counts"));
        let theirs: BTreeMap<(u32, u32), u64> = theirs
            .lines()
            .map(|line| line.split(' ').collect::<Vec<_>>())
            .filter(|words| words[1] != WRAP_BUFFER)
            .map(|words| {
                let event = u32::from_str_radix(words[1], 16).unwrap();
                (
                    (words[0].parse().unwrap(), event),
                    words[2].parse().unwrap(),
                )
            })
            .collect();
        assert_eq!(ours, theirs, "{trace}");
    }
}

#[test]
fn a_paravirtual_domain_is_counted_as_xenalyze_does() {
    const HZ: u64 = 2_596_132_000;
    let (folder, record) = imported("pv", HZ);
    let (out, rows) = (folder.path(), Rows::read(folder.path()));
    let summary = text("pv.summary");
    assert_eq!(record["cpus"], serde_json::json!([0, 1]));
    assert_eq!(record["vms"], serde_json::json!([0, 1]));
    assert_eq!(record["lost_records"], 0);
    assert_eq!(record["records"], records("pv").len());
    assert_eq!(record["rows"], rows.len());
    let subcalls = summed(&summary, "hypercall (subcall)");
    for (column, expected) in [
        // Xenalyze counts each call within a multicall as another hypercall.
        ("xen.hypercall", summed(&summary, "hypercall") - subcalls),
        ("xen.multicall_entry", subcalls),
        ("xen.pv_trap", summed(&summary, "trap")),
        ("xen.pv_page_fault", summed(&summary, "page_fault")),
        ("xen.pv_emulate", summed(&summary, "emulate privop")),
        ("xen.pv_table_write", summed(&summary, "ptwr")),
        (MATH_STATE_RESTORE, summed(&summary, "math state restore")),
    ] {
        assert!(expected > 0, "{column}");
        assert_eq!(sum(out, &rows, column), expected, "{column}");
    }
    let calls = hypercalls(&summary);
    assert!(calls.len() > 10);
    for (number, expected) in calls {
        let (name, count) = summed_columns(out, &format!("number {number},"));
        assert_eq!(count, expected, "{name}");
        assert_eq!(sum(out, &rows, &name), expected, "{name}");
    }
    let (ticks, times) = ran(&summary);
    let run_time = sum(out, &rows, "xen.run_time");
    let rounding = nanoseconds(times, HZ) + rows.len() as u64;
    assert!(
        run_time.abs_diff(nanoseconds(ticks, HZ)) <= rounding,
        "{run_time} ns, {ticks} ticks"
    );
    // "Total time: 2.02 seconds"
    let ends = rows.numbers("time_ns").into_iter().flatten().max().unwrap();
    assert!(ends.abs_diff(2_020_000_000) <= 10_000_000, "{ends}");
    let events = json(&out.join("events.json"));
    let absent = events["unavailable"].as_array().unwrap();
    assert!(absent.iter().any(|one| one["name"] == "xen.vmexit"));
}

#[test]
fn exits_of_a_hardware_domain_are_counted_as_xenalyze_does() {
    const HZ: u64 = 2_596_132_000;
    let (folder, record) = imported("pvh", HZ);
    let (out, rows) = (folder.path(), Rows::read(folder.path()));
    let summary = text("pvh.summary");
    assert_eq!(record["vms"], serde_json::json!([0, 2]));
    // The first record of the trace is an exit whose reason xenalyze does not keep.
    let exits = ["VMEXIT_INTR", "VMEXIT_RDTSC", "VMEXIT_IOIO"].map(|name| summed(&summary, name));
    let counted = sum(out, &rows, "xen.vmexit");
    assert_eq!(counted, exits.iter().sum::<u64>() + 1);
    for (code, expected) in [("60", exits[0] + 1), ("6e", exits[1]), ("7b", exits[2])] {
        let column = format!("xen.vmexit.0x{code}");
        assert_eq!(sum(out, &rows, &column), expected, "{column}");
    }
    // Bytes of records with a time and three words, and with a time alone.
    let volume = |label| summed(&summary.replace(':', " "), label);
    assert_eq!(counted, volume("+-vmexit") / 24);
    assert_eq!(sum(out, &rows, "xen.vmentry"), volume("+-vmentry") / 12);
    assert_eq!(sum(out, &rows, "xen.rdtsc"), exits[1]);
    assert_eq!(sum(out, &rows, "xen.io"), exits[2]);
    assert_eq!(sum(out, &rows, "xen.interrupt"), exits[0] + 1);
    let (ticks, times) = ran(&summary);
    let run_time = sum(out, &rows, "xen.run_time");
    let rounding = nanoseconds(times, HZ) + rows.len() as u64;
    assert!(
        run_time.abs_diff(nanoseconds(ticks, HZ)) <= rounding,
        "{run_time} ns, {ticks} ticks"
    );
    let in_guest = nanoseconds(ticks_in_guest(), HZ);
    let guest_time = sum(out, &rows, "xen.guest_time");
    assert!(in_guest > 0 && guest_time < run_time, "{guest_time}");
    assert!(guest_time.abs_diff(in_guest) <= rows.len() as u64);
}

#[test]
fn what_xen_lost_is_told_and_not_counted_as_run() {
    const HZ: u64 = 2_596_131_000;
    let (folder, record) = imported("lost", HZ);
    let rows = Rows::read(folder.path());
    let theirs = String::from_utf8(unpacked("lost.records.zst")).unwrap();
    let lost = theirs.lines().filter_map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let lost = (words[1] == LOST_RECORDS).then(|| u64::from_str_radix(words[3], 16));
        lost.map(Result::unwrap)
    });
    let lost: u64 = lost.sum();
    assert_eq!(record["lost_records"], lost);
    assert!(lost > record["records"].as_u64().unwrap());
    let (ticks, _) = ran(&text("lost.summary"));
    let (run_time, theirs) = (rows.sum("xen.run_time"), nanoseconds(ticks, HZ));
    // Xenalyze assumes that one domain goes on running for 70 us of the time of which nothing is
    // known.
    assert!(run_time.abs_diff(theirs) <= 100_000, "{run_time}, {theirs}");
}

#[test]
fn a_frequency_that_no_processor_has_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for (hz, said) in [
        (
            2_596,
            "below any processor's clock: hertz are meant, perhaps 2596000000",
        ),
        (
            2_596_131,
            "below any processor's clock: hertz are meant, perhaps 2596131000",
        ),
        (0, "below any processor's clock"),
        (2_596_131_000_000, "above any processor's clock"),
    ] {
        let output = import(folder.path(), "lost", hz, &[]);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains(said), "{errors}");
    }
}

#[test]
fn xenperf_goes_with_the_trace_and_needs_both_texts() {
    let folder = tempfile::tempdir().unwrap();
    let line = |count: u32| format!("{:<35} T={count:10}  {count:10}\n", "exceptions");
    std::fs::write(folder.path().join("before"), line(40)).unwrap();
    std::fs::write(folder.path().join("after"), line(42)).unwrap();
    let before = ["--xenperf-before", "before"];
    let output = import(folder.path(), "lost", 2_596_131_000, &before);
    assert_eq!(output.status.code(), Some(2));
    let both = [before[0], before[1], "--xenperf-after", "after"];
    let output = import(folder.path(), "lost", 2_596_131_000, &both);
    assert!(output.status.success());
    let record = json(&folder.path().join("record.json"));
    let expected = serde_json::json!({"exceptions": 2, "exceptions[0]": 2});
    assert_eq!(record["xenperf"]["counters"], expected);
}
