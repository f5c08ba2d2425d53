//! Measures the time that other work took from a loop that only reads the clock.

use std::time::{Duration, Instant};

use serde::Serialize;

/// A step of the loop that took longer was interrupted: steps themselves take about 30 ns.
const GAP_NS: u64 = 200;
/// An interrupt's work is shorter. A longer gap is another task or, in a virtual machine, another
/// user of the processor.
const LONG_NS: u64 = 50_000;

/// The time that was taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Stolen {
    /// Steps of more than 200 ns and at most 50 us.
    pub short_gaps: u64,
    /// The time of the short gaps.
    pub short_ns: u64,
    /// Steps of more than 50 us.
    pub long_gaps: u64,
    /// The time of the long gaps.
    pub long_ns: u64,
    /// The mean of all other steps: one reading of the clock.
    pub step_ns: f64,
}

/// Read the clock for this many milliseconds.
pub fn watch(milliseconds: u64) -> Stolen {
    let length = Duration::from_millis(milliseconds);
    let begin = Instant::now();
    let mut before = begin;
    let mut stolen = Stolen::default();
    let (mut steps, mut steps_ns) = (0_u64, 0_u64);
    while before - begin < length {
        let now = Instant::now();
        // The steps take far less than 584 years.
        #[allow(clippy::cast_possible_truncation, reason = "see above")]
        let step = (now - before).as_nanos() as u64;
        before = now;
        if step <= GAP_NS {
            steps += 1;
            steps_ns += step;
        } else if step <= LONG_NS {
            stolen.short_gaps += 1;
            stolen.short_ns += step;
        } else {
            stolen.long_gaps += 1;
            stolen.long_ns += step;
        }
    }
    #[allow(clippy::cast_precision_loss, reason = "a mean")]
    if steps > 0 {
        stolen.step_ns = steps_ns as f64 / steps as f64;
    }
    stolen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_taken_is_less_than_the_time() {
        let stolen = watch(20);
        assert!(stolen.step_ns > 0.0, "{stolen:?}");
        assert!(stolen.short_ns >= stolen.short_gaps * GAP_NS, "{stolen:?}");
    }
}
