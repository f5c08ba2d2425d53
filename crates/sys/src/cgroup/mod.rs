//! A control group for the commands of one agent or recorder: it limits memory and processes, and ends them.
//!
//! Its name says which agent made it, so that a later agent removes it only when that agent is
//! dead.

pub mod ending;
pub mod locate;
pub mod quota;
pub mod sweep;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};

use crate::cgroup::locate::{Location, Version, locate};
use crate::owner::name;
use crate::reason;
use crate::tree::Tree;

/// The group into which the processes of a delegated group move (see [`enable`]).
const CALLERS: &str = "vtax-callers";
/// Swappiness of a group that may swap, where groups have their own: the kernel's default. The
/// machine's value may be 0, and then nothing is swapped out as long as there is page cache to
/// drop.
const SWAPPINESS: &str = "60";
const NOT_DELEGATED: &str = "run as root or under systemd-run --user --scope -p Delegate=yes";

/// The folders of one control group: one for each hierarchy of version 1, one in version 2.
///
/// Dropping it ends the processes in them and removes the folders.
#[derive(Debug, Default)]
pub struct CommandGroup {
    folders: Vec<Folder>,
    processes: Option<u64>,
}

#[derive(Debug)]
struct Folder {
    path: PathBuf,
    version: Version,
    procs: File,
}

impl CommandGroup {
    /// Limit memory to `bytes`, and what may be swapped out beyond that to `swap_bytes`.
    ///
    /// Fails when no control group for memory is mounted, or when the group cannot be made or
    /// limited. The error is one line with the reason and, where there is one, the remedy.
    pub fn limit_memory(&mut self, tree: &Tree, bytes: u64, swap_bytes: u64) -> Result<(), String> {
        let (folder, version) = self.folder(tree, "memory")?;
        set_memory_limit(&folder, version, bytes, swap_bytes)?;
        if swap_bytes == 0 {
            return Ok(());
        }
        let here = folder.join("memory.swappiness");
        if here.exists() {
            return write(&here, SWAPPINESS);
        }
        if tree.number::<u32>("/proc/sys/vm/swappiness") == Some(0) {
            return Err(
                "vm.swappiness is 0: nothing would be swapped; sysctl vm.swappiness=60".into(),
            );
        }
        Ok(())
    }

    /// Limit the number of processes and threads.
    ///
    /// Fails as [`Self::limit_memory`] does, for the control group of processes.
    pub fn limit_processes(&mut self, tree: &Tree, count: u64) -> Result<(), String> {
        let (folder, _) = self.folder(tree, "pids")?;
        write(&folder.join("pids.max"), &count.to_string())?;
        self.processes = Some(count);
        Ok(())
    }

    /// Each file that a process writes `0` to in order to join.
    pub fn procs(&self) -> Vec<RawFd> {
        let procs = self.folders.iter();
        procs.map(|folder| folder.procs.as_raw_fd()).collect()
    }

    /// Kill every process in the group once; returns how many there were.
    ///
    /// Nothing in the group can fork any more until [`Self::open`].
    pub fn kill(&self) -> usize {
        let folders = self.folders.iter();
        folders.map(|folder| ending::kill(&folder.path)).sum()
    }

    /// Let commands run in the group again after [`Self::kill`].
    pub fn open(&self) {
        for folder in &self.folders {
            ending::open(&folder.path, self.processes);
        }
    }

    /// The folder by which `controller` limits this group; it is made if it does not exist.
    fn folder(&mut self, tree: &Tree, controller: &str) -> Result<(PathBuf, Version), String> {
        let location = locate(tree, controller).ok_or_else(|| {
            format!(
                "no {controller} control group is mounted here; mount cgroup2 on /sys/fs/cgroup"
            )
        })?;
        if location.version == Version::V2
            && let Some(made) = self.folders.iter().find(|made| made.version == Version::V2)
        {
            pass_on(&made.path, controller)?;
            return Ok((made.path.clone(), made.version));
        }
        let parent = match location.version {
            Version::V1 => PathBuf::from(&location.own),
            // Processes are moved only for callers that ask for a memory limit.
            Version::V2 => delegated_parent(tree, &location, controller, controller == "memory")?,
        };
        let path = tree.path(&parent.join(name(tree)).to_string_lossy());
        fs::create_dir(&path).map_err(|error| explain("cannot make", &path, &error))?;
        let procs = path.join("cgroup.procs");
        let procs = OpenOptions::new()
            .write(true)
            .open(&procs)
            .map_err(|error| {
                ending::remove(&path);
                explain("cannot open", &procs, &error)
            })?;
        let version = location.version;
        self.folders.push(Folder {
            path: path.clone(),
            version,
            procs,
        });
        Ok((path, version))
    }
}

impl Drop for CommandGroup {
    fn drop(&mut self) {
        for folder in &self.folders {
            ending::end(&folder.path);
        }
    }
}

fn set_memory_limit(
    folder: &Path,
    version: Version,
    bytes: u64,
    swap_bytes: u64,
) -> Result<(), String> {
    let (file, swap_file, swap) = match version {
        Version::V1 => {
            // The limit of memory and swap together may not be below the limit of memory alone, so
            // it is set second.
            let both = bytes.saturating_add(swap_bytes);
            ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", both)
        }
        Version::V2 => ("memory.max", "memory.swap.max", swap_bytes),
    };
    write(&folder.join(file), &bytes.to_string())?;
    let swap_file = folder.join(swap_file);
    // The file is missing where swap is not accounted.
    if swap_file.exists() {
        write(&swap_file, &swap.to_string())
    } else if swap_bytes == 0 {
        Ok(())
    } else {
        Err(format!(
            "{} is missing: this kernel does not limit swap; boot it with swapaccount=1",
            swap_file.display()
        ))
    }
}

/// The folder in which a version 2 group with this controller can be made.
///
/// A group that has processes cannot pass controllers on ("no internal processes", kernel doc
/// cgroup-v2), and the agent's own group has the agent. So the first try is a sibling of the
/// agent's own group, where the controller is already on.
fn delegated_parent(
    tree: &Tree,
    location: &Location,
    controller: &str,
    may_move: bool,
) -> Result<PathBuf, String> {
    let passes = |folder: &str| {
        tree.text(&format!("{folder}/cgroup.subtree_control"))
            .is_some_and(|list| list.split_whitespace().any(|name| name == controller))
    };
    let usable = |folder: &str| passes(folder) && writable(&tree.path(folder));
    if usable(&location.own) {
        return Ok(location.own.clone().into());
    }
    if let Some(parent) = location.parent().filter(|parent| usable(parent)) {
        return Ok(parent.into());
    }
    enable(tree, &location.own, controller, may_move)?;
    Ok(location.own.clone().into())
}

fn writable(folder: &Path) -> bool {
    nix::unistd::access(folder, nix::unistd::AccessFlags::W_OK).is_ok()
}

/// Turn a controller on below a group that is delegated to this user.
///
/// If processes are in the way, they move (with `may_move`) into a new group below it, which
/// changes nothing for them; container engines do the same.
fn enable(tree: &Tree, own: &str, controller: &str, may_move: bool) -> Result<(), String> {
    let available = tree
        .text(&format!("{own}/cgroup.controllers"))
        .unwrap_or_default();
    if !available.split_whitespace().any(|name| name == controller) {
        return Err(format!(
            "the {controller} controller is not delegated to {own}; {NOT_DELEGATED}"
        ));
    }
    let own = tree.path(own);
    let control = own.join("cgroup.subtree_control");
    let word = format!("+{controller}");
    let Err(error) = fs::write(&control, &word) else {
        return Ok(());
    };
    if error.kind() == io::ErrorKind::ResourceBusy && may_move {
        move_processes(&own).map_err(|error| explain("cannot empty", &own, &error))?;
        return write(&control, &word);
    }
    Err(explain(
        &format!("cannot turn {controller} on in"),
        &control,
        &error,
    ))
}

/// Turn another controller on for a group that was made for an earlier one.
fn pass_on(folder: &Path, controller: &str) -> Result<(), String> {
    let on = fs::read_to_string(folder.join("cgroup.controllers")).unwrap_or_default();
    if on.split_whitespace().any(|name| name == controller) {
        return Ok(());
    }
    let control = folder.with_file_name("cgroup.subtree_control");
    write(&control, &format!("+{controller}"))
}

fn move_processes(own: &Path) -> io::Result<()> {
    let callers = own.join(CALLERS);
    match fs::create_dir(&callers) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    for process in fs::read_to_string(own.join("cgroup.procs"))?.lines() {
        // A process that has ended meanwhile is not in the way.
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
        delegated_parent(tree, &locate(tree, "memory").unwrap(), "memory", true)
    }

    fn written(version: Version, swap_bytes: u64, files: [&str; 2]) -> Result<Vec<String>, String> {
        let folder = tempfile::tempdir().unwrap();
        for name in files {
            fs::write(folder.path().join(name), "").unwrap();
        }
        set_memory_limit(folder.path(), version, 100, swap_bytes)?;
        let texts = files.map(|name| fs::read_to_string(folder.path().join(name)).unwrap());
        Ok(texts.into())
    }

    #[test]
    fn swap_is_beside_memory() {
        let v1 = ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"];
        let v2 = ["memory.max", "memory.swap.max"];
        let limits = |memory: &str, swap: &str| Ok(vec![memory.to_owned(), swap.to_owned()]);
        assert_eq!(written(Version::V1, 30, v1), limits("100", "130"));
        assert_eq!(written(Version::V1, 0, v1), limits("100", "100"));
        assert_eq!(written(Version::V2, 30, v2), limits("100", "30"));
        assert_eq!(written(Version::V2, 0, v2), limits("100", "0"));
        let none = [v2[0], "other"];
        assert_eq!(written(Version::V2, 0, none), limits("100", ""));
        assert!(
            written(Version::V2, 30, none)
                .unwrap_err()
                .contains("swapaccount=1")
        );
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
        let message = CommandGroup::default()
            .limit_memory(&tree, 1 << 20, 0)
            .unwrap_err();
        assert!(
            message.contains("not delegated") && message.contains("systemd-run"),
            "{message}"
        );
        let message = CommandGroup::default()
            .limit_memory(&Tree::at("/nonexistent"), 1 << 20, 0)
            .unwrap_err();
        assert!(message.contains("no memory control group"), "{message}");
    }
}
