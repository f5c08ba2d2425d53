//! Clocks, and the ticks in which `/proc` counts time.

use nix::time::{ClockId, clock_gettime};
use nix::unistd::{SysconfVar, sysconf};

pub use crate::calls::processor::time_stamp_counter;

/// What Linux has on every machine that it runs on today.
const USUAL_TICKS: u32 = 100;

/// `CLOCK_MONOTONIC` now, in nanoseconds.
pub fn monotonic_ns() -> u64 {
    nanoseconds(ClockId::CLOCK_MONOTONIC)
}

/// Processor time of this process, in nanoseconds.
pub fn process_time_ns() -> u64 {
    nanoseconds(ClockId::CLOCK_PROCESS_CPUTIME_ID)
}

/// Linux has these clocks, so there is no error.
fn nanoseconds(clock: ClockId) -> u64 {
    now_ns(clock).unwrap_or(0)
}

/// Any clock now, in nanoseconds; `None` when it cannot be read.
pub fn now_ns(clock: ClockId) -> Option<u64> {
    let time = clock_gettime(clock).ok()?;
    let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
    Some(seconds * 1_000_000_000 + u64::try_from(time.tv_nsec()).unwrap_or(0))
}

/// Clock ticks per second of the times in `/proc` (`CLK_TCK`).
pub fn ticks_per_second() -> u32 {
    let ticks = sysconf(SysconfVar::CLK_TCK).ok().flatten();
    let ticks = ticks.and_then(|ticks| u32::try_from(ticks).ok());
    ticks.filter(|ticks| *ticks > 0).unwrap_or(USUAL_TICKS)
}

/// Nanoseconds of such a tick.
pub fn tick_ns() -> u64 {
    1_000_000_000 / u64::from(ticks_per_second())
}
