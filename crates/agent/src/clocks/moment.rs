//! The time stamp counter beside a clock, and its rate between two readings.

use vtax_sys::clock::time_stamp_counter;

use crate::clocks::source::Source;

/// The counter and a clock at one moment.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    pub(super) ticks: u64,
    pub(super) clock_ns: Option<u64>,
}

impl Moment {
    pub fn now(clock: Source) -> Self {
        Self {
            ticks: time_stamp_counter(),
            clock_ns: clock.read(),
        }
    }

    /// Ticks per second between two moments.
    ///
    /// Fails when a clock cannot be read, stood still or stepped back.
    #[allow(
        clippy::cast_precision_loss,
        reason = "the error is far below that of the readings"
    )]
    pub fn rate_hz(self, later: Self) -> Result<f64, &'static str> {
        let (Some(begin), Some(end)) = (self.clock_ns, later.clock_ns) else {
            return Err("the clock beside it cannot be read");
        };
        match (later.ticks.checked_sub(self.ticks), end.checked_sub(begin)) {
            (Some(ticks), Some(passed)) if passed > 0 => Ok(ticks as f64 * 1e9 / passed as f64),
            _ => Err("a clock stood still or stepped back"),
        }
    }
}
