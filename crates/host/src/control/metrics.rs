//! Answers Prometheus in its text format 0.0.4.
//!
//! The answer to every request is one text, so this module has its own server: an HTTP library
//! would be the largest part of a program that runs as root. The server reads at most 4 KiB of a
//! request, waits a second for it, answers one request at a time, and listens at the given address,
//! which should be loopback.

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use vtax_sys::kvm::PagingMode;
use vtax_sys::terminal::Error;

use crate::control::guard::Guard;
use crate::control::line::{Decision, Line};

const PATIENCE: Duration = Duration::from_secs(1);
const REQUEST_BYTES: usize = 4096;
/// The pause after an error of accept, such as too many open files.
const NAP: Duration = Duration::from_millis(100);

/// Counters over all windows.
#[derive(Debug, Default)]
pub struct Metrics {
    windows: u64,
    switches: u64,
    wishes: u64,
    text: Arc<Mutex<String>>,
}

impl Metrics {
    /// Count a window, and answer with its values from here on.
    pub fn add(&mut self, line: &Line, guard: &Guard) {
        self.windows += 1;
        if line.decision == Decision::Switch {
            let count = if line.applied {
                &mut self.switches
            } else {
                &mut self.wishes
            };
            *count += 1;
        }
        let text = self.render(line, guard);
        *self.text.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }

    fn render(&self, line: &Line, guard: &Guard) -> String {
        let mut text = String::new();
        let mut family = |name: &str, kind: &str, help: &str, values: &[(String, f64)]| {
            // Writing to a String cannot fail.
            let _ = write!(
                text,
                "# HELP vtax_control_{name} {help}\n# TYPE vtax_control_{name} {kind}\n"
            );
            for (labels, value) in values {
                let _ = writeln!(text, "vtax_control_{name}{labels} {value}");
            }
        };
        let plain = |value: f64| vec![(String::new(), value)];
        let modes = [PagingMode::Nested, PagingMode::Shadow].map(|mode| {
            let is = f64::from(u8::from(line.mode == Some(mode)));
            (format!("{{mode=\"{}\"}}", mode.name()), is)
        });
        family("mode", "gauge", "1 for the paging mode of the host", &modes);
        let rates: Vec<_> = line
            .rates
            .iter()
            .filter(|(name, _)| *name != "guests")
            .map(|(name, rate)| (format!("{{event=\"{name}\"}}"), *rate))
            .collect();
        family(
            "events_per_second",
            "gauge",
            "events of the last window, all guests together; model.* is counted by a model",
            &rates,
        );
        let guests = line.rates.get("guests").copied().unwrap_or(0.0);
        family("guests", "gauge", "virtual machines of KVM", &plain(guests));
        let gain: Vec<_> = line.gain_percent.into_iter().flat_map(plain).collect();
        family(
            "gain_percent",
            "gauge",
            "what the other mode saves at most, estimated",
            &gain,
        );
        let counters = [
            ("windows_total", "windows", self.windows),
            ("switches_total", "switches that were made", self.switches),
            (
                "wishes_total",
                "switches that --apply would have made",
                self.wishes,
            ),
        ];
        for (name, help, count) in counters {
            family(name, "counter", help, &plain(count as f64));
        }
        family(
            "failures",
            "gauge",
            "switches refused or failed in a row",
            &plain(guard.failures.into()),
        );
        let pause: Vec<_> = guard
            .pauses_ms
            .last()
            .map(|ms| ms / 1e3)
            .into_iter()
            .flat_map(plain)
            .collect();
        family(
            "last_pause_seconds",
            "gauge",
            "longest pause of a guest in the last switch",
            &pause,
        );
        text
    }

    /// Answer requests at this address, on a separate thread, and return the address.
    ///
    /// Fails when listening at the address fails.
    pub fn serve(&self, address: SocketAddr) -> Result<SocketAddr, Error> {
        let failed = |error: io::Error| {
            let remedy = "name another address and port, such as --metrics 127.0.0.1:9102";
            Error::input_output(&format!("--metrics {address}"), &error, remedy)
        };
        let listener = TcpListener::bind(address).map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        let text = Arc::clone(&self.text);
        let answer_all = move || {
            loop {
                match listener.accept() {
                    // A client that goes away before the answer misses it.
                    Ok((stream, _)) => drop(answer(&stream, &text)),
                    Err(_) => std::thread::sleep(NAP),
                }
            }
        };
        std::thread::Builder::new()
            .name("metrics".into())
            .spawn(answer_all)
            .map_err(failed)?;
        Ok(bound)
    }
}

fn answer(mut stream: &TcpStream, text: &Mutex<String>) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut request = [0; REQUEST_BYTES];
    let mut length = 0;
    // Read to the end of the head: a client that gets the answer before it has sent everything
    // would lose the answer.
    while let Some(rest) = request.get_mut(length..).filter(|rest| !rest.is_empty()) {
        let count = stream.read(rest)?;
        length += count;
        let said = request.get(..length).unwrap_or_default();
        if count == 0 || said.windows(4).any(|end| end == b"\r\n\r\n") {
            break;
        }
    }
    let (status, body) = match path(request.get(..length).unwrap_or_default()) {
        Some(b"/metrics") => {
            let text = text.lock().unwrap_or_else(PoisonError::into_inner);
            ("200 OK", text.clone())
        }
        Some(_) => ("404 Not Found", "there is only /metrics\n".to_owned()),
        None => ("400 Bad Request", "GET /metrics\n".to_owned()),
    };
    let length = body.len();
    write!(
        stream,
        "HTTP/1.0 {status}\r\nContent-Type: text/plain; version=0.0.4\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

fn path(request: &[u8]) -> Option<&[u8]> {
    let line = request.split(|byte| *byte == b'\r').next()?;
    let mut words = line.split(|byte| *byte == b' ');
    let is_get = words.next()? == b"GET";
    let path = words.next()?;
    let path = path.split(|byte| *byte == b'?').next()?;
    let is_http = words.next()?.starts_with(b"HTTP/");
    (is_get && is_http).then_some(path)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ask(address: SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn line() -> Line {
        let mut line = Line::new(0.0, "vtax");
        line.mode = Some(PagingMode::Shadow);
        line.rates.insert("guests".into(), 3.0);
        line.rates.insert("model.instructions".into(), 2e9);
        line.gain_percent = Some(4.5);
        line
    }

    #[test]
    fn the_text_of_a_window_is_answered() {
        let mut metrics = Metrics::default();
        let address = metrics.serve(([127, 0, 0, 1], 0).into()).unwrap();
        let mut guard = Guard::default();
        guard.switched(0.0, Some(480.0));
        metrics.add(&line(), &guard);
        metrics.add(&line(), &guard);
        let answer = ask(address, b"GET /metrics?x=1 HTTP/1.1\r\nHost: x\r\n\r\n");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.0 200 OK\r\n"), "{head}");
        for wanted in [
            "vtax_control_mode{mode=\"shadow\"} 1",
            "vtax_control_mode{mode=\"nested\"} 0",
            "vtax_control_events_per_second{event=\"model.instructions\"} 2000000000",
            "vtax_control_guests 3",
            "vtax_control_gain_percent 4.5",
            "vtax_control_windows_total 2",
            "vtax_control_switches_total 0",
            "vtax_control_last_pause_seconds 0.48",
        ] {
            assert!(body.lines().any(|line| line == wanted), "{wanted}: {body}");
        }
        // Each family is announced once, before its values, as the format requires.
        for family in body.lines().filter(|line| line.starts_with("# TYPE")) {
            assert_eq!(body.matches(family).count(), 1);
        }
    }

    #[test]
    fn what_is_no_request_for_metrics_is_told() {
        let metrics = Metrics::default();
        let address = metrics.serve(([127, 0, 0, 1], 0).into()).unwrap();
        assert!(ask(address, b"GET / HTTP/1.0\r\n\r\n").starts_with("HTTP/1.0 404"));
        assert!(ask(address, b"POST /metrics HTTP/1.0\r\n\r\n").starts_with("HTTP/1.0 400"));
        assert!(ask(address, &[b'x'; REQUEST_BYTES]).starts_with("HTTP/1.0 400"));
        // A client that sends nothing does not keep others from their answer.
        let silent = TcpStream::connect(address).unwrap();
        assert!(ask(address, b"GET /metrics HTTP/1.0\r\n\r\n").starts_with("HTTP/1.0 200"));
        drop(silent);
    }

    proptest! {
        #[test]
        fn any_request_is_answered(request in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = path(&request);
        }
    }
}
