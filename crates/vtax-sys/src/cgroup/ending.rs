//! Ending all processes of a control group, however fast they fork, and removing it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill as send};
use nix::unistd::Pid;

/// How long killed processes may take to go.
const PATIENCE: Duration = Duration::from_secs(5);
const ROUND: Duration = Duration::from_millis(5);

/// Kill all in the group `folder` and below it once; returns how many processes were found.
///
/// `cgroup.kill` (Linux 5.14) does it at once. Before that, and in version 1, no process of the
/// group can fork any more before the first is killed: version 2 freezes, the pids controller of
/// both has its limit set to 0. So a second call finds what a first one overlooked, and no more.
pub fn kill(folder: &Path) -> usize {
    let first = processes(folder);
    if first.is_empty() || fs::write(folder.join("cgroup.kill"), "1").is_ok() {
        return first.len();
    }
    set(&folder.join("pids.max"), "0");
    set(&folder.join("cgroup.freeze"), "1");
    let found = processes(folder);
    for number in &found {
        // An error means that it is gone, which is what is wanted.
        let _ = send(Pid::from_raw(*number), Signal::SIGKILL);
    }
    found.len()
}

/// Undo what [`kill`] did to the group, with its limit of `processes`.
pub fn open(folder: &Path, processes: Option<u64>) {
    let limit = processes.map_or_else(|| "max".to_owned(), |count| count.to_string());
    set(&folder.join("pids.max"), &limit);
    set(&folder.join("cgroup.freeze"), "0");
}

/// Kill all in a group, and remove it; false if it is still there.
pub fn end(folder: &Path) -> bool {
    let deadline = Instant::now() + PATIENCE;
    while kill(folder) > 0 && Instant::now() < deadline {
        sleep(ROUND);
    }
    remove(folder)
}

/// Remove a group and those that commands made below it; true if it is gone.
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

/// The processes of the group and of those below it.
fn processes(folder: &Path) -> Vec<i32> {
    let lists = folders(folder).into_iter();
    let lists = lists.filter_map(|each| fs::read_to_string(each.join("cgroup.procs")).ok());
    let numbers = lists.flat_map(|text| {
        let numbers = text.lines().filter_map(|line| line.parse().ok());
        numbers.collect::<Vec<i32>>()
    });
    // 0 stands for a process of another PID namespace; to send to it would be to send to us.
    numbers.filter(|number| *number > 0).collect()
}

/// The folder and all below it, those above first.
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
