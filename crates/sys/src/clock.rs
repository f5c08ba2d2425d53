//! Clocks, and the ticks in which `/proc` counts time.

use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
use nix::unistd::{SysconfVar, sysconf};

pub use crate::calls::processor::{time_stamp, time_stamp_counter};

/// The rate that Linux has on every machine that it runs on today.
const USUAL_TICKS: u32 = 100;

/// `CLOCK_MONOTONIC` at this moment, in nanoseconds.
pub fn monotonic_ns() -> u64 {
    nanoseconds(ClockId::CLOCK_MONOTONIC)
}

/// CPU time of this process, in nanoseconds.
pub fn process_time_ns() -> u64 {
    nanoseconds(ClockId::CLOCK_PROCESS_CPUTIME_ID)
}

/// CPU time of this thread, in nanoseconds.
pub fn thread_time_ns() -> u64 {
    nanoseconds(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

/// A clock that Linux always has, so there is no error.
fn nanoseconds(clock: ClockId) -> u64 {
    now_ns(clock).unwrap_or(0)
}

/// Any clock at this moment, in nanoseconds; `None` when it cannot be read.
pub fn now_ns(clock: ClockId) -> Option<u64> {
    let time = clock_gettime(clock).ok()?;
    let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
    Some(seconds * 1_000_000_000 + u64::try_from(time.tv_nsec()).unwrap_or(0))
}

/// The time of day in UTC, such as `09:05:00Z`, of a time in seconds since 1970.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a time of day"
)]
pub fn time_of_day(time: f64) -> String {
    let seconds = time as u64 % 86_400;
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{hour:02}:{minute:02}:{second:02}Z")
}

/// One moment by two clocks.
#[derive(Debug, Clone, Copy)]
pub struct Stamp {
    /// By `CLOCK_MONOTONIC`.
    pub time: Instant,
    /// By the time stamp counter.
    ticks: u64,
}

impl Stamp {
    #[inline]
    pub fn now() -> Self {
        Self {
            time: Instant::now(),
            ticks: time_stamp(),
        }
    }

    /// The time since `earlier`, and the ticks of the time stamp counter; `None` when the counter
    /// went back.
    pub fn since(&self, earlier: &Self) -> (Duration, Option<u64>) {
        let ticks = self.ticks.checked_sub(earlier.ticks);
        (self.time.duration_since(earlier.time), ticks)
    }
}

/// Clock ticks per second of the times in `/proc` (`CLK_TCK`).
pub fn ticks_per_second() -> u32 {
    let ticks = sysconf(SysconfVar::CLK_TCK).ok().flatten();
    let ticks = ticks.and_then(|ticks| u32::try_from(ticks).ok());
    ticks.filter(|ticks| *ticks > 0).unwrap_or(USUAL_TICKS)
}

/// Nanoseconds of one such tick.
pub fn tick_ns() -> u64 {
    1_000_000_000 / u64::from(ticks_per_second())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_clocks_of_a_stamp_see_the_same_span() {
        let (first, begin) = (Stamp::now(), Instant::now());
        while begin.elapsed() < Duration::from_millis(20) {}
        let middle = Stamp::now();
        while begin.elapsed() < Duration::from_millis(60) {}
        let last = Stamp::now();
        let (short, short_ticks) = middle.since(&first);
        let (long, long_ticks) = last.since(&first);
        // The counter's rate is unknown here: both spans must give the same rate.
        let rate = |span: Duration, ticks: Option<u64>| {
            u128::from(ticks.unwrap()) * 1000 / span.as_nanos()
        };
        let (long, short) = (rate(long, long_ticks), rate(short, short_ticks));
        assert!(long < 2 * short && short < 2 * long, "{long} {short}");
    }

    #[test]
    fn a_counter_that_went_back_counts_nothing() {
        let now = Stamp::now();
        let ahead = Stamp {
            ticks: u64::MAX,
            ..now
        };
        assert_eq!(now.since(&ahead).1, None);
    }
}
