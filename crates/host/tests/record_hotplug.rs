//! CPUs that go offline and come online, and processes that move, during a recording.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

#[path = "common/record.rs"]
mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::{PROGRAM, Rows, described, json, recorded};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Takes a CPU offline and online again, whatever happens to the test.
struct Away {
    switch: &'static Path,
    /// Each cpuset of version 1 and its CPUs: the kernel takes an offline CPU out of them for good.
    cpusets: Vec<(PathBuf, String)>,
}

/// All tests share one such CPU: each test holds this lock while it records.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Away {
    /// `None` on a machine where no CPU can be taken offline.
    fn begin(switch: &'static str) -> Option<Self> {
        let switch = Path::new(switch);
        let away = Self {
            switch,
            cpusets: cpusets(Path::new("/sys/fs/cgroup/cpuset")),
        };
        fs::write(switch, "0").is_ok().then_some(away)
    }
}

/// The cpusets in a folder and below it, parents first.
fn cpusets(folder: &Path) -> Vec<(PathBuf, String)> {
    let file = folder.join("cpuset.cpus");
    let Ok(cpus) = fs::read_to_string(&file) else {
        return Vec::new();
    };
    let below = fs::read_dir(folder).into_iter().flatten().flatten();
    let below = below.filter(|entry| entry.path().is_dir());
    let below = below.flat_map(|entry| cpusets(&entry.path()));
    std::iter::once((file, cpus)).chain(below).collect()
}

impl Drop for Away {
    fn drop(&mut self) {
        let _ = fs::write(self.switch, "1");
        for (file, cpus) in &self.cpusets {
            // A group that has gone meanwhile needs no CPU.
            let _ = fs::write(file, cpus);
        }
    }
}

/// Work for a CPU, because an idle CPU writes no rows.
struct Busy(Child);

impl Busy {
    fn on_each_of_two() -> [Self; 2] {
        let script = "while :; do :; done";
        [(); 2].map(|()| Self(Command::new("sh").args(["-c", script]).spawn().unwrap()))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const SWITCH: &str = "/sys/devices/system/cpu/cpu1/online";

fn start(out: &Path, arguments: &[&str]) -> Child {
    Command::new(PROGRAM)
        .args(["record", "--out"])
        .arg(out)
        .args(arguments)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Wait until rows are made: loading takes a while on a busy CPU.
fn wait_for_begin(out: &Path) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !out.join("intervals.arrows").exists() {
        assert!(Instant::now() < deadline, "the recorder does not begin");
        sleep(Duration::from_millis(10));
    }
}

fn end(mut recorder: Child) {
    kill(Pid::from_raw(recorder.id().cast_signed()), Signal::SIGINT).unwrap();
    assert!(recorder.wait().unwrap().success());
}

#[test]
fn a_cpu_may_go_and_come() {
    let _alone = alone();
    recording_or_skip!();
    let _busy = Busy::on_each_of_two();
    let out = tempfile::tempdir().unwrap();
    let arguments = [
        "--every",
        "1ms",
        "--flush",
        "5s",
        "--events",
        "sched,sw,steal",
    ];
    let recorder = start(out.path(), &arguments);
    wait_for_begin(out.path());
    sleep(Duration::from_millis(600));
    let Some(away) = Away::begin(SWITCH) else {
        end(recorder);
        eprintln!("skipped: {SWITCH} cannot be written");
        return;
    };
    sleep(Duration::from_millis(400));
    drop(away);
    sleep(Duration::from_millis(600));
    end(recorder);
    let record = json(&out.path().join("record.json"));
    let gap = &record["cpus_away"][0];
    assert_eq!(
        (gap["cpu"].as_u64(), record["lost"].as_u64()),
        (Some(1), Some(0))
    );
    assert_eq!(record["cpus_away"].as_array().unwrap().len(), 1);
    let (from, to) = (
        gap["from_ns"].as_u64().unwrap(),
        gap["to_ns"].as_u64().unwrap(),
    );
    assert!(to - from > 300_000_000, "{gap}");
    assert!(record["warnings"].to_string().contains("CPU 1 was away"));
    let rows = Rows::read(out.path());
    let (cpus, times) = (rows.small("cpu"), rows.numbers("time_ns"));
    let lengths = rows.numbers("length_ns");
    let clock = rows.numbers("sw.cpu_clock");
    let mut before = [0, 0, 0, 0];
    let mut without = [0, 0];
    for at in 0..rows.len() {
        let time = times[at].unwrap();
        let (cpu, late) = (cpus[at].unwrap() as usize, usize::from(time > to));
        if cpu == 1 {
            assert!(time <= from || time >= to, "a row of a CPU that is away");
        }
        before[2 * cpu.min(1) + late] += 1;
        without[cpu.min(1)] += usize::from(clock[at].is_none());
        // A row never contains more than its own time, and the counters restart without a jump.
        assert!(lengths[at].unwrap() < 400_000_000, "{:?}", lengths[at]);
        assert!(clock[at].is_none_or(|clock| clock <= lengths[at].unwrap() + 5_000_000));
    }
    // The counters are on before the reference event is: at the start, and when the CPU is back.
    assert_eq!(without[1], 2);
    assert!(before.iter().all(|rows| *rows > 50), "{before:?}");
    assert!(rows.sum("sched.switches") > 0);
}

#[test]
fn counters_take_turns_on_a_cpu_that_comes_back_too() {
    let _alone = alone();
    recording_or_skip!();
    let _busy = Busy::on_each_of_two();
    let out = tempfile::tempdir().unwrap();
    let columns = ["sw.cpu_clock", "sw.page_faults"];
    let events = columns.join(",");
    let recorder = start(
        out.path(),
        &["--every", "1ms", "--counters", "1", "--events", &events],
    );
    wait_for_begin(out.path());
    sleep(Duration::from_millis(300));
    let Some(away) = Away::begin(SWITCH) else {
        end(recorder);
        eprintln!("skipped: {SWITCH} cannot be written");
        return;
    };
    sleep(Duration::from_millis(300));
    drop(away);
    sleep(Duration::from_millis(600));
    end(recorder);
    let record = json(&out.path().join("record.json"));
    let to = record["cpus_away"][0]["to_ns"].as_u64().unwrap();
    let rows = Rows::read(out.path());
    let (cpus, times) = (rows.small("cpu"), rows.numbers("time_ns"));
    let lengths = rows.numbers("length_ns");
    let [clock, faults] = columns.map(|name| rows.numbers(name));
    let (mut all, mut with_clock, mut with_faults) = (0, 0, 0);
    for at in (0..rows.len()).filter(|at| cpus[*at] == Some(1) && times[*at].unwrap() > to) {
        assert!(clock[at].is_none() || faults[at].is_none(), "row {at}");
        assert!(clock[at].is_none_or(|clock| clock <= lengths[at].unwrap() + 5_000_000));
        all += 1;
        with_clock += usize::from(clock[at].is_some());
        with_faults += usize::from(faults[at].is_some());
    }
    let enough = all / 5;
    assert!(
        all > 100 && with_clock > enough && with_faults > enough,
        "{with_clock} and {with_faults} of {all}"
    );
}

#[test]
fn a_cpu_that_was_away_at_the_begin_is_recorded_too() {
    let _alone = alone();
    recording_or_skip!();
    let Some(away) = Away::begin(SWITCH) else {
        eprintln!("skipped: {SWITCH} cannot be written");
        return;
    };
    let _busy = Busy::on_each_of_two();
    let out = tempfile::tempdir().unwrap();
    let recorder = start(out.path(), &["--every", "1ms", "--events", "sched,sw"]);
    wait_for_begin(out.path());
    sleep(Duration::from_millis(300));
    drop(away);
    sleep(Duration::from_millis(600));
    end(recorder);
    let record = json(&out.path().join("record.json"));
    let away = &record["cpus_away"][0];
    assert!(away["from_ns"].is_null() && away["cpu"] == 1, "{away}");
    let to = record["cpus_away"][0]["to_ns"].as_u64().unwrap();
    let rows = Rows::read(out.path());
    let (cpus, lengths) = (rows.small("cpu"), rows.numbers("length_ns"));
    let times = rows.numbers("time_ns");
    let second: Vec<usize> = (0..rows.len()).filter(|at| cpus[*at] == Some(1)).collect();
    assert!(second.len() > 50, "{}", second.len());
    let first = second[0];
    assert!(times[first].unwrap() >= to - 50_000_000 && lengths[first].unwrap() < 100_000_000);
}

/// A task that moves back and forth is counted once, wherever it runs.
#[test]
fn what_moves_between_cpus_is_counted_whole() {
    let _alone = alone();
    recording_or_skip!();
    let out = tempfile::tempdir().unwrap();
    let script = "(i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done) & worker=$!; n=0; \
                  while kill -0 $worker 2>/dev/null && [ $n -lt 200 ]; do \
                  taskset -p -c $((n % 2)) $worker >/dev/null 2>&1; n=$((n+1)); sleep 0.01; done; \
                  wait $worker; cat /proc/$$/schedstat >/dev/null; times";
    let arguments = [
        "--every", "1ms", "--events", "sched,sw", "--", "sh", "-c", script,
    ];
    let record = recorded(out.path(), &arguments);
    let rows = Rows::read(out.path());
    let cpus: std::collections::BTreeSet<_> = rows.small("cpu").into_iter().collect();
    if record["cpus"].as_array().unwrap().len() > 1 {
        assert!(cpus.len() > 1, "it never moved");
    }
    // perf's own clock of the targets' CPUs against the scheduler's switches.
    let (length, clock) = (rows.sum("length_ns"), rows.sum("sw.task_clock"));
    assert!(
        clock.abs_diff(length) < length / 20 + 1_000_000,
        "{clock} and {length}"
    );
    let migrations = described(out.path(), "sched.migrations");
    assert!(migrations["sum"].as_u64().unwrap() > 5, "{migrations}");
}
