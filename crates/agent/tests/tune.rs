//! `vtax-agent tune`, the real program on this machine: its contract, and what holds on any
//! machine, however busy.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// Short on any machine: small problems, and code that every processor has.
const SMALL: [&str; 6] = ["--vectors", "portable", "--size", "32", "--budget", "60"];

fn tune(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_vtax-agent"))
        .arg("tune")
        .args(arguments)
        .output()
        .unwrap()
}

fn json(arguments: &[&str]) -> Value {
    let output = tune(&[arguments, &["--json"]].concat());
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)))
}

fn refused(arguments: &[&str], said: &str) {
    let output = tune(arguments);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "{arguments:?}");
    assert!(error.contains(said), "{error}");
    assert_eq!(error.trim_end().lines().count(), 1, "{error}");
}

fn named(answer: &Value) -> Vec<&str> {
    let each = answer["routines"].as_array().unwrap().iter();
    each.map(|one| one["routine"].as_str().unwrap()).collect()
}

#[test]
fn every_routine_has_a_winner_with_the_names_of_atlas() {
    let answer = json(&["--vectors", "portable", "--size", "24", "--budget", "2"]);
    let forms = ["dgemm_nn", "dgemm_nt", "dgemm_tn", "dgemm_tt"];
    let vectors = ["dgemv_n", "dgemv_t", "dger"];
    assert_eq!(named(&answer), [&forms[..], &vectors].concat());
    let routines = answer["routines"].as_array().unwrap();
    for one in routines {
        assert!(one["gflops"].as_f64().unwrap() > 0.0, "{one}");
        assert_eq!(
            one["low"].is_null(),
            one["runs"].as_u64().unwrap() < 6,
            "{one}"
        );
        assert!(one["trials"].as_u64().unwrap() > 0, "{one}");
    }
    for name in [
        "VECTOR", "MULADD", "LAT", "NB", "MU", "NU", "KU", "FFTCH", "IFTCH", "NFTCH", "MC", "NC",
    ] {
        let of = |one: &Value| one["fields"][name].clone();
        assert!(!of(&routines[0]).is_null(), "{name}");
        assert!(routines[..4].iter().all(|one| of(one) == of(&routines[0])));
    }
    assert!(routines[6]["fields"]["XUNROLL"].is_u64());
    assert!(answer["processor"]["features"].is_array() && answer["cache_edge"].is_null());
    let notes = answer["notes"].to_string();
    assert!(notes.contains("portable Rust kernels"), "{notes}");
}

#[test]
fn a_log_is_gone_on_with_and_then_answers_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (log, toml) = (folder.path().join("log"), folder.path().join("blas.toml"));
    let (log, toml) = (log.to_str().unwrap(), toml.to_str().unwrap());
    let all = [&SMALL[..], &["--routines", "ger", "--log", log]].concat();
    let first = json(&all);
    assert_eq!(
        (&first["complete"], &first["resumed"]),
        (&true.into(), &0.into())
    );
    let trials = &first["routines"][0]["trials"];
    let second = json(&[&all[..], &["--export", toml]].concat());
    assert_eq!(&second["resumed"], trials);
    assert_eq!(second["routines"], first["routines"]);
    // The exported parameters are measured again.
    let given = json(&["--use", toml, "--size", "32"]);
    assert_eq!(named(&given), ["dger"]);
    assert_eq!(
        given["routines"][0]["fields"],
        first["routines"][0]["fields"]
    );
    assert_eq!(given["routines"][0]["trials"], 0);
    another_processor_is_named(Path::new(log), Path::new(toml), &all);
}

fn another_processor_is_named(log: &Path, toml: &Path, all: &[&str]) {
    let other = |text: String, from: &str, to: &str| {
        assert!(text.contains(from), "{text}");
        text.replacen(from, to, 1)
    };
    let text = other(
        fs::read_to_string(log).unwrap(),
        "\"family\":",
        "\"family\":1",
    );
    fs::write(log, text).unwrap();
    refused(all, "processor.family");
    let text = other(
        fs::read_to_string(toml).unwrap(),
        "\nfamily = ",
        "\nfamily = 1",
    );
    fs::write(toml, &text).unwrap();
    let path = toml.to_str().unwrap();
    let notes = json(&["--use", path, "--size", "32"])["notes"].to_string();
    assert!(
        notes.contains("parameters of another processor: family"),
        "{notes}"
    );
    fs::write(toml, other(text, "XUNROLL = ", "XUNROLL = 9")).unwrap();
    refused(&["--use", path], "double.ger: XUNROLL");
}

#[test]
fn a_search_goes_on_from_the_caches_that_it_started_from() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let short = ["--vectors", "portable", "--size", "24", "--budget", "1"];
    let gemm = ["--routines", "gemm-nn", "--log", log.to_str().unwrap()];
    let all = [&short[..], &gemm].concat();
    let first = json(&all);
    assert_eq!(named(&first), ["dgemm_nn"]);
    let claimed = first["notes"].to_string().contains("claimed cache sizes");
    let from = if claimed { "claimed" } else { "probes" };
    assert_eq!(first["start"]["from"], from, "{first}");
    let text = fs::read_to_string(&log).unwrap();
    let line = text.lines().nth(1).unwrap();
    let mut start: Value = serde_json::from_str(line).unwrap();
    assert_eq!(start["l2_bytes"], first["start"]["l2_bytes"]);
    start["l1_bytes"] = 12_288.into();
    fs::write(&log, text.replacen(line, &start.to_string(), 1)).unwrap();
    assert_eq!(json(&all)["start"]["l1_bytes"], 12_288);
    // Without a search of GEMM nothing starts from caches.
    assert!(json(&[&short[..], &["--routines", "ger"]].concat())["start"].is_null());
}

#[test]
fn cache_edges_are_swept_past_the_l2_cache() {
    let small = ["--edge-size", "64", "--runs", "6", "--vectors", "portable"];
    let answer = json(&[&["--cache-edge"], &small[..]].concat());
    let found = &answer["cache_edge"];
    let points = found["points"].as_array().unwrap();
    let largest = points.last().unwrap()["bytes"].as_u64().unwrap();
    assert!(largest > found["l2_bytes"].as_u64().unwrap_or(0), "{found}");
    assert!(points.iter().all(|point| point["low"].is_f64()), "{found}");
    assert_eq!(found["chosen"].as_array().unwrap().len(), 6);
    assert!(found["l1_only"]["gflops"].is_f64() && answer["complete"] == true);
}

#[test]
fn misuse_is_one_line() {
    refused(&["--vectors", "mmx"], "not portable, scalar");
    refused(&["--use", "/nonexistent.toml"], "No such file");
    refused(
        &["--log", "/nonexistent/log", "--size", "32"],
        "No such file",
    );
    let export = [
        &SMALL[..],
        &["--routines", "ger", "--export", "/nonexistent/a"],
    ]
    .concat();
    refused(&export, "No such file");
    refused(&["--budget", "0.5s"], "not from 1s");
    refused(&["--use", "a", "--log", "b"], "--log");
    let folder = tempfile::tempdir().unwrap();
    let letter = folder.path().join("letter");
    fs::write(&letter, "Dear reader").unwrap();
    refused(
        &["--log", letter.to_str().unwrap()],
        "not the header of a log",
    );
    assert_eq!(fs::read_to_string(&letter).unwrap(), "Dear reader");
}

#[test]
fn people_get_a_table() {
    let output = tune(&[&SMALL[..], &["--routines", "ger"]].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.starts_with("routine") && text.contains("XUNROLL="),
        "{text}"
    );
    assert!(output.stderr.is_empty());
}
