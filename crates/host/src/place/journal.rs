//! The state before a change, on disk before anything changes, so that it can be restored whichever
//! process is killed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use nix::fcntl::Flock;
use serde::{Deserialize, Serialize};
use vtax_sys::calls::scheduling::set_affinity;
use vtax_sys::cgroup::quota;
use vtax_sys::clock::ticks_per_second;
use vtax_sys::cpu_list::parse;
use vtax_sys::owner;
use vtax_sys::state;
use vtax_sys::terminal::Error;
use vtax_sys::tree::Tree;

use crate::place::domain::process::Processes;
use crate::place::domain::thread_folder;
use crate::place::xen_cap;

/// Where journals are, unless a caller says otherwise: gone with the affinities at a restart.
pub const STATE: &str = "/run/vtax/place";
/// More bytes than any journal has.
const MAX_BYTES: u64 = 64 << 20;

/// The CPUs that a thread could run on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Affinity {
    pub pid: i32,
    pub tid: i32,
    /// When it started, in clock ticks since boot.
    pub start_ticks: u64,
    pub cpus: String,
    /// The CPUs that it is moved to; empty when it stays.
    #[serde(default)]
    pub to: Option<String>,
}

/// The content of a file in `/proc` or `/sys`, or the cap of Xen's domain 0 (`xen_cap::SETTING`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    pub path: String,
    pub text: String,
}

/// The state before a change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Before {
    /// The layout of this file.
    pub format: u32,
    /// When the journal was written, in clock ticks since boot.
    pub since_ticks: u64,
    /// Threads that move.
    pub threads: Vec<Affinity>,
    /// Files that are written.
    pub settings: Vec<Setting>,
    /// Control groups that are made.
    pub groups: Vec<PathBuf>,
    /// The program that restores the state at its end, as `vtax_sys::owner` names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
}

/// The layout that this version writes and reads.
pub const FORMAT: u32 = 1;

/// The result of restoring.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Restored {
    /// The number of threads that are where they were.
    pub threads: usize,
    /// The number of files that have their old content.
    pub settings: usize,
    /// Threads that have ended.
    pub ended: Vec<i32>,
    /// What could not be restored, one line each.
    #[serde(skip)]
    pub failed: Vec<String>,
}

impl Before {
    /// The process that restores the state at its end, if it is alive.
    pub fn living_owner(&self, tree: &Tree) -> Option<&str> {
        let owner = self.owner.as_deref()?;
        let lives = owner::is_dead(tree, owner) == Some(false);
        lives.then(|| owner.split('-').nth(1)).flatten()
    }

    /// An empty journal of this moment.
    pub fn now(tree: &Tree) -> Self {
        let uptime = tree.text("/proc/uptime").unwrap_or_default();
        let seconds: f64 = uptime
            .split(' ')
            .next()
            .and_then(|text| text.parse().ok())
            .unwrap_or(0.0);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "whole ticks since boot"
        )]
        let since_ticks = (seconds * f64::from(ticks_per_second())) as u64;
        Self {
            format: FORMAT,
            since_ticks,
            ..Self::default()
        }
    }

    /// Threads and processes that moved threads have started since the move: they have inherited
    /// the CPUs, and go back with the thread that started them.
    fn heirs(&self, tree: &Tree) -> Vec<Affinity> {
        let mut processes = Processes::default();
        processes.read(tree);
        let mut heirs: BTreeMap<i32, Affinity> = BTreeMap::new();
        let recorded: BTreeSet<i32> = self.threads.iter().map(|one| one.tid).collect();
        let mut known: BTreeSet<(i32, &str)> = BTreeSet::new();
        for one in &self.threads {
            let Some(to) = one.to.as_deref().filter(|to| known.insert((one.pid, to))) else {
                continue;
            };
            for pid in processes.with_descendants(&[one.pid]) {
                let new = tree.threads(pid).into_iter();
                let new = new.filter(|tid| !recorded.contains(tid));
                let now = new.filter_map(|tid| Affinity::read(tree, pid, tid));
                let moved = now.filter(|now| now.start_ticks >= self.since_ticks && now.is_on(to));
                for mut heir in moved {
                    heir.cpus.clone_from(&one.cpus);
                    heirs.entry(heir.tid).or_insert(heir);
                }
            }
        }
        heirs.into_values().collect()
    }

    /// Restore the state; what is already restored stays untouched.
    pub fn restore(&self, tree: &Tree) -> Restored {
        let mut done = Restored::default();
        let heirs = self.heirs(tree);
        for group in &self.groups {
            if !quota::release(group) {
                done.failed
                    .push(format!("{} is still there", group.display()));
            }
        }
        for setting in &self.settings {
            match set(tree, &setting.path, &setting.text) {
                Ok(()) => done.settings += 1,
                Err(reason) => done.failed.push(reason),
            }
        }
        for thread in &self.threads {
            match thread.put(tree, &thread.cpus) {
                Ok(true) => done.threads += 1,
                Ok(false) => done.ended.push(thread.tid),
                Err(reason) => done.failed.push(reason),
            }
        }
        for heir in heirs {
            if let Err(reason) = heir.put(tree, &heir.cpus) {
                done.failed.push(reason);
            }
        }
        done
    }
}

impl Affinity {
    /// The CPUs that a thread may run on at this moment; `None` when there is no such thread.
    pub fn read(tree: &Tree, pid: i32, tid: i32) -> Option<Self> {
        let folder = thread_folder(pid, tid);
        let task = tree.task(&folder).filter(|task| !task.zombie)?;
        Some(Self {
            pid,
            tid,
            start_ticks: task.start_ticks,
            cpus: tree.allowed_cpus(&folder)?,
            to: None,
        })
    }

    /// May the thread run on exactly these CPUs?
    fn is_on(&self, cpus: &str) -> bool {
        let own = parse(&self.cpus);
        own.is_ok() && own == parse(cpus)
    }

    /// Does the same thread still exist?
    pub fn lives(&self, tree: &Tree) -> bool {
        let now = Self::read(tree, self.pid, self.tid);
        now.is_some_and(|now| now.start_ticks == self.start_ticks)
    }

    /// Let the thread run on these CPUs, and read them back; false when the thread has ended.
    ///
    /// Fails with a line when the kernel refuses or sets other CPUs.
    pub fn put(&self, tree: &Tree, cpus: &str) -> Result<bool, String> {
        let line = |reason: &str| format!("thread {} on CPUs {cpus}: {reason}", self.tid);
        let wanted = parse(cpus).map_err(|error| line(&error.to_string()))?;
        let now = |tree| Self::read(tree, self.pid, self.tid);
        let Some(before) = now(tree).filter(|now| now.start_ticks == self.start_ticks) else {
            return Ok(false);
        };
        if before.is_on(cpus) {
            return Ok(true);
        }
        let set = set_affinity(self.tid, &wanted);
        match (set, now(tree)) {
            (_, None) => Ok(false),
            (Err(errno), Some(_)) => Err(line(errno.desc())),
            (Ok(()), Some(after)) if after.is_on(cpus) => Ok(true),
            (Ok(()), Some(after)) => Err(line(&format!("the kernel put it on {}", after.cpus))),
        }
    }
}

/// Write a file of the kernel, and read it back.
///
/// Fails with a line when the kernel refuses or the file reads otherwise afterwards.
pub fn set(tree: &Tree, path: &str, text: &str) -> Result<(), String> {
    if path == xen_cap::SETTING {
        return xen_cap::write(text);
    }
    let is_set = || tree.text(path).is_some_and(|now| now == text);
    if is_set() {
        return Ok(());
    }
    fs::write(tree.path(path), text)
        .map_err(|error| format!("{path}: {}", vtax_sys::reason(&error)))?;
    if is_set() {
        return Ok(());
    }
    let now = tree.text(path).unwrap_or_default();
    Err(format!("{path}: it says {now}, not {text}"))
}

/// Write a new journal, completely or not at all; false when one exists already.
///
/// Fails when it cannot be written.
pub fn begin(path: &Path, before: &Before) -> Result<bool, Error> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    state::make_folder(parent)
        .and_then(|()| state::create_on_disk(path, whole(before)))
        .map_err(|error| failed(path, &error))
}

/// Replace a journal, completely or not at all.
///
/// Fails when it cannot be written: the old journal then stays.
pub fn replace(path: &Path, before: &Before) -> Result<(), Error> {
    state::replace_on_disk(path, whole(before)).map_err(|error| failed(path, &error))
}

fn whole(before: &Before) -> impl FnOnce(&mut File) -> io::Result<()> {
    move |file| file.write_all(&serde_json::to_vec(before)?)
}

/// Make the folder of journals, and keep others out until this is dropped: `apply` and `undo` take
/// turns.
///
/// Fails when it cannot be made or locked.
pub fn lock(folder: &Path) -> Result<Flock<File>, Error> {
    state::hold_folder(folder).map_err(|error| failed(folder, &error))
}

/// An error of a file of the folder.
pub fn failed(path: &Path, error: &io::Error) -> Error {
    Error::input_output(&path.display().to_string(), error, "run it as root")
}

/// Read a journal; `None` when there is none.
///
/// Fails when it cannot be read, or is of another version of this program.
pub fn read(path: &Path) -> Result<Option<Before>, Error> {
    let text = state::read(path, MAX_BYTES).map_err(|error| failed(path, &error))?;
    let Some(text) = text else {
        return Ok(None);
    };
    let wrong = |reason: String| {
        Error::failure(
            path.display().to_string(),
            reason,
            "restart the machine, or remove it",
        )
    };
    let before: Before = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    if before.format != FORMAT {
        return Err(wrong(format!(
            "its format is {}, not {FORMAT}",
            before.format
        )));
    }
    Ok(Some(before))
}

/// Remove a journal whose affinities are restored.
pub fn remove(path: &Path) {
    // The state is restored: a journal that stays would only restore the same state again.
    let _ = state::remove_on_disk(path);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_is_written_once_and_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("place/journal.json");
        let affinity = Affinity {
            pid: 1,
            tid: 2,
            start_ticks: 3,
            cpus: "0-1".into(),
            to: Some("1".into()),
        };
        let before = Before {
            format: FORMAT,
            threads: vec![affinity],
            ..Before::default()
        };
        assert!(read(&path).unwrap().is_none());
        assert!(begin(&path, &before).unwrap());
        assert!(!begin(&path, &Before::default()).unwrap());
        assert_eq!(read(&path).unwrap(), Some(before));
        let parent = path.parent().unwrap();
        assert_eq!(fs::read_dir(parent).unwrap().count(), 1, "no draft stays");
        remove(&path);
        assert!(read(&path).unwrap().is_none());
    }

    #[test]
    fn a_journal_of_another_version_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.json");
        begin(
            &path,
            &Before {
                format: 9,
                ..Before::default()
            },
        )
        .unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("format is 9"));
        fs::write(&path, "{").unwrap();
        assert!(read(&path).is_err());
    }

    #[test]
    fn a_thread_that_was_replaced_is_left_alone() {
        let tree = Tree::host();
        let own = std::process::id().cast_signed();
        let mut affinity = Affinity::read(&tree, own, own).unwrap();
        assert_eq!(affinity.put(&tree, &affinity.cpus.clone()), Ok(true));
        affinity.start_ticks += 1;
        assert_eq!(affinity.put(&tree, "0"), Ok(false));
        assert!(!affinity.lives(&tree));
    }
}
