//! What one reading of a clock costs.

use std::hint::black_box;
use std::time::Duration;

use vtax_sys::clock::monotonic_ns;

use crate::clocks::distribution::Distribution;

/// Batches are at least so long: the two readings of the timer around one are then under 1 %.
const SHORTEST_BATCH_NS: u64 = 10_000;
/// And so many steps of the timer, so that its resolution is at most 2 % of a batch.
const TIMER_STEPS: u64 = 50;
const SMALLEST_BATCH: u32 = 64;
const LARGEST_BATCH: u32 = 1 << 20;
/// An interruption makes one batch look long enough; hardly three.
const TRIALS: usize = 3;
const FEWEST_BATCHES: usize = 5;
const MOST_BATCHES: usize = 2_000;

/// Nanoseconds of one reading, as the means of batches of readings.
///
/// `timer_step_ns` is the smallest step of `CLOCK_MONOTONIC`, which times the batches. The error
/// is the reason why there is no answer.
pub fn measure<T>(
    read: impl Fn() -> T,
    timer_step_ns: u64,
    limit: Duration,
) -> Result<Distribution, String> {
    let limit_ns = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
    let begin = monotonic_ns();
    let in_time = || monotonic_ns().saturating_sub(begin) < limit_ns;
    let enough_ns = SHORTEST_BATCH_NS.max(TIMER_STEPS.saturating_mul(timer_step_ns));
    let mut size = SMALLEST_BATCH;
    while (0..TRIALS).any(|_| batch_ns(&read, size) < enough_ns) {
        size *= 2;
        if !in_time() || size > LARGEST_BATCH {
            return Err(too_coarse(timer_step_ns, limit));
        }
    }
    let mut means = Vec::new();
    while means.len() < MOST_BATCHES && (means.len() < FEWEST_BATCHES || in_time()) {
        means.push(mean(batch_ns(&read, size), size));
    }
    Distribution::of(means).ok_or_else(|| too_coarse(timer_step_ns, limit))
}

fn too_coarse(timer_step_ns: u64, limit: Duration) -> String {
    let limit = limit.as_millis();
    format!(
        "CLOCK_MONOTONIC has steps of {timer_step_ns} ns: too coarse to time calls in {limit} ms"
    )
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

    #[test]
    fn a_reading_costs_at_least_what_it_waits() {
        let wait = || {
            let begin = monotonic_ns();
            while monotonic_ns() < begin + 2_000 {}
        };
        let cost = measure(wait, 1, Duration::from_millis(20)).unwrap();
        assert!(cost.min >= 2_000.0, "{cost:?}");
        assert!(cost.n >= FEWEST_BATCHES);
    }

    #[test]
    fn a_timer_that_is_too_coarse_gives_no_number() {
        let reason = measure(|| 1, 1_000_000_000, Duration::from_millis(1)).unwrap_err();
        assert!(reason.contains("1000000000 ns"), "{reason}");
    }
}
