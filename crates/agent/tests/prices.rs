//! `vtax-agent prices`, the real program on this machine: what holds on any machine, however busy.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// Operations that need no files, and have all their batches long before their time is up.
const CALLS: &str = "null,clock,futex,signal,cpuid";

fn prices(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vtax-agent"));
    command.arg("prices").args(arguments).output().unwrap()
}

fn json(arguments: &[&str], folder: &Path) -> Value {
    let folder = ["--folder", folder.to_str().unwrap()];
    let output = prices(&[&folder, arguments].concat());
    assert!(output.stderr.is_empty(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn list<'a>(answer: &'a Value, field: &str) -> &'a Vec<Value> {
    answer[field].as_array().unwrap()
}

fn names(entries: &[Value]) -> BTreeSet<&str> {
    let each = entries.iter();
    each.map(|one| one["name"].as_str().unwrap()).collect()
}

fn keeps_the_contract(one: &Value) {
    let number = |field: &str| {
        one[field]
            .as_f64()
            .unwrap_or_else(|| panic!("{field}: {one}"))
    };
    assert!(one["context"].is_string() && one["structural"].is_boolean());
    assert!(one["size"].is_null() || one["size"].is_u64(), "{one}");
    assert!(number("low") <= number("ns") && number("ns") <= number("high"));
    assert!(number("ns") > 0.0 && number("batches") >= 1.0, "{one}");
    for field in ["faults", "switches", "calls"] {
        assert!(number(field) >= 0.0, "{field} of {one}");
    }
}

#[test]
fn prices_are_there_or_absent_with_a_reason_and_no_file_stays() {
    let folder = tempfile::tempdir().unwrap();
    let answer = json(&["--seconds", "0.5"], folder.path());
    assert_eq!(answer["format"], 1);
    assert!(answer["timer"]["step_ns"].as_u64().unwrap() > 0);
    let (operations, absent) = (list(&answer, "operations"), list(&answer, "absent"));
    operations.iter().for_each(keeps_the_contract);
    for one in absent {
        assert!(!one["reason"].as_str().unwrap().is_empty(), "{one}");
    }
    let text = String::from_utf8(prices(&["--list"]).stdout).unwrap();
    let listed: Vec<&str> = text
        .lines()
        .map(|line| line.split_once(':').unwrap().0)
        .collect();
    let all: Vec<Value> = operations.iter().chain(absent).cloned().collect();
    assert_eq!(names(&all), listed.iter().copied().collect());
    let contexts: usize = text.lines().map(|line| line.split("; ").count()).sum();
    assert_eq!(all.len(), contexts);
    assert_eq!(folder.path().read_dir().unwrap().count(), 0);
}

#[test]
fn prices_without_a_folder_lack_those_of_files_only() {
    let only = format!("{CALLS},stat,open,close");
    let answer = json(&["--seconds", "10", "--only", &only], Path::new("/proc"));
    let absent = list(&answer, "absent");
    let of_files: Vec<&Value> = absent
        .iter()
        .filter(|one| {
            one["reason"]
                .as_str()
                .unwrap()
                .contains("no folder could be made")
        })
        .collect();
    let contexts = |name: &str| of_files.iter().filter(|one| one["name"] == name).count();
    assert_eq!(["stat", "open", "close"].map(contexts), [1, 1, 1]);
    assert!(
        names(list(&answer, "operations")).contains("null"),
        "{answer}"
    );
}

#[test]
fn prices_are_only_of_what_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let answer = json(&["--seconds", "10", "--only", CALLS], folder.path());
    let found = [list(&answer, "operations"), list(&answer, "absent")].map(|list| names(list));
    let all: BTreeSet<&str> = found.into_iter().flatten().collect();
    assert_eq!(all, CALLS.split(',').collect());
}

#[test]
fn prices_refuse_what_does_not_exist() {
    for wrong in [
        ["--only", "stat,nothing"],
        ["--seconds", "0.4"],
        ["--seconds", "61"],
    ] {
        let output = prices(&wrong);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
        assert!(output.stdout.is_empty());
    }
}
