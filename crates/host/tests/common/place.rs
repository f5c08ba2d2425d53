//! Runs the program as a user does, on processes of the test itself.

#![allow(dead_code, reason = "each test file uses a part")]

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::Value;
use vtax_sys::tree::Tree;

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_vtax-host");
const BUSY: &str = "while :; do :; done";
/// A test that waits this long fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// Run the program to its end.
pub fn run(arguments: &[&str]) -> Output {
    Command::new(PROGRAM)
        .arg("place")
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// The only line that the program prints when it refuses, and its exit code.
pub fn complaint(arguments: &[&str]) -> (Option<i32>, String) {
    let output = run(arguments);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(output.stdout.is_empty());
    (output.status.code(), message)
}

/// The answer as JSON; the program must not refuse.
pub fn answer(arguments: &[&str]) -> Value {
    let output = run(arguments);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{message}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Skip a test that only root can run.
#[macro_export]
macro_rules! root_or_skip {
    () => {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("skipped: only root may do this");
            return;
        }
    };
}

/// A process of the test itself, killed at its end.
pub struct Own(pub Child);

impl Own {
    /// A process that runs this shell script, with this name in its command line and these
    /// arguments, which it ignores.
    fn running(script: &str, name: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new("sh");
        command.arg0(name).args(["-c", script]).args(arguments);
        // The processes that it starts end with it.
        command.process_group(0);
        Self(command.stdin(Stdio::piped()).spawn().unwrap())
    }

    /// Write a line to its standard input.
    pub fn say(&mut self, line: &str) {
        let input = self.0.stdin.as_mut().unwrap();
        writeln!(input, "{line}").unwrap();
    }

    /// A busy process.
    pub fn busy() -> Self {
        Self::running(BUSY, "sh", &[])
    }

    /// A busy process that stands for QEMU: it is found by its command line.
    pub fn guest() -> Self {
        Self::guest_of(BUSY)
    }

    /// A process that stands for QEMU and runs this script.
    pub fn guest_of(script: &str) -> Self {
        let own = Self::running(script, "qemu-system-test", &["-name", "guest=vtax-test"]);
        // Until exec the process has the test's command line.
        let path = format!("/proc/{}/cmdline", own.pid());
        until("exec", || {
            let text = fs::read_to_string(&path).unwrap();
            text.starts_with("qemu-system-test")
        });
        own
    }

    pub fn pid(&self) -> i32 {
        self.0.id().cast_signed()
    }

    pub fn number(&self) -> String {
        self.pid().to_string()
    }

    /// The CPUs that it may run on.
    pub fn cpus(&self) -> String {
        Tree::host()
            .allowed_cpus(&format!("/proc/{}", self.pid()))
            .unwrap()
    }

    /// When it started.
    pub fn start_ticks(&self) -> u64 {
        Tree::host().start_ticks(self.pid()).unwrap()
    }

    /// Its control groups.
    pub fn groups(&self) -> String {
        fs::read_to_string(format!("/proc/{}/cgroup", self.pid())).unwrap()
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let _ = killpg(Pid::from_raw(self.pid()), Signal::SIGKILL);
        let _ = self.0.wait();
    }
}

/// `vtax-host place slow` in force, with its first answer.
pub struct Slow {
    pub child: Child,
    pub first: Value,
    output: BufReader<ChildStdout>,
}

impl Slow {
    /// Begin; `None`, with the reason on standard error, where this machine cannot do it.
    pub fn begin(state: &Path, arguments: &[&str]) -> Option<Self> {
        let mut child = Command::new(PROGRAM)
            .args(["place", "slow"])
            .args(arguments)
            .arg("--state")
            .arg(state)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        if line.is_empty() {
            let mut message = String::new();
            child
                .stderr
                .take()
                .unwrap()
                .read_to_string(&mut message)
                .unwrap();
            child.wait().unwrap();
            // The only reason that lies in the machine and is not a mistake.
            assert!(message.contains("--backend"), "{message}");
            eprintln!("skipped: {message}");
            return None;
        }
        let first = serde_json::from_str(&line).unwrap();
        Some(Self {
            child,
            first,
            output,
        })
    }

    /// Close its input, and read its last answer.
    pub fn end(mut self) -> Value {
        drop(self.child.stdin.take());
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert!(self.child.wait().unwrap().success());
        serde_json::from_str(&line).unwrap()
    }
}

/// Wait until `is_so` is true.
pub fn until(what: &str, is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "{what}");
        sleep(Duration::from_millis(5));
    }
}

pub fn is_empty(folder: &Path) -> bool {
    File::open(folder).is_err() || fs::read_dir(folder).unwrap().next().is_none()
}
