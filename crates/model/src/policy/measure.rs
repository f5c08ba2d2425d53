//! What policies compute from cumulative readings: differences, and ratios over the last steps.

use std::collections::VecDeque;

use super::Reading;
use crate::error::ModelError;

/// Turns cumulative readings into steps.
#[derive(Clone, Debug, Default)]
pub(super) struct Meter {
    last: Reading,
}

impl Meter {
    /// What happened since the last call; the next step starts at `now`.
    ///
    /// `None` when a counter went backwards (a reset, a guest that moved to another CPU) or is not
    /// finite: such a step says nothing.
    pub(super) fn advance(&mut self, now: &Reading) -> Option<Reading> {
        let step = self.peek(now);
        self.last = *now;
        step
    }

    /// The same as [`Self::advance`], but the next step still starts at the old reading.
    pub(super) fn peek(&self, now: &Reading) -> Option<Reading> {
        let step = now.since(&self.last);
        let counts = [
            Some(step.instructions),
            Some(step.cycles),
            Some(step.tlb_misses),
            Some(step.shadow_exits),
            step.walk_cycles,
            step.vmm_cycles,
        ];
        counts
            .into_iter()
            .flatten()
            .all(|count| count.is_finite() && count >= 0.0)
            .then_some(step)
    }
}

/// A moving average of a rate: the sum of the counts over the sum of the instructions of the last
/// steps. With steps of equal length it is the mean of their rates; a short step weighs less.
#[derive(Clone, Debug)]
pub(super) struct MovingRate {
    steps: VecDeque<(f64, f64)>,
    length: usize,
}

impl MovingRate {
    pub(super) fn new(length: usize) -> Self {
        Self {
            steps: VecDeque::new(),
            length: length.max(1),
        }
    }

    /// Adds a step. A step in which nothing was retired says nothing and pushes no other step out.
    pub(super) fn push(&mut self, count: f64, instructions: f64) {
        if instructions <= 0.0 {
            return;
        }
        if self.steps.len() == self.length {
            self.steps.pop_front();
        }
        self.steps.push_back((count, instructions));
    }

    pub(super) fn clear(&mut self) {
        self.steps.clear();
    }

    /// Count per instruction, or `None` when nothing was retired yet.
    pub(super) fn rate(&self) -> Option<f64> {
        let (count, instructions) = self
            .steps
            .iter()
            .fold((0.0, 0.0), |sum, step| (sum.0 + step.0, sum.1 + step.1));
        let rate = count / instructions;
        (instructions > 0.0 && rate.is_finite()).then_some(rate)
    }
}

/// Fails unless `value` is a finite number within `low..=high`; names the field.
pub(super) fn check_within(field: &str, value: f64, low: f64, high: f64) -> Result<(), ModelError> {
    if value.is_finite() && (low..=high).contains(&value) {
        return Ok(());
    }
    Err(ModelError::field(
        field,
        format!("must be a number from {low} to {high}, not {value}"),
    ))
}

/// Fails when a window is empty or too long for a count of instructions kept as f64 (2^53).
pub(super) fn check_window(field: &str, instructions: u64) -> Result<(), ModelError> {
    if (1..=1 << 53).contains(&instructions) {
        return Ok(());
    }
    Err(ModelError::field(
        field,
        "must be 1 to 2^53 retired instructions",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(instructions: f64, cycles: f64) -> Reading {
        Reading {
            instructions,
            cycles,
            ..Reading::default()
        }
    }

    #[test]
    fn a_step_backwards_is_dropped_and_the_next_one_counts_from_there() {
        let mut meter = Meter::default();
        assert_eq!(meter.advance(&at(10.0, 20.0)), Some(at(10.0, 20.0)));
        assert!(meter.advance(&at(5.0, 30.0)).is_none());
        assert_eq!(
            meter.advance(&at(6.0, 33.0)).map(|step| step.cycles),
            Some(3.0)
        );
    }

    #[test]
    fn a_moving_rate_forgets_old_steps_and_weighs_by_instructions() {
        let mut rate = MovingRate::new(2);
        assert_eq!(rate.rate(), None);
        rate.push(100.0, 10.0);
        rate.push(10.0, 10.0);
        rate.push(60.0, 20.0);
        assert_eq!(rate.rate(), Some(70.0 / 30.0));
        rate.clear();
        rate.push(1.0, 0.0);
        assert_eq!(rate.rate(), None);
    }
}
