//! Running a simulation for Python.

use std::ops::ControlFlow;

use pyo3::prelude::*;
use vtax_model::error::ModelError;
use vtax_model::model::address::PageSize;
use vtax_model::simulation::{self, Choice, Progress, Sampling, Setup};
use vtax_model::traces::UpToCut;
use vtax_model::workload::{Part, Synthetic};

use crate::choice::Mode;
use crate::error::raise;
use crate::machine::Machine;
use crate::outcome::Outcome;
use crate::policy::Failure;
use crate::request::Settings;
use crate::trace::Trace;
use crate::workload::Workload;

/// What can be simulated.
#[derive(FromPyObject)]
pub(crate) enum Input<'py> {
    Synthetic(Bound<'py, Workload>),
    Trace(Bound<'py, Trace>),
}

/// Simulates a workload under every mode, with the interpreter released meanwhile.
///
/// `progress` is called now and then with the instructions so far; its exception, or a signal's
/// such as `KeyboardInterrupt`, ends the simulation.
#[pyfunction]
#[pyo3(signature = (workload, machine, settings, modes, progress=None))]
pub(crate) fn simulate(
    py: Python<'_>,
    workload: Input<'_>,
    machine: &Bound<'_, Machine>,
    settings: Settings,
    modes: Vec<Mode>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Outcome> {
    let machine = &machine.get().0;
    match workload {
        Input::Synthetic(workload) => {
            let workload = settings.workload(&workload.get().0).map_err(raise)?;
            let setup = settings.setup(machine, workload.pages).map_err(raise)?;
            let runner = Runner::new(&setup, modes, progress)?;
            py.detach(|| {
                runner.run(|tasks, report| {
                    synthetic(&workload, &setup, settings.whole, tasks, report)
                })
            })
        }
        Input::Trace(trace) => {
            let trace = trace.get();
            let mut setup = settings.setup(machine, PageSize::K4).map_err(raise)?;
            trace.complete(&mut setup);
            let runner = Runner::new(&setup, modes, progress)?;
            let mut cut = None;
            let outcome = py.detach(|| {
                runner.run(|tasks, report| {
                    let mut source = UpToCut::new(trace.source()?);
                    let outcome = simulation::simulate(&mut source, &setup, tasks, report);
                    cut = source.cut().map(str::to_owned);
                    outcome
                })
            })?;
            Ok(outcome.up_to(cut))
        }
    }
}

type Tasks = Vec<(String, Choice)>;

fn synthetic(
    workload: &vtax_model::workload::Workload,
    setup: &Setup,
    whole: bool,
    tasks: Tasks,
    report: Progress<'_>,
) -> Result<simulation::Outcome, ModelError> {
    if whole {
        let mut source = Synthetic::new(workload, Part::Whole, setup.seed)?;
        return simulation::simulate(&mut source, setup, tasks, report);
    }
    simulation::simulate_sampled(workload, setup, tasks, &Sampling::default(), report)
}

/// The modes of a simulation, and the exceptions that may end it.
struct Runner {
    tasks: Tasks,
    failure: Failure,
    progress: Option<Py<PyAny>>,
}

impl Runner {
    fn new(setup: &Setup, modes: Vec<Mode>, progress: Option<Py<PyAny>>) -> PyResult<Self> {
        let failure = Failure::default();
        let tasks = modes
            .into_iter()
            .map(|mode| mode.choice(setup, &failure))
            .collect::<Result<_, _>>()
            .map_err(raise)?;
        Ok(Self {
            tasks,
            failure,
            progress,
        })
    }

    /// Runs without the interpreter, which is needed only for reports and decisions.
    fn run(
        self,
        simulate: impl FnOnce(Tasks, Progress<'_>) -> Result<simulation::Outcome, ModelError>,
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
        let outcome = simulate(self.tasks, &mut report);
        if let Some(error) = interrupted.or_else(|| self.failure.take()) {
            return Err(error);
        }
        outcome.map(Outcome::new).map_err(raise)
    }
}
