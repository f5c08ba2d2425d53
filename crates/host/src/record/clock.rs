//! The two clocks of a row: `CLOCK_MONOTONIC`, which the programs read, and the time stamp counter.

use serde::Serialize;
use vtax_sys::clock::{monotonic_ns, time_stamp_counter};

/// How often the clocks are read to find a pair close together.
const TRIES: usize = 5;

/// Both clocks at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Pair {
    /// `CLOCK_MONOTONIC`.
    pub monotonic_ns: u64,
    /// The time stamp counter.
    pub tsc: u64,
    /// Ticks within which the other clock was read: the bound of the pair's error.
    pub within: u64,
}

impl Pair {
    /// Read both clocks, as close together as a few tries allow.
    pub fn now() -> Self {
        let one = || {
            let before = time_stamp_counter();
            let monotonic_ns = monotonic_ns();
            let within = time_stamp_counter().saturating_sub(before);
            Self {
                monotonic_ns,
                tsc: before + within / 2,
                within,
            }
        };
        let first = one();
        (1..TRIES).map(|_| one()).fold(first, |best, next| {
            if next.within < best.within {
                next
            } else {
                best
            }
        })
    }

    /// The counter at a time, on the line through this pair and a later one.
    pub fn tsc_at(&self, later: &Self, monotonic_ns: u64) -> u64 {
        let span = later.monotonic_ns.saturating_sub(self.monotonic_ns);
        if span == 0 {
            return self.tsc;
        }
        let ticks = i128::from(later.tsc) - i128::from(self.tsc);
        let since = i128::from(monotonic_ns) - i128::from(self.monotonic_ns);
        let tsc = i128::from(self.tsc) + since * ticks / i128::from(span);
        u64::try_from(tsc).unwrap_or(0)
    }

    /// Ticks per second between this pair and a later one; `None` when no time passed.
    pub fn hertz(&self, later: &Self) -> Option<u64> {
        let span = u128::from(later.monotonic_ns.checked_sub(self.monotonic_ns)?);
        let ticks = u128::from(later.tsc.checked_sub(self.tsc)?);
        u64::try_from((ticks * 1_000_000_000).checked_div(span)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(monotonic_ns: u64, tsc: u64) -> Pair {
        Pair {
            monotonic_ns,
            tsc,
            within: 0,
        }
    }

    #[test]
    fn times_lie_on_the_line_through_two_pairs() {
        let (first, later) = (pair(1000, 50_000), pair(2000, 53_000));
        assert_eq!(first.tsc_at(&later, 1500), 51_500);
        assert_eq!(first.tsc_at(&later, 900), 49_700);
        assert_eq!(first.hertz(&later), Some(3_000_000_000));
        assert_eq!(first.hertz(&first), None);
        assert_eq!(first.tsc_at(&first, 5), 50_000);
    }

    #[test]
    fn this_machine_has_both_clocks() {
        let first = Pair::now();
        std::thread::sleep(std::time::Duration::from_millis(20));
        let later = Pair::now();
        // Counters of arm64 may be as slow as 1 MHz: 20,000 ticks.
        assert!(first.hertz(&later).unwrap() >= 1_000_000 - 1_000);
        let middle = first.tsc_at(&later, first.monotonic_ns + 10_000_000);
        assert!(first.tsc < middle && middle < later.tsc);
    }
}
