//! What one reading of a clock costs.

use std::hint::black_box;
use std::time::Duration;

use vtax_sys::clock::monotonic_ns;

use crate::clocks::distribution::Distribution;
use crate::clocks::limits::Limits;

/// A batch takes at least this long, so that the two readings of the timer around it are under 1 %
/// of it.
const SHORTEST_BATCH_NS: u64 = 10_000;
/// And at least this many steps of the timer, so that its resolution is at most 2 % of a batch.
const TIMER_STEPS: u64 = 50;
const SMALLEST_BATCH: u32 = 64;
/// The largest batch, for a timer that stands still.
const LARGEST_BATCH: u32 = 1 << 20;
/// An interruption can lengthen one batch, but hardly three.
const TRIALS: usize = 3;
const FEWEST: usize = 5;
const FEWEST_BATCHES: u64 = FEWEST as u64;
const MOST_BATCHES: usize = 2_000;

/// The cost of one reading in nanoseconds, from the means of batches of readings.
///
/// `timer_step_ns` is the smallest step of `CLOCK_MONOTONIC`, which times the batches. The error is
/// the reason why there is no answer.
pub fn measure<T>(
    read: impl Fn() -> T,
    timer_step_ns: u64,
    limits: Limits,
) -> Result<Distribution, String> {
    let usual_ns = nanoseconds(limits.usual);
    let enough_ns = SHORTEST_BATCH_NS.max(TIMER_STEPS.saturating_mul(timer_step_ns));
    if enough_ns.saturating_mul(FEWEST_BATCHES) > usual_ns {
        return Err(format!(
            "CLOCK_MONOTONIC has steps of {timer_step_ns} ns: too coarse to time calls"
        ));
    }
    let begin = monotonic_ns();
    let passed = || monotonic_ns().saturating_sub(begin);
    let in_time = || passed() < nanoseconds(limits.longest);
    let mut size = SMALLEST_BATCH;
    let too_short = |size| (0..TRIALS).any(|_| batch_ns(&read, size) < enough_ns);
    while in_time() && size < LARGEST_BATCH && too_short(size) {
        size *= 2;
    }
    let mut means = Vec::new();
    while in_time() && (means.len() < FEWEST || passed() < usual_ns) && means.len() < MOST_BATCHES {
        means.push(mean(batch_ns(&read, size), size));
    }
    let few = format!(
        "in {} ms only {} batches of {size}",
        limits.longest.as_millis(),
        means.len()
    );
    let enough = (means.len() >= FEWEST).then_some(means);
    enough.and_then(Distribution::of).ok_or(few)
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn batch_ns<T>(read: impl Fn() -> T, size: u32) -> u64 {
    let begin = monotonic_ns();
    for _ in 0..size {
        black_box(read());
    }
    monotonic_ns().saturating_sub(begin)
}

#[allow(clippy::cast_precision_loss, reason = "a batch is far below 2^53 ns")]
fn mean(nanoseconds: u64, size: u32) -> f64 {
    nanoseconds as f64 / f64::from(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        usual: Duration::from_millis(20),
        longest: Duration::from_secs(20),
    };

    #[test]
    fn a_reading_costs_at_least_what_it_waits() {
        let wait = || {
            let begin = monotonic_ns();
            while monotonic_ns() < begin + 2_000 {}
        };
        let cost = measure(wait, 1, LIMITS).unwrap();
        assert!(cost.min >= 2_000.0, "{cost:?}");
        assert!(cost.n >= FEWEST);
    }

    #[test]
    fn a_timer_that_is_too_coarse_gives_no_number() {
        let reason = measure(|| 1, 1_000_000, LIMITS).unwrap_err();
        assert!(reason.contains("1000000 ns"), "{reason}");
    }

    #[test]
    fn readings_that_are_too_slow_give_no_number() {
        let limits = Limits {
            longest: LIMITS.usual,
            ..LIMITS
        };
        let slow = || std::thread::sleep(Duration::from_millis(1));
        let reason = measure(slow, 1, limits).unwrap_err();
        assert!(reason.contains("only 0 batches of 64"), "{reason}");
    }
}
