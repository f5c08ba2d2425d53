//! Waiting for the end: a signal, or the end of standard input.

use std::io::{self, Read};
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;

use vtax_sys::signals::Signals;

/// What ends a slow-down.
#[derive(Debug)]
pub struct End(Signals);

impl End {
    /// Take the signals from now on, one of them at the end of the thread that started this process.
    /// To be called before other threads start, which would take them else.
    ///
    /// Fails with the errno of the system call.
    pub fn new() -> Result<Self, Errno> {
        let ending = Signals::take(&[])?;
        set_pdeathsig(Signal::SIGTERM)?;
        Ok(Self(ending))
    }

    /// Return when it is time to end.
    ///
    /// Fails with the errno of the system call.
    pub fn wait(&self) -> Result<(), Errno> {
        let stdin = io::stdin();
        loop {
            let mut entries =
                [self.0.as_fd(), stdin.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
            match poll(&mut entries, PollTimeout::NONE) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
            let [signal, input] = entries.map(|entry| entry.any().unwrap_or(false));
            // A closed input reads as nothing; what is typed means nothing.
            if signal || (input && io::stdin().read(&mut [0; 512]).unwrap_or(0) == 0) {
                return Ok(());
            }
        }
    }
}
