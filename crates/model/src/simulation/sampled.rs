//! Simulating a long synthetic workload from samples of its phases.

use super::oracle;
use super::outcome::{ModeOutcome, Outcome, Progress};
use super::phases::{self, Measured};
use super::replay::{self, Course};
use super::sampling::Sampling;
use super::setup::{Choice, Setup};
use super::timeline;
use crate::error::ModelError;
use crate::model::mode::Translating;
use crate::workload::Workload;

/// Simulates `workload` under every choice from samples of each of its phases.
///
/// One-off costs (first touch of a phase's memory with the warm-up, refill after a switch) are
/// followed completely and counted where they occur; steady rates are measured in eight batches
/// after a warm-up, and a window takes the rates of one batch in turn. The stated error is the 95 %
/// interval of the batches' means; it does not include what a longer warm-up would change.
///
/// # Errors
/// As [`super::simulate`].
pub fn simulate_sampled(
    workload: &Workload,
    setup: &Setup,
    choices: Vec<(String, Choice)>,
    sampling: &Sampling,
    progress: Progress<'_>,
) -> Result<Outcome, ModelError> {
    setup.check()?;
    sampling.check()?;
    workload.check()?;
    let segments = timeline::segments(workload, setup)?;
    let modes = modes(&choices);
    let mut measured: Vec<Option<Measured>> = vec![None; workload.phase.len()];
    let mut stopped = false;
    for segment in &segments {
        let slot = &mut measured[segment.phase];
        if slot.is_none() {
            *slot = Some(phases::measure(
                workload,
                segment.phase,
                setup,
                &modes,
                sampling,
            )?);
            let done = measured.iter().flatten().count() as f64 / measured.len() as f64;
            if progress(done * workload.instructions()).is_break() {
                stopped = true;
                break;
            }
        }
    }
    let segments: Vec<_> = segments
        .into_iter()
        .take_while(|segment| measured[segment.phase].is_some())
        .collect();
    let course = Course {
        setup,
        segments: &segments,
        measured: &measured,
        modes: &modes,
    };
    outcomes(&course, choices, stopped)
}

/// The run of the course under every choice.
pub(super) fn outcomes(
    course: &Course<'_>,
    choices: Vec<(String, Choice)>,
    stopped: bool,
) -> Result<Outcome, ModelError> {
    let modes = choices
        .into_iter()
        .map(|(name, choice)| outcome(course, name, choice))
        .collect::<Result<_, _>>()?;
    let native = replay::fixed(course, String::new(), Translating::Native)?.totals;
    Ok(Outcome {
        modes,
        native,
        whole: false,
        stopped,
    })
}

/// The fixed modes that have to be measured.
pub(super) fn modes(choices: &[(String, Choice)]) -> Vec<Translating> {
    let mut modes = vec![Translating::Native];
    for (_, choice) in choices {
        let needed: &[_] = match choice {
            Choice::Fixed(translating) => &[*translating],
            Choice::Policy(_) | Choice::Oracle => &[Translating::Shadow, Translating::Nested],
        };
        for mode in needed {
            if !modes.contains(mode) {
                modes.push(*mode);
            }
        }
    }
    modes
}

fn outcome(course: &Course<'_>, name: String, choice: Choice) -> Result<ModeOutcome, ModelError> {
    match choice {
        Choice::Fixed(translating) => replay::fixed(course, name, translating),
        Choice::Policy(policy) => replay::steered(course, name, policy),
        Choice::Oracle => {
            let shadow = replay::fixed(course, String::new(), Translating::Shadow)?;
            let nested = replay::fixed(course, String::new(), Translating::Nested)?;
            let refills = course.refills();
            let found = oracle::from_windows(course.setup, &shadow, &nested, |at| {
                refills.get(at).copied().unwrap_or(0.0)
            })?;
            let errors = [shadow.relative_error, nested.relative_error];
            let relative_error = errors.into_iter().flatten().reduce(f64::max);
            Ok(ModeOutcome {
                name,
                relative_error,
                ..found
            })
        }
    }
}
