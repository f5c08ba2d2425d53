//! The time stamp counter beside a clock, and its rate between two readings.

use vtax_sys::clock::time_stamp_counter;

use crate::clocks::source::ClockReader;

/// Readings of which one counts. A thread that loses its CPU between the counter and the clock
/// makes a rate over some milliseconds wrong by per cents; it does not lose it every time.
const TRIES: usize = 16;

/// The counter and a clock at one moment.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    pub(super) ticks: u64,
    pub(super) clock_ns: Option<u64>,
}

impl Moment {
    /// The reading of the clock with the fewest ticks around it, and the middle of these.
    pub fn now(clock: ClockReader) -> Self {
        let first = Self::with_uncertainty(clock);
        let others = (1..TRIES).map(|_| Self::with_uncertainty(clock));
        others
            .fold(
                first,
                |best, next| if next.1 < best.1 { next } else { best },
            )
            .0
    }

    /// A reading, and by how many ticks it may be off in either direction.
    fn with_uncertainty(clock: ClockReader) -> (Self, u64) {
        let before = time_stamp_counter();
        let clock_ns = clock.read();
        let half = time_stamp_counter().saturating_sub(before) / 2;
        let ticks = before + half;
        (Self { ticks, clock_ns }, half)
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
