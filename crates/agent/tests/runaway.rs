//! Commands that fork without end are ended with all that they started.
//!
//! Each command forks a bounded number of times, below the test's own limit of processes.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

#[allow(dead_code, reason = "each test program uses a part of it")]
mod common;

use std::fs;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use common::{Agent, groups};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use vtax_sys::cgroup::CommandGroup;
use vtax_sys::tree::Tree;

/// Most processes that a test may have at once.
const MOST: u64 = 400;

/// 20 chains of processes: each forks the next one and ends, so that none exists long enough to be
/// found and killed. They end by themselves after 20 * 20000 forks.
///
/// A process that has ended counts until its parent has reaped it, and the first process of a
/// machine may take a second for that: a chain that has met its limit tries again.
fn relays(name: &str) -> String {
    format!(
        ": {name}; next() {{ [ $1 -gt 0 ] || exit; \
           until command eval \"next $(($1 - 1)) &\"; do :; done 2> /dev/null; exit; }}; \
         for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do next 20000 & done; \
         echo > begun; sleep 60"
    )
}

/// A limit around the agent that nothing below it can exceed.
struct Fence {
    group: CommandGroup,
    _alone: MutexGuard<'static, ()>,
}

impl Fence {
    /// `None` where there can be no limit. The tests use it one after the other.
    fn put_up() -> Option<Self> {
        static ONE: Mutex<()> = Mutex::new(());
        let alone = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let mut group = CommandGroup::default();
        if let Err(reason) = group.limit_processes(&Tree::host(), MOST) {
            println!("skipped: {reason}");
            return None;
        }
        Some(Self {
            group,
            _alone: alone,
        })
    }

    /// A line of shell that moves the shell behind the fence.
    fn join(&self) -> String {
        let procs = fs::read_link(format!("/proc/self/fd/{}", self.group.procs()[0])).unwrap();
        format!("echo 0 > {}", procs.display())
    }
}

/// The number of processes with this word on their command line.
fn naming(word: &str) -> usize {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines
        .filter(|line| String::from_utf8_lossy(line).contains(word))
        .count()
}

/// Does any process have this word on its command line?
///
/// One look can miss all relays: the processes in the list may have ended before their command
/// lines are read.
fn any_naming(word: &str) -> bool {
    (0..50).any(|_| naming(word) > 0)
}

fn eventually_none(word: &str) -> bool {
    let deadline = Instant::now() + Duration::from_secs(10);
    while any_naming(word) {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

fn begin(agent: &mut Agent, name: &str) {
    let frame = agent.shell(&relays(name), &json!({"timeout_s": 60.0}));
    agent.send(&frame);
    agent.wait_for_line("begun");
}

#[test]
fn what_forks_without_end_ends_with_its_time_and_the_next_command_runs() {
    let Some(fence) = Fence::put_up() else {
        return;
    };
    let mut agent = Agent::start_in(&fence.join(), &["--pids", "300"]);
    assert_eq!(agent.hello["process_limit_error"], json!(null));
    let answer = agent.run(&relays("relay-a"), &json!({"timeout_s": 1.0}));
    assert_eq!(answer["ok"]["timed_out"], true, "{answer}");
    assert!(!any_naming("relay-a"));
    let next = agent.run("(exit 3)", &json!({}));
    assert_eq!(next["ok"]["exit_code"], 3, "{next}");
    let name = format!("vtax-{}-", agent.process.id());
    assert_ne!(groups(&name), "");
    assert!(agent.hang_up().0.success());
    assert_eq!(groups(&name), "");
}

#[test]
fn a_command_cannot_have_more_processes_than_it_may() {
    let Some(fence) = Fence::put_up() else {
        return;
    };
    let mut agent = Agent::start_in(&fence.join(), &["--pids", "20"]);
    let script = "for i in $(seq 30); do sleep 5 & done; wait";
    let answer = agent.run(script, &json!({"timeout_s": 10.0}));
    assert_ne!(answer["ok"]["exit_code"], 0, "{answer}");
    assert!(
        agent.text("stderr").contains("fork"),
        "{}",
        agent.text("stderr")
    );
}

#[test]
fn what_forks_without_end_ends_without_a_group_too() {
    let Some(fence) = Fence::put_up() else {
        return;
    };
    let mut agent = Agent::start_in(&fence.join(), &[]);
    begin(&mut agent, "relay-b");
    assert!(any_naming("relay-b"));
    agent.hang_up();
    assert!(!any_naming("relay-b"));
}

#[test]
fn a_later_start_ends_what_a_killed_agent_left() {
    let Some(fence) = Fence::put_up() else {
        return;
    };
    let mut agent = Agent::start_in(&fence.join(), &["--pids", "300"]);
    begin(&mut agent, "relay-c");
    let number = agent.process.id();
    kill(Pid::from_raw(number.cast_signed()), Signal::SIGKILL).unwrap();
    agent.process.wait().unwrap();
    let name = format!("vtax-{number}-");
    assert!(any_naming("relay-c"), "they outlive the agent");
    assert_ne!(groups(&name), "");
    let later = Agent::start_in(&fence.join(), &["--pids", "300"]);
    assert!(eventually_none("relay-c"));
    assert_eq!(groups(&name), "");
    later.hang_up();
}
