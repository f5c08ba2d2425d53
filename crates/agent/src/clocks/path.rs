//! Do the C library's calls read a clock in user space (vDSO), or enter the kernel?

use std::thread;

use nix::errno::Errno;
use serde::Serialize;
use vtax_sys::calls::clocks::clock_gettime_by_call;
use vtax_sys::calls::seccomp::refuse;

use crate::clocks::distribution::Distribution;
use crate::clocks::source::ClockReader;

/// Which way a reading takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Path {
    /// In user space, by code of the kernel.
    Vdso,
    /// Into the kernel.
    Syscall,
    /// An instruction of the processor.
    Instruction,
    Unknown,
}

/// A reading that costs less than this share of the system call cannot have made the call.
const SURELY_LESS: f64 = 0.5;
/// A reading that made the call costs no less than this share: noise on two equal costs.
const SURELY_EQUAL: f64 = 0.8;

/// Which of the sources still answer in a thread that has no system calls for clocks.
///
/// The error is the reason why the kernel did not take them away.
pub fn without_calls(sources: &[ClockReader]) -> Result<Vec<bool>, String> {
    const CALLS: [libc::c_long; 4] = [
        libc::SYS_clock_gettime,
        libc::SYS_gettimeofday,
        libc::SYS_getrusage,
        libc::SYS_times,
    ];
    let sources = sources.to_vec();
    // Not EPERM: `times` takes -1 for a time.
    let watch = move || {
        refuse(&CALLS, Errno::EDOM).map_err(|errno| format!("seccomp: {}", errno.desc()))?;
        if clock_gettime_by_call(libc::CLOCK_MONOTONIC).is_some() {
            return Err("seccomp: the filter does not hold".to_owned());
        }
        Ok(sources
            .iter()
            .map(|source| source.read().is_some())
            .collect())
    };
    // A filter stays with its thread, so the thread is one that ends.
    let thread = thread::Builder::new().spawn(watch);
    let thread = thread.map_err(|error| format!("thread: {}", vtax_sys::reason(&error)))?;
    thread
        .join()
        .unwrap_or_else(|_| Err("the thread failed".into()))
}

/// Judge by the medians of both ways' costs.
pub fn by_cost(reading: Option<Distribution>, call: Option<Distribution>) -> Path {
    let (Some(reading), Some(call)) = (reading, call) else {
        return Path::Unknown;
    };
    let share = reading.median / call.median;
    if share < SURELY_LESS {
        Path::Vdso
    } else if share > SURELY_EQUAL {
        Path::Syscall
    } else {
        Path::Unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_a_system_call_by_nature_is_found_to_be_one() {
        let sources = ClockReader::all();
        let Ok(answers) = without_calls(&sources) else {
            return; // A machine without seccomp.
        };
        for (source, answers) in sources.iter().zip(answers) {
            match source.name {
                // Linux has no vDSO for CPU time.
                "times" | "getrusage" | "clock" | "CLOCK_PROCESS_CPUTIME_ID" => {
                    assert!(!answers, "{}", source.name);
                }
                vtax_sys::calls::processor::COUNTER => assert!(answers),
                _ => {}
            }
            assert_eq!(
                source.has_call(),
                source.read_by_call().is_some(),
                "{}",
                source.name
            );
        }
    }

    #[test]
    fn costs_decide_only_where_they_differ_clearly_or_hardly() {
        let cost = |median| Distribution::of(vec![median]);
        assert_eq!(by_cost(cost(20.0), cost(200.0)), Path::Vdso);
        assert_eq!(by_cost(cost(190.0), cost(200.0)), Path::Syscall);
        assert_eq!(by_cost(cost(130.0), cost(200.0)), Path::Unknown);
        assert_eq!(by_cost(cost(130.0), None), Path::Unknown);
    }
}
