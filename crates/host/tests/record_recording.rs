//! Real recordings, with software events, which take the same path as hardware events.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

#[path = "common/record.rs"]
mod common;

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::{PROGRAM, Rows, described, recorded};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use vtax_host::record::stream::Batches;
use vtax_sys::guest_page::Publisher;

/// A shell program that computes for a while and starts programs.
const WORK: &str = "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done; \
                    for j in 1 2 3 4 5 6 7 8; do /bin/true; done";

#[test]
fn the_rows_and_the_rest_are_what_was_counted() {
    recording_or_skip!();
    let out = tempfile::tempdir().unwrap();
    let arguments = [
        "--every",
        "1ms",
        "--events",
        "sched,irq,faults",
        "--overhead",
    ];
    let record = recorded(out.path(), &[&arguments[..], &["--for", "600ms"]].concat());
    let rows = Rows::read(out.path());
    assert_eq!(rows.len() as u64, record["rows"].as_u64().unwrap());
    for (column, program) in [
        ("sched.switches", "on_sched_switch"),
        ("irq.timer", "on_local_timer_entry"),
        ("faults.user", "on_page_fault_user"),
    ] {
        let described = described(out.path(), column);
        let sum = rows.sum(column);
        assert_eq!(described["sum"], sum, "{column}");
        let counted = sum + described["after_last_row"].as_u64().unwrap();
        let programs = record["programs"].as_array().unwrap();
        let found = programs
            .iter()
            .find(|known| known["name"] == program)
            .unwrap();
        // The kernel's own count of the program's runs is read a little later.
        let runs = found["runs"].as_u64().unwrap();
        assert!(
            counted <= runs && runs <= counted + counted / 10 + 100,
            "{column}: {counted}, {runs}"
        );
    }
}

#[test]
fn each_cpu_counts_its_rows_and_its_time() {
    recording_or_skip!();
    let out = tempfile::tempdir().unwrap();
    let record = recorded(out.path(), &["--every", "500us", "--for", "500ms"]);
    assert_eq!(
        (record["lost"].as_u64(), record["reference"].as_str()),
        (Some(0), Some("wall_clock"))
    );
    assert_eq!(record["reference_running"], 1.0);
    let rows = Rows::read(out.path());
    let (cpus, sequence) = (rows.small("cpu"), rows.numbers("seq"));
    let (times, lengths) = (rows.numbers("time_ns"), rows.numbers("length_ns"));
    let (tsc, intervals) = (rows.numbers("tsc"), rows.numbers("interval"));
    let mut before: HashMap<u32, usize> = HashMap::new();
    for at in 0..rows.len() {
        if let Some(last) = before.insert(cpus[at].unwrap(), at) {
            assert_eq!(sequence[at], sequence[last].map(|seq| seq + 1));
            assert_eq!(
                lengths[at].unwrap(),
                times[at].unwrap() - times[last].unwrap()
            );
            assert!(tsc[at] > tsc[last] && intervals[at] > intervals[last]);
        }
    }
    let cpus = record["cpus"].as_array().unwrap().len();
    assert_eq!(before.len(), cpus, "every CPU makes rows");
}

#[test]
fn only_the_command_and_its_children_are_counted() {
    recording_or_skip!();
    let out = tempfile::tempdir().unwrap();
    let mut busy = Command::new("sh")
        .args(["-c", "while :; do :; done"])
        .spawn()
        .unwrap();
    let arguments = [
        "--every",
        "1ms",
        "--events",
        "sched,faults,sw",
        "--",
        "sh",
        "-c",
        WORK,
    ];
    let record = recorded(out.path(), &arguments);
    let _ = busy.kill();
    let _ = busy.wait();
    assert_eq!(record["reference"], "task_clock");
    assert_eq!(record["end"]["command"]["exit_code"], 0);
    let rows = Rows::read(out.path());
    let other = busy.id();
    assert!(rows.len() > 5 && rows.small("pid").iter().all(|pid| *pid != Some(other)));
    // Time on the CPU, by the scheduler's switches and by perf's own clock.
    let length = rows.sum("length_ns");
    let clock = rows.sum("sw.task_clock");
    assert!(
        clock.abs_diff(length) < length / 20 + 200_000,
        "{clock} and {length}"
    );
    let faults = described(out.path(), "faults.user");
    let faults = faults["sum"].as_u64().unwrap() + faults["after_last_row"].as_u64().unwrap();
    // Nine programs are started; each takes dozens of page faults.
    assert!((100..20_000).contains(&faults), "{faults}");
}

#[test]
fn rows_of_short_processes_are_as_long_as_those_of_a_long_one() {
    recording_or_skip!();
    let out = tempfile::tempdir().unwrap();
    // Each process ends long before it has run for an interval.
    let script = "i=0; while [ $i -lt 60 ]; do i=$((i+1)); /bin/true; done";
    recorded(out.path(), &["--every", "20ms", "--", "sh", "-c", script]);
    let rows = Rows::read(out.path());
    let mut lengths: Vec<u64> = rows.numbers("length_ns").into_iter().flatten().collect();
    lengths.sort_unstable();
    let (shortest, median) = (lengths[0], lengths[lengths.len() / 2]);
    assert!(shortest >= 10_000_000, "{shortest} ns");
    assert!(median < 60_000_000, "{median} ns");
}

#[test]
fn a_process_that_runs_already_is_counted_until_it_ends() {
    recording_or_skip!();
    let out = tempfile::tempdir().unwrap();
    let mut busy = Command::new("timeout")
        .args(["5", "sh", "-c", "while :; do :; done"])
        .spawn()
        .unwrap();
    let pid = busy.id().to_string();
    sleep(Duration::from_millis(100));
    let children = format!("/proc/{pid}/task/{pid}/children");
    let shell = std::fs::read_to_string(children).unwrap().trim().to_owned();
    let record = recorded(
        out.path(),
        &["--every", "1ms", "--pid", &shell, "--for", "30s"],
    );
    let _ = busy.wait();
    assert_eq!(record["end"]["reason"], "process");
    let rows = Rows::read(out.path());
    assert!(rows.len() > 50, "{}", rows.len());
    assert!(
        rows.small("pid")
            .iter()
            .all(|pid| *pid == shell.parse().ok())
    );
}

#[test]
fn children_that_run_already_are_counted() {
    recording_or_skip!();
    let out = tempfile::tempdir().unwrap();
    // The parent only waits: all rows are its child's.
    let mut parent = Command::new("timeout")
        .args(["5", "sh", "-c", "while :; do :; done"])
        .spawn()
        .unwrap();
    let pid = parent.id();
    sleep(Duration::from_millis(100));
    recorded(
        out.path(),
        &[
            "--every",
            "1ms",
            "--pid",
            &pid.to_string(),
            "--for",
            "300ms",
        ],
    );
    // The recorder ends its child, which a kill would leave running.
    signal(&parent, Signal::SIGTERM);
    let _ = parent.wait();
    let rows = Rows::read(out.path());
    assert!(rows.len() > 50, "{}", rows.len());
    assert!(rows.small("pid").iter().any(|one| *one != Some(pid)));
}

fn start(out: &Path, arguments: &[&str]) -> Child {
    Command::new(PROGRAM)
        .args(["record", "--out"])
        .arg(out)
        .args(arguments)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

fn signal(child: &Child, signal: Signal) {
    kill(Pid::from_raw(child.id().cast_signed()), signal).unwrap();
}

fn wait_for(path: &Path, bytes: u64) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while std::fs::metadata(path).map_or(0, |metadata| metadata.len()) < bytes {
        assert!(
            Instant::now() < deadline,
            "{} does not grow",
            path.display()
        );
        sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_stopped_consumer_loses_rows_but_no_event() {
    recording_or_skip!();
    let out = tempfile::tempdir().unwrap();
    let arguments = [
        "--every",
        "1ms",
        "--events",
        "sched,faults",
        "--overhead",
        "--ring",
        "8",
    ];
    let mut recorder = start(out.path(), &[&arguments[..], &["--flush", "20ms"]].concat());
    wait_for(&out.path().join("intervals.arrows"), 6000);
    signal(&recorder, Signal::SIGSTOP);
    let mut work = Command::new("sh").args(["-c", WORK]).spawn().unwrap();
    let _ = work.wait();
    sleep(Duration::from_millis(300));
    signal(&recorder, Signal::SIGCONT);
    sleep(Duration::from_millis(100));
    signal(&recorder, Signal::SIGINT);
    assert!(recorder.wait().unwrap().success());
    let record = common::json(&out.path().join("record.json"));
    let lost = record["lost"].as_u64().unwrap();
    assert!(lost >= 50, "{lost}");
    assert_eq!(record["lost"], record["lost_ring_full"]);
    let warnings = record["warnings"].to_string();
    assert!(
        warnings.contains(&format!("{lost} rows were lost")),
        "{warnings}"
    );
    let rows = Rows::read(out.path());
    assert!(
        rows.sum("lost") <= lost,
        "some may be lost after the last row"
    );
    let described = described(out.path(), "sched.switches");
    let counted = rows.sum("sched.switches") + described["after_last_row"].as_u64().unwrap();
    let programs = record["programs"].as_array().unwrap();
    let program = programs
        .iter()
        .find(|known| known["name"] == "on_sched_switch");
    let runs = program.unwrap()["runs"].as_u64().unwrap();
    assert!(
        counted <= runs && runs <= counted + counted / 10 + 100,
        "{counted}, {runs}"
    );
}

#[test]
fn a_killed_recorder_leaves_what_was_flushed() {
    recording_or_skip!();
    let out = tempfile::tempdir().unwrap();
    let mut recorder = start(out.path(), &["--every", "1ms", "--flush", "50ms"]);
    let stream = out.path().join("intervals.arrows");
    wait_for(&stream, 20_000);
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    let rows: usize = Batches::open(&stream)
        .unwrap()
        .map(|batch| batch.num_rows())
        .sum();
    assert!(rows > 20, "{rows}");
    // A torn end, as after a crash of the machine: the rows before it stay readable.
    let length = std::fs::metadata(&stream).unwrap().len();
    File::options()
        .write(true)
        .open(&stream)
        .unwrap()
        .set_len(length - 100)
        .unwrap();
    let left: usize = Batches::open(&stream)
        .unwrap()
        .map(|batch| batch.num_rows())
        .sum();
    assert!(0 < left && left < rows, "{left} of {rows}");
    let finish = Command::new(PROGRAM)
        .arg("finish")
        .arg(out.path())
        .output()
        .unwrap();
    assert!(finish.status.success());
    assert_eq!(Rows::read(out.path()).len(), left);
    assert!(!stream.exists());
}

#[test]
fn a_recorder_whose_parent_is_killed_finishes() {
    recording_or_skip!();
    let out = tempfile::tempdir().unwrap();
    let folder = out.path().join("out");
    let line = format!(
        "{PROGRAM} record --child --every 1ms --out {} & wait",
        folder.display()
    );
    let mut parent = Command::new("sh").args(["-c", &line]).spawn().unwrap();
    wait_for(&folder.join("intervals.arrows"), 1);
    parent.kill().unwrap();
    parent.wait().unwrap();
    wait_for(&folder.join("record.json"), 1);
    assert!(Rows::read(&folder).len() > 0);
}

#[test]
fn a_row_takes_little_room() {
    recording_or_skip!();
    let out = tempfile::tempdir().unwrap();
    let record = recorded(out.path(), &["--every", "100us", "--for", "2s"]);
    let bytes = record["file_bytes_per_row"].as_f64().unwrap();
    assert!(bytes < 100.0, "{bytes}");
}

#[test]
fn what_a_guest_publishes_is_in_the_rows() {
    recording_or_skip!();
    let out = tempfile::tempdir().unwrap();
    let page = out.path().join("page");
    let mut publisher = Publisher::create(&page, &["app.requests"]).unwrap();
    publisher.publish(&[1000]).unwrap();
    let folder = out.path().join("run");
    let page = page.to_str().unwrap();
    let mut recorder = start(
        &folder,
        &[
            "--every",
            "1ms",
            "--flush",
            "50ms",
            "--guest",
            page,
            "--guest-clock",
            "-50,1000000000",
        ],
    );
    wait_for(&folder.join("intervals.arrows"), 6000);
    for number in 1..=200 {
        publisher.publish(&[1000 + number]).unwrap();
        sleep(Duration::from_millis(2));
    }
    sleep(Duration::from_millis(100));
    signal(&recorder, Signal::SIGINT);
    assert!(recorder.wait().unwrap().success());
    let rows = Rows::read(&folder);
    let described = described(&folder, "app.requests");
    let rest = described["after_last_row"].as_u64().unwrap();
    assert_eq!(rows.sum("app.requests") + rest, 200);
    let sampled = rows.numbers("app.requests").iter().flatten().count();
    assert!(10 < sampled && sampled < rows.len(), "{sampled}");
    let record = common::json(&folder.join("record.json"));
    assert_eq!(record["published"]["app.requests"], 1200);
    // The publisher has this machine's clock.
    let clock = &record["guest_clock"]["page"];
    let (offset, within) = (clock["offset_ns"].as_i64(), clock["within_ns"].as_u64());
    assert!(offset.unwrap().unsigned_abs() <= within.unwrap(), "{clock}");
    assert!(within.unwrap() < 20_000_000, "{clock}");
    let exchange = &record["guest_clock"]["exchange"];
    assert_eq!(exchange["offset_ns"], -50);
    assert_eq!(record["guest_clock"]["skew_ns"], clock["widest_ns"]);
}

#[test]
fn every_layer_of_this_machine_can_be_recorded() {
    recording_or_skip!();
    let listed = Command::new(PROGRAM)
        .args(["events", "--json"])
        .output()
        .unwrap();
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    let mut layers = std::collections::BTreeSet::new();
    for event in listed.as_array().unwrap() {
        assert_ne!(event["available"], event["reason"].is_string(), "{event}");
        if event["available"] == true {
            layers.insert(
                event["name"]
                    .as_str()
                    .unwrap()
                    .split('.')
                    .next()
                    .unwrap()
                    .to_owned(),
            );
        }
    }
    assert!(layers.contains("sched"), "{layers:?}");
    // All hardware events together may be more than a row holds.
    layers.remove("hw");
    for layer in &layers {
        let out = tempfile::tempdir().unwrap();
        recorded(
            out.path(),
            &["--every", "1ms", "--for", "20ms", "--events", layer],
        );
    }
    let all: Vec<String> = layers.into_iter().collect();
    let out = tempfile::tempdir().unwrap();
    recorded(
        out.path(),
        &[
            "--every",
            "1ms",
            "--for",
            "20ms",
            "--events",
            &all.join(","),
        ],
    );
}

#[test]
#[allow(clippy::cast_precision_loss, reason = "a ratio")]
fn an_event_that_only_a_pmu_of_this_machine_names_is_counted() {
    recording_or_skip!();
    // x86's PMU of model-specific registers needs no counters, and virtual machines have it too.
    if !Path::new("/sys/bus/event_source/devices/msr/events/tsc").exists() {
        eprintln!("skipped: this kernel has no PMU msr");
        return;
    }
    let out = tempfile::tempdir().unwrap();
    let events = ["--every", "1ms", "--events", "hw.msr.tsc,sched.switches"];
    let record = recorded(out.path(), &[&events[..], &["--for", "200ms"]].concat());
    let rows = Rows::read(out.path());
    let (mut ticks, mut length_ns) = (0, 0);
    for (counted, length) in rows
        .numbers("hw.msr.tsc")
        .into_iter()
        .zip(rows.numbers("length_ns"))
    {
        if let (Some(counted), Some(length)) = (counted, length) {
            (ticks, length_ns) = (ticks + counted, length_ns + length);
        }
    }
    assert!(length_ns > 50_000_000, "{length_ns}");
    let expected = length_ns as f64 * record["tsc_hz"].as_f64().unwrap() / 1e9;
    let off = ticks as f64 / expected - 1.0;
    assert!(off.abs() < 0.01, "{off}");
    let events = std::fs::read(out.path().join("events.json")).unwrap();
    let events: serde_json::Value = serde_json::from_slice(&events).unwrap();
    let lacks = events["unavailable"].as_array().unwrap();
    assert!(lacks.iter().any(|each| each["name"] == "hw.msr.tsc.user"));
}
