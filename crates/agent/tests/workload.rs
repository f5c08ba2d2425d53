//! `vtax-agent workload`, the real program.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

fn workload(arguments: &[&str]) -> Output {
    command(arguments, Path::new("/")).output().unwrap()
}

fn command(arguments: &[&str], folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vtax-agent"));
    command.arg("workload").args(arguments).current_dir(folder);
    command
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)))
}

fn terminate(child: &Child) {
    let pid = i32::try_from(child.id()).unwrap();
    kill(Pid::from_raw(pid), Signal::SIGTERM).unwrap();
}

#[test]
fn the_list_names_every_workload_with_its_options() {
    let list = json(&workload(&["--list", "--json"]));
    let entries = list.as_array().unwrap();
    assert_eq!(entries.len(), 13);
    let text = String::from_utf8(workload(&["--list"]).stdout).unwrap();
    for entry in entries {
        let name = entry["name"].as_str().unwrap();
        assert!(text.lines().any(|line| line == name), "{name}");
        assert!(entry["default_count"].is_u64() || entry["default_seconds"].is_f64());
    }
}

#[test]
fn a_result_has_all_fields_and_repeats_itself() {
    let arguments = "random-touch --mem 1M --count 5000 --seed 7 --json";
    let arguments: Vec<&str> = arguments.split(' ').collect();
    let result = json(&workload(&arguments));
    assert_eq!(result["workload"], "random-touch");
    assert_eq!(result["parameters"]["mem"], 1 << 20);
    assert_eq!(result["parameters"]["count"], 5000);
    assert_eq!(result["operations"], 5000);
    assert_eq!(result["unit"], "page touches");
    assert_eq!(result["verified"], true);
    assert!(result["operations_per_s"].as_f64().unwrap() > 0.0);
    for name in ["wall_s", "user_s", "system_s", "minor_faults", "details"] {
        assert!(!result[name].is_null(), "{name}");
    }
    let again = json(&workload(&arguments));
    assert_eq!(result["checksum"], again["checksum"]);
}

#[test]
fn json_may_come_before_the_name_and_text_is_the_default() {
    let early = json(&workload(&["--json", "timer-tick", "--count", "100"]));
    assert_eq!(early["checksum"], Value::Null);
    let text = String::from_utf8(workload(&["timer-tick", "--count", "100"]).stdout).unwrap();
    assert!(text.starts_with("timer-tick: 100 reads"));
}

#[test]
fn fresh_pages_fault_and_present_ones_do_not() {
    let result = json(&workload(&["fault-storm", "--count", "10000", "--json"]));
    let faults = result["minor_faults"].as_u64().unwrap();
    assert!((10_000..10_100).contains(&faults), "{result}");
    let blocks = json(&workload(&[
        "gzip-like",
        "--mem",
        "128K",
        "--count",
        "40",
        "--json",
    ]));
    // 16 pages of text, as many pages for comparison, and the output.
    assert!(
        blocks["minor_faults"].as_u64().unwrap() > 40 * 32,
        "{blocks}"
    );
    let present = json(&workload(&["random-touch", "--count", "10000", "--json"]));
    assert!(present["minor_faults"].as_u64().unwrap() < 100, "{present}");
}

#[test]
fn the_program_starts_itself() {
    let result = json(&workload(&["fork-exec-storm", "--count", "5", "--json"]));
    assert_eq!(result["verified"], true, "{result}");
}

#[test]
fn misuse_is_one_line_and_exit_code_2() {
    for arguments in [
        &["no-such-workload"][..],
        &[],
        &["random-touch", "--mem", "2000P"],
        &["random-touch", "--count", "0"],
        &["random-touch", "--seconds", "0"],
        &["random-touch", "--seconds", "1", "--count", "1"],
        &["context-switch", "--processes", "1"],
        &["gzip-like", "--mem", "64K"],
        &["echo", "--listen", "nowhere"],
        &["--noop", "x"],
    ] {
        let output = workload(arguments);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn too_much_memory_is_one_line_with_a_remedy() {
    let output = workload(&["sequential-touch", "--mem", "900000G"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(
        error.contains("--mem: ") && error.contains("; give less"),
        "{error}"
    );
}

#[test]
fn a_signal_ends_a_workload_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = command(&["round-trip", "--seconds", "60", "--json"], folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let begin = Instant::now();
    while std::fs::read_dir(folder.path()).unwrap().count() < 2 {
        assert!(begin.elapsed() < Duration::from_secs(20));
        sleep(Duration::from_millis(10));
    }
    sleep(Duration::from_millis(100));
    terminate(&child);
    let result: Value = serde_json::from_reader(child.stdout.take().unwrap()).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(result["verified"], true, "{result}");
    assert!(begin.elapsed() < Duration::from_secs(30));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_connection_that_is_lost_fails_the_check() {
    let folder = tempfile::tempdir().unwrap();
    let mut echo = command(&["echo", "--seconds", "20", "--json"], folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut errors = BufReader::new(echo.stderr.take().unwrap());
    errors.read_line(&mut line).unwrap();
    let address = line.trim().rsplit(' ').next().unwrap();
    let arguments = [
        "round-trip",
        "--connect",
        address,
        "--seconds",
        "1.5",
        "--json",
    ];
    let trip = command(&arguments, folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    sleep(Duration::from_millis(700));
    terminate(&echo);
    let output = trip.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let result = json(&output);
    assert_eq!(result["verified"], false);
    assert_eq!(result["details"]["message_errors"], 1);
    assert_eq!(String::from_utf8(output.stderr).unwrap().lines().count(), 1);
    let peer: Value = serde_json::from_reader(echo.stdout.take().unwrap()).unwrap();
    assert!(echo.wait().unwrap().success());
    assert!(peer["operations"].as_u64().unwrap() >= 1);
}
