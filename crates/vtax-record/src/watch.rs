//! Waiting: for the next time to empty the rings, a signal, or the end of a process.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::signal::Signal;
use vtax_sys::signals::{Signals, timeout};

/// What can end a recording.
#[derive(Debug)]
pub struct Watch {
    signals: Signals,
    process: Option<OwnedFd>,
}

/// What a wait has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Found {
    /// The signal that asks for the end.
    pub signal: Option<Signal>,
    /// The watched process has ended.
    pub ended: bool,
    /// The other descriptor is readable.
    pub hotplug: bool,
}

impl Watch {
    /// Take the signals from now on.
    ///
    /// Fails with the errno of the system call.
    pub fn new() -> Result<Self, Errno> {
        Ok(Self {
            signals: Signals::take(&[])?,
            process: None,
        })
    }

    /// Watch a process as well.
    pub fn process(&mut self, descriptor: OwnedFd) {
        self.process = Some(descriptor);
    }

    /// Wait for any of it, for what makes `hotplug` readable, or until the time is up.
    ///
    /// Fails with the errno of the system call.
    pub fn wait(&self, limit: Duration, hotplug: Option<BorrowedFd<'_>>) -> Result<Found, Errno> {
        let process = self.process.as_ref().map(AsFd::as_fd);
        let signals = self.signals.as_fd();
        // What is not there is stood for by the signals, and not looked at.
        let mut entries = [Some(signals), process, hotplug]
            .map(|fd| PollFd::new(fd.unwrap_or(signals), PollFlags::POLLIN));
        match poll(&mut entries, timeout(limit)) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
        let [_, ended, changed] = entries.map(|entry| entry.any().unwrap_or(false));
        Ok(Found {
            signal: self.signals.next()?,
            ended: ended && process.is_some(),
            hotplug: changed && hotplug.is_some(),
        })
    }
}
