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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Found {
    /// The signal that asks for the end.
    pub signal: Option<Signal>,
    pub ended: bool,
    /// The descriptor for hotplug messages is readable.
    pub hotplug: bool,
}

impl Watch {
    /// Handle the signals from here on.
    ///
    /// Fails with the errno of the system call.
    pub fn new() -> Result<Self, Errno> {
        Ok(Self {
            signals: Signals::take(&[])?,
            process: None,
        })
    }

    /// Also watch a process.
    pub fn process(&mut self, descriptor: OwnedFd) {
        self.process = Some(descriptor);
    }

    /// Wait for one of them, until `hotplug` is readable, or until the time is up.
    ///
    /// Fails with the errno of the system call.
    pub fn wait(&self, limit: Duration, hotplug: Option<BorrowedFd<'_>>) -> Result<Found, Errno> {
        let process = self.process.as_ref().map(AsFd::as_fd);
        let signals = self.signals.as_fd();
        // A missing descriptor is replaced by the signals' descriptor, and its result is ignored.
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
