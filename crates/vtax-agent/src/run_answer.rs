//! How a command ended and what it used.

use serde::Serialize;

/// What `run` answers. Times are in seconds.
#[derive(Debug, PartialEq, Serialize)]
pub struct RunAnswer {
    /// `CLOCK_MONOTONIC` from the release of the process, set up and just before exec, to the wait's
    /// return.
    pub wall_s: f64,
    /// Ticks of the time stamp counter between the same two points; `None`: there is no counter, or
    /// it went back.
    pub tsc_ticks: Option<u64>,
    /// Instructions retired from its exec on by the command and all that it starts, in user space
    /// and in the kernel; `None`: not asked for, or not counted all the time.
    pub instructions: Option<u64>,
    /// Those in user space.
    pub instructions_user: Option<u64>,
    /// The same of CPU cycles.
    pub cycles: Option<u64>,
    /// CPU time in user space.
    pub user_s: f64,
    /// CPU time in the kernel.
    pub system_s: f64,
    /// Time that the hypervisor took from the CPUs used; `None`: unknown.
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
    /// `None` when a signal ended it.
    pub exit_code: Option<i32>,
    /// `None` when it exited.
    pub signal: Option<i32>,
    /// It was killed because its time was up.
    pub timed_out: bool,
    /// Processes that it had left running when it ended by itself, and that were killed.
    pub left_processes: u64,
}
