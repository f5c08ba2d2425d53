//! What a parameter study has to know before it runs: machines as text, names of parameters.

use pyo3::prelude::*;
use vtax_paging::error::ModelError;
use vtax_paging::policy::registry;

use crate::error::raise;
use crate::machine::Machine;

/// Any window will do to ask for the names of parameters.
const WINDOW: u64 = 1_000_000;

/// The whole description of a machine in TOML, defaults written out.
#[pyfunction]
pub(crate) fn machine_description(machine: &Bound<'_, Machine>) -> PyResult<String> {
    toml::to_string(&machine.get().0).map_err(|error| raise(ModelError::Syntax(error.to_string())))
}

/// Fails when `policy` has no parameter of that name; says which it has.
#[pyfunction]
pub(crate) fn check_parameter(
    policy: &str,
    parameter: &str,
    machine: &Bound<'_, Machine>,
) -> PyResult<()> {
    // No parameter is an array, so that the name is looked at and the value never taken.
    let value = toml::Value::Array(Vec::new());
    let table = [(parameter.to_owned(), value)].into_iter().collect();
    match registry::by_name(policy, Some(table), &machine.get().0.costs, WINDOW) {
        Err(error) if error.to_string().contains("unknown field") => Err(raise(error)),
        _ => Ok(()),
    }
}
