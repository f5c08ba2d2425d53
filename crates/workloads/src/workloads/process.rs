//! Waiting for children.

use nix::errno::Errno;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

use vtax_sys::terminal::Error;

/// What to do when no process can be forked.
pub const FORK_REMEDY: &str = "see ulimit -u and the memory that is left";

/// Reap a child; returns its exit code, or `None` if a signal ended it.
///
/// Fails when this process has no such child, or has reaped it already.
pub fn wait(child: Pid) -> Result<Option<i32>, Error> {
    loop {
        match waitpid(child, None) {
            Ok(WaitStatus::Exited(_, code)) => return Ok(Some(code)),
            Ok(WaitStatus::Signaled(..)) => return Ok(None),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(Error::system("waitpid", errno, "try again")),
        }
    }
}
