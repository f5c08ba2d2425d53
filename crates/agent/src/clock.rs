//! Setting a guest's wall clock: a restored machine's clock stands where it was saved.

use std::time::Duration;

use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_settime};
use serde::Deserialize;

/// The fields of `clock`; a waiting guest's `enter` may have them as well.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub struct ClockRequest {
    /// Seconds since 1970, UTC, with a fraction.
    pub realtime_s: f64,
}

impl ClockRequest {
    /// Check what the type cannot: the range.
    ///
    /// Fails when `realtime_s` is not a number of seconds from 0 to below 2^32 - 1.
    pub fn check(&self) -> Result<(), String> {
        self.time().map(drop)
    }

    /// Set `CLOCK_REALTIME`.
    ///
    /// # Errors
    /// The kernel's reason; without `CAP_SYS_TIME` it refuses.
    pub fn set(&self) -> Result<(), String> {
        clock_settime(ClockId::CLOCK_REALTIME, self.time()?)
            .map_err(|errno| format!("clock_settime: {}", errno.desc()))
    }

    fn time(self) -> Result<TimeSpec, String> {
        Duration::try_from_secs_f64(self.realtime_s)
            .ok()
            // Later than that, the kernel's count of nanoseconds could overflow while the guest
            // runs.
            .filter(|time| time.as_secs() < u64::from(u32::MAX))
            .map(TimeSpec::from_duration)
            .ok_or_else(|| format!("realtime_s: {} is not a time since 1970", self.realtime_s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_keeps_its_fraction() {
        let request = ClockRequest {
            realtime_s: 1_700_000_000.25,
        };
        assert_eq!(
            request.time(),
            Ok(TimeSpec::new(1_700_000_000, 250_000_000))
        );
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for realtime_s in [-1.0, f64::NAN, f64::INFINITY, 1e12, 1e300] {
            let request = ClockRequest { realtime_s };
            assert!(request.check().is_err(), "{realtime_s}");
        }
    }
}
