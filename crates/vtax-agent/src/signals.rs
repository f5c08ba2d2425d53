//! The signals that the agent takes as events instead of being interrupted by them.

use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// Signals that ask the agent to end.
const ENDING: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];

/// A descriptor that is readable when a child changed or the agent is asked to end.
#[derive(Debug)]
pub struct Signals {
    descriptor: SignalFd,
}

impl Signals {
    /// Block the signals and take them from the descriptor from now on.
    ///
    /// Fails with the errno of the system call.
    pub fn take() -> Result<Self, Errno> {
        let mut set = SigSet::from_iter(ENDING);
        set.add(Signal::SIGCHLD);
        set.thread_block()?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        Ok(Self {
            descriptor: SignalFd::with_flags(&set, flags)?,
        })
    }

    /// Take all pending signals; returns the one that asks the agent to end, if any.
    ///
    /// SIGCHLD needs no answer: the code that waits for children asks the kernel about them.
    ///
    /// Fails with the errno of the system call.
    pub fn drain(&self) -> Result<Option<i32>, Errno> {
        let mut ending = None;
        while let Some(signal) = self.descriptor.read_signal()? {
            let number = signal.ssi_signo.cast_signed();
            if ENDING.iter().any(|known| *known as i32 == number) {
                ending = Some(number);
            }
        }
        Ok(ending)
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}
