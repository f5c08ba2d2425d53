//! Waiting for the request to make the root (PROTOCOL.md, "Waiting").

use serde_json::{Map, Value, json};

use crate::VERSION;
use crate::channel::Channel;
use crate::clock::ClockRequest;
use crate::frame::{self, Line};
use crate::request::{self, PROTOCOL, RequestError};
use crate::supervise::Watch;

/// Report that the guest waits, and wait; false when the channel closed instead.
///
/// There is no time limit: a snapshot may be taken here and restored years later. Whoever gives up
/// closes the channel.
pub(super) fn until_entered(channel: &mut Channel, uptime_s: Option<f64>) -> bool {
    let waiting = json!({"agent": VERSION, "protocol": PROTOCOL, "uptime_s": uptime_s});
    if channel.send(&json!({"waiting": waiting})).is_err() {
        return false;
    }
    loop {
        while let Some(line) = channel.next_line() {
            let Err(error) = entered(&line) else {
                return true;
            };
            if channel.send(&error.frame(None)).is_err() {
                return false;
            }
        }
        // The descriptor blocks, so this waits.
        if channel.ready() {
            return false;
        }
    }
}

/// Is the line `{"enter": true}`? Sets the clock if the request has a time.
fn entered(line: &Line) -> Result<(), RequestError> {
    let object: Map<String, Value> = frame::object(line).map_err(RequestError::Frame)?;
    match object.get("enter") {
        Some(Value::Bool(true)) => set_clock(object),
        Some(other) => Err(RequestError::Request(format!("enter: {other} is not true"))),
        None => Err(RequestError::Request(
            "the guest waits for {\"enter\": true}".into(),
        )),
    }
}

fn set_clock(object: Map<String, Value>) -> Result<(), RequestError> {
    if !object.contains_key("realtime_s") {
        return Ok(());
    }
    let clock: ClockRequest = request::fields(object, ClockRequest::check)?;
    clock.set().map_err(RequestError::System)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixStream;
    use std::thread;

    use super::*;

    fn answers(sent: &[u8]) -> (bool, Vec<Value>, Channel) {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let waiter = thread::spawn(move || {
            let mut channel = Channel::on(theirs.into());
            (until_entered(&mut channel, Some(1.5)), channel)
        });
        ours.write_all(sent).unwrap();
        ours.shutdown(std::net::Shutdown::Write).unwrap();
        let (entered, channel) = waiter.join().unwrap();
        ours.set_nonblocking(true).unwrap();
        let lines = BufReader::new(ours).lines().map_while(Result::ok);
        let frames = lines.map(|line| serde_json::from_str(&line).unwrap());
        (entered, frames.collect(), channel)
    }

    #[test]
    fn the_word_is_waited_for_and_what_follows_is_kept() {
        let (entered, frames, mut channel) = answers(b"{\"enter\": true}\n{\"id\": 1}\n");
        assert!(entered);
        let waiting = json!({"agent": VERSION, "protocol": PROTOCOL, "uptime_s": 1.5});
        assert_eq!(frames, [json!({ "waiting": waiting })]);
        assert_eq!(
            channel.next_line(),
            Some(Line::Whole(b"{\"id\": 1}".to_vec()))
        );
    }

    #[test]
    fn a_time_that_is_none_is_refused() {
        let (entered, frames, _) = answers(b"{\"enter\": true, \"realtime_s\": -1}\n");
        assert!(!entered, "the channel closed");
        assert!(frames[1].to_string().contains("realtime_s"), "{frames:?}");
    }

    #[test]
    fn anything_else_is_answered_with_what_is_waited_for() {
        let (entered, frames, _) = answers(b"x\n{\"op\": \"ping\"}\n{\"enter\": 1}\n");
        assert!(!entered, "the channel closed");
        let kinds: Vec<_> = frames[1..]
            .iter()
            .map(|frame| frame["error"]["kind"].as_str().unwrap())
            .collect();
        assert_eq!(kinds, ["frame", "request", "request"]);
        assert!(frames[2].to_string().contains("waits for"), "{frames:?}");
    }
}
