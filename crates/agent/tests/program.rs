//! The other subcommands of the real program.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

fn agent(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_vtax-agent"))
        .args(arguments)
        .output()
        .unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)))
}

#[test]
fn facts_are_json() {
    let facts = json(&agent(&["facts", "--pretty"]));
    assert!(facts["cpu"]["online"].as_u64().unwrap() >= 1);
    assert!(
        facts["affinity"]
            .as_array()
            .is_some_and(|cpus| !cpus.is_empty())
    );
}

#[test]
fn run_reports_and_passes_output_on() {
    let output = agent(&["run", "--", "sh", "-c", "echo seen; exit 4"]);
    assert!(output.status.success());
    assert_eq!(json(&output)["exit_code"], 4);
    assert_eq!(output.stderr, b"seen\n");
}

#[test]
fn memory_ends_as_its_command_and_says_what_it_used() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("memory.json");
    let touch = "dd if=/dev/zero of=/dev/null bs=40M count=1 2>/dev/null; sleep 0.3; ";
    for (end, code, signal) in [("exit 7", Some(7), None), ("kill -9 $$", None, Some(9))] {
        let out = file.to_str().unwrap();
        let script = format!("{touch}{end}");
        let output = agent(&[
            "memory", "--every", "10ms", "--out", out, "--", "sh", "-c", &script,
        ]);
        assert_eq!(output.status.code(), code);
        assert_eq!(output.status.signal(), signal);
        let said: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        assert!(said["wall_s"].as_f64().unwrap() >= 0.3);
        // The shell's children count, as for wait4; the working set that is seen is the shell's
        // alone.
        assert!(said["max_rss_bytes"].as_u64().unwrap() >= 40 << 20);
        assert!(said["seen"]["looks"].as_u64().unwrap() >= 3, "{said}");
        assert!(said["seen"]["program_rss_bytes"].as_u64().unwrap() < 40 << 20);
        assert!(said["before"]["memory_bytes"]["MemTotal"].as_u64().unwrap() > 0);
        std::fs::remove_file(&file).unwrap();
    }
}

#[test]
fn memory_that_cannot_start_its_command_or_write_says_so() {
    let none = agent(&["memory", "--out", "/dev/null", "--", "/nonexistent"]);
    assert_eq!(none.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&none.stderr).contains("run /nonexistent: No such file"));
    let nowhere = agent(&["memory", "--out", "/nonexistent/file", "--", "true"]);
    assert_eq!(nowhere.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&nowhere.stderr).contains("--out /nonexistent/file"));
}

#[test]
fn run_writes_files_and_stops_in_time() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("out");
    let cwd = folder.path().to_str().unwrap();
    let output = agent(&[
        "run",
        "--timeout",
        "0.2",
        "--cwd",
        cwd,
        "--stdout",
        file.to_str().unwrap(),
        "--stderr",
        "/dev/null",
        "--",
        "sh",
        "-c",
        "pwd; echo no >&2; sleep 1000",
    ]);
    assert_eq!(json(&output)["timed_out"], true);
    assert!(output.stderr.is_empty());
    assert_eq!(std::fs::read_to_string(file).unwrap().trim(), cwd);
}

#[test]
fn run_that_is_interrupted_takes_its_command_along() {
    let folder = tempfile::tempdir().unwrap();
    for (signal, code) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143)] {
        let file = folder.path().join(format!("{code}"));
        let mut process = Command::new(env!("CARGO_BIN_EXE_vtax-agent"))
            .args(["run", "--stdout", file.to_str().unwrap(), "--", "sh", "-c"])
            .arg("echo $$; exec sleep 1000")
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let child = loop {
            match std::fs::read_to_string(&file) {
                Ok(text) if text.ends_with('\n') => break text.trim().to_owned(),
                _ => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        kill(Pid::from_raw(process.id().cast_signed()), signal).unwrap();
        assert_eq!(process.wait().unwrap().code(), Some(code));
        assert!(!std::path::Path::new(&format!("/proc/{child}")).exists());
    }
}

#[test]
fn stream_verifies_what_it_measures() {
    let result = json(&agent(&[
        "stream", "--json", "--bytes", "1000000", "--times", "3",
    ]));
    assert_eq!(result["verified"], true);
    assert_eq!(result["array_bytes"], 1_000_000);
    for kernel in ["copy", "scale", "add", "triad"] {
        assert!(
            result[format!("{kernel}_gb_s")].as_f64().unwrap() > 0.0,
            "{kernel}"
        );
    }
}

#[test]
fn registers_survive() {
    assert!(agent(&["check-fp", "--rounds", "200"]).status.success());
}

#[test]
fn errors_are_one_line_that_names_the_thing() {
    for (arguments, code, word) in [
        (&["frobnicate"][..], 2, "frobnicate"),
        (&["run"][..], 2, "COMMAND"),
        (&["run", "--cpus", "x", "--", "true"][..], 2, "--cpus"),
        (&["run", "--cpus", "8000", "--", "true"][..], 2, "--cpus"),
        (&["run", "--timeout", "0", "--", "true"][..], 2, "--timeout"),
        (
            &["run", "--cwd", "/no/such", "--", "true"][..],
            2,
            "/no/such",
        ),
        (
            &["run", "--stdout", "/no/such/file", "--", "true"][..],
            1,
            "--stdout",
        ),
        (&["run", "--", "no-such-program"][..], 1, "no-such-program"),
        (&["stream", "--bytes", "99999999999999"][..], 2, "--bytes"),
        (&["stream", "--times", "1"][..], 2, "--times"),
        (&["clocks", "--seconds", "0"][..], 2, "--seconds"),
        (&["clocks", "--seconds", "601"][..], 2, "--seconds"),
        (&["serve", "--channel", "fd:99"][..], 2, "channel"),
        (&["serve", "--channel", "/no/such"][..], 2, "channel"),
        (&["init"][..], 2, "init"),
    ] {
        let output = agent(arguments);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {message}");
        assert_eq!(message.trim_end().lines().count(), 1, "{message}");
        assert!(
            message.starts_with("vtax-agent: ") && message.contains(word),
            "{message}"
        );
        assert!(message.contains("; "), "a remedy: {message}");
    }
}

#[test]
fn help_has_examples() {
    for arguments in [&["--help"][..], &["run", "--help"], &["serve", "--help"]] {
        let output = agent(arguments);
        assert!(output.status.success());
        assert!(String::from_utf8_lossy(&output.stdout).contains("Example"));
    }
}
