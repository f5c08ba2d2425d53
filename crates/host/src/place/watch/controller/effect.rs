//! The effect of a move on a guest: its progress before against its progress after.

use std::collections::BTreeMap;

use crate::place::watch::controller::{Loss, Progress, Settings, Signal, ThreadKey};

/// A loss of this many budgets ends a trial at once, and an interval of this many budgets tells
/// nothing.
const PLAIN: f64 = 3.0;

/// A move whose effect is being measured.
#[derive(Debug)]
pub struct Trial {
    /// The thread that was moved.
    pub thread: ThreadKey,
    /// The guest that it works for.
    pub guest: String,
    before: BTreeMap<Signal, Vec<f64>>,
    after: BTreeMap<Signal, Vec<f64>>,
    windows: usize,
}

/// What is known about a move's effect.
#[derive(Debug, PartialEq)]
pub enum Effect {
    /// Too little is known yet.
    NotYet(String),
    /// No loss that counts.
    Harmless(String),
    /// A loss above the budget.
    Hurt(String),
    /// Nothing can be measured, and longer waiting would not help.
    Unmeasurable(String),
}

impl Trial {
    /// A trial that begins with this window.
    pub fn new(thread: ThreadKey, guest: String, before: BTreeMap<Signal, Vec<f64>>) -> Self {
        Self {
            thread,
            guest,
            before,
            after: BTreeMap::new(),
            windows: 0,
        }
    }

    /// Add one window.
    pub fn add(&mut self, progress: Option<&Progress>) {
        self.windows += 1;
        for (signal, value) in progress.into_iter().flatten() {
            self.after.entry(*signal).or_default().push(*value);
        }
    }

    /// The effect so far.
    pub fn effect(&self, settings: &Settings) -> Effect {
        let budget = settings.budget_percent;
        let over = self.windows >= settings.trial;
        let limit = if over { budget } else { PLAIN * budget };
        let losses: Vec<(Signal, Loss)> = self.losses().collect();
        let hurt = losses
            .iter()
            .filter(|(_, loss)| self.windows >= 2 && loss.percent > limit && loss.low > 0.0)
            .max_by(|(_, a), (_, b)| a.percent.total_cmp(&b.percent));
        if let Some((signal, loss)) = hurt {
            return Effect::Hurt(format!(
                "the {} of {} fell by {:.1} % ({:.1} to {:.1}), the budget is {budget} %",
                signal.name(),
                self.guest,
                loss.percent,
                loss.low,
                loss.high
            ));
        }
        let guest = &self.guest;
        // The best measure decides: a vCPU that spins is as busy as one that gets work done.
        match losses.first() {
            None if over => Effect::Unmeasurable(format!(
                "{guest} did nothing: the effect cannot be measured"
            )),
            Some((signal, loss)) if over && loss.high - loss.percent <= PLAIN * budget => {
                Effect::Harmless(format!(
                    "kept: the {} of {guest} fell by {:.1} % ({:.1} to {:.1})",
                    signal.name(),
                    loss.percent,
                    loss.low,
                    loss.high
                ))
            }
            Some((signal, _)) if self.windows >= settings.longest_trial => {
                Effect::Unmeasurable(format!(
                    "the {} of {guest} is too unsteady: the effect cannot be measured",
                    signal.name()
                ))
            }
            _ => Effect::NotYet(format!("the effect on {guest} is being measured")),
        }
    }

    /// Losses by the signals that were strong enough before the move, the best measure first.
    fn losses(&self) -> impl Iterator<Item = (Signal, Loss)> {
        self.before.iter().filter_map(|(signal, before)| {
            let loss = loss(before, self.after.get(signal)?, signal.least())?;
            Some((*signal, loss))
        })
    }
}

/// By how much the mean fell, with Welch's interval of a difference of means (95 %, by the normal
/// distribution's 1.96 widened to 2.6 for the small number of windows). None: the mean was below
/// `least` before.
pub fn loss(before: &[f64], after: &[f64], least: f64) -> Option<Loss> {
    let (first, first_error) = mean(before)?;
    let (second, second_error) = mean(after)?;
    if first < least {
        return None;
    }
    let half = 2.6 * first_error.hypot(second_error) / first * 100.0;
    let percent = (1.0 - second / first) * 100.0;
    Some(Loss {
        percent,
        low: percent - half,
        high: percent + half,
    })
}

/// The mean and its standard error.
fn mean(values: &[f64]) -> Option<(f64, f64)> {
    if values.is_empty() {
        return None;
    }
    #[expect(clippy::cast_precision_loss, reason = "windows are few")]
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares = values
        .iter()
        .map(|value| (value - mean).powi(2))
        .sum::<f64>();
    let error = if values.len() > 1 {
        (squares / (count - 1.0) / count).sqrt()
    } else {
        0.0
    };
    Some((mean, error))
}
