//! What the program says when it cannot do what it is asked to do.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

#[path = "common/record.rs"]
mod common;

use std::os::unix::process::CommandExt;
use std::process::Command;

use common::{PROGRAM, record};

/// The user `nobody` of Linux distributions.
const NOBODY: u32 = 65534;

fn complaint(arguments: &[&str]) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().unwrap();
    let output = record(&folder.path().join("out"), arguments);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(message.lines().count(), 1, "{message}");
    (output.status.code(), message)
}

#[test]
fn an_interval_out_of_range_is_misuse() {
    for (every, range) in [
        ("10us", "50us to 1s"),
        ("2s", "50us to 1s"),
        ("1Gi", "2M to 400M"),
    ] {
        let (code, message) = complaint(&["--every", every, "--for", "10ms"]);
        assert_eq!(code, Some(2), "{message}");
        assert!(message.contains(range), "{message}");
    }
}

#[test]
fn an_unknown_event_names_the_nearest() {
    recording_or_skip!();
    let (code, message) = complaint(&["--events", "shced.switches", "--for", "10ms"]);
    assert_eq!(code, Some(2));
    assert!(message.contains("sched.switches"), "{message}");
}

#[test]
fn a_raw_event_that_cannot_be_opened_is_not_recorded_under_its_name() {
    recording_or_skip!();
    if described_event("hw.cycles")["available"] == true {
        eprintln!("skipped: this machine has a PMU");
        return;
    }
    let raw = ["--every", "1ms", "--events", "hw.raw.0x3c.user,sched"];
    let (code, message) = complaint(&[&raw[..], &["--for", "10ms"]].concat());
    assert_eq!(code, Some(1));
    assert!(message.contains("event hw.raw.0x3c.user"), "{message}");
    assert!(message.contains("no such counter"), "{message}");
}

/// What the recorder lists of an event.
fn described_event(name: &str) -> serde_json::Value {
    let listed = Command::new(PROGRAM).args(["events", "--json"]).output();
    let listed: Vec<serde_json::Value> = serde_json::from_slice(&listed.unwrap().stdout).unwrap();
    let found = listed.into_iter().find(|event| event["name"] == name);
    found.unwrap()
}

#[test]
fn a_missing_program_or_process_is_named() {
    recording_or_skip!();
    let (code, message) = complaint(&["--every", "1ms", "--", "/no/such/program"]);
    assert_eq!(code, Some(1));
    assert!(message.contains("/no/such/program"), "{message}");
    let (code, message) = complaint(&["--every", "1ms", "--pid", "2147483647"]);
    assert_eq!(code, Some(1));
    assert!(message.contains("process 2147483647"), "{message}");
}

#[test]
fn a_recording_is_never_overwritten() {
    recording_or_skip!();
    let folder = tempfile::tempdir().unwrap();
    common::recorded(folder.path(), &["--every", "1ms", "--for", "10ms"]);
    let output = record(folder.path(), &["--every", "1ms", "--for", "10ms"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn without_privilege_the_capability_is_named() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only root can become nobody");
        return;
    }
    // In a folder where `nobody` may not execute it.
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("vtax-host");
    std::fs::copy(PROGRAM, &program).unwrap();
    let open = |path| {
        let all = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(path, all).unwrap();
    };
    open(folder.path());
    open(&program);
    let output = Command::new(&program)
        .args([
            "record",
            "--for",
            "10ms",
            "--out",
            "/tmp/never-made-by-vtax",
        ])
        .uid(NOBODY)
        .gid(NOBODY)
        .output()
        .unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("CAP_PERFMON and CAP_BPF"), "{message}");
    assert!(message.contains("kernel.perf_event_paranoid"), "{message}");
    assert!(
        message.contains("kernel.unprivileged_bpf_disabled"),
        "{message}"
    );
}
