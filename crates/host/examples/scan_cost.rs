//! What finding and reading the threads of one guest costs, by their number.
//!
//! `cargo run --release -p vtax-host --example scan_cost`

#![allow(clippy::unwrap_used, reason = "a measurement fails by panicking")]

use std::env;
use std::io::{Read, stdin};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::thread::{park, sleep, spawn};
use std::time::Duration;

use vtax_host::place::domain::Finder;
use vtax_sys::clock::process_time_ns;
use vtax_sys::tree::Tree;

const SCANS: u64 = 20;

fn main() {
    if let Some(threads) = env::args().nth(1) {
        return stand_for_a_guest(threads.parse().unwrap());
    }
    for threads in [300, 2000] {
        let mut guest = Command::new(env::current_exe().unwrap())
            .arg0("qemu-system-test")
            .arg(threads.to_string())
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let pid = guest.id().cast_signed();
        let tree = Tree::host();
        while tree.threads(pid).len() <= threads {
            sleep(Duration::from_millis(10));
        }
        report(&tree, pid);
        drop(guest.stdin.take());
        guest.wait().unwrap();
    }
}

fn stand_for_a_guest(threads: usize) {
    for _ in 0..threads {
        spawn(|| {
            loop {
                park();
            }
        });
    }
    let _ = stdin().read(&mut [0]);
}

fn report(tree: &Tree, pid: i32) {
    let mut finder = Finder::default();
    let all = finder.find(tree, &[]).len();
    let find = cost(|| drop(finder.find(tree, &[])));
    let members = finder.find(tree, &[pid]);
    let schedules = cost(|| {
        for member in &members {
            tree.schedule(&member.folder()).unwrap();
        }
    });
    let processes = finder.processes().iter().count();
    println!(
        "{processes} processes, {all} threads of guests: finding {:.2} ms, reading schedstat of \
         {} {:.2} ms",
        find,
        members.len(),
        schedules
    );
}

/// Milliseconds of CPU time.
#[expect(clippy::cast_precision_loss, reason = "a time")]
fn cost(mut act: impl FnMut()) -> f64 {
    let begin = process_time_ns();
    for _ in 0..SCANS {
        act();
    }
    (process_time_ns() - begin) as f64 / 1e6 / SCANS as f64
}
