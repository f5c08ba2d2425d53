//! `vtax-agent run`: one command, measured as by the protocol's `run`.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::facts;
use crate::launch::Launch;
use crate::run_answer::RunAnswer;
use crate::serve::{pin, steal_cpus};
use crate::supervise::{Nothing, RunError, Supervisor, Terms};
use vtax_sys::confine::{Confinement, Limits};
use vtax_sys::reason;
use vtax_sys::terminal::Error;
use vtax_sys::tree::Tree;

#[derive(Debug, Clone)]
pub struct RunOptions {
    /// Program and arguments; not empty.
    pub argv: Vec<OsString>,
    /// Time after which the command is killed.
    pub timeout: Option<Duration>,
    /// Working folder; `None`: the caller's.
    pub cwd: Option<PathBuf>,
    /// File for the standard output; `None`: the agent's standard error.
    pub stdout: Option<PathBuf>,
    /// File for the standard error; `None`: the agent's standard error.
    pub stderr: Option<PathBuf>,
    /// CPUs to run on.
    pub cpus: Option<Vec<usize>>,
    /// Limits of memory and processes.
    pub limits: Limits,
    /// Count instructions and cycles.
    pub count: bool,
}

/// Run a command and say what it used.
///
/// Fails when the CPUs or the memory limit cannot be set, when the working folder, an output file
/// or the program cannot be used, when a process does not end, and with `Interrupted` when a signal
/// comes first.
pub fn run(options: RunOptions) -> Result<RunAnswer, Error> {
    if let Some(cpus) = &options.cpus {
        pin(cpus)?;
    }
    let tree = Tree::host();
    let (confinement, refused) = Confinement::new(&tree, options.limits);
    if let Some(reason) = refused.memory {
        return Err(Error::failure(
            "--memory",
            reason,
            "or run without --memory",
        ));
    }
    if let Some(reason) = refused.processes {
        eprintln!("vtax-agent: --pids: {reason}");
    }
    let steal = steal_cpus(&facts::gather(&tree), &tree);
    let thing = format!("run {}", options.argv[0].display());
    let launch = launch(&options)?;
    let mut supervisor =
        Supervisor::new(tree, steal, confinement).map_err(|error| failed(&thing, &error))?;
    supervisor
        .run(
            launch,
            Terms {
                timeout: options.timeout,
                leave: false,
                count: options.count,
            },
            &mut Nothing,
        )
        .map_err(|error| failed(&thing, &error))
}

fn launch(options: &RunOptions) -> Result<Launch, Error> {
    let cwd = match &options.cwd {
        Some(folder) if folder.is_dir() => folder.clone(),
        Some(folder) => {
            let thing = format!("--cwd {}", folder.display());
            return Err(Error::misuse(thing, "it is not a folder", "make it first"));
        }
        None => std::env::current_dir().map_err(|error| {
            Error::failure("working folder", reason(&error), "choose one with --cwd")
        })?,
    };
    Ok(Launch {
        argv: options.argv.clone(),
        env: std::env::vars_os().collect(),
        cwd,
        stdin: File::open("/dev/null")
            .map_err(|error| Error::failure("/dev/null", reason(&error), "make the device"))?
            .into(),
        stdout: output("--stdout", options.stdout.as_deref())?,
        stderr: output("--stderr", options.stderr.as_deref())?,
        file_limit_bytes: None,
    })
}

fn output(option: &str, path: Option<&Path>) -> Result<OwnedFd, Error> {
    let opened = match path {
        Some(path) => File::create(path).map(OwnedFd::from),
        None => io::stderr().as_fd().try_clone_to_owned(),
    };
    opened.map_err(|error| {
        Error::failure(option, reason(&error), "choose a file that can be written")
    })
}

fn failed(thing: &str, error: &RunError) -> Error {
    match error {
        RunError::Signal(signal) => Error::Interrupted(*signal),
        RunError::Spawn(reason) => Error::failure(thing, reason, "check the command line"),
        other => Error::failure(thing, other, "this is a fault of the machine, see dmesg"),
    }
}
