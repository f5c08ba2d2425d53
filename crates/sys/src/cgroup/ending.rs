//! Ending all processes of a control group, however fast they fork, and removing it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill as send};
use nix::unistd::Pid;

/// How long killed processes may take to end.
const PATIENCE: Duration = Duration::from_secs(5);
const ROUND: Duration = Duration::from_millis(5);

/// Kill every process in the group `folder` and below it once; returns how many processes were
/// found.
///
/// `cgroup.kill` (Linux 5.14) does it at once. On older kernels, and in version 1, forking is
/// stopped before the first process is killed: version 2 freezes the group, and the pids limit of
/// either version is set to 0. So a second call finds only what the first call overlooked.
pub fn kill(folder: &Path) -> usize {
    let first = processes(folder);
    if first.is_empty() || fs::write(folder.join("cgroup.kill"), "1").is_ok() {
        return first.len();
    }
    set(&folder.join("pids.max"), "0");
    set(&folder.join("cgroup.freeze"), "1");
    let found = processes(folder);
    for number in &found {
        // An error means that the process is gone, which is the goal.
        let _ = send(Pid::from_raw(*number), Signal::SIGKILL);
    }
    found.len()
}

/// Undo what [`kill`] did to the group, and set its limit of `processes` again.
pub fn open(folder: &Path, processes: Option<u64>) {
    let limit = processes.map_or_else(|| "max".to_owned(), |count| count.to_string());
    set(&folder.join("pids.max"), &limit);
    set(&folder.join("cgroup.freeze"), "0");
}

/// Kill every process in a group and remove it; false if the group is still there.
pub fn end(folder: &Path) -> bool {
    let deadline = Instant::now() + PATIENCE;
    while kill(folder) > 0 && Instant::now() < deadline {
        sleep(ROUND);
    }
    remove(folder)
}

/// Remove a group and the groups that commands made below it; true if it is gone.
pub fn remove(folder: &Path) -> bool {
    folders(folder).iter().rev().all(|each| remove_one(each))
}

/// The kernel detaches a reaped process a moment later; until then the group is busy.
fn remove_one(folder: &Path) -> bool {
    for _ in 0..200 {
        match fs::remove_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => sleep(ROUND),
            done => return done.is_ok(),
        }
    }
    false
}

/// The processes of the group and of the groups below it.
fn processes(folder: &Path) -> Vec<i32> {
    let lists = folders(folder).into_iter();
    let lists = lists.filter_map(|each| fs::read_to_string(each.join("cgroup.procs")).ok());
    let numbers = lists.flat_map(|text| {
        let numbers = text.lines().filter_map(|line| line.parse().ok());
        numbers.collect::<Vec<i32>>()
    });
    // 0 stands for a process of another PID namespace; a signal to 0 would reach this process.
    numbers.filter(|number| *number > 0).collect()
}

/// The folder and all folders below it, parents first.
fn folders(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![folder.to_owned()];
    let mut next = 0;
    while let Some(entries) = found.get(next).map(fs::read_dir) {
        let entries = entries.into_iter().flatten().flatten();
        let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        found.extend(below.map(|entry| entry.path()).collect::<Vec<_>>());
        next += 1;
    }
    found
}

/// Write to a file of the group that not every kernel has.
fn set(file: &Path, text: &str) {
    if file.exists() {
        let _ = fs::write(file, text);
    }
}
