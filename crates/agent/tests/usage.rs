//! What a command used: its time, CPU time, and instructions.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

#[allow(dead_code, reason = "each test program uses a part of it")]
mod common;

use common::Agent;
use serde_json::{Value, json};

#[test]
fn instructions_are_counted_when_asked_for_and_where_they_can_be() {
    let mut agent = Agent::start(&[]);
    let without = agent.run(":", &json!({}));
    assert_eq!(without["ok"]["instructions"], Value::Null);
    let short = agent.run(":", &json!({"count": true}));
    let counted = |answer: &Value| answer["ok"]["instructions"].as_u64();
    if let Some(few) = counted(&short) {
        let long = "i=0; while [ $i -lt 1000 ]; do i=$((i+1)); done";
        let many = counted(&agent.run(long, &json!({"count": true}))).unwrap();
        assert!(few > 10_000 && many > few + 10_000, "{few} {many}");
    } else {
        eprintln!("not tested: this machine counts no instructions (no PMU?)");
        assert_eq!(short["ok"]["cycles"], Value::Null);
    }
}

/// What the process did before the time began is in neither count.
#[test]
fn a_command_without_children_uses_no_more_cpu_time_than_time() {
    let mut agent = Agent::start(&[]);
    for _ in 0..20 {
        let answer = agent.run(":", &json!({}));
        let time = |name: &str| answer["ok"][name].as_f64().unwrap();
        // Both clocks have steps of a microsecond at most on this machine.
        let used = time("user_s") + time("system_s");
        assert!(used < time("wall_s") + 1e-5, "{answer}");
    }
}

#[test]
fn cpu_time_is_the_commands_and_its_childrens() {
    let mut agent = Agent::start(&[]);
    let burn = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
    let answer = agent.run(&format!("sh -c '{burn}'; {burn}"), &json!({}));
    let (user, wall) = (&answer["ok"]["user_s"], &answer["ok"]["wall_s"]);
    assert!(user.as_f64().unwrap() > 0.02, "{answer}");
    assert!(
        user.as_f64().unwrap() <= wall.as_f64().unwrap() + 0.02,
        "{answer}"
    );
    let idle = agent.run("true", &json!({}));
    assert!(
        idle["ok"]["user_s"].as_f64().unwrap() < 0.02,
        "not cumulative: {idle}"
    );
}
