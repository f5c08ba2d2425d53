//! Signals that end the program, with everything restored.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

const ENDING: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];

/// Blocked signals, which are read instead of delivered.
#[derive(Debug)]
pub struct Ending(SignalFd);

impl Ending {
    /// Block the signals from here on. Call this before other threads start; otherwise those
    /// threads would receive them.
    ///
    /// Fails with the errno of the system call.
    pub fn take() -> Result<Self, Errno> {
        let set = SigSet::from_iter(ENDING);
        set.thread_block()?;
        SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC).map(Self)
    }

    /// Wait for this time; true as soon as a signal has come.
    ///
    /// Fails with the errno of the system call.
    pub fn comes_within(&self, time: Duration) -> Result<bool, Errno> {
        // Rounded up, so that the time is over afterwards.
        let millis = i32::try_from(time.as_micros().div_ceil(1000)).unwrap_or(i32::MAX);
        let timeout = PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(self.as_fd(), PollFlags::POLLIN)], timeout) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::EINTR) => Ok(false),
            Err(errno) => Err(errno),
        }
    }
}

impl AsFd for Ending {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
