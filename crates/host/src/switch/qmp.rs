//! A client of QEMU's machine protocol: bounded waits, events kept, descriptors passed.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IoSlice, Read};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, connect, getsockopt,
    sendmsg, socket, sockopt::PeerCredentials,
};
use serde_json::{Map, Value, json};
use thiserror::Error;

/// More bytes than any answer to the commands that are sent here.
const MAX_LINE_BYTES: usize = 4 << 20;
/// Events that are kept until somebody asks for them; the oldest is dropped first.
const MAX_EVENTS: usize = 1024;

/// Why a QMP socket could not be used.
#[derive(Debug, Error)]
pub enum QmpError {
    /// The socket failed.
    #[error("its QMP socket failed: {0}")]
    Socket(io::Error),
    /// The socket closed.
    #[error("its QMP socket closed")]
    Closed,
    /// No answer in time.
    #[error("no answer to `{0}` in time")]
    Late(String),
    /// What came is not QMP.
    #[error("its QMP socket sent something that is not QMP: {0}")]
    Format(String),
    /// QEMU refused the command.
    #[error("{command}: {description}")]
    Refused {
        command: String,
        /// QEMU's reason.
        description: String,
    },
}

/// One line from QEMU.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// The first line.
    Greeting(Value),
    /// The answer to one of this client's commands.
    Answer {
        /// The command's number; absent when QEMU could not read the command.
        id: Option<u64>,
        /// What the command returned, or QEMU's reason for refusing it.
        result: Result<Value, String>,
    },
    Event(Event),
}

/// An event in QEMU.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Its name, such as `STOP`.
    pub name: String,
    pub data: Value,
    /// QEMU's own time of the event, in microseconds of the real-time clock; absent when QEMU gives
    /// none.
    pub micros: Option<i64>,
}

/// Read one line.
///
/// Fails when the line is not a JSON object, or when it is not a greeting, an answer or an event.
pub fn parse(line: &[u8]) -> Result<Message, String> {
    let value: Value = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    let Value::Object(mut object) = value else {
        return Err("a line that is not an object".into());
    };
    if let Some(greeting) = object.remove("QMP") {
        return Ok(Message::Greeting(greeting));
    }
    if let Some(Value::String(name)) = object.remove("event") {
        return Ok(Message::Event(Event {
            name,
            data: object.remove("data").unwrap_or(Value::Null),
            micros: micros(&object),
        }));
    }
    let id = object.get("id").and_then(Value::as_u64);
    if let Some(result) = object.remove("return") {
        return Ok(Message::Answer {
            id,
            result: Ok(result),
        });
    }
    let Some(error) = object.get("error") else {
        return Err("a line that is neither an answer nor an event".into());
    };
    let description = error.get("desc").and_then(Value::as_str);
    Ok(Message::Answer {
        id,
        result: Err(description.unwrap_or("no reason given").to_owned()),
    })
}

fn micros(object: &Map<String, Value>) -> Option<i64> {
    let time = object.get("timestamp")?;
    let seconds = time
        .get("seconds")?
        .as_i64()
        .filter(|number| *number >= 0)?;
    let micros = time.get("microseconds")?.as_i64()?;
    seconds.checked_mul(1_000_000)?.checked_add(micros)
}

/// A connection to one QEMU.
#[derive(Debug)]
pub struct Qmp {
    stream: UnixStream,
    buffer: Vec<u8>,
    next_id: u64,
    commands: BTreeMap<u64, String>,
    answers: BTreeMap<u64, Result<Value, String>>,
    events: VecDeque<Event>,
    greeted: bool,
}

impl Qmp {
    /// Connect to the socket at `path` and wait until QEMU takes commands.
    ///
    /// Fails when the connection fails, or when QEMU does not greet in time.
    pub fn connect(path: &Path, patience: Duration) -> Result<Self, QmpError> {
        let number = socket(
            AddressFamily::Unix,
            SockType::Stream,
            // Non-blocking: with a full backlog, connect would wait without a limit.
            SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
            None,
        );
        let descriptor = number.map_err(from_errno)?;
        let address = UnixAddr::new(path).map_err(from_errno)?;
        connect(descriptor.as_raw_fd(), &address).map_err(from_errno)?;
        let mut qmp = Self::over(UnixStream::from(descriptor))?;
        qmp.greeting(patience)?;
        Ok(qmp)
    }

    /// Use a connected socket; commands sent before QEMU is up wait in it.
    ///
    /// Fails when the socket does not take the first command.
    pub fn over(stream: UnixStream) -> Result<Self, QmpError> {
        stream.set_nonblocking(false).map_err(QmpError::Socket)?;
        let mut qmp = Self {
            stream,
            buffer: Vec::new(),
            next_id: 0,
            commands: BTreeMap::new(),
            answers: BTreeMap::new(),
            events: VecDeque::new(),
            greeted: false,
        };
        qmp.send("qmp_capabilities", json!({}))?;
        Ok(qmp)
    }

    fn greeting(&mut self, patience: Duration) -> Result<(), QmpError> {
        let deadline = Instant::now() + patience;
        while !self.greeted {
            self.read_some(deadline, "the greeting")?;
        }
        Ok(())
    }

    /// The process that listens at the other end.
    ///
    /// Fails with the errno of the system call.
    pub fn peer(&self) -> Result<i32, QmpError> {
        let credentials = getsockopt(&self.stream, PeerCredentials).map_err(from_errno)?;
        Ok(credentials.pid())
    }

    /// Send a command; wait for its answer with the returned number.
    ///
    /// Fails when the socket does not take the command.
    pub fn send(&mut self, command: &str, arguments: Value) -> Result<u64, QmpError> {
        self.send_with(command, arguments, None)
    }

    /// Like [`Qmp::send`], but also passes a descriptor to QEMU.
    ///
    /// Fails when the socket does not take the command.
    pub fn send_with(
        &mut self,
        command: &str,
        arguments: Value,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<u64, QmpError> {
        let id = self.next_id;
        self.next_id += 1;
        let line = json!({"execute": command, "arguments": arguments, "id": id});
        let line = format!("{line}\n");
        self.commands.insert(id, command.to_owned());
        self.write(line.as_bytes(), descriptor)?;
        Ok(id)
    }

    fn write(&self, line: &[u8], descriptor: Option<BorrowedFd<'_>>) -> Result<(), QmpError> {
        let numbers: Vec<_> = descriptor.iter().map(AsRawFd::as_raw_fd).collect();
        let rights = [ControlMessage::ScmRights(&numbers)];
        let mut control: &[ControlMessage<'_>] = if numbers.is_empty() { &[] } else { &rights };
        let mut left = line;
        while !left.is_empty() {
            let sent = sendmsg::<UnixAddr>(
                self.stream.as_raw_fd(),
                &[IoSlice::new(left)],
                control,
                // Commands are short: a full socket means that QEMU does not read.
                MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT,
                None,
            );
            let sent = sent.map_err(from_errno)?;
            left = left.get(sent..).unwrap_or_default();
            control = &[];
        }
        Ok(())
    }

    /// Wait for the answer to command number `id`.
    ///
    /// Fails when QEMU refuses, does not answer in time, closes the socket, or sends something
    /// that is not QMP.
    pub fn wait(&mut self, id: u64, patience: Duration) -> Result<Value, QmpError> {
        let deadline = Instant::now() + patience;
        let command = self.commands.get(&id).cloned().unwrap_or_default();
        loop {
            if let Some(result) = self.answers.remove(&id) {
                self.commands.remove(&id);
                return result.map_err(|description| QmpError::Refused {
                    command,
                    description,
                });
            }
            self.read_some(deadline, &command)?;
        }
    }

    /// Send a command and wait for its answer.
    ///
    /// Fails as [`Qmp::send`] and [`Qmp::wait`] do.
    pub fn call(
        &mut self,
        command: &str,
        arguments: Value,
        patience: Duration,
    ) -> Result<Value, QmpError> {
        let id = self.send(command, arguments)?;
        self.wait(id, patience)
    }

    /// Wait for the first event that `wanted` accepts; earlier events are dropped.
    ///
    /// Fails when none comes in time, QEMU closes the socket, or it sends something that is not QMP.
    pub fn event(
        &mut self,
        what: &str,
        patience: Duration,
        mut wanted: impl FnMut(&Event) -> bool,
    ) -> Result<Event, QmpError> {
        let deadline = Instant::now() + patience;
        loop {
            while let Some(event) = self.events.pop_front() {
                if wanted(&event) {
                    return Ok(event);
                }
            }
            self.read_some(deadline, what)?;
        }
    }

    /// Forget the events received so far.
    pub fn forget_events(&mut self) {
        self.events.clear();
    }

    fn read_some(&mut self, deadline: Instant, what: &str) -> Result<(), QmpError> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(QmpError::Late(what.to_owned()));
        }
        self.stream
            .set_read_timeout(Some(left))
            .map_err(QmpError::Socket)?;
        let mut bytes = [0; 16 << 10];
        let count = match self.stream.read(&mut bytes) {
            Ok(0) => return Err(QmpError::Closed),
            Ok(count) => count,
            Err(error) if is_late(&error) => return Ok(()),
            Err(error) => return Err(QmpError::Socket(error)),
        };
        self.buffer.extend(bytes.iter().take(count));
        if self.buffer.len() > MAX_LINE_BYTES {
            return Err(QmpError::Format("a line above 4 MiB".into()));
        }
        while let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.buffer.drain(..=end).collect();
            if !line.trim_ascii().is_empty() {
                self.take(parse(&line).map_err(QmpError::Format)?);
            }
        }
        Ok(())
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Greeting(_) => self.greeted = true,
            // An answer without a number belongs to a command that was not sent in full.
            Message::Answer { id: None, .. } => {}
            Message::Answer {
                id: Some(id),
                result,
            } => {
                if self.commands.contains_key(&id) {
                    self.answers.insert(id, result);
                }
            }
            Message::Event(event) => {
                if self.events.len() == MAX_EVENTS {
                    self.events.pop_front();
                }
                self.events.push_back(event);
            }
        }
    }
}

fn is_late(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

fn from_errno(errno: nix::errno::Errno) -> QmpError {
    QmpError::Socket(errno.into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_of_qemu_are_told_apart() {
        let event = br#"{"timestamp": {"seconds": 2, "microseconds": 5}, "event": "STOP"}"#;
        let Ok(Message::Event(event)) = parse(event) else {
            panic!("no event");
        };
        assert_eq!(
            (event.name.as_str(), event.micros),
            ("STOP", Some(2_000_005))
        );
        let refused = parse(br#"{"id": 3, "error": {"class": "GenericError", "desc": "no"}}"#);
        let expected = Message::Answer {
            id: Some(3),
            result: Err("no".into()),
        };
        assert_eq!(refused, Ok(expected));
        assert!(parse(b"[1]").is_err());
        assert!(parse(b"{}").is_err());
    }

    #[test]
    fn a_silent_peer_is_waited_for_only_so_long() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let mut qmp = Qmp::over(ours).unwrap();
        let begin = Instant::now();
        let error = qmp.call("query-status", json!({}), Duration::from_millis(50));
        assert!(matches!(error, Err(QmpError::Late(_))));
        assert!(begin.elapsed() < Duration::from_secs(5));
    }

    proptest! {
        #[test]
        fn any_line_is_a_message_or_an_error(line in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(&line);
        }

        #[test]
        fn a_damaged_line_is_a_message_or_an_error(cut in 0_usize..80, at in 0_usize..80, byte: u8) {
            let mut line = br#"{"timestamp": {"seconds": 2, "microseconds": 5}, "event": "STOP", "data": {}}"#.to_vec();
            line.truncate(line.len().saturating_sub(cut));
            if let Some(target) = line.get_mut(at) {
                *target = byte;
            }
            let _ = parse(&line);
        }
    }
}
