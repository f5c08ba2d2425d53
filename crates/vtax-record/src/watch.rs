//! Waiting: for the next time to empty the rings, a signal, or the end of a process.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// Signals that end a recording, with its files complete.
const ENDING: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];

/// What can end a recording.
#[derive(Debug)]
pub struct Watch {
    signals: SignalFd,
    process: Option<OwnedFd>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Found {
    /// The signal that asks for the end.
    pub signal: Option<i32>,
    pub ended: bool,
    /// The descriptor for hotplug messages is readable.
    pub hotplug: bool,
}

impl Watch {
    /// Handle the signals from here on.
    ///
    /// Fails with the errno of the system call.
    pub fn new() -> Result<Self, Errno> {
        let set = SigSet::from_iter(ENDING);
        set.thread_block()?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        Ok(Self {
            signals: SignalFd::with_flags(&set, flags)?,
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
        let millis = limit.as_micros().div_ceil(1000);
        let timeout = PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX);
        match poll(&mut entries, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
        let [_, ended, changed] = entries.map(|entry| entry.any().unwrap_or(false));
        let signal = self.signals.read_signal()?;
        Ok(Found {
            signal: signal.map(|signal| signal.ssi_signo.cast_signed()),
            ended: ended && process.is_some(),
            hotplug: changed && hotplug.is_some(),
        })
    }
}
