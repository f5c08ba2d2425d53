//! Running a simulation for Python.

use std::ops::ControlFlow;

use pyo3::prelude::*;
use vtax_paging::error::ModelError;
use vtax_paging::simulation::{self, Choice, Sampling, Setup};
use vtax_paging::workload::{Part, Synthetic};

use crate::choice::Mode;
use crate::error::raise;
use crate::machine::Machine;
use crate::outcome::Outcome;
use crate::policy::Failure;
use crate::request::Settings;
use crate::workload::Workload;

/// Simulates a synthetic workload under every mode, with the interpreter released meanwhile.
///
/// `progress` is called now and then with the instructions so far; an exception of it, and a
/// signal's such as `KeyboardInterrupt`, ends the simulation.
#[pyfunction]
pub(crate) fn simulate(
    py: Python<'_>,
    workload: &Bound<'_, Workload>,
    machine: &Bound<'_, Machine>,
    settings: Settings,
    modes: Vec<Mode>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Outcome> {
    let workload = settings.workload(&workload.get().0).map_err(raise)?;
    let setup = settings
        .setup(&machine.get().0, workload.pages)
        .map_err(raise)?;
    let runner = Runner::new(&setup, modes, progress)?;
    py.detach(|| {
        runner.run(|choices, progress| {
            if settings.whole {
                let mut source = Synthetic::new(&workload, Part::Whole, setup.seed)?;
                simulation::simulate(&mut source, &setup, choices, progress)
            } else {
                let sampling = Sampling::default();
                simulation::simulate_sampled(&workload, &setup, choices, &sampling, progress)
            }
        })
    })
}

/// The modes of a simulation, and the exceptions that may end it.
struct Runner {
    choices: Vec<(String, Choice)>,
    failure: Failure,
    progress: Option<Py<PyAny>>,
}

impl Runner {
    fn new(setup: &Setup, modes: Vec<Mode>, progress: Option<Py<PyAny>>) -> PyResult<Self> {
        let failure = Failure::default();
        let choices = modes
            .into_iter()
            .map(|mode| mode.choice(setup, &failure))
            .collect::<Result<_, _>>()
            .map_err(raise)?;
        Ok(Self {
            choices,
            failure,
            progress,
        })
    }

    /// Runs without the interpreter, which is only asked for reports and decisions.
    fn run(
        self,
        simulate: impl FnOnce(
            Vec<(String, Choice)>,
            simulation::Progress<'_>,
        ) -> Result<simulation::Outcome, ModelError>,
    ) -> PyResult<Outcome> {
        let mut interrupted = None;
        let mut report = |instructions: f64| {
            let reported = Python::attach(|py| {
                py.check_signals()?;
                if let Some(progress) = &self.progress {
                    progress.call1(py, (instructions,))?;
                }
                Ok(())
            });
            match reported {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    interrupted = Some(error);
                    ControlFlow::Break(())
                }
            }
        };
        let outcome = simulate(self.choices, &mut report);
        if let Some(error) = interrupted.or_else(|| self.failure.take()) {
            return Err(error);
        }
        outcome.map(Outcome::new).map_err(raise)
    }
}
