//! A policy written in Python as a policy of the model.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use vtax_model::error::ModelError;
use vtax_model::policy::{Policy, PolicyView, Reading};
use vtax_sys::kvm::PagingMode;

/// What the package knows about a policy in Python: `vtax.paging.policy.Steering`.
#[derive(FromPyObject)]
pub(crate) struct Steering {
    window_instructions: u64,
    start: String,
    exit_alarm: Option<u64>,
    /// Called with two [`Figures`]: cumulative ones, and those since the window began.
    decide: Py<PyAny>,
}

/// A reading in the order of the fields of `vtax.paging.policy.Reading`.
type Figures = (f64, f64, f64, f64, Option<f64>, Option<f64>);

/// Where a policy's exception waits until the simulation has returned.
#[derive(Clone, Default)]
pub(crate) struct Failure(Arc<Mutex<Option<PyErr>>>);

impl Failure {
    /// Keep the first exception; returns the error for the model.
    fn keep(&self, error: PyErr) -> ModelError {
        let reason = ModelError::Source(format!("a policy failed: {error}"));
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get_or_insert(error);
        reason
    }

    pub(crate) fn take(&self) -> Option<PyErr> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A policy whose decisions are made in Python, at each end of a window and, if it wants, at a
/// number of shadow exits within the window.
pub(crate) struct PythonPolicy {
    name: String,
    steering: Steering,
    failure: Failure,
    wanted: PagingMode,
    window_start: Reading,
    exits_in_window: u64,
}

impl PythonPolicy {
    pub(crate) fn new(
        name: String,
        steering: Steering,
        failure: Failure,
    ) -> Result<Self, ModelError> {
        let wanted = paging(&steering.start).ok_or_else(|| {
            ModelError::field(format!("{name}.start"), "must be 'shadow' or 'nested'")
        })?;
        let counts = [
            ("window_instructions", Some(steering.window_instructions)),
            ("exit_alarm", steering.exit_alarm),
        ];
        for (field, count) in counts {
            if count == Some(0) {
                let field = format!("{name}.{field}");
                return Err(ModelError::field(field, "must be at least 1"));
            }
        }
        Ok(Self {
            name,
            steering,
            failure,
            wanted,
            window_start: Reading::default(),
            exits_in_window: 0,
        })
    }

    fn decide(&mut self, now: &Reading) -> Result<PagingMode, ModelError> {
        let arguments = (figures(now), figures(&now.since(&self.window_start)));
        let answer = Python::attach(|py| {
            let answer = self.steering.decide.call1(py, arguments)?;
            answer.extract::<String>(py)
        });
        let answer = answer.map_err(|error| self.failure.keep(error))?;
        self.wanted = paging(&answer).ok_or_else(|| {
            ModelError::Source(format!("policy {} decided on {answer:?}", self.name))
        })?;
        Ok(self.wanted)
    }
}

impl Policy for PythonPolicy {
    fn name(&self) -> &str {
        &self.name
    }

    fn window_instructions(&self) -> u64 {
        self.steering.window_instructions
    }

    fn wanted(&self) -> PagingMode {
        self.wanted
    }

    fn on_shadow_exits(&mut self, count: u64, now: &Reading) -> Result<PagingMode, ModelError> {
        let before = self.exits_in_window;
        self.exits_in_window = before.saturating_add(count);
        match self.steering.exit_alarm {
            Some(alarm) if before < alarm && self.exits_in_window >= alarm => self.decide(now),
            _ => Ok(self.wanted),
        }
    }

    fn exits_until_decision(&self) -> u64 {
        let left = |alarm: u64| alarm.checked_sub(self.exits_in_window);
        let left = self.steering.exit_alarm.and_then(left);
        left.filter(|&exits| exits > 0).unwrap_or(u64::MAX)
    }

    fn on_window(&mut self, now: &Reading) -> Result<PagingMode, ModelError> {
        let wanted = self.decide(now)?;
        self.window_start = *now;
        self.exits_in_window = 0;
        Ok(wanted)
    }

    fn view(&self) -> PolicyView {
        PolicyView {
            state: self.wanted.name(),
            threshold_vexit: None,
            threshold_tmiss: None,
        }
    }
}

fn paging(name: &str) -> Option<PagingMode> {
    [PagingMode::Shadow, PagingMode::Nested]
        .into_iter()
        .find(|mode| mode.name() == name)
}

fn figures(reading: &Reading) -> Figures {
    (
        reading.instructions,
        reading.cycles,
        reading.tlb_misses,
        reading.shadow_exits,
        reading.walk_cycles,
        reading.vmm_cycles,
    )
}
