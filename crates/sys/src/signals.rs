//! Signals that a program takes from a descriptor instead of being interrupted by them.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// Signals that ask a program to end.
pub const ENDING: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];

/// A descriptor that is readable when a signal is pending.
#[derive(Debug)]
pub struct Signals(SignalFd);

impl Signals {
    /// Take the signals of [`ENDING`], and `others`, from now on.
    ///
    /// To be called before other threads start: they would be interrupted. Fails with the errno of
    /// the system call.
    pub fn take(others: &[Signal]) -> Result<Self, Errno> {
        let set = ENDING.iter().chain(others).copied().collect::<SigSet>();
        set.thread_block()?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        SignalFd::with_flags(&set, flags).map(Self)
    }

    /// Take one signal, if any is pending.
    ///
    /// Fails with the errno of the system call.
    pub fn next(&self) -> Result<Option<Signal>, Errno> {
        let read = self.0.read_signal()?;
        read.map(|signal| Signal::try_from(signal.ssi_signo.cast_signed()))
            .transpose()
    }

    /// Take all pending signals; returns the last one that asks for the end.
    ///
    /// Fails with the errno of the system call.
    pub fn drain(&self) -> Result<Option<Signal>, Errno> {
        let mut last = None;
        while let Some(signal) = self.next()? {
            if ENDING.contains(&signal) {
                last = Some(signal);
            }
        }
        Ok(last)
    }

    /// Take one signal; wait for it until `then`.
    ///
    /// Fails with the errno of the system call.
    pub fn wait_until(&self, then: Instant) -> Result<Option<Signal>, Errno> {
        loop {
            let left = then.saturating_duration_since(Instant::now());
            let mut entries = [PollFd::new(self.as_fd(), PollFlags::POLLIN)];
            match poll(&mut entries, timeout(left)) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
            let signal = self.next()?;
            if signal.is_some() || Instant::now() >= then {
                return Ok(signal);
            }
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The timeout of poll(2) for this time, rounded up to milliseconds: the time is over afterwards.
pub fn timeout(time: Duration) -> PollTimeout {
    PollTimeout::try_from(time.as_micros().div_ceil(1000)).unwrap_or(PollTimeout::MAX)
}

#[cfg(test)]
mod tests {
    use nix::sys::signal::raise;

    use super::*;

    #[test]
    fn signals_come_one_by_one_or_all_at_once() {
        // Blocked in this test's thread alone, to which `raise` sends them.
        let signals = Signals::take(&[Signal::SIGUSR1]).unwrap();
        assert_eq!(signals.next().unwrap(), None);
        let soon = || Instant::now() + Duration::from_millis(1);
        assert_eq!(signals.wait_until(soon()).unwrap(), None);
        raise(Signal::SIGUSR1).unwrap();
        let far = Instant::now() + Duration::from_secs(600);
        assert_eq!(signals.wait_until(far).unwrap(), Some(Signal::SIGUSR1));
        raise(Signal::SIGUSR1).unwrap();
        assert_eq!(signals.drain().unwrap(), None);
        raise(Signal::SIGTERM).unwrap();
        raise(Signal::SIGUSR1).unwrap();
        assert_eq!(signals.drain().unwrap(), Some(Signal::SIGTERM));
        assert_eq!(signals.next().unwrap(), None);
    }

    #[test]
    fn a_timeout_is_never_shorter_than_the_time() {
        for (micros, millis) in [(0, 0), (1, 1), (1000, 1), (1001, 2)] {
            let expected = PollTimeout::try_from(millis).unwrap();
            assert_eq!(timeout(Duration::from_micros(micros)), expected);
        }
        assert_eq!(timeout(Duration::MAX), PollTimeout::MAX);
    }
}
