//! Slowing processes of the test itself, and restoring them whichever process is killed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "common/place.rs"]
mod common;

use std::fs;
use std::path::PathBuf;

use common::{Own, Slow, complaint, is_empty, run, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use vtax_sys::cgroup::locate::{Version, locate_of};
use vtax_sys::tree::Tree;

/// The folder of the group that controls a process's CPU time, and its version.
fn group(own: &Own) -> Option<(PathBuf, Version)> {
    let found = locate_of(&Tree::host(), &format!("/proc/{}", own.pid()), "cpu")?;
    Some((PathBuf::from(found.own), found.version))
}

/// Quota and period.
fn quota(own: &Own) -> (f64, f64) {
    let (folder, version) = group(own).unwrap();
    let text = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
    let text = match version {
        Version::V1 => text("cpu.cfs_quota_us") + &text("cpu.cfs_period_us"),
        Version::V2 => text("cpu.max"),
    };
    let numbers: Vec<f64> = text
        .split_whitespace()
        .map(|word| word.parse().unwrap())
        .collect();
    (numbers[0], numbers[1])
}

fn last_cpu() -> String {
    let cpus = vtax_host::place::cpus::online(&Tree::host());
    cpus.last().unwrap().to_string()
}

#[test]
fn a_quota_holds_a_thread_and_is_gone_at_the_end() {
    root_or_skip!();
    let (own, state) = (Own::busy(), tempfile::tempdir().unwrap());
    let (groups, cpus) = (own.groups(), own.cpus());
    let arguments = [
        "--backend",
        "quota",
        "--percent",
        "50",
        "--tid",
        &own.number(),
    ];
    let Some(slow) = Slow::begin(state.path(), &arguments) else {
        return;
    };
    assert_eq!(slow.first["backend"], "quota");
    assert_eq!(slow.first["asked_percent"], 50.0);
    let obtained = slow.first["obtained_percent"].as_f64().unwrap();
    let bound = |name: &str| slow.first[name].as_f64().unwrap();
    assert!(
        bound("low") <= obtained && obtained <= bound("high"),
        "{}",
        slow.first
    );
    let (quota, period) = quota(&own);
    assert!((quota / period - 0.5).abs() < 0.001 && quota >= 1000.0);
    assert_eq!(own.cpus(), cpus, "without --cpu nothing moves");
    let (folder, _) = group(&own).unwrap();
    let last = slow.end();
    assert!(last["throttled_s"].as_f64().is_some(), "{last}");
    assert!(last["ended"].as_array().unwrap().is_empty());
    assert_eq!(own.groups(), groups);
    assert!(!folder.exists() && is_empty(state.path()));
}

#[test]
fn a_killed_slow_leaves_nothing() {
    root_or_skip!();
    let (own, state) = (Own::busy(), tempfile::tempdir().unwrap());
    let (groups, cpus) = (own.groups(), own.cpus());
    let cpu = last_cpu();
    let arguments = [
        "--backend",
        "quota",
        "--percent",
        "61",
        "--cpu",
        &cpu,
        "--tid",
        &own.number(),
    ];
    let Some(mut slow) = Slow::begin(state.path(), &arguments) else {
        return;
    };
    assert_eq!(own.cpus(), cpu);
    let (folder, _) = group(&own).unwrap();
    slow.child.kill().unwrap();
    slow.child.wait().unwrap();
    until("the guardian restores", || is_empty(state.path()));
    assert_eq!((own.groups(), own.cpus()), (groups, cpus));
    assert!(!folder.exists());
}

/// The journal of a `slow` whose guardian is dead too.
#[test]
fn the_next_sweep_restores_what_both_have_left() {
    root_or_skip!();
    let (own, state) = (Own::busy(), tempfile::tempdir().unwrap());
    let (groups, cpus) = (own.groups(), own.cpus());
    let cpu = last_cpu();
    let arguments = [
        "--backend",
        "quota",
        "--percent",
        "61",
        "--cpu",
        &cpu,
        "--tid",
        &own.number(),
    ];
    let Some(mut slow) = Slow::begin(state.path(), &arguments) else {
        return;
    };
    let children = format!("/proc/{0}/task/{0}/children", slow.child.id());
    let guardian: i32 = fs::read_to_string(children)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    kill(Pid::from_raw(guardian), Signal::SIGKILL).unwrap();
    slow.child.kill().unwrap();
    slow.child.wait().unwrap();
    assert_eq!(own.cpus(), cpu);
    let (folder, _) = group(&own).unwrap();
    // What `vtax-agent sweep` does gives the CPU time back.
    assert!(vtax_sys::cgroup::quota::sweep(&Tree::host()) >= 1);
    assert_eq!(own.groups(), groups);
    assert!(!folder.exists());
    let swept = run(&["sweep", "--json", "--state", state.path().to_str().unwrap()]);
    assert_eq!(swept.stdout, b"{\"restored\":1}\n");
    assert_eq!(own.cpus(), cpus);
    assert!(is_empty(state.path()));
}

#[test]
fn a_hog_runs_beside_the_thread_and_a_signal_ends_it() {
    root_or_skip!();
    let (own, state) = (Own::busy(), tempfile::tempdir().unwrap());
    let cpus = own.cpus();
    let cpu = last_cpu();
    let arguments = [
        "--backend",
        "hog",
        "--percent",
        "50",
        "--cpu",
        &cpu,
        "--tid",
        &own.number(),
    ];
    let Some(mut slow) = Slow::begin(state.path(), &arguments) else {
        return;
    };
    assert_eq!(own.cpus(), cpu);
    let tree = Tree::host();
    let pid = slow.child.id().cast_signed();
    let fifo = tree.threads(pid).into_iter().filter(|tid| {
        let task = tree.task(&format!("/proc/{pid}/task/{tid}"));
        task.is_some_and(|task| task.policy == 1)
    });
    assert_eq!(fifo.count(), 1);
    kill(Pid::from_raw(pid), Signal::SIGTERM).unwrap();
    assert!(slow.child.wait().unwrap().success());
    assert_eq!(own.cpus(), cpus);
    assert!(is_empty(state.path()));
}

#[test]
fn a_control_is_in_a_group_of_its_own_without_a_quota() {
    root_or_skip!();
    let (own, state) = (Own::busy(), tempfile::tempdir().unwrap());
    let (groups, cpus) = (own.groups(), own.cpus());
    let arguments = [
        "--backend",
        "quota",
        "--percent",
        "100",
        "--tid",
        &own.number(),
    ];
    let Some(slow) = Slow::begin(state.path(), &arguments) else {
        return;
    };
    assert_eq!(slow.first["obtained_percent"], serde_json::Value::Null);
    assert_ne!(own.groups(), groups);
    assert_eq!(slow.end()["throttled_s"].as_f64(), Some(0.0));
    assert_eq!((own.groups(), own.cpus()), (groups, cpus));
}

#[test]
fn a_thread_that_has_ended_is_named() {
    root_or_skip!();
    let (own, other) = (Own::busy(), Own::busy());
    let state = tempfile::tempdir().unwrap();
    let (first, second) = (own.number(), other.number());
    let arguments = [
        "--backend",
        "quota",
        "--percent",
        "74",
        "--tid",
        &first,
        &second,
    ];
    let Some(slow) = Slow::begin(state.path(), &arguments) else {
        return;
    };
    drop(other);
    assert_eq!(slow.end()["ended"].to_string(), format!("[{second}]"));
}

#[test]
fn misuse_is_one_line() {
    let state = tempfile::tempdir().unwrap();
    let state = state.path().join("state");
    let state = state.to_str().unwrap();
    for (arguments, code, word) in [
        (
            vec!["--backend", "quota", "--percent", "4", "--tid", "1"],
            2,
            "5 to 100",
        ),
        (
            vec!["--backend", "magic", "--percent", "50", "--tid", "1"],
            2,
            "magic",
        ),
        (
            vec!["--backend", "quota", "--percent", "50", "--tid", "0"],
            2,
            "0",
        ),
        (
            vec![
                "--backend",
                "hog",
                "--percent",
                "50",
                "--cpu",
                "8000",
                "--tid",
                "1",
            ],
            2,
            "8000",
        ),
        (
            vec!["--backend", "xen-cap", "--percent", "50", "--tid", "1"],
            1,
            "xen-cap",
        ),
    ] {
        let whole: Vec<&str> = ["slow", "--state", state]
            .into_iter()
            .chain(arguments)
            .collect();
        let (found, message) = complaint(&whole);
        assert_eq!(found, Some(code), "{message}");
        assert!(message.contains(word), "{message}");
    }
    assert!(!std::path::Path::new(state).exists());
}
