//! How a command ended and what it used.

use serde::Serialize;

/// What `run` answers. Times are in seconds.
#[derive(Debug, PartialEq, Serialize)]
pub struct RunAnswer {
    /// Time by `CLOCK_MONOTONIC` from the release of the prepared process, just before its exec, to
    /// the return of the wait.
    pub wall_s: f64,
    /// Ticks of the time stamp counter between the same two points; `None`: there is no counter, or
    /// it stepped back.
    pub tsc_ticks: Option<u64>,
    /// Retired instructions of the command and all that it starts, from its exec on, in user space
    /// and in the kernel; `None`: not asked for, or not counted the whole time.
    pub instructions: Option<u64>,
    /// Retired instructions in user space.
    pub instructions_user: Option<u64>,
    /// CPU cycles, counted as `instructions` is.
    pub cycles: Option<u64>,
    /// CPU time in user space.
    pub user_s: f64,
    /// CPU time in the kernel.
    pub system_s: f64,
    /// Steal time of the CPUs used; `None`: unknown.
    pub steal_s: Option<f64>,
    /// Largest resident set of a single process.
    pub max_rss_bytes: u64,
    /// Page faults without I/O.
    pub minor_faults: u64,
    /// Page faults with I/O.
    pub major_faults: u64,
    /// Context switches by waiting.
    pub voluntary_switches: u64,
    /// Context switches by preemption.
    pub involuntary_switches: u64,
    /// `None`: a signal ended the command.
    pub exit_code: Option<i32>,
    /// `None`: the command exited.
    pub signal: Option<i32>,
    /// The command was killed because its time was up.
    pub timed_out: bool,
    /// Processes that the command left running when it ended by itself, and that were killed.
    pub left_processes: u64,
}
