//! `echo`: the peer of `round-trip`'s connection.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::Map;

use crate::bound::{Bound, Limit};
use crate::message::{MESSAGE_BYTES, Message, number};
use crate::meter::Meter;
use crate::options::{Kind, OptionSpec};
use crate::workload::{Description, Job, Outcome, Workload};
use vtax_sys::terminal::Error;

/// Milliseconds between two looks at the bound.
const LOOK_MS: u16 = 100;

/// The longest wait until the peer takes an answer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

/// Answers numbered messages.
#[derive(Debug)]
pub struct Echo;

static DESCRIPTION: Description = Description {
    name: "echo",
    summary: "Answers the numbered messages of round-trip on one connection, until it is closed",
    stresses: "Nothing: its largest gap between messages is the host's view of a guest's pause",
    unit: "messages",
    default_bound: Bound::Time(Duration::from_secs(3600)),
    options: &[OptionSpec {
        name: "listen",
        kind: Kind::Address,
        default: Some("127.0.0.1:0"),
        help: "Where to wait for the connection; port 0: any, which is said on standard error",
    }],
};

impl Workload for Echo {
    fn description(&self) -> &'static Description {
        &DESCRIPTION
    }

    fn run(&self, job: &mut Job<'_>) -> Result<Outcome, Error> {
        let listener = listen(job)?;
        let meter = Meter::start();
        let mut answers = Answers::default();
        let stream = accept(&listener, &mut job.limit)?;
        drop(listener);
        answers.serve(stream, &mut job.limit)?;
        let mut details = Map::new();
        details.insert("largest_gap_ms".into(), answers.largest_gap_ms().into());
        details.insert("message_errors".into(), answers.errors.into());
        Ok(Outcome {
            usage: meter.stop(),
            operations: answers.messages,
            checksum: None,
            verified: answers.errors == 0,
            details,
        })
    }
}

fn listen(job: &Job<'_>) -> Result<TcpListener, Error> {
    let address = job.parameters.text("listen").unwrap_or_default();
    let refused = |error| Error::input_output(address, &error, "give an address of this machine");
    let listener = TcpListener::bind(address).map_err(refused)?;
    let bound = listener.local_addr().map_err(refused)?;
    (job.context.announce)(&format!("listening on {bound}"));
    Ok(listener)
}

fn accept(listener: &TcpListener, limit: &mut Limit) -> Result<TcpStream, Error> {
    while has_time(limit) {
        if readable(listener) {
            let (stream, _) = listener.accept().map_err(|error| broken(&error))?;
            return Ok(stream);
        }
    }
    Err(Error::failure(
        "echo",
        "nobody connected before it ended",
        "start round-trip with --connect",
    ))
}

fn has_time(limit: &mut Limit) -> bool {
    let granted = limit.grant(1);
    limit.take_back(1);
    granted.is_some()
}

/// Wait a moment for input.
fn readable(descriptor: &impl AsFd) -> bool {
    let mut descriptors = [PollFd::new(descriptor.as_fd(), PollFlags::POLLIN)];
    // A signal interrupted the wait: there is nothing to read then.
    poll(&mut descriptors, PollTimeout::from(LOOK_MS)).is_ok_and(|ready| ready > 0)
}

fn broken(error: &std::io::Error) -> Error {
    Error::input_output("the connection", error, "see the network")
}

#[derive(Debug, Default)]
struct Answers {
    messages: u64,
    errors: u64,
    last: Option<(u64, Instant)>,
    largest_gap: Option<Duration>,
}

impl Answers {
    fn serve(&mut self, mut stream: TcpStream, limit: &mut Limit) -> Result<(), Error> {
        prepare(&stream).map_err(|error| broken(&error))?;
        let mut bytes = [0; MESSAGE_BYTES];
        let mut filled = 0;
        while has_time(limit) {
            if !readable(&stream) {
                continue;
            }
            match stream.read(&mut bytes[filled..]) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
                Err(error) => return Err(broken(&error)),
            }
            if filled == MESSAGE_BYTES {
                filled = 0;
                limit.grant(1);
                self.take(&bytes);
                if stream.write_all(&bytes).is_err() {
                    break;
                }
            }
        }
        // An incomplete message is a lost message.
        self.errors += u64::from(filled > 0);
        Ok(())
    }

    /// Take a message; messages are numbered from 0 without a gap.
    fn take(&mut self, bytes: &Message) {
        let now = Instant::now();
        let expected = self.last.map_or(0, |(last, _)| last.wrapping_add(1));
        let found = number(bytes);
        self.errors += u64::from(found != Some(expected));
        if let Some((_, before)) = self.last {
            let gap = now - before;
            self.largest_gap = Some(self.largest_gap.map_or(gap, |largest| largest.max(gap)));
        }
        self.messages += 1;
        self.last = Some((found.unwrap_or(expected), now));
    }

    fn largest_gap_ms(&self) -> Option<f64> {
        self.largest_gap.map(|gap| gap.as_secs_f64() * 1e3)
    }
}

fn prepare(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(WRITE_TIMEOUT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::message;

    #[test]
    fn a_message_that_is_missing_or_damaged_is_an_error() {
        let mut answers = Answers::default();
        for number in [0, 1, 2] {
            answers.take(&message(number));
        }
        assert_eq!((answers.messages, answers.errors), (3, 0));
        answers.take(&message(4));
        assert_eq!(answers.errors, 1);
        let mut damaged = message(5);
        damaged[63] ^= 1;
        answers.take(&damaged);
        assert_eq!((answers.messages, answers.errors), (5, 2));
        assert!(answers.largest_gap_ms().is_some());
    }
}
