//! What `xentrace` writes, taken from it at once: it ends badly when a signal finds it waiting in a
//! write.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::process::ChildStdout;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use vtax_sys::signals::Signals;

/// The most bytes that wait for the reader until the end is asked for. Then Xen loses records, and
/// counts them.
const MOST_WAITING: usize = 32 << 20;
const READ_BYTES: usize = 1 << 16;
/// How long it waits for room.
const FULL: Duration = Duration::from_millis(10);
/// A smaller pipe does too, where it cannot be as large.
const PIPE_BYTES: i32 = 1 << 20;
/// How long a look at the pipe and for a signal lasts at most, in ms.
const LOOK_MS: u16 = 200;

/// The reader's end. Without it, the spooler ends the writer.
pub(super) struct Reader {
    chunks: Receiver<Vec<u8>>,
    chunk: Vec<u8>,
    used: usize,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// Bytes that wait.
    waiting: AtomicUsize,
    /// Nobody reads any more.
    gone: AtomicBool,
}

/// Takes what comes through the pipe and copies it to `copy`, if any.
pub(super) struct Spooler {
    pipe: ChildStdout,
    signals: Signals,
    copy: Option<File>,
    sender: Sender<Vec<u8>>,
    shared: Arc<Shared>,
}

/// Both ends.
pub(super) fn spool(pipe: ChildStdout, signals: Signals, copy: Option<File>) -> (Reader, Spooler) {
    let _ = fcntl(&pipe, FcntlArg::F_SETPIPE_SZ(PIPE_BYTES));
    let (sender, chunks) = channel();
    let shared = Arc::<Shared>::default();
    let reader = Reader {
        chunks,
        chunk: Vec::new(),
        used: 0,
        shared: Arc::clone(&shared),
    };
    let spooler = Spooler {
        pipe,
        signals,
        copy,
        sender,
        shared,
    };
    (reader, spooler)
}

impl Read for Reader {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        if self.used == self.chunk.len() {
            // Without a spooler, this is the end.
            self.chunk = self.chunks.recv().unwrap_or_default();
            self.used = 0;
            let taken = self.chunk.len();
            self.shared.waiting.fetch_sub(taken, Ordering::Relaxed);
        }
        let count = self
            .chunk
            .get(self.used..)
            .map_or(Ok(0), |mut rest| rest.read(room))?;
        self.used += count;
        Ok(count)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.shared.gone.store(true, Ordering::Relaxed);
    }
}

impl Spooler {
    /// Work until the writer's end. When a signal comes, when nobody reads, and when the copy fails,
    /// call `end` as soon as the pipe is empty.
    ///
    /// Fails when the pipe cannot be read, and when the copy cannot be written.
    pub(super) fn run(mut self, end: impl Fn()) -> io::Result<()> {
        let (mut ending, mut ended, mut copied) = (false, false, Ok(()));
        loop {
            ending |= copied.is_err()
                || self.shared.gone.load(Ordering::Relaxed)
                || !matches!(self.signals.next(), Ok(None));
            let waiting = self.shared.waiting.load(Ordering::Relaxed);
            if waiting > MOST_WAITING && !ending {
                std::thread::sleep(FULL);
                continue;
            }
            // It is asked to end at the first moment in which nothing is in the pipe.
            let wait = if ending && !ended { 0 } else { LOOK_MS };
            if !self.is_readable(wait)? {
                if ending && !ended {
                    end();
                    ended = true;
                }
                continue;
            }
            let mut chunk = vec![0; READ_BYTES];
            let count = self.pipe.read(&mut chunk)?;
            if count == 0 {
                return copied;
            }
            chunk.truncate(count);
            if let (Some(copy), Ok(())) = (&mut self.copy, &copied) {
                copied = copy.write_all(&chunk);
            }
            self.shared.waiting.fetch_add(count, Ordering::Relaxed);
            // It fails when nobody reads.
            let _ = self.sender.send(chunk);
        }
    }

    /// Wait at most this number of milliseconds for something in the pipe, or for a signal.
    fn is_readable(&self, wait_ms: u16) -> io::Result<bool> {
        let mut looked = [
            PollFd::new(self.pipe.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut looked, PollTimeout::from(wait_ms)) {
            Ok(_) | Err(Errno::EINTR) => Ok(looked[0].any().unwrap_or(false)),
            Err(errno) => Err(errno.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    fn shell(script: &str) -> (Child, ChildStdout) {
        let mut line = Command::new("sh");
        line.args(["-c", script]).stdout(Stdio::piped());
        let mut child = line.spawn().unwrap();
        let pipe = child.stdout.take().unwrap();
        (child, pipe)
    }

    #[test]
    fn what_is_written_is_read_and_copied() {
        let (mut child, pipe) = shell("seq 300000");
        let copy = tempfile::NamedTempFile::new().unwrap();
        let (mut reader, spooler) = spool(
            pipe,
            Signals::take(&[]).unwrap(),
            Some(copy.reopen().unwrap()),
        );
        let thread = std::thread::spawn(move || spooler.run(|| ()));
        let mut read = Vec::new();
        reader.read_to_end(&mut read).unwrap();
        thread.join().unwrap().unwrap();
        child.wait().unwrap();
        let mut lines = (1..=300_000).map(|number: u32| number.to_string());
        assert!(str::from_utf8(&read).unwrap().lines().eq(lines.by_ref()));
        assert!(std::fs::read(copy.path()).unwrap() == read);
    }

    #[test]
    fn the_writer_is_ended_when_nobody_reads_or_the_copy_fails() {
        let full = || File::options().write(true).open("/dev/full").ok();
        for (copy, fails) in [(None, false), (full(), true)] {
            // It ends well only when all that it wrote was taken, and never pauses for long.
            let script = "trap 'seq 100000; exit' TERM; while :; do seq 100; sleep 0.05; done";
            let (mut child, mut pipe) = shell(script);
            // The trap is set.
            pipe.read_exact(&mut [0]).unwrap();
            let pid = nix::unistd::Pid::from_raw(child.id().cast_signed());
            let (reader, spooler) = spool(pipe, Signals::take(&[]).unwrap(), copy);
            if !fails {
                drop(reader);
            }
            let term = || nix::sys::signal::kill(pid, nix::sys::signal::SIGTERM).unwrap();
            assert_eq!(spooler.run(term).is_err(), fails);
            assert!(child.wait().unwrap().success());
        }
    }
}
