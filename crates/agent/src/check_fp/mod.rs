//! Do vector registers keep their values across context switches?
//!
//! A guest kernel that saves or restores them wrongly silently gives wrong results. Two processes
//! of two threads share one CPU; each thread keeps its own values in every vector register, gives
//! the CPU away in each round, and compares.
//!
//! The check uses both processes and threads because user-mode Linux has one host process for each
//! address space: the host itself keeps the registers of processes apart, but not those of threads.

mod registers;

use std::process::{Child, Command};
use std::thread;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use serde::Serialize;

use crate::check_fp::registers::Width;
use crate::serve::pin;
use vtax_sys::reason;
use vtax_sys::terminal::Error;

/// Set in the second process: the seed of its register values.
const SEED_VARIABLE: &str = "VTAX_CHECK_FP_SEED";

/// What was checked; it exists only if no register lost its value.
#[derive(Debug, Serialize)]
pub struct Checked {
    /// The name of the widest registers that the CPU and kernel offer: xmm, ymm or zmm; v on arm64.
    pub registers: &'static str,
    pub rounds: u32,
}

/// Check in two processes, both on one CPU.
///
/// Fails when a register changed across a context switch, when the process cannot be confined to
/// one CPU, or when the second process cannot be started.
pub fn check(rounds: u32) -> Result<Checked, Error> {
    let width = Width::widest();
    if let Ok(seed) = std::env::var(SEED_VARIABLE) {
        return keep_in_threads(width, seed.parse().unwrap_or(0), rounds);
    }
    share_one_cpu()?;
    let mut other = second_process(rounds)
        .map_err(|error| Error::failure("check-fp", reason(&error), "see ulimit -u"))?;
    let own = keep_in_threads(width, 1, rounds);
    let status = other
        .wait()
        .map_err(|error| Error::failure("check-fp", reason(&error), "try again"))?;
    if !status.success() {
        return Err(lost(width));
    }
    own
}

fn second_process(rounds: u32) -> std::io::Result<Child> {
    Command::new("/proc/self/exe")
        .args(["check-fp", "--rounds", &rounds.to_string()])
        .env(SEED_VARIABLE, (1_u64 << 50).to_string())
        // The second process finds the same result; only its errors are of interest.
        .stdout(std::process::Stdio::null())
        .spawn()
}

/// On two CPUs the processes would not switch at all.
fn share_one_cpu() -> Result<(), Error> {
    let current = nix::sched::sched_getaffinity(Pid::from_raw(0))
        .map_err(|errno| Error::failure("check-fp", errno.desc(), "try again"))?;
    let first = (0..CpuSet::count()).find(|cpu| current.is_set(*cpu).unwrap_or(false));
    // A kernel with one CPU need not support affinity.
    let mut set = CpuSet::new();
    let cpu = first.unwrap_or(0);
    if set.set(cpu).is_ok() && sched_setaffinity(Pid::from_raw(0), &set).is_err() && cpu != 0 {
        return pin(&[cpu]);
    }
    Ok(())
}

fn keep_in_threads(width: Width, seed: u64, rounds: u32) -> Result<Checked, Error> {
    thread::scope(|scope| {
        // Seeds far apart: the threads' values differ in every round.
        let second = scope.spawn(|| keep(width, seed + (1 << 40), rounds));
        let first = keep(width, seed, rounds);
        second.join().unwrap_or_else(|_| Err(lost(width)))?;
        first
    })
}

fn keep(width: Width, seed: u64, rounds: u32) -> Result<Checked, Error> {
    for round in 0..u64::from(rounds) {
        if !registers::survive(width, seed + round) {
            return Err(lost(width));
        }
    }
    Ok(Checked {
        registers: width.name(),
        rounds,
    })
}

fn lost(width: Width) -> Error {
    let reason = format!("{} registers changed across a context switch", width.name());
    Error::failure(
        "check-fp",
        reason,
        "no result of this machine can be trusted",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_survive_here() {
        keep_in_threads(Width::widest(), 1, 1000).unwrap();
        keep_in_threads(Width::NARROWEST, 7, 1000).unwrap();
    }
}
