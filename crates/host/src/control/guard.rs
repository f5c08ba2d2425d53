//! Decides whether the host may be switched: dwell, budget of the pause, back-off.

use serde::{Deserialize, Serialize};

/// The number of pauses that are remembered.
const PAUSES: usize = 8;
/// The assumed length of a pause before the first one was measured. It is below the default budget,
/// so that one switch can be made and measured.
pub const SUPPOSED_PAUSE_MS: f64 = 150.0;
/// After this many failures in a row the wait does not grow any more.
const MOST_DOUBLINGS: u32 = 6;

/// The limits that an operator sets.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// The longest pause of guests, in milliseconds.
    pub max_pause_ms: f64,
    /// The least time between two switches, in seconds.
    pub min_dwell_s: f64,
}

/// What is known about earlier switches. Times are in seconds since boot.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Guard {
    /// When the mode last changed, whoever changed it.
    pub changed_s: Option<f64>,
    /// No switch before this time.
    pub retry_s: Option<f64>,
    /// Refusals and failures since the last switch that worked.
    pub failures: u32,
    /// The reason of the last refusal or failure.
    #[serde(default)]
    pub why: Option<String>,
    /// The longest pause of each of the last switches, in milliseconds, the newest last.
    pub pauses_ms: Vec<f64>,
}

/// Why the host may not be switched now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// A switch will be possible later, without any change.
    Wait(String),
    /// A switch is not possible as things are.
    No(String),
}

impl Guard {
    /// The expected pause in milliseconds, and where the number comes from.
    pub fn expected_pause(&self) -> (f64, &'static str) {
        match self.pauses_ms.iter().copied().reduce(f64::max) {
            Some(longest) => (longest, "the longest of the last switches"),
            None => (SUPPOSED_PAUSE_MS, "assumed, none was measured yet"),
        }
    }

    /// May the host be switched now?
    ///
    /// Fails with the reason why not.
    pub fn may(&self, now_s: f64, limits: &Limits) -> Result<(), Refusal> {
        let left = |at: f64| at - now_s;
        if let Some(changed) = self.changed_s {
            let left = left(changed + limits.min_dwell_s);
            if left > 0.0 {
                let dwell = limits.min_dwell_s;
                return Err(Refusal::Wait(format!(
                    "modes last {dwell} s at least (--min-dwell), {left:.0} s more"
                )));
            }
        }
        if let Some(retry) = self.retry_s.filter(|retry| left(*retry) > 0.0) {
            return Err(Refusal::Wait(format!(
                "{} ({} in a row, the next attempt in {:.0} s)",
                self.why.as_deref().unwrap_or("the last attempt failed"),
                self.failures,
                left(retry)
            )));
        }
        let (pause, source) = self.expected_pause();
        if pause > limits.max_pause_ms {
            return Err(Refusal::No(format!(
                "guests would pause {pause:.0} ms ({source}), longer than --max-pause {:.0} ms",
                limits.max_pause_ms
            )));
        }
        Ok(())
    }

    /// Record a switch for which guests have paused this long.
    pub fn switched(&mut self, now_s: f64, pause_ms: Option<f64>) {
        self.pauses_ms.extend(pause_ms);
        let too_many = self.pauses_ms.len().saturating_sub(PAUSES);
        self.pauses_ms.drain(..too_many);
        self.changed_s = Some(now_s);
        self.forget_failures();
    }

    /// Record that somebody else has changed the mode, or that a switch would have been made with
    /// `apply`.
    pub fn changed(&mut self, now_s: f64) {
        self.changed_s = Some(now_s);
    }

    /// Record that a switch was refused or failed: the wait doubles each time.
    pub fn failed(&mut self, now_s: f64, limits: &Limits, why: &str) {
        let doublings = self.failures.min(MOST_DOUBLINGS);
        let wait = limits.min_dwell_s.max(1.0) * f64::from(1_u32 << doublings);
        self.failures = self.failures.saturating_add(1);
        self.retry_s = Some(now_s + wait);
        self.why = Some(why.to_owned());
    }

    /// Forget all times: those of another boot mean nothing.
    pub fn forget_times(&mut self) {
        self.changed_s = None;
        self.forget_failures();
    }

    fn forget_failures(&mut self) {
        self.retry_s = None;
        self.failures = 0;
        self.why = None;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: Limits = Limits {
        max_pause_ms: 200.0,
        min_dwell_s: 60.0,
    };

    fn waits(result: Result<(), Refusal>) -> bool {
        matches!(result, Err(Refusal::Wait(_)))
    }

    #[test]
    fn modes_last() {
        let mut guard = Guard::default();
        assert_eq!(guard.may(5.0, &LIMITS), Ok(()));
        guard.switched(5.0, Some(100.0));
        assert!(waits(guard.may(64.9, &LIMITS)));
        assert_eq!(guard.may(65.1, &LIMITS), Ok(()));
    }

    #[test]
    fn a_measured_pause_beyond_the_budget_ends_it() {
        let mut guard = Guard::default();
        guard.switched(0.0, Some(450.0));
        let Err(Refusal::No(reason)) = guard.may(100.0, &LIMITS) else {
            panic!("it may switch")
        };
        assert!(
            reason.contains("450 ms") && reason.contains("200 ms"),
            "{reason}"
        );
        // Switches by others push the old pause out of the list.
        for _ in 0..PAUSES {
            guard.switched(0.0, Some(90.0));
        }
        assert_eq!(guard.may(100.0, &LIMITS), Ok(()));
    }

    #[test]
    fn failures_wait_longer_each_time_until_one_works() {
        let mut guard = Guard::default();
        let mut waits = Vec::new();
        for _ in 0..9 {
            guard.failed(0.0, &LIMITS, "no");
            waits.extend(guard.retry_s);
        }
        assert_eq!(waits[..3], [60.0, 120.0, 240.0]);
        assert_eq!(waits[8..], [3840.0]);
        guard.switched(1e4, None);
        assert_eq!((guard.failures, guard.retry_s), (0, None));
        assert!(guard.pauses_ms.is_empty());
    }

    proptest! {
        /// Whatever is attempted and when, there are no two switches within the dwell.
        #[test]
        fn no_two_switches_within_the_dwell(
            tries in proptest::collection::vec((0.0_f64..50.0, any::<bool>()), 1..100),
        ) {
            let mut guard = Guard::default();
            let (mut now, mut last) = (0.0, None::<f64>);
            for (later, works) in tries {
                now += later;
                if guard.may(now, &LIMITS).is_ok() {
                    if works {
                        prop_assert!(last.is_none_or(|last| now - last >= LIMITS.min_dwell_s));
                        guard.switched(now, Some(10.0));
                        last = Some(now);
                    } else {
                        guard.failed(now, &LIMITS, "no");
                    }
                }
            }
        }
    }
}
