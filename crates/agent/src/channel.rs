//! The byte channel on which requests come and answers go.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::termios::{SetArg, cfmakeraw, tcgetattr, tcsetattr};
use serde_json::Value;

use crate::frame::{Line, MAX_FRAME_BYTES, Splitter};
use crate::request;
use crate::supervise::{Step, Watch};
use vtax_sys::calls::descriptors;

const READ_BYTES: usize = 1 << 16;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChannelSpec {
    /// Standard input and output.
    Standard,
    /// `fd:N`: a descriptor that the parent left open.
    Descriptor(RawFd),
    /// A device or socket in the file system.
    Path(PathBuf),
}

impl FromStr for ChannelSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("fd:") {
            Some(number) => match number.parse() {
                Ok(number) if number >= 0 => Ok(Self::Descriptor(number)),
                _ => Err(format!("'{number}' is not a descriptor's number")),
            },
            None => Ok(Self::Path(text.into())),
        }
    }
}

/// The channel, open. The peer has gone when [`Watch::ready`] says so or a `send` fails.
#[derive(Debug)]
pub struct Channel {
    input: File,
    /// The output, where it is not the input as well.
    output: Option<File>,
    splitter: Splitter,
    waiting: VecDeque<Line>,
    waiting_bytes: usize,
    lease: Option<Lease>,
    announced: Option<u64>,
}

/// The channel counts as ended when nothing came for `length`.
#[derive(Debug, Clone, Copy)]
struct Lease {
    length: Duration,
    until: Instant,
}

impl Channel {
    /// Open the channel; a terminal is set raw, without echo.
    ///
    /// Fails with the error of the file or descriptor.
    pub fn open(spec: &ChannelSpec) -> io::Result<Self> {
        let (input, output) = match spec {
            ChannelSpec::Standard => {
                let input = io::stdin().as_fd().try_clone_to_owned()?;
                let output = io::stdout().as_fd().try_clone_to_owned()?;
                (input.into(), Some(output.into()))
            }
            ChannelSpec::Descriptor(number) => (descriptors::inherited(*number)?.into(), None),
            ChannelSpec::Path(path) => (open_device(path)?, None),
        };
        let channel = Self {
            input,
            output,
            splitter: Splitter::default(),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            lease: None,
            announced: None,
        };
        if channel.input.is_terminal() {
            make_raw(channel.input.as_fd())?;
        }
        Ok(channel)
    }

    /// Use a descriptor that is both read and written, such as a socket.
    pub fn on(descriptor: OwnedFd) -> Self {
        Self {
            input: descriptor.into(),
            output: None,
            splitter: Splitter::default(),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            lease: None,
            announced: None,
        }
    }

    /// Let the channel end when nothing came for `length`, also while an answer cannot be sent.
    ///
    /// Fails when the channel cannot be made non-blocking.
    pub fn with_lease(mut self, length: Duration) -> io::Result<Self> {
        let until = Instant::now() + length;
        self.lease = Some(Lease { length, until });
        let output = self.output.as_ref().unwrap_or(&self.input);
        let flags = OFlag::from_bits_retain(fcntl(output, FcntlArg::F_GETFL)?);
        fcntl(output, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
        Ok(self)
    }

    /// Has nobody the other end open?
    pub fn has_hung_up(&self) -> bool {
        let mut entry = [PollFd::new(self.input.as_fd(), PollFlags::empty())];
        poll(&mut entry, PollTimeout::ZERO).is_ok_and(|_| {
            entry[0]
                .revents()
                .is_some_and(|events| events.contains(PollFlags::POLLHUP))
        })
    }

    /// The next line that has come.
    pub fn next_line(&mut self) -> Option<Line> {
        let line = self.waiting.pop_front()?;
        self.waiting_bytes -= size(&line);
        Some(line)
    }

    /// Announce what a command does under this request's number; `None` announces nothing.
    pub fn announce_as(&mut self, request: Option<u64>) {
        self.announced = request;
    }

    /// Send one frame.
    ///
    /// Fails with the error of the file or descriptor.
    pub fn send(&mut self, frame: &Value) -> io::Result<()> {
        let mut bytes = frame.to_string().into_bytes();
        bytes.push(b'\n');
        let until = self.lease.map(|lease| Instant::now() + lease.length);
        let output = self.output.as_mut().unwrap_or(&mut self.input);
        match until {
            None => output.write_all(&bytes),
            Some(until) => write_until(output, &bytes, until),
        }
    }
}

impl Watch for Channel {
    /// With a full queue only a hang-up matters (poll reports it unasked), so that a sender cannot
    /// make the agent grow.
    fn poll_for(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        let events = if self.waiting_bytes < MAX_FRAME_BYTES {
            PollFlags::POLLIN
        } else {
            PollFlags::empty()
        };
        Some((self.input.as_fd(), events))
    }

    /// Read what is there; true at the end of the channel.
    fn ready(&mut self) -> bool {
        if self.waiting_bytes >= MAX_FRAME_BYTES {
            return true;
        }
        let mut bytes = vec![0; READ_BYTES];
        match self.input.read(&mut bytes) {
            Ok(count) if count > 0 => {
                if let Some(lease) = &mut self.lease {
                    lease.until = Instant::now() + lease.length;
                }
                for line in self.splitter.push(&bytes[..count]) {
                    // An empty line asks for nothing: it renews a lease or wakes the machine.
                    if line == Line::Whole(Vec::new()) {
                        continue;
                    }
                    self.waiting_bytes += size(&line);
                    self.waiting.push_back(line);
                }
                false
            }
            Err(error) => !matches!(
                error.kind(),
                io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock
            ),
            Ok(_) => true,
        }
    }

    fn deadline(&self) -> Option<Instant> {
        self.lease.map(|lease| lease.until)
    }

    fn announce(&mut self, step: Step) -> bool {
        self.announced
            .is_none_or(|id| self.send(&request::progress(id, step)).is_ok())
    }
}

/// Write everything to a non-blocking descriptor; an error when the descriptor takes nothing until
/// `until`.
fn write_until(output: &mut File, mut bytes: &[u8], until: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        match output.write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                let millis = u16::try_from(left.as_millis() + 1).unwrap_or(u16::MAX);
                let mut entry = [PollFd::new(output.as_fd(), PollFlags::POLLOUT)];
                match poll(&mut entry, PollTimeout::from(millis)) {
                    Ok(_) | Err(Errno::EINTR) => {}
                    Err(errno) => return Err(errno.into()),
                }
                // A virtio-serial port whose host is gone takes nothing, and poll does not wait.
                if entry[0].revents() == Some(PollFlags::POLLHUP) {
                    return Err(io::ErrorKind::BrokenPipe.into());
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The memory that a waiting line counts for, also a line that was too long to be kept.
fn size(line: &Line) -> usize {
    match line {
        Line::Whole(bytes) => bytes.len() + size_of::<Line>(),
        Line::TooLong => size_of::<Line>(),
    }
}

fn open_device(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NOCTTY)
        .open(path)
}

/// No echo, no line editing, no signals: bytes as they are (termios(3), `cfmakeraw`).
fn make_raw(terminal: BorrowedFd<'_>) -> Result<(), Errno> {
    let mut settings = tcgetattr(terminal)?;
    cfmakeraw(&mut settings);
    tcsetattr(terminal, SetArg::TCSANOW, &settings)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn specs() {
        assert_eq!("fd:3".parse(), Ok(ChannelSpec::Descriptor(3)));
        assert_eq!(
            "/dev/ttyS0".parse(),
            Ok(ChannelSpec::Path("/dev/ttyS0".into()))
        );
        assert!("fd:x".parse::<ChannelSpec>().is_err());
        assert!("fd:-1".parse::<ChannelSpec>().is_err());
    }

    #[test]
    fn empty_lines_renew_the_lease_and_ask_for_nothing() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let lease = Duration::from_secs(5);
        let mut channel = Channel::on(theirs.into()).with_lease(lease).unwrap();
        let first = channel.deadline().unwrap();
        ours.write_all(b"\n\n{}\n").unwrap();
        assert!(!channel.ready());
        assert_eq!(channel.next_line(), Some(Line::Whole(b"{}".to_vec())));
        assert_eq!(channel.next_line(), None);
        assert!(channel.deadline().unwrap() > first);
    }

    #[test]
    fn an_end_that_nobody_holds_is_told() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let channel = Channel::on(theirs.into());
        assert!(!channel.has_hung_up());
        drop(ours);
        assert!(channel.has_hung_up());
    }

    #[test]
    fn an_answer_that_nobody_takes_ends_with_the_lease() {
        let (_ours, theirs) = UnixStream::pair().unwrap();
        let lease = Duration::from_millis(50);
        let mut channel = Channel::on(theirs.into()).with_lease(lease).unwrap();
        let frame = serde_json::json!({ "data": "x".repeat(8 << 20) });
        let error = channel.send(&frame).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn a_flood_is_not_read_but_its_end_is_noticed() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let mut channel = Channel::on(theirs.into());
        ours.set_nonblocking(true).unwrap();
        while channel.waiting_bytes < MAX_FRAME_BYTES {
            let _ = ours.write("x\n".repeat(2048).as_bytes());
            assert!(!channel.ready());
        }
        assert_eq!(channel.poll_for().unwrap().1, PollFlags::empty());
        while channel.next_line().is_some() {}
        assert_eq!(channel.waiting_bytes, 0);
        drop(ours);
        while !channel.ready() {}
    }
}
