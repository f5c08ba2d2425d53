//! Whose events are counted: everything, processes, virtual machines, or a command.

use std::ffi::{CString, OsString};
use std::fs;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, pipe2, write};

use crate::sys;
use vtax_error::Error;

/// What KVM calls the descriptor of a virtual machine.
const VM_DESCRIPTOR: &str = "anon_inode:kvm-vm";

/// Whose events are counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// All CPUs.
    System,
    /// A process, its threads, and all that descends from it, now or later.
    Process(i32),
    /// All virtual machines, or that of one process.
    Machines(Option<i32>),
    /// A command and its children.
    Command(Vec<OsString>),
}

/// Processes that have a virtual machine open.
pub fn machines(root: &Path) -> Vec<i32> {
    numbers(&root.join("proc"))
        .into_iter()
        .filter(|process| {
            let folder = root.join(format!("proc/{process}/fd"));
            let entries = fs::read_dir(folder).into_iter().flatten().flatten();
            entries
                .filter_map(|entry| fs::read_link(entry.path()).ok())
                .any(|link| link.as_os_str() == VM_DESCRIPTOR)
        })
        .collect()
}

/// Is there such a process?
pub fn exists(root: &Path, process: i32) -> bool {
    root.join(format!("proc/{process}/stat")).exists()
}

/// A process and all that descends from it, parents before children.
pub fn family(root: &Path, process: i32) -> Vec<i32> {
    let parents: Vec<(i32, i32)> = numbers(&root.join("proc"))
        .into_iter()
        .filter_map(|child| Some((child, parent(root, child)?)))
        .collect();
    let mut found = vec![process];
    let mut next = 0;
    while let Some(ancestor) = found.get(next).copied() {
        let children = parents.iter().filter(|(_, parent)| *parent == ancestor);
        let fresh: Vec<i32> = children
            .map(|(child, _)| *child)
            .filter(|child| !found.contains(child))
            .collect();
        found.extend(fresh);
        next += 1;
    }
    found
}

fn parent(root: &Path, process: i32) -> Option<i32> {
    let text = fs::read(root.join(format!("proc/{process}/stat"))).ok()?;
    let text = String::from_utf8_lossy(&text);
    // A name may hold anything, parentheses too; the state and the parent follow the last.
    let (_, rest) = text.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(1)?.parse().ok()
}

fn numbers(folder: &Path) -> Vec<i32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<i32> = entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    found.sort_unstable();
    found
}

/// A command that has been started and waits to begin.
#[derive(Debug)]
pub struct Gated {
    /// Its process.
    pub process: Pid,
    gate: OwnedFd,
    report: OwnedFd,
    name: String,
}

impl Gated {
    /// Start the command up to where it would become itself.
    pub fn start(argv: &[OsString]) -> Result<Self, Error> {
        let name = argv
            .first()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        let system = |errno: Errno| Error::failure(&name, errno.desc(), "try again");
        let arguments: Vec<CString> = argv
            .iter()
            .map(|word| CString::new(word.clone().into_vec()))
            .collect::<Result<_, _>>()
            .map_err(|error| Error::misuse(&name, error, "remove the zero byte"))?;
        let (gate_read, gate) = pipe2(OFlag::O_CLOEXEC).map_err(system)?;
        let (report, report_write) = pipe2(OFlag::O_CLOEXEC).map_err(system)?;
        let process =
            sys::fork_gated(&arguments, gate_read.as_fd(), report_write.as_fd()).map_err(system)?;
        Ok(Self {
            process,
            gate,
            report,
            name,
        })
    }

    /// Let it begin; an error when there is no such program.
    pub fn go(self) -> Result<Pid, Error> {
        let failed = |reason: &str| {
            Error::failure(
                format!("command {}", self.name),
                reason,
                "check its name and whether it may be executed",
            )
        };
        write(&self.gate, &[1]).map_err(|errno| failed(errno.desc()))?;
        let mut bytes = Vec::new();
        fs::File::from(self.report)
            .read_to_end(&mut bytes)
            .map_err(|error| failed(&error.to_string()))?;
        match bytes.as_chunks::<4>().0.first() {
            None => Ok(self.process),
            Some(number) => {
                let _ = waitpid(self.process, None);
                Err(failed(Errno::from_raw(i32::from_ne_bytes(*number)).desc()))
            }
        }
    }
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// It called exit with this code.
    ExitCode(i32),
    /// This signal killed it.
    Signal(i32),
    /// It was still running when the recording ended.
    Running,
}

/// How a child ended, if it has.
pub fn ended(child: Pid) -> Option<End> {
    match waitpid(child, Some(WaitPidFlag::WNOHANG)) {
        Ok(WaitStatus::Exited(_, code)) => Some(End::ExitCode(code)),
        Ok(WaitStatus::Signaled(_, signal, _)) => Some(End::Signal(signal as i32)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_processes_with_a_virtual_machine_are_machines() {
        let root = tempfile::tempdir().unwrap();
        for (process, link) in [("70", VM_DESCRIPTOR), ("8", "anon_inode:kvm-vcpu:0")] {
            let folder = root.path().join("proc").join(process).join("fd");
            fs::create_dir_all(&folder).unwrap();
            symlink(link, folder.join("12")).unwrap();
        }
        fs::create_dir_all(root.path().join("proc/sys")).unwrap();
        assert_eq!(machines(root.path()), [70]);
        assert!(!exists(root.path(), 71));
    }

    #[test]
    fn a_family_is_a_process_and_all_that_descends_from_it() {
        let root = tempfile::tempdir().unwrap();
        for (process, name, parent) in [
            (5, "child", 70),
            (70, "a) S 1 (b", 1),
            (71, "other", 1),
            (80, "grandchild", 5),
        ] {
            let folder = root.path().join(format!("proc/{process}"));
            fs::create_dir_all(&folder).unwrap();
            let line = format!("{process} ({name}) S {parent} {process} 0");
            fs::write(folder.join("stat"), line).unwrap();
        }
        assert_eq!(family(root.path(), 70), [70, 5, 80]);
        assert_eq!(family(root.path(), 99), [99]);
    }

    #[test]
    fn this_process_exists() {
        assert!(exists(Path::new("/"), nix::unistd::getpid().as_raw()));
    }
}
