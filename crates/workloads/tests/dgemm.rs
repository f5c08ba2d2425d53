//! The program itself, on the BLAS of this machine.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::process::{Command, Output};

use serde_json::Value;

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_vtax-dgemm"))
        .args(arguments)
        .output()
        .unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

/// What `--identify` prints; `None`, with the reason printed, where there is no BLAS.
fn identity() -> Option<Value> {
    let output = run(&["--identify"]);
    if output.status.success() {
        return Some(json(&output));
    }
    println!(
        "skipped: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    None
}

#[test]
fn the_library_is_the_one_that_was_loaded() {
    let Some(answer) = identity() else { return };
    let library = &answer["library"];
    assert_eq!(library["requested"], "libblas.so.3");
    let path = library["path"].as_str().unwrap();
    assert!(
        std::path::Path::new(path).is_absolute() && !path.contains("alternatives"),
        "{path}"
    );
    if path.contains("openblas") {
        assert!(library["version"].as_str().unwrap().contains("OpenBLAS"));
        assert!(library["core"].is_string());
        assert!(library["threads"].as_i64().unwrap() >= 1);
    }
}

#[test]
fn rates_come_from_a_verified_product() {
    if identity().is_none() {
        return;
    }
    let both = ["d", "s"];
    for (size, precision) in ["1", "100", "257"]
        .into_iter()
        .flat_map(|size| both.map(|precision| (size, precision)))
    {
        let output = run(&["--size", size, "--times", "2", "--precision", precision]);
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let answer = json(&output);
        assert_eq!(answer["n"].to_string(), size);
        assert_eq!(answer["routine"], format!("{precision}gemm"));
        assert_eq!(answer["verified"], true);
        let best = answer["best_gflops"].as_f64().unwrap();
        assert!(best > 0.0 && best >= answer["median_gflops"].as_f64().unwrap());
    }
}

#[test]
fn on_one_cpu_a_library_has_one_thread() {
    if identity().is_none() {
        return;
    }
    let output = run(&["--one-cpu", "--identify"]);
    let threads = &json(&output)["library"]["threads"];
    assert!(threads.is_null() || threads == 1, "{threads}");
    let output = run(&["--one-cpu", "--size", "64", "--times", "1"]);
    assert_eq!(json(&output)["verified"], true);
}

#[test]
fn a_program_without_blas_has_no_library() {
    let answer = json(&run(&["--identify-for", "/bin/sh"]));
    assert_eq!(answer["library"], Value::Null);
    assert!(answer["reason"].as_str().unwrap().contains("/bin/sh"));
}

#[test]
fn hpccs_library_is_found() {
    if !std::path::Path::new("/usr/bin/hpcc").exists() {
        println!("skipped: hpcc is not installed");
        return;
    }
    let answer = json(&run(&["--identify-for", "hpcc"]));
    assert_eq!(answer["library"]["requested"], "libblas.so.3");
}

#[test]
fn errors_are_one_line() {
    for (arguments, code, word) in [
        (&["--library", "libnosuch.so.9"][..], 1, "libnosuch"),
        (&["--library", "libc.so.6"][..], 1, "dgemm_"),
        (&["--size", "0"][..], 2, "--size"),
        (&["--frobnicate"][..], 2, "--frobnicate"),
        (
            &["--identify-for", "no-such-program"][..],
            1,
            "no-such-program",
        ),
    ] {
        let output = run(arguments);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{message}");
        assert_eq!(message.trim_end().lines().count(), 1, "{message}");
        assert!(
            message.starts_with("vtax-dgemm: ") && message.contains(word),
            "{message}"
        );
    }
}

/// A "BLAS" that computes nothing.
#[test]
fn a_wrong_product_is_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("wrong.c");
    let library = folder.path().join("libwrong.so");
    std::fs::write(&source, "void dgemm_(void) {}\n").unwrap();
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .args([&library, &source])
        .status();
    if !compiled.is_ok_and(|status| status.success()) {
        println!("skipped: cc cannot build a library here");
        return;
    }
    let output = run(&["--size", "10", "--library", library.to_str().unwrap()]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(
        message.contains("libwrong.so: its product of two matrices is wrong"),
        "{message}"
    );
    assert!(output.stdout.is_empty());
}
