//! What studies and sweeps change and query before they run: machines and workloads as text, names
//! of parameters, the locality of a workload.

use pyo3::prelude::*;
use vtax_model::error::ModelError;
use vtax_model::policy::registry;
use vtax_model::workload::{self, profiles};

use crate::error::raise;
use crate::machine::Machine;
use crate::workload::Workload;

/// An arbitrary window, for asking for the names of parameters.
const WINDOW: u64 = 1_000_000;

/// The whole description of a machine in TOML, defaults written out.
#[pyfunction]
pub(crate) fn machine_description(machine: &Bound<'_, Machine>) -> PyResult<String> {
    toml::to_string(&machine.get().0).map_err(|error| raise(ModelError::Syntax(error.to_string())))
}

/// Fails when `policy` has no parameter of that name, and lists the parameters that it has.
#[pyfunction]
pub(crate) fn check_parameter(
    policy: &str,
    parameter: &str,
    machine: &Bound<'_, Machine>,
) -> PyResult<()> {
    // No parameter is an array, so the name is checked and the value is never used.
    let value = toml::Value::Array(Vec::new());
    let table = [(parameter.to_owned(), value)].into_iter().collect();
    match registry::by_name(policy, Some(table), &machine.get().0.costs, WINDOW) {
        Err(error) if error.to_string().contains("unknown field") => Err(raise(error)),
        _ => Ok(()),
    }
}

/// The TOML text of the workload with that name.
#[pyfunction]
pub(crate) fn workload_description(name: &str) -> PyResult<&'static str> {
    profiles::description(name).map_err(raise)
}

/// References to each touched region of 4 MiB, most referenced first; about `references` in all.
#[pyfunction]
pub(crate) fn locality(
    py: Python<'_>,
    workload: &Bound<'_, Workload>,
    references: u64,
    seed: u64,
) -> PyResult<Vec<u64>> {
    let workload = &workload.get().0;
    py.detach(|| workload::locality(workload, references, seed))
        .map_err(raise)
}
