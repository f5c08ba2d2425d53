//! How finely this machine times: a look of some milliseconds, for the facts.

use std::time::Duration;

use crate::clocks::cost;
use crate::clocks::limits::Limits;
use crate::clocks::moment::Moment;
use crate::clocks::source::TIMER;
use crate::clocks::steps;

/// Eight steps of a fine clock take well under a microsecond; a clock of 10 ms ticks needs 80 ms.
const LIMITS: Limits = Limits {
    usual: Duration::from_millis(2),
    longest: Duration::from_millis(150),
};

/// What a duration measured here can be worth; `None` where that could not be found out.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Timing {
    /// The smallest step of `CLOCK_MONOTONIC`.
    pub step_ns: Option<u64>,
    /// The median cost of reading it.
    pub reading_ns: Option<f64>,
    /// Ticks of the time stamp counter per second of `CLOCK_MONOTONIC`.
    pub counter_hz: Option<f64>,
}

pub fn look() -> Timing {
    // The first reading faults the vDSO's pages in: 6 us, or 0.15 % of all this.
    let _ = TIMER.read();
    let begin = Moment::now(TIMER);
    let step_ns = steps::find(|| TIMER.read(), LIMITS).and_then(|steps| steps.smallest);
    let cost = step_ns.and_then(|step| cost::measure(|| TIMER.read(), step, LIMITS).ok());
    Timing {
        step_ns,
        reading_ns: cost.map(|cost| cost.median),
        counter_hz: begin.rate_hz(Moment::now(TIMER)).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_times_and_counts() {
        let timing = look();
        assert!(timing.step_ns.is_some_and(|step| step > 0), "{timing:?}");
        assert!(
            timing.reading_ns.is_none_or(|cost| cost > 1.0),
            "{timing:?}"
        );
        assert!(
            timing.counter_hz.is_some_and(|rate| rate > 1e6),
            "{timing:?}"
        );
    }
}
