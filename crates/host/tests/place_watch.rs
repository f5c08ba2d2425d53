//! `vtax place watch` on processes of the test itself, and on no others.
//!
//! It runs in a mount namespace with the test's files over `/proc/stat` and the list of online
//! CPUs: other programs may keep the CPUs busy, and no CPU is really switched off.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "common/place.rs"]
mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use common::{Own, PROGRAM, answer, complaint, is_empty, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use vtax_host::place::cpus::{online, written};
use vtax_sys::calls::scheduling::set_affinity;
use vtax_sys::cgroup::locate::{Version, locate};
use vtax_sys::tree::Tree;

/// By this predictor a guest loses 1 % at half speed, whatever it does.
const PREDICTOR: &str = r#"{"name": "service CPU", "intercept": 0.02, "slope": 0.0, "n": 12,
    "mean": 30.0, "sum_of_squares": 4000.0, "residual": 0.0, "least": 0.0, "most": 1000.0}"#;
const MUCH: usize = 400_000;
/// A test that waits for a line that never comes fails after this many lines.
const MOST_LINES: usize = 300;

/// A guest, whose progress is the size of a file, and a `watch` of it.
struct Scene {
    guest: Own,
    folder: tempfile::TempDir,
    fast: String,
    slow: String,
}

impl Scene {
    /// `None`, with the reason on standard error, where the scene is not possible.
    fn new() -> Option<Self> {
        let cpus = online(&Tree::host());
        if !nix::unistd::geteuid().is_root() || cpus.len() < 2 {
            eprintln!("skipped: it takes root and two CPUs");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let work = folder.path().join("work");
        fs::write(&work, vec![b'x'; MUCH]).unwrap();
        let script = format!(
            "while :; do i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done; cat {} >/dev/null; \
             sleep 0.01; done",
            work.display()
        );
        let idle: Vec<String> = cpus
            .iter()
            .map(|cpu| format!("cpu{cpu} 0 0 0 1 0 0 0 0 0 0\n"))
            .collect();
        fs::write(folder.path().join("stat"), idle.concat()).unwrap();
        fs::write(folder.path().join("online"), written(&cpus)).unwrap();
        fs::write(folder.path().join("predictor.json"), PREDICTOR).unwrap();
        let (slow, fast) = cpus.split_last().unwrap();
        Some(Self {
            guest: Own::guest_of(&script),
            folder,
            fast: written(fast),
            slow: slow.to_string(),
        })
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    fn arguments(&self, more: &[&str]) -> Vec<String> {
        let guest = self.guest.number();
        let (predictor, state) = (self.path("predictor.json"), self.path("state"));
        let words = [
            "watch",
            "--json",
            "--pid",
            &guest,
            "--fast",
            &self.fast,
            "--slow",
            &self.slow,
            "--slow-speed",
            "50%",
            "--budget",
            "50%",
            "--every",
            "200ms",
            "--predictor",
            &predictor,
            "--state",
            &state,
        ];
        words
            .iter()
            .chain(more)
            .map(|word| (*word).to_owned())
            .collect()
    }

    fn watch(&self, more: &[&str]) -> Watch {
        let script = format!(
            "mount --bind {} /proc/stat && mount --bind {} /sys/devices/system/cpu/online && \
             exec \"$@\"",
            self.path("stat"),
            self.path("online")
        );
        let mut child = Command::new("unshare")
            .args(["-m", "sh", "-c", &script, "sh", PROGRAM, "place"])
            .args(self.arguments(more))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Watch { child, output }
    }

    /// A `watch` that has just put the guest on the slow CPU.
    fn after_the_move(&self) -> Watch {
        let mut watch = self.watch(&["--apply"]);
        let line = watch.line(|line| line["to"] == "slow");
        assert_eq!(line["carried_out"], true, "{line}");
        assert_eq!(line["thread"]["guest"], "vtax-test");
        assert_eq!(line["thread"]["role"], "main-loop");
        assert_eq!(self.guest.cpus(), self.slow);
        watch
    }

    /// Why a second `watch`, or another command, is refused.
    fn refused(arguments: &[String]) -> String {
        let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let (code, message) = complaint(&words);
        assert_eq!(code, Some(2), "{message}");
        message
    }
}

struct Watch {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Watch {
    /// The next line for which `is_it` is true.
    fn line(&mut self, is_it: impl FnMut(&Value) -> bool) -> Value {
        let lines = self.output.by_ref().lines().take(MOST_LINES);
        let mut lines = lines.map(|text| serde_json::from_str(&text.unwrap()).unwrap());
        lines.find(is_it).expect("a line that is so")
    }

    fn number(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    /// Ask the `watch` to end; returns the lines that it prints then.
    fn end(&mut self) -> Vec<Value> {
        kill(self.number(), Signal::SIGTERM).unwrap();
        let rest = self.output.by_ref().lines().map(|line| line.unwrap());
        let rest = rest
            .map(|line| serde_json::from_str(&line).unwrap())
            .collect();
        assert!(self.child.wait().unwrap().success());
        rest
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn says(word: &str) -> impl Fn(&Value) -> bool {
    move |line| line["reason"].as_str().unwrap().contains(word)
}

#[test]
fn a_thread_is_moved_and_goes_back_at_the_end() {
    let Some(scene) = Scene::new() else { return };
    let before = scene.guest.cpus();
    let mut watch = scene.after_the_move();
    let message = Scene::refused(&scene.arguments(&["--apply"]));
    assert!(
        message.contains(&format!("process {}", watch.number())),
        "{message}"
    );
    let undo = ["undo", "--state", &scene.path("state")].map(str::to_owned);
    assert!(Scene::refused(&undo).contains("end it"));
    watch.line(says("kept: "));
    let rest = watch.end();
    assert_eq!(rest.last().unwrap()["to"], "fast");
    assert_eq!(scene.guest.cpus(), before);
    assert!(is_empty(&scene.state()));
}

#[test]
fn a_thread_whose_guest_loses_goes_back() {
    let Some(scene) = Scene::new() else { return };
    let before = scene.guest.cpus();
    let mut watch = scene.after_the_move();
    fs::write(scene.path("work"), "x").unwrap();
    let line = watch.line(|line| line["to"] == "fast");
    assert_eq!(line["carried_out"], true, "{line}");
    assert!(says("fell by")(&line), "{line}");
    assert_eq!(scene.guest.cpus(), before);
    assert!(watch.end().iter().all(|line| line["to"].is_null()));
}

#[test]
fn what_a_killed_watch_moved_is_undone() {
    let Some(scene) = Scene::new() else { return };
    let before = scene.guest.cpus();
    let mut watch = scene.after_the_move();
    watch.child.kill().unwrap();
    watch.child.wait().unwrap();
    assert_eq!(scene.guest.cpus(), scene.slow);
    let message = Scene::refused(&scene.arguments(&["--apply"]));
    assert!(message.contains("vtax place apply --undo"), "{message}");
    let undone = answer(&["undo", "--json", "--state", &scene.path("state")]);
    assert_eq!(undone["threads"], 1);
    assert_eq!(scene.guest.cpus(), before);
    assert!(is_empty(&scene.state()));
}

#[test]
fn a_sweep_takes_back_what_a_killed_watch_moved_only() {
    let Some(scene) = Scene::new() else { return };
    let before = scene.guest.cpus();
    let mut watch = scene.after_the_move();
    let sweep = || answer(&["sweep", "--json", "--state", &scene.path("state")]);
    assert_eq!(sweep()["restored"], 0);
    assert_eq!(scene.guest.cpus(), scene.slow);
    watch.child.kill().unwrap();
    watch.child.wait().unwrap();
    assert_eq!(sweep()["restored"], 1);
    assert_eq!(scene.guest.cpus(), before);
}

#[test]
fn a_thread_leaves_a_cpu_that_goes_offline() {
    let Some(scene) = Scene::new() else { return };
    let before = scene.guest.cpus();
    let mut watch = scene.after_the_move();
    fs::write(scene.path("online"), &scene.fast).unwrap();
    let line = watch.line(|line| line["to"] == "fast");
    assert!(
        line["carried_out"] == true && says("not online")(&line),
        "{line}"
    );
    assert_eq!(scene.guest.cpus(), before);
    watch.end();
}

#[test]
fn what_somebody_else_moves_is_left_there() {
    let Some(scene) = Scene::new() else { return };
    let mut watch = scene.after_the_move();
    set_affinity(scene.guest.pid(), &[0]).unwrap();
    watch.line(says("somebody put it on CPUs 0"));
    watch.end();
    assert_eq!(scene.guest.cpus(), "0");
}

#[test]
fn a_guest_that_ends_is_forgotten() {
    let Some(mut scene) = Scene::new() else {
        return;
    };
    let mut watch = scene.after_the_move();
    scene.guest.0.kill().unwrap();
    scene.guest.0.wait().unwrap();
    watch.line(says("it has ended"));
    watch.line(|line| line["threads"] == 0 && line["decision"] == "hold");
    watch.end();
    assert!(is_empty(&scene.state()));
}

#[test]
fn a_cpuset_that_forbids_the_slow_cpu_is_said() {
    let Some(scene) = Scene::new() else { return };
    let Some(group) = Cpuset::new(&scene) else {
        return;
    };
    let mut watch = scene.watch(&["--apply"]);
    let line = watch.line(|line| line["to"] == "slow");
    assert_eq!(line["carried_out"], false);
    assert!(says("outside its cpuset")(&line), "{line}");
    assert_eq!(scene.guest.cpus(), scene.fast);
    watch.end();
    drop(group);
}

/// A control group with the fast CPUs, which contains the guest.
struct Cpuset(PathBuf);

impl Cpuset {
    /// `None`, with the reason on standard error, where there is no hierarchy of version 1.
    fn new(scene: &Scene) -> Option<Self> {
        let found = locate(&Tree::host(), "cpuset").filter(|found| found.version == Version::V1);
        let Some(found) = found else {
            eprintln!("skipped: cpusets of version 1 are not mounted");
            return None;
        };
        let guest = scene.guest.number();
        let folder = Path::new(&found.own).join(format!("vtax-test-{guest}"));
        fs::create_dir(&folder).unwrap();
        let group = Self(folder);
        let memory = fs::read_to_string(Path::new(&found.own).join("cpuset.mems")).unwrap();
        group.put("cpuset.cpus", &scene.fast);
        group.put("cpuset.mems", &memory);
        group.put("cgroup.procs", &guest);
        Some(group)
    }

    fn put(&self, file: &str, text: &str) {
        fs::write(self.0.join(file), text).unwrap();
    }
}

impl Drop for Cpuset {
    fn drop(&mut self) {
        let above = self.0.parent().unwrap();
        for number in fs::read_to_string(self.0.join("cgroup.procs"))
            .unwrap()
            .lines()
        {
            let _ = fs::write(above.join("cgroup.procs"), number);
        }
        until("an empty group", || fs::remove_dir(&self.0).is_ok());
    }
}

#[test]
fn without_apply_it_only_says_so() {
    let Some(scene) = Scene::new() else { return };
    let before = scene.guest.cpus();
    let mut watch = scene.watch(&[]);
    let line = watch.line(|line| line["to"] == "slow");
    assert_eq!(line["carried_out"], false);
    assert_eq!(scene.guest.cpus(), before);
    assert!(watch.end().is_empty() && is_empty(&scene.state()));
}

#[test]
fn a_closed_output_ends_it_with_everything_back() {
    let Some(scene) = Scene::new() else { return };
    let before = scene.guest.cpus();
    let mut watch = scene.after_the_move();
    // The reader goes away, and the next line finds nobody.
    let (other, _) = std::io::pipe().unwrap();
    watch.output = BufReader::new(OwnedFd::from(other).into());
    assert_eq!(watch.child.wait().unwrap().code(), Some(1));
    until("back", || scene.guest.cpus() == before);
    assert!(is_empty(&scene.state()));
}

#[test]
fn what_it_cannot_do_is_refused_in_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = |text: &str| {
        let path = folder.path().join("file.json");
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let all = written(&online(&Tree::host()));
    let refused = |arguments: &[&str]| {
        let words: Vec<&str> = ["watch"].iter().chain(arguments).copied().collect();
        let (code, message) = complaint(&words);
        assert_eq!(code, Some(2), "{message}");
        message
    };
    assert!(refused(&["--fast", "0", "--slow", "0"]).contains("name it in one"));
    assert!(refused(&["--fast", &all]).contains("no CPU is left"));
    assert!(refused(&["--slow", "8191"]).contains("not online"));
    assert!(refused(&["--slow", "x"]).contains("not a CPU number"));
    assert!(refused(&["--budget", "0"]).contains("percentage"));
    assert!(refused(&["--every", "1ms"]).contains("100ms"));
    if online(&Tree::host()).len() < 2 {
        eprintln!("skipped: the rest takes two CPUs");
        return;
    }
    let with = |text: &str| refused(&["--slow", "0", "--predictor", &file(text)]);
    assert!(with("{").contains("file.json"));
    assert!(with(r#"{"predictor": null}"#).contains("nothing predicted"));
    assert!(with(PREDICTOR).contains("--slow-speed"));
    let combined = file(&PREDICTOR.replace("service CPU", "combined usage"));
    let message = refused(&[
        "--slow",
        "0",
        "--slow-speed",
        "50",
        "--predictor",
        &combined,
    ]);
    assert!(message.contains("--rate"), "{message}");
}
