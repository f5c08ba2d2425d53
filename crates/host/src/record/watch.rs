//! Waiting: for the next time to empty the rings, a signal, or the end of processes.

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
    /// Those whose end has not been seen.
    processes: Vec<OwnedFd>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Found {
    /// The signal that asks for the end.
    pub signal: Option<Signal>,
    /// All watched processes have ended.
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
            processes: Vec::new(),
        })
    }

    /// Also watch a process.
    pub fn process(&mut self, descriptor: OwnedFd) {
        self.processes.push(descriptor);
    }

    /// Wait for one of them, until `hotplug` is readable, or until the time is up.
    ///
    /// Fails with the errno of the system call.
    pub fn wait(
        &mut self,
        limit: Duration,
        hotplug: Option<BorrowedFd<'_>>,
    ) -> Result<Found, Errno> {
        // One at a time: the end of the others is found when their turn comes.
        let process = self.processes.last().map(AsFd::as_fd);
        let signals = self.signals.as_fd();
        // A missing descriptor is replaced by the signals' descriptor, and its result is ignored.
        let mut entries = [Some(signals), process, hotplug]
            .map(|fd| PollFd::new(fd.unwrap_or(signals), PollFlags::POLLIN));
        match poll(&mut entries, timeout(limit)) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
        let [_, ended, changed] = entries.map(|entry| entry.any().unwrap_or(false));
        let ended = ended && process.is_some();
        if ended {
            self.processes.pop();
        }
        Ok(Found {
            signal: self.signals.next()?,
            ended: ended && self.processes.is_empty(),
            hotplug: changed && hotplug.is_some(),
        })
    }
}
