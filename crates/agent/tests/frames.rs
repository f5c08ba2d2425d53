//! `serve` and arbitrary input on its channel: every line has one answer, and `serve` goes on.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[allow(dead_code, reason = "the client also serves tests of commands")]
mod common;

use common::Agent;
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::json;

/// Lines of any bytes, and near-requests that change nothing.
fn line() -> impl Strategy<Value = Vec<u8>> {
    let requests = [
        json!({"id": 1, "op": "ping"}),
        json!({"id": 2, "op": "pull", "path": "/proc/self/status", "offset": 0, "limit": 99}),
        json!({"id": 3, "op": "counters"}),
        json!({"id": 4, "op": "enter"}),
        json!({"id": 6, "op": "clock", "realtime_s": 1e9}),
        json!({"part": "{\"id\": 5, \"op\"", "last": false}),
        json!({"part": ": \"ping\"}", "last": true}),
    ];
    let requests: Vec<Vec<u8>> = requests
        .iter()
        .map(|request| request.to_string().into_bytes())
        .collect();
    let mutated = (
        proptest::sample::select(requests),
        proptest::collection::vec((any::<Index>(), any::<u8>()), 0..4),
        any::<Index>(),
    )
        .prop_map(|(mut bytes, changes, length)| {
            for (index, value) in changes {
                let index = index.index(bytes.len());
                bytes[index] = value;
            }
            bytes.truncate(length.index(bytes.len() + 1));
            bytes
        });
    let any = proptest::collection::vec(any::<u8>(), 0..300);
    let oversized = (1_usize << 20..(1 << 20) + 9).prop_map(|size| vec![b'{'; size]);
    let one = prop_oneof![8 => mutated, 4 => any, 1 => oversized];
    one.prop_map(|bytes| bytes.into_iter().filter(|byte| *byte != b'\n').collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_line_has_one_answer(lines in proptest::collection::vec(line(), 1..12)) {
        let mut agent = Agent::start(&[]);
        for mut line in lines {
            let is_empty = line.is_empty();
            line.push(b'\n');
            agent.send_bytes(&line);
            if is_empty {
                // An empty line asks for nothing.
                continue;
            }
            let answer = agent.receive();
            let answer = answer.as_object().unwrap();
            let kinds = ["ok", "error", "part"];
            prop_assert!(kinds.iter().filter(|kind| answer.contains_key(**kind)).count() == 1);
            if let Some(error) = answer.get("error") {
                prop_assert!(error["message"].as_str().is_some_and(|text| !text.is_empty()));
            }
        }
        prop_assert_eq!(agent.request(json!({"op": "ping"}))["ok"].take(), json!({}));
        let (status, _folder) = agent.hang_up();
        prop_assert!(status.success());
    }
}

#[test]
fn half_a_frame_and_the_end_of_the_channel_end_the_agent() {
    let mut agent = Agent::start(&[]);
    agent.send_bytes(b"{\"id\": 1, \"op\": \"pi");
    let (status, folder) = agent.hang_up();
    assert!(status.success());
    assert!(!folder.path().join("run").exists());
}
