//! Whose events are counted: everything, processes, virtual machines, or a command.

use std::ffi::{CString, OsString};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use vtax_sys::calls::children::{ChildSetup, Image};
use vtax_sys::confine::Confinement;
use vtax_sys::gated::{Gated, c_string};
use vtax_sys::terminal::Error;
use vtax_sys::tree::Tree;

/// How long a command may take to tidy up: as long as in the agent.
const TERM_PATIENCE: Duration = Duration::from_secs(2);
const TERM_ROUND: Duration = Duration::from_millis(20);
/// How long a held command may take to come to rest; it only has to read.
const REST_PATIENCE: Duration = Duration::from_secs(1);
const REST_ROUND: Duration = Duration::from_micros(200);

/// Whose events are counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// All CPUs.
    System,
    /// Processes, their threads, and all their descendants, existing or later.
    Processes(Vec<i32>),
    /// All virtual machines, or the virtual machine of one process.
    Machines(Option<i32>),
    /// A command and its children.
    Command(Vec<OsString>),
}

/// Processes that have an open virtual machine.
pub fn machines(tree: &Tree) -> Vec<i32> {
    let mut found = tree.processes();
    found.retain(|process| tree.kvm_descriptors(*process).is_some());
    found
}

/// A process and its descendants, parents before children.
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

/// Fork a command under its limits and hold it just before exec.
///
/// Fails when an argument holds a zero byte, or when the kernel refuses a pipe or a process.
pub fn hold(argv: &[OsString], confinement: &Confinement) -> Result<Gated, Error> {
    let held = || {
        let arguments: Vec<CString> = argv.iter().map(c_string).collect::<Result<_, _>>()?;
        let environment = std::env::vars_os().map(|(name, value)| {
            let sign = OsString::from("=");
            c_string([name, sign, value].into_iter().collect::<OsString>())
        });
        let program = arguments.first().cloned().ok_or(Errno::ENOENT)?;
        let image = Image::new(program, arguments, environment.collect::<Result<_, _>>()?);
        let setup = ChildSetup {
            user_processes: confinement.user_processes(),
            cgroup_procs: confinement.procs(),
            ..ChildSetup::default()
        };
        Gated::hold(&image, &setup)
    };
    held().map_err(|errno| Error::failure(name(argv), errno.desc(), "try again"))
}

/// Wait until a held command is at rest. What it does before would be counted as its own, now more
/// and now less of it.
pub fn rest(held: &Gated) {
    let deadline = Instant::now() + REST_PATIENCE;
    let sleeps = || {
        Tree::host()
            .stat(held.process.as_raw())
            .map(|stat| stat.sleeping)
    };
    while sleeps() == Some(false) && Instant::now() < deadline {
        sleep(REST_ROUND);
    }
}

/// Let a command begin; an error when the program does not exist.
pub fn go(held: Gated, argv: &[OsString]) -> Result<Pid, Error> {
    let failed = |errno: Errno| refused(argv, errno);
    let released = held.release().map_err(failed)?;
    let process = released.process;
    match released.refusal() {
        None => Ok(process),
        Some(errno) => {
            let _ = waitpid(process, None);
            Err(failed(errno))
        }
    }
}

/// The error of a command that cannot begin.
pub fn refused(argv: &[OsString], errno: Errno) -> Error {
    Error::failure(
        format!("command {}", name(argv)),
        errno.desc(),
        "check its name and whether it may be executed",
    )
}

fn name(argv: &[OsString]) -> String {
    let name = argv.first().map(|name| name.to_string_lossy().into_owned());
    name.unwrap_or_default()
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

/// Ask a command that still runs to end, and wait a while: `mpirun` and others tidy up when asked.
pub fn ask_to_end(child: Pid) {
    let _ = kill(child, Signal::SIGTERM);
    let deadline = Instant::now() + TERM_PATIENCE;
    while ended(child).is_none() && Instant::now() < deadline {
        sleep(TERM_ROUND);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

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
