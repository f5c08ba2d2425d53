//! A control group with a memory limit for the commands of one agent.
//!
//! The group is named `vtax-PID` after its agent, so that a later agent can tell whose it was.

pub mod locate;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use crate::cgroup::locate::{Location, Version, locate};
use crate::reason;
use crate::tree::Tree;

/// What the names of vtax's groups begin with; the process number of the agent follows.
pub const NAME_PREFIX: &str = "vtax-";
/// The group into which the processes of a delegated group move (see [`enable_memory`]).
const CALLERS: &str = "vtax-callers";
const NOT_DELEGATED: &str = "run as root or under systemd-run --user --scope -p Delegate=yes";

/// A control group that limits memory, removed when this is dropped.
#[derive(Debug)]
pub struct MemoryCgroup {
    folder: PathBuf,
    procs: File,
}

impl MemoryCgroup {
    /// Make a group for this process with the limit `bytes`, swap included.
    ///
    /// The error is one line with the reason and, where there is one, the remedy.
    pub fn create(tree: &Tree, bytes: u64) -> Result<Self, String> {
        let location = locate(tree, "memory")
            .ok_or("no memory control group is mounted here; mount cgroup2 on /sys/fs/cgroup")?;
        let parent = match location.version {
            Version::V1 => PathBuf::from(&location.own),
            Version::V2 => delegated_parent(tree, &location)?,
        };
        let folder = tree.path(&parent.join(name()).to_string_lossy());
        fs::create_dir(&folder).map_err(|error| explain("cannot make", &folder, &error))?;
        // Removed again when a step below fails.
        let made = Unfinished(Some(folder.clone()));
        set_limit(&folder, location.version, bytes)?;
        let procs = folder.join("cgroup.procs");
        let procs = OpenOptions::new()
            .write(true)
            .open(&procs)
            .map_err(|error| explain("cannot open", &procs, &error))?;
        made.keep();
        Ok(Self { folder, procs })
    }

    /// What a process writes `0` to in order to join.
    pub fn procs(&self) -> BorrowedFd<'_> {
        self.procs.as_fd()
    }
}

impl Drop for MemoryCgroup {
    fn drop(&mut self) {
        remove(&self.folder);
    }
}

struct Unfinished(Option<PathBuf>);

impl Unfinished {
    fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(folder) = &self.0 {
            remove(folder);
        }
    }
}

fn name() -> String {
    format!("{NAME_PREFIX}{}", std::process::id())
}

/// The kernel detaches a reaped process a moment later; until then the group is busy.
fn remove(folder: &Path) {
    for _ in 0..200 {
        match fs::remove_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                sleep(Duration::from_millis(5));
            }
            _ => return,
        }
    }
}

fn set_limit(folder: &Path, version: Version, bytes: u64) -> Result<(), String> {
    match version {
        Version::V1 => {
            write(&folder.join("memory.limit_in_bytes"), &bytes.to_string())?;
            // Memory and swap together; the file is missing where swap is not accounted. It may
            // not be below the limit of memory alone, hence second.
            let both = folder.join("memory.memsw.limit_in_bytes");
            if both.exists() {
                write(&both, &bytes.to_string())
            } else {
                Ok(())
            }
        }
        Version::V2 => {
            write(&folder.join("memory.max"), &bytes.to_string())?;
            let swap = folder.join("memory.swap.max");
            if swap.exists() {
                write(&swap, "0")
            } else {
                Ok(())
            }
        }
    }
}

/// The folder in which a version 2 group with the memory controller can be made.
///
/// A group that has processes cannot pass controllers on ("no internal processes", kernel doc
/// cgroup-v2), and the agent's own has: the agent. So a sibling is tried first, beside the
/// agent's own group, where the controller is on already.
fn delegated_parent(tree: &Tree, location: &Location) -> Result<PathBuf, String> {
    let passes_memory = |folder: &str| {
        tree.text(&format!("{folder}/cgroup.subtree_control"))
            .is_some_and(|list| list.split_whitespace().any(|name| name == "memory"))
    };
    let usable = |folder: &str| passes_memory(folder) && writable(&tree.path(folder));
    if usable(&location.own) {
        return Ok(location.own.clone().into());
    }
    if let Some(parent) = location.parent().filter(|parent| usable(parent)) {
        return Ok(parent.into());
    }
    enable_memory(tree, &location.own)?;
    Ok(location.own.clone().into())
}

fn writable(folder: &Path) -> bool {
    nix::unistd::access(folder, nix::unistd::AccessFlags::W_OK).is_ok()
}

/// Turn the memory controller on below a group that is delegated to us.
///
/// If processes are in the way they move into a group of their own below it, which changes
/// nothing for them; container engines do the same.
fn enable_memory(tree: &Tree, own: &str) -> Result<(), String> {
    let available = tree
        .text(&format!("{own}/cgroup.controllers"))
        .unwrap_or_default();
    if !available.split_whitespace().any(|name| name == "memory") {
        return Err(format!(
            "the memory controller is not delegated to {own}; {NOT_DELEGATED}"
        ));
    }
    let own = tree.path(own);
    let control = own.join("cgroup.subtree_control");
    let Err(error) = fs::write(&control, "+memory") else {
        return Ok(());
    };
    if error.kind() == io::ErrorKind::ResourceBusy {
        move_processes(&own).map_err(|error| explain("cannot empty", &own, &error))?;
        return write(&control, "+memory");
    }
    Err(explain("cannot turn memory on in", &control, &error))
}

fn move_processes(own: &Path) -> io::Result<()> {
    let callers = own.join(CALLERS);
    match fs::create_dir(&callers) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    for process in fs::read_to_string(own.join("cgroup.procs"))?.lines() {
        // One that has ended meanwhile is not in the way.
        let _ = fs::write(callers.join("cgroup.procs"), process);
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| explain("cannot write", path, &error))
}

fn explain(what: &str, path: &Path, error: &io::Error) -> String {
    let remedy = match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            format!("; {NOT_DELEGATED}")
        }
        _ => String::new(),
    };
    format!("{what} {}: {}{remedy}", path.display(), reason(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A version 2 tree with one group, in which `files` (path below the group to text) lie.
    fn version_2(files: &[(&str, &str)]) -> (tempfile::TempDir, Tree) {
        let root = tempfile::tempdir().unwrap();
        for folder in ["proc/self", "sys/fs/cgroup/a"] {
            fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        let mount = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        fs::write(root.path().join("proc/self/mountinfo"), mount).unwrap();
        fs::write(root.path().join("proc/self/cgroup"), "0::/a\n").unwrap();
        for (path, text) in files {
            fs::write(root.path().join("sys/fs/cgroup/a").join(path), text).unwrap();
        }
        let tree = Tree::at(root.path());
        (root, tree)
    }

    fn parent_of(tree: &Tree) -> Result<PathBuf, String> {
        delegated_parent(tree, &locate(tree, "memory").unwrap())
    }

    #[test]
    fn version_2_takes_the_group_that_passes_memory_on() {
        let (_root, own) = version_2(&[("cgroup.subtree_control", "cpu memory\n")]);
        assert_eq!(parent_of(&own), Ok("/sys/fs/cgroup/a".into()));
        let (root, above) = version_2(&[("cgroup.subtree_control", "\n")]);
        fs::write(
            root.path().join("sys/fs/cgroup/cgroup.subtree_control"),
            "memory\n",
        )
        .unwrap();
        assert_eq!(parent_of(&above), Ok("/sys/fs/cgroup".into()));
    }

    #[test]
    fn version_2_turns_memory_on_where_it_may() {
        let files = [
            ("cgroup.controllers", "cpu memory\n"),
            ("cgroup.subtree_control", ""),
        ];
        let (root, tree) = version_2(&files);
        assert_eq!(parent_of(&tree), Ok("/sys/fs/cgroup/a".into()));
        let written = root.path().join("sys/fs/cgroup/a/cgroup.subtree_control");
        assert_eq!(fs::read_to_string(written).unwrap(), "+memory");
    }

    #[test]
    fn without_delegation_the_remedy_is_named() {
        let (_root, tree) = version_2(&[("cgroup.controllers", "cpu\n")]);
        let message = MemoryCgroup::create(&tree, 1 << 20).unwrap_err();
        assert!(
            message.contains("not delegated") && message.contains("systemd-run"),
            "{message}"
        );
        let message = MemoryCgroup::create(&Tree::at("/nonexistent"), 1 << 20).unwrap_err();
        assert!(message.contains("no memory control group"), "{message}");
    }
}
