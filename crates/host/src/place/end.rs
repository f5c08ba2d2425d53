//! Waiting for the end: a signal, or the end of standard input.

use std::io::{self, Read};
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;

use vtax_sys::signals::Signals;
use vtax_sys::terminal::Error;

/// What ends slowing and watching.
#[derive(Debug)]
pub struct End(Signals);

impl End {
    /// Handle the signals from here on; the end of the thread that started this process is one of
    /// them. Call this before other threads start; otherwise those threads would receive them.
    ///
    /// Fails when a system call does.
    pub fn new() -> Result<Self, Error> {
        let failed = |errno| Error::system("signals", errno, "try again");
        let ending = Signals::take(&[]).map_err(failed)?;
        set_pdeathsig(Signal::SIGTERM).map_err(failed)?;
        Ok(Self(ending))
    }

    /// Return when it is time to end.
    ///
    /// Fails when a system call does.
    pub fn wait(&self) -> Result<(), Error> {
        let stdin = io::stdin();
        loop {
            let mut entries =
                [self.0.as_fd(), stdin.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
            match poll(&mut entries, PollTimeout::NONE) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => return Err(Error::system("waiting", errno, "try again")),
            }
            let [signal, input] = entries.map(|entry| entry.any().unwrap_or(false));
            // Closed input reads as an end; typed input means nothing.
            if signal || (input && io::stdin().read(&mut [0; 512]).unwrap_or(0) == 0) {
                return Ok(());
            }
        }
    }
}
