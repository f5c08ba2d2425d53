//! Feeds a policy with what happened in a window, as the simulation does event by event.
//!
//! A window of time is longer or shorter than a policy's window of instructions, and KVM gives
//! sums, not events. So events are taken as evenly spread over the window: the policy's overflows
//! come where its instructions had retired, and exits come in batches of at most the size that the
//! policy asks for.

use vtax_model::error::ModelError;
use vtax_model::policy::{Policy, PolicyView, Reading};
use vtax_sys::kvm::PagingMode;

/// The most calls of a policy for one window; the rest of the window is then skipped.
const MOST_CALLS: u32 = 20_000;

/// A policy, and what it has been told.
pub struct Driver {
    policy: Box<dyn Policy>,
    told: Reading,
    /// Instructions since the policy's last overflow.
    since_overflow: f64,
    /// The fraction of an exit that the policy has not been told yet.
    part_of_exit: f64,
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Driver")
            .field("policy", &self.policy.name())
            .field("told", &self.told)
            .finish_non_exhaustive()
    }
}

impl Driver {
    /// A policy that has been told nothing.
    pub fn new(policy: Box<dyn Policy>) -> Self {
        Self {
            policy,
            told: Reading::default(),
            since_overflow: 0.0,
            part_of_exit: 0.0,
        }
    }

    /// The mode that the policy wants.
    pub fn wanted(&self) -> PagingMode {
        self.policy.wanted()
    }

    /// Is the wanted mode only tried?
    pub fn is_trying(&self) -> bool {
        self.policy.is_trying()
    }

    /// The policy's view of itself.
    pub fn view(&self) -> PolicyView {
        self.policy.view()
    }

    /// Tell what happened in a window in `mode`, and return the mode wanted from now on. Once the
    /// policy has decided for the other mode, it is told nothing more of that window.
    ///
    /// Fails as the policy does: with what it lacks.
    pub fn feed(&mut self, mode: PagingMode, step: &Reading) -> Result<PagingMode, ModelError> {
        let end = sum(&self.told, step, 1.0);
        let result = self.spread(mode, step);
        // Also after a decision: the rest of the window has happened.
        self.told = end;
        result
    }

    fn spread(&mut self, mode: PagingMode, step: &Reading) -> Result<PagingMode, ModelError> {
        let window = self.policy.window_instructions() as f64;
        let begin = self.told;
        let mut done = 0.0;
        let mut calls = MOST_CALLS;
        while done < 1.0 && calls > 0 {
            let left = (window - self.since_overflow).max(0.0);
            let part = (left / step.instructions).min(1.0 - done);
            let part = if part.is_finite() { part } else { 1.0 - done };
            let wanted = self.exits(mode, step, &begin, (done, part), &mut calls)?;
            if wanted != mode {
                return Ok(wanted);
            }
            done += part;
            self.told = sum(&begin, step, done);
            self.since_overflow += step.instructions * part;
            if self.since_overflow >= window * (1.0 - 1e-9) {
                self.since_overflow = 0.0;
                calls = calls.saturating_sub(1);
                let wanted = self.policy.on_window(&self.told)?;
                if wanted != mode {
                    return Ok(wanted);
                }
            } else if done >= 1.0 - 1e-12 {
                break;
            }
        }
        Ok(self.policy.wanted())
    }

    /// Tell the exits in a part of the window.
    fn exits(
        &mut self,
        mode: PagingMode,
        step: &Reading,
        begin: &Reading,
        (done, part): (f64, f64),
        calls: &mut u32,
    ) -> Result<PagingMode, ModelError> {
        if mode != PagingMode::Shadow {
            return Ok(self.policy.wanted());
        }
        let exits = step.shadow_exits * part + self.part_of_exit;
        // Counts are not negative, and the cast saturates.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let whole = exits.max(0.0).floor() as u64;
        self.part_of_exit = exits - whole as f64;
        let mut told = 0;
        while told < whole && *calls > 0 {
            let batch = self.policy.exits_until_decision().clamp(1, whole - told);
            told += batch;
            *calls -= 1;
            let at = done + part * (told as f64 / whole as f64);
            let wanted = self.policy.on_shadow_exits(batch, &sum(begin, step, at))?;
            if wanted != mode {
                return Ok(wanted);
            }
        }
        Ok(self.policy.wanted())
    }
}

/// `begin` plus a part of what happened since.
fn sum(begin: &Reading, step: &Reading, part: f64) -> Reading {
    let optional =
        |begin: Option<f64>, step: Option<f64>| step.map(|step| begin.unwrap_or(0.0) + step * part);
    Reading {
        instructions: begin.instructions + step.instructions * part,
        cycles: begin.cycles + step.cycles * part,
        tlb_misses: begin.tlb_misses + step.tlb_misses * part,
        shadow_exits: begin.shadow_exits + step.shadow_exits * part,
        walk_cycles: optional(begin.walk_cycles, step.walk_cycles),
        vmm_cycles: optional(begin.vmm_cycles, step.vmm_cycles),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use proptest::prelude::*;

    use super::*;

    /// The calls of a policy.
    #[derive(Debug, Clone, PartialEq)]
    enum Call {
        Exits(u64, Reading),
        Window(Reading),
    }

    struct Listener {
        calls: Arc<Mutex<Vec<Call>>>,
        batch: u64,
        /// After this many exits the policy wants nested paging.
        leave_after: u64,
        exits: u64,
    }

    impl Policy for Listener {
        fn name(&self) -> &'static str {
            "listener"
        }

        fn window_instructions(&self) -> u64 {
            1000
        }

        fn wanted(&self) -> PagingMode {
            if self.exits > self.leave_after {
                PagingMode::Nested
            } else {
                PagingMode::Shadow
            }
        }

        fn on_shadow_exits(&mut self, count: u64, now: &Reading) -> Result<PagingMode, ModelError> {
            assert!(count <= self.exits_until_decision());
            self.exits += count;
            self.calls.lock().unwrap().push(Call::Exits(count, *now));
            Ok(self.wanted())
        }

        fn exits_until_decision(&self) -> u64 {
            self.batch
        }

        fn on_window(&mut self, now: &Reading) -> Result<PagingMode, ModelError> {
            self.calls.lock().unwrap().push(Call::Window(*now));
            Ok(self.wanted())
        }

        fn view(&self) -> PolicyView {
            PolicyView {
                state: "Listening",
                threshold_vexit: None,
                threshold_tmiss: None,
            }
        }
    }

    fn driver(batch: u64, leave_after: u64) -> (Driver, Arc<Mutex<Vec<Call>>>) {
        let calls = Arc::new(Mutex::new(Vec::new()));
        let listener = Listener {
            calls: Arc::clone(&calls),
            batch,
            leave_after,
            exits: 0,
        };
        (Driver::new(Box::new(listener)), calls)
    }

    fn step(instructions: f64, exits: f64) -> Reading {
        Reading {
            instructions,
            cycles: 2.0 * instructions,
            shadow_exits: exits,
            ..Reading::default()
        }
    }

    fn windows(calls: &Mutex<Vec<Call>>) -> Vec<f64> {
        let calls = calls.lock().unwrap();
        let windows = calls.iter().filter_map(|call| match call {
            Call::Window(now) => Some(now.instructions.round()),
            Call::Exits(..) => None,
        });
        windows.collect()
    }

    #[test]
    fn overflows_come_where_the_instructions_had_retired() {
        let (mut driver, calls) = driver(u64::MAX, u64::MAX);
        for _ in 0..4 {
            driver.feed(PagingMode::Shadow, &step(700.0, 0.0)).unwrap();
        }
        assert_eq!(windows(&calls), [1000.0, 2000.0]);
        driver.feed(PagingMode::Shadow, &step(2500.0, 0.0)).unwrap();
        assert_eq!(windows(&calls)[2..], [3000.0, 4000.0, 5000.0]);
    }

    #[test]
    fn exits_come_in_batches_and_end_with_a_decision() {
        let (mut driver, calls) = driver(10, 25);
        let wanted = driver.feed(PagingMode::Shadow, &step(800.0, 80.0)).unwrap();
        assert_eq!(wanted, PagingMode::Nested);
        let told = calls.lock().unwrap().clone();
        assert_eq!(told.len(), 3, "nothing after the decision: {told:?}");
        let Call::Exits(10, now) = told[2] else {
            panic!("{told:?}")
        };
        assert!((now.instructions - 300.0).abs() < 1e-6, "{now:?}");
        assert!((now.shadow_exits - 30.0).abs() < 1e-6, "{now:?}");
        // The next window begins where this one ended.
        driver.feed(PagingMode::Nested, &step(200.0, 0.0)).unwrap();
        assert!((driver.told.instructions - 1000.0).abs() < 1e-6);
    }

    #[test]
    fn without_instructions_only_exits_are_told() {
        let (mut driver, calls) = driver(u64::MAX, u64::MAX);
        driver.feed(PagingMode::Shadow, &step(0.0, 5.0)).unwrap();
        assert_eq!(windows(&calls), [0.0; 0]);
        assert_eq!(calls.lock().unwrap().len(), 1);
    }

    proptest! {
        /// Every instruction and exit is told once, however the windows are divided.
        #[test]
        fn nothing_is_lost_and_nothing_told_twice(
            steps in proptest::collection::vec((0.0_f64..5000.0, 0.0_f64..300.0), 1..20),
            batch in 1_u64..50,
        ) {
            let (mut driver, calls) = driver(batch, u64::MAX);
            for (instructions, exits) in &steps {
                driver.feed(PagingMode::Shadow, &step(*instructions, *exits)).unwrap();
            }
            let exits: f64 = steps.iter().map(|step| step.1).sum();
            let instructions: f64 = steps.iter().map(|step| step.0).sum();
            let told: u64 = calls.lock().unwrap().iter().map(|call| match call {
                Call::Exits(count, _) => *count,
                Call::Window(_) => 0,
            }).sum();
            prop_assert!((told as f64 - exits).abs() <= 1.0 + 1e-6);
            let overflows = (instructions / 1000.0).floor();
            prop_assert!((windows(&calls).len() as f64 - overflows).abs() <= 1.0);
        }
    }
}
