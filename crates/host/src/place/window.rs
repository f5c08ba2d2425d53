//! Measures what threads that work for guests do for a while.

use std::collections::BTreeMap;
use std::time::Instant;

use serde::Serialize;
use vtax_sys::clock::ticks_per_second;
use vtax_sys::task::Schedule;
use vtax_sys::terminal::Error;
use vtax_sys::tree::Tree;

use crate::place::counting::Counting;
use crate::place::cpus;
use crate::place::domain::{Finder, Member};
use crate::place::role::Role;

/// What one thread is and did. Times are in seconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Thread {
    pub pid: i32,
    pub tid: i32,
    /// When it started, in clock ticks since boot; with its number this identifies the thread for
    /// good.
    pub start_ticks: u64,
    /// The name of its process.
    pub process: String,
    pub name: String,
    /// What it does for guests.
    pub role: Role,
    /// Does it serve guests, rather than be one?
    pub service: bool,
    /// The guest that it serves, where it serves only one.
    pub guest: Option<String>,
    /// Time on a CPU; absent where the kernel does not count it.
    pub cpu_s: Option<f64>,
    /// Time in which it was ready but waited for a CPU.
    pub run_delay_s: Option<f64>,
    /// How often it was switched to.
    pub switches: Option<u64>,
    /// How often it was woken; absent without eBPF.
    pub wakeups: Option<u64>,
    /// Time of softirqs in its context; absent without eBPF.
    pub softirq_s: Option<f64>,
    /// The CPUs that it may run on.
    pub cpus: Option<String>,
    /// The CPUs that its cpuset allows; absent where no control group says.
    pub cpuset: Option<String>,
    /// Its scheduling policy.
    pub policy: &'static str,
    /// The CPU that it was last on.
    pub last_cpu: u32,
}

/// What one CPU did. Times are in seconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cpu {
    pub cpu: usize,
    /// Time in which it was neither idle nor taken by a hypervisor.
    pub busy_s: Option<f64>,
    /// Time of softirqs: measured by eBPF, otherwise as sampled by the kernel.
    pub softirq_s: Option<f64>,
}

/// What the threads did in a window.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Window {
    /// The length of the window.
    pub window_s: f64,
    /// The threads that existed at its end.
    pub threads: Vec<Thread>,
    /// The online CPUs.
    pub cpus: Vec<Cpu>,
    /// What is missing, and why.
    pub notes: Vec<String>,
}

/// Watch the service domain until `wait` returns; with `roots`, only those processes and their
/// descendants.
///
/// Fails as `wait` does.
pub fn measure(
    tree: &Tree,
    roots: &[i32],
    wait: impl FnOnce() -> Result<(), Error>,
) -> Result<Window, Error> {
    let mut finder = Finder::default();
    let members = finder.find(tree, roots);
    let numbers: Vec<i32> = members.iter().map(|member| member.tid).collect();
    let counting = Counting::begin(tree, &numbers);
    let begin = Instant::now();
    let before = Before {
        threads: schedules(tree, &members),
        cpus: cpu_ticks(tree),
    };
    wait()?;
    let members = finder.find(tree, roots);
    let window = begin.elapsed();
    let counted = counting.as_ref().ok();
    let threads: Vec<Thread> = members
        .into_iter()
        .map(|member| before.thread(tree, member, counted))
        .collect();
    Ok(Window {
        window_s: window.as_secs_f64(),
        notes: notes(&threads, &before, counting.as_ref().err()),
        cpus: before.cpus(tree, counted),
        threads,
    })
}

type Key = (i32, u64);

fn schedules(tree: &Tree, members: &[Member]) -> BTreeMap<Key, Schedule> {
    let found = members.iter().filter_map(|member| {
        let schedule = tree.schedule(&member.folder())?;
        Some(((member.tid, member.task.start_ticks), schedule))
    });
    found.collect()
}

struct Before {
    threads: BTreeMap<Key, Schedule>,
    cpus: BTreeMap<usize, Ticks>,
}

impl Before {
    fn thread(&self, tree: &Tree, member: Member, counting: Option<&Counting>) -> Thread {
        let folder = member.folder();
        let key = (member.tid, member.task.start_ticks);
        // Threads that began in the window had done nothing before it.
        let before = self.threads.get(&key).copied();
        let now = tree.schedule(&folder);
        let spent = now.map(|now| difference(before.unwrap_or_default(), now));
        let counts = before
            .and(counting)
            .and_then(|counting| counting.thread(member.tid));
        Thread {
            pid: member.pid,
            tid: member.tid,
            start_ticks: member.task.start_ticks,
            process: member.process,
            name: member.task.name,
            role: member.role,
            service: member.role.is_service(),
            guest: member.guest,
            cpu_s: spent.map(|spent| seconds(spent.run_ns)),
            run_delay_s: spent.map(|spent| seconds(spent.delay_ns)),
            switches: spent.map(|spent| spent.switches),
            wakeups: counts.map(|counts| counts.wakeups),
            softirq_s: counts.map(|counts| seconds(counts.softirq_ns)),
            cpus: tree.allowed_cpus(&folder),
            cpuset: cpus::cpuset(tree, &folder).map(|(_, allowed)| cpus::written(&allowed)),
            policy: policy(member.task.policy),
            last_cpu: member.task.last_cpu,
        }
    }

    fn cpus(&self, tree: &Tree, counting: Option<&Counting>) -> Vec<Cpu> {
        let now = cpu_ticks(tree);
        let online = cpus::online(tree).into_iter();
        online
            .map(|cpu| {
                let spent = self.cpus.get(&cpu).zip(now.get(&cpu)).map(|(before, now)| {
                    let busy = now.busy.saturating_sub(before.busy);
                    let softirq = now.softirq.saturating_sub(before.softirq);
                    (in_ticks(busy), in_ticks(softirq))
                });
                let counted = counting.and_then(|counting| counting.cpu(cpu));
                Cpu {
                    cpu,
                    busy_s: spent.map(|(busy, _)| busy),
                    softirq_s: counted.map(seconds).or(spent.map(|(_, softirq)| softirq)),
                }
            })
            .collect()
    }
}

fn difference(before: Schedule, now: Schedule) -> Schedule {
    Schedule {
        run_ns: now.run_ns.saturating_sub(before.run_ns),
        delay_ns: now.delay_ns.saturating_sub(before.delay_ns),
        switches: now.switches.saturating_sub(before.switches),
    }
}

fn notes(threads: &[Thread], before: &Before, refused: Option<&String>) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(reason) = refused {
        notes.push(format!(
            "wakeups and softirq time of threads are absent, softirq time of CPUs is sampled by \
             ticks: {reason}; run it as root of the host"
        ));
    }
    let key = |thread: &Thread| (thread.tid, thread.start_ticks);
    let now: Vec<Key> = threads.iter().map(key).collect();
    let ended = before
        .threads
        .keys()
        .filter(|key| !now.contains(key))
        .count();
    if ended > 0 {
        notes.push(format!(
            "threads that ended in the window, and are absent: {ended}"
        ));
    }
    let new = now.iter().filter(|key| !before.threads.contains_key(key));
    let new = new.count();
    if new > 0 && threads.iter().any(|thread| thread.cpu_s.is_some()) {
        notes.push(format!(
            "threads that began in the window, without wakeups and softirq time: {new}"
        ));
    }
    let unknown = threads.iter().filter(|one| one.role == Role::Unknown);
    let unknown = unknown.count();
    if unknown > 0 {
        notes.push(format!(
            "threads of QEMU without names of their own: {unknown}; start it with \
             -name NAME,debug-threads=on"
        ));
    }
    notes
}

/// Ticks of one CPU in `/proc/stat`.
pub(crate) struct Ticks {
    /// Ticks neither idle nor taken by a hypervisor.
    pub(crate) busy: u64,
    softirq: u64,
}

pub(crate) fn cpu_ticks(tree: &Tree) -> BTreeMap<usize, Ticks> {
    let text = tree.text("/proc/stat").unwrap_or_default();
    text.lines().filter_map(one_cpu).collect()
}

/// `cpuN user nice system idle iowait irq softirq steal ...` (proc(5)).
fn one_cpu(line: &str) -> Option<(usize, Ticks)> {
    let (name, rest) = line.split_once(' ')?;
    let cpu = name.strip_prefix("cpu")?.parse().ok()?;
    let numbers: Vec<u64> = rest
        .split_ascii_whitespace()
        .map_while(|word| word.parse().ok())
        .collect();
    let [user, nice, system, _, _, irq, softirq, ..] = *numbers else {
        return None;
    };
    let busy = user + nice + system + irq + softirq;
    Some((cpu, Ticks { busy, softirq }))
}

#[expect(clippy::cast_precision_loss, reason = "times, not counts")]
fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

#[expect(clippy::cast_precision_loss, reason = "times, not counts")]
fn in_ticks(ticks: u64) -> f64 {
    ticks as f64 / f64::from(ticks_per_second())
}

/// The name of a policy (include/uapi/linux/sched.h).
fn policy(number: u32) -> &'static str {
    match number {
        1 => "fifo",
        2 => "rr",
        3 => "batch",
        5 => "idle",
        6 => "deadline",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_cpu_is_without_idling_and_stealing() {
        let (cpu, ticks) = one_cpu("cpu1 10 1 20 500 60 2 3 70 0 0").unwrap();
        assert_eq!((cpu, ticks.busy, ticks.softirq), (1, 36, 3));
        assert!(one_cpu("cpu  1 2 3 4 5 6 7 8 9 10").is_none());
        assert!(one_cpu("cpu0 1 2").is_none());
    }
}
