//! `vtax-agent probe`, the real program on this machine: its contract, and what holds on any
//! machine, however busy.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::Value;

/// The fields of every quantity, measured or not.
const FIELDS: [&str; 6] = ["name", "value", "unit", "low", "high", "claimed"];
/// A stage may be in the middle of a working set when its time is up.
const SLACK: Duration = Duration::from_secs(20);

fn probe(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_vtax-agent"))
        .arg("probe")
        .args(arguments)
        .output()
        .unwrap()
}

fn json(arguments: &[&str]) -> Value {
    let output = probe(&[arguments, &["--json"]].concat());
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)))
}

fn quantities(answer: &Value) -> &Vec<Value> {
    answer["probes"].as_array().unwrap()
}

fn names(answer: &Value) -> Vec<&str> {
    let each = quantities(answer).iter();
    each.map(|one| one["name"].as_str().unwrap()).collect()
}

/// The ends of a quantity's interval; `None`: this run could not measure it.
fn interval(answer: &Value, name: &str) -> Option<(f64, f64)> {
    let one = quantities(answer).iter().find(|one| one["name"] == name);
    let one = one.unwrap_or_else(|| panic!("no {name} in {answer}"));
    if one["value"].is_null() {
        eprintln!("not tested: {one}");
        return None;
    }
    Some((one["low"].as_f64().unwrap(), one["high"].as_f64().unwrap()))
}

fn keeps_the_contract(one: &Value) {
    for field in FIELDS {
        assert!(one.get(field).is_some(), "{field} of {one}");
    }
    let number = |field: &str| one[field].as_f64();
    if let Some(value) = number("value") {
        let (low, high) = (number("low").unwrap(), number("high").unwrap());
        assert!(low <= value && value <= high && value > 0.0, "{one}");
        assert!(one["runs"].as_u64().unwrap() >= 6, "{one}");
        assert!(one.get("reason").is_none(), "{one}");
    } else {
        assert!(
            one["reason"]
                .as_str()
                .is_some_and(|reason| !reason.is_empty()),
            "{one}"
        );
        assert!(one["low"].is_null() && one["high"].is_null(), "{one}");
        assert!(one["agrees"].is_null(), "{one}");
    }
    assert_eq!(
        one["claimed"].is_null(),
        one["claims"] == Value::Array(vec![]),
        "{one}"
    );
}

#[test]
fn everything_is_in_the_contract_and_in_the_order_of_nature() {
    let begin = Instant::now();
    let answer = json(&["--runs", "8", "--seconds", "10"]);
    assert!(begin.elapsed() < Duration::from_secs(10) + SLACK);
    quantities(&answer).iter().for_each(keeps_the_contract);
    let mut unique = names(&answer);
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(
        unique.len(),
        quantities(&answer).len(),
        "a name is twice in {answer}"
    );
    curves_are_in_order(&answer);
    caches_are_in_order(&answer);
    peaks_are_in_order(&answer);
    if let Some((_, high)) = interval(&answer, "core_clock") {
        assert!((0.01..10.0).contains(&high), "GHz: {answer}");
    }
}

fn curves_are_in_order(answer: &Value) {
    let curves = answer["curves"].as_array().unwrap();
    assert_eq!(curves.len(), 3, "{answer}");
    for curve in curves {
        let points = curve["points"].as_array().unwrap();
        let number = |point: &Value, field: &str| point[field].as_f64().unwrap();
        for pair in points.windows(2) {
            assert!(number(&pair[0], "bytes") < number(&pair[1], "bytes"));
        }
        for point in points {
            assert!(number(point, "low") <= number(point, "ns"));
            assert!(number(point, "ns") <= number(point, "high"));
            assert!(number(point, "cycles") > 0.0);
        }
        assert!(!points.is_empty() || curve["ended"].is_string(), "{curve}");
    }
}

fn caches_are_in_order(answer: &Value) {
    if let Some((low, high)) = interval(answer, "l1_size") {
        assert!(
            low >= 8.0 * 1024.0 && high <= 1024.0 * 1024.0,
            "{low} to {high}"
        );
    }
    let (l1, memory) = (
        interval(answer, "l1_latency_ns"),
        interval(answer, "memory_latency"),
    );
    if let (Some((fast, _)), Some((_, slow))) = (l1, memory) {
        assert!(fast < slow, "L1 {fast} ns, memory {slow} ns");
    }
}

/// Wider vectors are not slower: compared as intervals, with a margin of a tenth for a change of
/// the clock.
fn peaks_are_in_order(answer: &Value) {
    let wider = if cfg!(target_arch = "x86_64") {
        vec!["peak_scalar", "peak_sse2", "peak_avx2"]
    } else {
        vec!["peak_scalar", "peak_neon"]
    };
    for pair in wider.windows(2) {
        let found = (interval(answer, pair[0]), interval(answer, pair[1]));
        if let (Some((low, _)), Some((_, high))) = found {
            assert!(low <= high * 1.1, "{pair:?}: {low} and {high} GFLOP/s");
        }
    }
}

#[test]
fn what_is_named_is_measured_and_nothing_else() {
    let answer = json(&["add", "clock", "--runs", "6", "--seconds", "4"]);
    assert_eq!(
        names(&answer),
        ["core_clock", "add_latency", "add_throughput"]
    );
    assert_eq!(answer["curves"], Value::Array(vec![]));
    let answer = json(&["associativity", "--runs", "6", "--seconds", "4"]);
    assert_eq!(names(&answer), ["l1_associativity"]);
}

#[test]
fn a_second_is_enough_for_an_answer() {
    let begin = Instant::now();
    let answer = json(&["--seconds", "1"]);
    assert!(begin.elapsed() < Duration::from_secs(1) + SLACK);
    quantities(&answer).iter().for_each(keeps_the_contract);
}

#[test]
fn the_table_names_what_atlas_names() {
    let output = probe(&[
        "l1",
        "registers",
        "pipeline",
        "--runs",
        "6",
        "--seconds",
        "4",
    ]);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    for name in ["l1_size", "vector_registers", "pipeline_cycles"] {
        assert!(text.contains(name), "{text}");
    }
    assert!(
        text.contains("median") && text.contains("95 % interval"),
        "{text}"
    );
}

#[test]
fn misuse_is_one_error_with_exit_code_2() {
    for wrong in [
        ["l9", "--json"],
        ["--runs", "5"],
        ["--seconds", "0"],
        ["--seconds", "601"],
    ] {
        let output = probe(&wrong);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
        assert!(output.stdout.is_empty());
        assert!(!output.stderr.is_empty());
    }
}
