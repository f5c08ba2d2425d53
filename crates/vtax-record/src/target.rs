//! Whose events are counted: everything, processes, virtual machines, or a command.

use std::ffi::{CString, OsString};
use std::fs;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, pipe2, write};

use vtax_cli::Error;
use vtax_sys::calls::children::{ChildSetup, fork_gated};
use vtax_sys::confine::Confinement;
use vtax_sys::tree::Tree;

/// How long a command may take to tidy up, as long as in the agent.
const TERM_PATIENCE: Duration = Duration::from_secs(2);
const TERM_ROUND: Duration = Duration::from_millis(20);

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
pub fn machines(tree: &Tree) -> Vec<i32> {
    let mut found = tree.processes();
    found.retain(|process| tree.kvm_descriptors(*process).is_some());
    found
}

/// A process and all that descends from it, parents before children.
pub fn family(tree: &Tree, process: i32) -> Vec<i32> {
    let parents: Vec<(i32, i32)> = tree
        .processes()
        .into_iter()
        .filter_map(|child| Some((child, tree.stat(child)?.parent)))
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
    /// Fork the command under its limits and hold it just before exec.
    ///
    /// Fails when an argument holds a zero byte, or when the kernel refuses a pipe or a process.
    pub fn start(argv: &[OsString], confinement: &Confinement) -> Result<Self, Error> {
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
        let setup = ChildSetup {
            file_limit_bytes: None,
            user_processes: confinement.user_processes(),
            cgroup_procs: confinement.procs(),
        };
        let process = fork_gated(&arguments, gate_read.as_fd(), report_write.as_fd(), &setup)
            .map_err(system)?;
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

/// Ask a command that still runs to end, and wait a while: `mpirun` and others tidy up then.
pub fn ask_to_end(child: Pid) {
    let _ = kill(child, Signal::SIGTERM);
    let deadline = Instant::now() + TERM_PATIENCE;
    while ended(child).is_none() && Instant::now() < deadline {
        sleep(TERM_ROUND);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(family(&Tree::at(root.path()), 70), [70, 5, 80]);
        assert_eq!(family(&Tree::at(root.path()), 99), [99]);
    }
}
