//! Decides whether the host may be switched: dwell, trials, budget of the pause, back-off.
//!
//! A policy may only want to try a mode. A trial and its return are one transaction: the budget is
//! asked for before it, for the way back is always allowed. It ends when the policy keeps the mode,
//! when it goes back, when it is over, or when somebody else sets the mode.

use serde::{Deserialize, Serialize};
use vtax_sys::kvm::PagingMode;

/// The number of pauses that are remembered.
const PAUSES: usize = 8;
/// After this many failures in a row the wait does not grow any more.
const MOST_DOUBLINGS: u32 = 6;
/// A trial lasts the dwell, and at least this long: policies count windows of instructions.
const SHORTEST_TRIAL_S: f64 = 60.0;
/// The first wait after a return that failed; it doubles up to the dwell.
const RETURN_AGAIN_S: f64 = 1.0;

/// The limits that an operator sets.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// The longest pause of guests, in milliseconds.
    pub max_pause_ms: f64,
    /// The least time between two switches, in seconds.
    pub min_dwell_s: f64,
}

/// A mode that is only being tried.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// The mode to return to.
    pub home: PagingMode,
    /// When it is over without a verdict, in seconds since boot.
    pub until_s: f64,
}

/// What is known about earlier switches. Times are in seconds since boot.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Guard {
    /// When the mode last changed, whoever changed it.
    pub changed_s: Option<f64>,
    /// No switch before this time, but for the return from a trial.
    pub retry_s: Option<f64>,
    /// Refusals and failures since the last switch that worked.
    pub failures: u32,
    /// The reason of the last refusal or failure.
    #[serde(default)]
    pub why: Option<String>,
    /// The limits that refused last; other limits end the wait.
    #[serde(default)]
    pub refused_by: Option<Limits>,
    /// The longest pause of each of the last switches, in milliseconds, the newest last.
    pub pauses_ms: Vec<f64>,
    /// What the last rehearsal took, in milliseconds.
    #[serde(default)]
    pub rehearsed_ms: Option<f64>,
    /// The trial that has begun and is not over.
    #[serde(default)]
    pub trial: Option<Trial>,
}

impl Guard {
    /// The expected pause in milliseconds, and where the number comes from; `None`: nobody knows.
    pub fn expected_pause(&self) -> Option<(f64, &'static str)> {
        let measured = self.pauses_ms.iter().copied().reduce(f64::max);
        let measured = measured.map(|longest| (longest, "the longest of the last switches"));
        measured.or_else(|| Some((self.rehearsed_ms?, "at least, by a rehearsal")))
    }

    /// Is it too early for a switch?
    ///
    /// Fails with the reason. A wait that other limits caused is over.
    pub fn waits(&mut self, now_s: f64, limits: &Limits) -> Result<(), String> {
        if self.refused_by.is_some_and(|earlier| earlier != *limits) {
            self.forget_failures();
        }
        let left = |at: f64| at - now_s;
        if let Some(changed) = self.changed_s {
            let left = left(changed + limits.min_dwell_s);
            if left > 0.0 {
                let dwell = limits.min_dwell_s;
                return Err(format!(
                    "modes last {dwell} s at least (--min-dwell), {left:.0} s more"
                ));
            }
        }
        self.return_waits(now_s)
    }

    /// Is it too early to return from a trial? Only a return that failed makes it so.
    ///
    /// Fails with the reason.
    pub fn return_waits(&self, now_s: f64) -> Result<(), String> {
        let Some(retry) = self.retry_s.filter(|retry| *retry > now_s) else {
            return Ok(());
        };
        Err(format!(
            "{} ({} in a row, the next attempt in {:.0} s)",
            self.why.as_deref().unwrap_or("the last attempt failed"),
            self.failures,
            retry - now_s
        ))
    }

    /// Is the expected pause within the budget? Each of a trial's two pauses has all of it.
    ///
    /// Fails with the reason, also where nobody knows the pause.
    pub fn within_budget(&self, limits: &Limits) -> Result<(), String> {
        let Some((pause, source)) = self.expected_pause() else {
            return Err("nobody knows how long guests would pause".into());
        };
        if pause > limits.max_pause_ms {
            return Err(format!(
                "guests would pause {pause:.0} ms ({source}), longer than --max-pause {:.0} ms",
                limits.max_pause_ms
            ));
        }
        Ok(())
    }

    /// Begin a trial: until it ends, the host can always return to `home`.
    pub fn begin_trial(&mut self, home: PagingMode, now_s: f64, limits: &Limits) {
        self.trial = Some(Trial {
            home,
            until_s: now_s + limits.min_dwell_s.max(SHORTEST_TRIAL_S),
        });
    }

    /// Record a switch for which guests have paused this long.
    pub fn switched(&mut self, now_s: f64, pause_ms: Option<f64>) {
        self.pauses_ms.extend(pause_ms);
        let too_many = self.pauses_ms.len().saturating_sub(PAUSES);
        self.pauses_ms.drain(..too_many);
        self.changed_s = Some(now_s);
        self.forget_failures();
    }

    /// Record that somebody else has changed the mode, which ends a trial, or that a switch would
    /// have been made with `apply`.
    pub fn changed(&mut self, now_s: f64) {
        self.changed_s = Some(now_s);
        self.trial = None;
    }

    /// Record that a switch was refused or failed: the wait doubles each time.
    pub fn failed(&mut self, now_s: f64, limits: &Limits, why: &str) {
        self.fail(now_s, limits.min_dwell_s.max(1.0), f64::INFINITY, why);
    }

    /// Record that the limits refused a switch: other limits end the wait.
    pub fn refused(&mut self, now_s: f64, limits: &Limits, why: &str) {
        self.failed(now_s, limits, why);
        self.refused_by = Some(*limits);
    }

    /// Record that a return failed: it is tried again soon.
    pub fn return_failed(&mut self, now_s: f64, limits: &Limits, why: &str) {
        let most = limits.min_dwell_s.max(RETURN_AGAIN_S);
        self.fail(now_s, RETURN_AGAIN_S, most, why);
    }

    fn fail(&mut self, now_s: f64, first_s: f64, most_s: f64, why: &str) {
        let doublings = self.failures.min(MOST_DOUBLINGS);
        let wait = (first_s * f64::from(1_u32 << doublings)).min(most_s);
        self.failures = self.failures.saturating_add(1);
        self.retry_s = Some(now_s + wait);
        self.why = Some(why.to_owned());
        self.refused_by = None;
    }

    /// Forget all times: those of another boot mean nothing. A trial ended with the host.
    pub fn forget_times(&mut self) {
        self.changed_s = None;
        self.trial = None;
        self.forget_failures();
    }

    fn forget_failures(&mut self) {
        self.retry_s = None;
        self.failures = 0;
        self.why = None;
        self.refused_by = None;
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

    /// Is it refused for a wait, and not for the budget?
    fn waits(result: Result<(), String>) -> bool {
        result.is_err_and(|reason| reason.contains(" s more") || reason.contains("in a row"))
    }

    fn may(guard: &mut Guard, now_s: f64) -> Result<(), String> {
        guard.waits(now_s, &LIMITS)?;
        guard.within_budget(&LIMITS)
    }

    /// A rehearsal was short.
    fn rehearsed() -> Guard {
        Guard {
            rehearsed_ms: Some(90.0),
            ..Guard::default()
        }
    }

    #[test]
    fn modes_last() {
        let mut guard = rehearsed();
        assert_eq!(may(&mut guard, 5.0), Ok(()));
        guard.switched(5.0, Some(100.0));
        assert!(waits(may(&mut guard, 64.9)));
        assert_eq!(may(&mut guard, 65.1), Ok(()));
    }

    #[test]
    fn a_pause_that_nobody_knows_is_not_assumed() {
        let refused = may(&mut Guard::default(), 5.0);
        assert!(matches!(refused, Err(reason) if reason.contains("nobody knows")));
        let mut long = rehearsed();
        long.rehearsed_ms = Some(300.0);
        let refused = may(&mut long, 5.0);
        assert!(matches!(refused, Err(reason) if reason.contains("rehearsal")));
    }

    #[test]
    fn other_limits_end_the_wait_that_limits_caused() {
        let wide = Limits {
            max_pause_ms: 5000.0,
            ..LIMITS
        };
        let mut guard = Guard::default();
        guard.switched(0.0, Some(450.0));
        guard.refused(100.0, &LIMITS, "longer than --max-pause");
        assert!(waits(guard.waits(101.0, &LIMITS)));
        assert_eq!(guard.waits(101.0, &wide), Ok(()));
        assert_eq!(guard.within_budget(&wide), Ok(()));
        // A failure is not the limits': it stays.
        guard.failed(102.0, &LIMITS, "no memory");
        assert!(waits(guard.waits(103.0, &wide)));
    }

    #[test]
    fn a_return_waits_for_its_own_failures_only_and_not_long() {
        let mut guard = Guard::default();
        guard.begin_trial(PagingMode::Nested, 10.0, &LIMITS);
        guard.switched(10.0, Some(950.0));
        assert_eq!(guard.return_waits(10.1), Ok(()));
        let mut waited = Vec::new();
        for _ in 0..9 {
            guard.return_failed(0.0, &LIMITS, "no");
            waited.extend(guard.retry_s);
        }
        assert_eq!(waited[..4], [1.0, 2.0, 4.0, 8.0]);
        assert_eq!(waited[8..], [60.0]);
    }

    #[test]
    fn a_measured_pause_beyond_the_budget_ends_it() {
        let mut guard = Guard::default();
        guard.switched(0.0, Some(450.0));
        let Err(reason) = may(&mut guard, 100.0) else {
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
        assert_eq!(may(&mut guard, 100.0), Ok(()));
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
            let mut guard = rehearsed();
            let (mut now, mut last) = (0.0, None::<f64>);
            for (later, works) in tries {
                now += later;
                if may(&mut guard, now).is_ok() {
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
