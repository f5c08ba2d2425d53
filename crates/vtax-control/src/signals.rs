//! Signals: those that end the program, and the one that makes it read the policy file again.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// SIGINT or SIGTERM.
    End,
    /// SIGHUP.
    Reload,
}

/// Blocked signals, which are read instead of delivered.
#[derive(Debug)]
pub struct Signals(SignalFd);

impl Signals {
    /// Block the signals from here on. Call this before other threads start; otherwise those
    /// threads would receive them.
    ///
    /// Fails with the errno of the system call.
    pub fn take() -> Result<Self, Errno> {
        let set = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]);
        set.thread_block()?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        SignalFd::with_flags(&set, flags).map(Self)
    }

    /// Wait until then, or for a signal.
    ///
    /// Fails with the errno of the system call.
    pub fn wait_until(&self, then: Instant) -> Result<Option<Asked>, Errno> {
        loop {
            let time = then.saturating_duration_since(Instant::now());
            match self.wait(time) {
                Ok(()) | Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
            if let Some(signal) = self.0.read_signal()? {
                let reload = signal.ssi_signo == Signal::SIGHUP as u32;
                return Ok(Some(if reload { Asked::Reload } else { Asked::End }));
            }
            if Instant::now() >= then {
                return Ok(None);
            }
        }
    }

    fn wait(&self, time: Duration) -> Result<(), Errno> {
        // Rounded up, so that the time is over afterwards.
        let millis = i32::try_from(time.as_micros().div_ceil(1000)).unwrap_or(i32::MAX);
        let timeout = PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX);
        poll(
            &mut [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)],
            timeout,
        )
        .map(drop)
    }
}
