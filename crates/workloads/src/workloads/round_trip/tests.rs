//! All parts together, with the real peer.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde_json::json;

use super::*;
use crate::bound::Limit;
use crate::job::Context;
use crate::options::{Parameters, Value as OptionValue};
use crate::report::{Report, run};
use crate::workloads::echo::Echo;
use crate::workloads::tests::context;

fn parameters(connect: Option<String>) -> Parameters {
    let given = |option: &OptionSpec| match option.name {
        "mem" => Some(OptionValue::Number(128 << 10)),
        "connect" => connect.clone().map(OptionValue::Text),
        _ => None,
    };
    Parameters::new(DESCRIPTION.options, given).unwrap()
}

fn with_state<T>(rounds: u64, connect: Option<String>, look: impl FnOnce(&mut State) -> T) -> T {
    let parameters = parameters(connect);
    let context = context();
    let job = Job {
        parameters: &parameters,
        limit: Limit::new(Bound::Count(1)),
        context: &context,
    };
    let folder = tempfile::tempdir().unwrap();
    let mut state = State::new(&job, folder.path()).unwrap();
    for _ in 0..rounds {
        state.round().unwrap();
    }
    look(&mut state)
}

/// Run `echo` in a thread; returns the address and, later, its report.
fn echo() -> (String, thread::JoinHandle<Report>) {
    let (sender, receiver) = mpsc::channel();
    let peer = thread::spawn(move || {
        let announce = move |text: &str| {
            let address = text.rsplit(' ').next().unwrap();
            sender.send(address.to_owned()).unwrap();
        };
        let context = Context {
            announce: &announce,
            ..context()
        };
        let parameters = Parameters::new(Echo.description().options, |_| None).unwrap();
        let bound = Bound::Time(Duration::from_secs(20));
        run(&Echo, &parameters, bound, &context).unwrap()
    });
    (receiver.recv().unwrap(), peer)
}

#[test]
fn nothing_is_lost_and_both_ends_count_the_same_messages() {
    let (address, peer) = echo();
    let details = with_state(500, Some(address), |state| {
        state.finish().unwrap();
        assert_eq!(state.errors(500), 0);
        state.details(500)
    });
    let report = peer.join().unwrap();
    assert!(report.verified, "{:?}", report.details);
    assert_eq!(json!(report.operations), details["messages"]);
    assert!(report.operations > 10);
    assert!(report.details["largest_gap_ms"].is_number());
    assert_eq!(details["counter"], 500);
    assert_eq!(details["memory_passes"], 250);
    assert_eq!(details["file_bytes"], 500 * 2 * 64);
}

#[test]
fn same_seed_and_rounds_give_the_same_checksum() {
    let checksum = |rounds| with_state(rounds, None, |state| state.checksum());
    assert_eq!(checksum(20), checksum(20));
    assert_ne!(checksum(20), checksum(21));
}

#[test]
fn every_kind_of_error_counts() {
    with_state(20, None, |state| {
        state.finish().unwrap();
        assert_eq!(state.errors(20), 0);
        assert_eq!(state.errors(21), 1);
        state.pages.errors += 1;
        state.files.errors += 1;
        state.ticks.errors += 1;
        assert_eq!(state.errors(20), 3);
    });
}

#[test]
fn without_a_peer_there_are_no_messages_to_report() {
    with_state(3, None, |state| {
        let details = state.details(3);
        for name in ["messages", "message_errors", "largest_message_gap_ms"] {
            assert!(details[name].is_null(), "{name}");
        }
    });
}
