//! Numbered messages over one TCP connection, each answered by `echo`.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::message::{MESSAGE_BYTES, message};
use vtax_sys::terminal::Error;

/// The longest time until there must be a connection: a guest's network may still be starting.
const CONNECT_PATIENCE: Duration = Duration::from_secs(20);

/// The longest wait for an answer: longer than any pause for a switch.
const ANSWER_PATIENCE: Duration = Duration::from_secs(60);

/// The time between two tries.
const TRY_EVERY: Duration = Duration::from_millis(2);

/// A message that was sent, at least in part.
#[derive(Debug)]
struct Pending {
    sent_bytes: usize,
    answer: [u8; MESSAGE_BYTES],
    answer_bytes: usize,
    begin: Instant,
}

/// The connection; one message is in transit at a time.
#[derive(Debug)]
pub struct Exchange {
    stream: TcpStream,
    pending: Option<Pending>,
    last_answer: Option<Instant>,
    largest_gap: Option<Duration>,
    pub messages: u64,
    /// The number of wrong answers, plus one for a lost connection.
    pub errors: u64,
    pub lost: Option<String>,
}

impl Exchange {
    /// Connect to `address`; tries again until something listens there.
    ///
    /// Fails when there is no connection after 20 s, with the reason of the last try.
    pub fn connect(address: &str) -> Result<Self, Error> {
        let begin = Instant::now();
        let stream = loop {
            match TcpStream::connect(address) {
                Ok(stream) => break stream,
                Err(error) if begin.elapsed() >= CONNECT_PATIENCE => {
                    return Err(refused(address, &error));
                }
                Err(_) => sleep(Duration::from_millis(100)),
            }
        };
        Self::over(stream).map_err(|error| refused(address, &error))
    }

    fn over(stream: TcpStream) -> std::io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            pending: None,
            last_answer: None,
            largest_gap: None,
            messages: 0,
            errors: 0,
            lost: None,
        })
    }

    /// Take the answer if it has come, and send the next message; never waits.
    pub fn look(&mut self) {
        if self.lost.is_some() {
            return;
        }
        let mut pending = self.pending.take().unwrap_or_else(Pending::new);
        match self.advance(&mut pending) {
            Ok(true) => self.take(&pending),
            Ok(false) if pending.begin.elapsed() < ANSWER_PATIENCE => self.pending = Some(pending),
            Ok(false) => self.lose("no answer for 60 s"),
            Err(error) => self.lose(&error.to_string()),
        }
    }

    /// Wait for the outstanding answer, as long as for any other: the host may be switching the
    /// guest at this moment.
    pub fn finish(&mut self) {
        while self.pending.is_some() {
            self.look();
            sleep(TRY_EVERY);
        }
    }

    /// Make progress with a message; true when the answer is there.
    fn advance(&mut self, pending: &mut Pending) -> std::io::Result<bool> {
        let bytes = message(self.messages);
        if pending.sent_bytes < MESSAGE_BYTES {
            let rest = &bytes[pending.sent_bytes..];
            pending.sent_bytes += now_or_nothing(self.stream.write(rest))?;
        }
        let room = &mut pending.answer[pending.answer_bytes..];
        pending.answer_bytes += now_or_nothing(self.stream.read(room))?;
        Ok(pending.answer_bytes == MESSAGE_BYTES)
    }

    fn take(&mut self, pending: &Pending) {
        self.errors += u64::from(pending.answer != message(self.messages));
        self.messages += 1;
        let now = Instant::now();
        if let Some(before) = self.last_answer.replace(now) {
            self.largest_gap = self.largest_gap.max(Some(now - before));
        }
    }

    fn lose(&mut self, reason: &str) {
        self.errors += 1;
        self.lost = Some(reason.to_owned());
    }

    /// The largest time between two answers.
    pub fn largest_gap_ms(&self) -> Option<f64> {
        self.largest_gap.map(|gap| gap.as_secs_f64() * 1e3)
    }
}

impl Pending {
    fn new() -> Self {
        Self {
            sent_bytes: 0,
            answer: [0; MESSAGE_BYTES],
            answer_bytes: 0,
            begin: Instant::now(),
        }
    }
}

/// Returns 0 bytes when nothing can be moved yet; a result of 0 bytes is the end of the connection,
/// an error.
fn now_or_nothing(result: std::io::Result<usize>) -> std::io::Result<usize> {
    match result {
        Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            Ok(0)
        }
        other => other,
    }
}

fn refused(address: &str, error: &std::io::Error) -> Error {
    Error::input_output(
        &format!("--connect {address}"),
        error,
        "start `vtax-agent workload echo` there",
    )
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn pair() -> (Exchange, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let exchange = Exchange::connect(&address).unwrap();
        let peer = listener.accept().unwrap().0;
        peer.set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        (exchange, peer)
    }

    fn answer(exchange: &mut Exchange, peer: &mut TcpStream, change: u8) {
        exchange.look();
        let mut bytes = [0; MESSAGE_BYTES];
        peer.read_exact(&mut bytes).unwrap();
        bytes[40] ^= change;
        peer.write_all(&bytes).unwrap();
        let wanted = exchange.messages + 1;
        let begin = Instant::now();
        while exchange.messages < wanted && begin.elapsed() < Duration::from_secs(10) {
            exchange.look();
        }
        assert_eq!(exchange.messages, wanted);
    }

    #[test]
    fn answers_are_checked() {
        let (mut exchange, mut peer) = pair();
        answer(&mut exchange, &mut peer, 0);
        answer(&mut exchange, &mut peer, 0);
        assert_eq!(exchange.errors, 0);
        assert!(exchange.largest_gap_ms().is_some());
        answer(&mut exchange, &mut peer, 1);
        assert_eq!(exchange.errors, 1);
    }

    #[test]
    fn a_lost_connection_is_one_error_and_no_hang() {
        let (mut exchange, peer) = pair();
        exchange.look();
        drop(peer);
        exchange.finish();
        exchange.look();
        assert_eq!(exchange.errors, 1);
        assert!(exchange.lost.is_some());
    }
}
