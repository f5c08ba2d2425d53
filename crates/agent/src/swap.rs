//! Swap for processes below this process, which lasts as long as this process.

use std::env;
use std::ffi::OsString;
use std::os::fd::AsFd;
use std::path::PathBuf;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use vtax_sys::calls::children::{ChildSetup, End, Image};
use vtax_sys::cgroup;
use vtax_sys::gated::{Gated, c_string};
use vtax_sys::signals::Signals;
use vtax_sys::swap::{self, Kind, Swap};
use vtax_sys::terminal::Error;
use vtax_sys::tree::Tree;

use crate::launch::find_program;
use crate::memory::leave;

#[derive(Debug, Clone)]
pub struct SwapOptions {
    pub bytes: u64,
    /// What the swap is on.
    pub kind: Kind,
    /// The folder in which swap is made or recorded, and in which leftovers of killed agents are
    /// looked for.
    pub folder: PathBuf,
}

/// Make the swap, after what killed agents left is removed.
///
/// Fails when the machine does not let this process make it.
pub fn made(options: &SwapOptions) -> Result<Swap, Error> {
    let tree = Tree::host();
    // The memory of these groups may be swapped out: their processes end first.
    cgroup::sweep::sweep(&tree);
    swap::sweep(&tree, &options.folder);
    Swap::on(&tree, &options.folder, options.bytes, options.kind)
        .map_err(|refused| Error::failure("--swap", refused.reason, refused.remedy))
}

/// Run a command with swap for as long as it runs, and end as the command ends.
///
/// A signal that asks this process to end is passed on to the command; the command is killed when
/// this process dies, and this process is asked to end when its parent dies.
///
/// Fails when the swap cannot be made, and when the command cannot be started.
pub fn run(options: &SwapOptions, argv: &[OsString]) -> Result<(), Error> {
    let failed = |errno: Errno| Error::system("with-swap", errno, "this is a fault of the machine");
    let signals = Signals::take(&[Signal::SIGCHLD]).map_err(failed)?;
    set_pdeathsig(Signal::SIGTERM).map_err(failed)?;
    let swap = made(options)?;
    let end = wait(start(argv)?, &signals).map_err(failed)?;
    // Only at this point is nothing swapped out any more.
    drop(swap);
    leave(end)
}

fn start(argv: &[OsString]) -> Result<Pid, Error> {
    let thing = || format!("run {}", argv[0].display());
    let failed = |reason: String| Error::failure(thing(), reason, "check the command line");
    let path = env::var_os("PATH");
    let here = env::current_dir().map_err(|error| failed(error.to_string()))?;
    let found = find_program(&argv[0], path.as_deref(), &here).map_err(failed)?;
    let variables = env::vars_os().map(|(name, value)| {
        let line = [name, "=".into(), value].into_iter();
        c_string(line.collect::<OsString>())
    });
    let held = || {
        let words = argv.iter().map(c_string).collect::<Result<_, _>>()?;
        let image = Image::new(
            c_string(found)?,
            words,
            variables.collect::<Result<_, _>>()?,
        );
        let released = Gated::hold(&image, &ChildSetup::default())?.release()?;
        let process = released.process;
        released.refusal().map_or(Ok(process), Err)
    };
    held().map_err(|errno: Errno| failed(errno.desc().to_owned()))
}

fn wait(child: Pid, signals: &Signals) -> Result<End, Errno> {
    loop {
        match waitpid(child, Some(WaitPidFlag::WNOHANG))? {
            WaitStatus::Exited(_, code) => return Ok(End::Exited(code)),
            WaitStatus::Signaled(_, signal, _) => return Ok(End::Signaled(signal as i32)),
            _ => {}
        }
        let mut entries = [PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        match poll(&mut entries, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
        if signals.drain()?.is_some() {
            // An error means that the process has ended, which the next round finds.
            let _ = kill(child, Signal::SIGTERM);
        }
    }
}
