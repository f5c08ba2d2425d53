//! Machines: the presets, and users' descriptions.

use pyo3::prelude::*;
use vtax_model::presets;

use crate::error::raise;

/// A checked description of a machine.
#[pyclass(frozen, module = "vtax._native")]
pub(crate) struct Machine(pub(crate) vtax_model::model::machine::Machine);

#[pymethods]
impl Machine {
    /// The names of the machines that vtax carries.
    #[staticmethod]
    fn names() -> Vec<&'static str> {
        presets::names()
    }

    /// The machine with that name.
    #[staticmethod]
    fn preset(name: &str) -> PyResult<Self> {
        presets::by_name(name).map(Self).map_err(raise)
    }

    /// The machine that a TOML text describes.
    #[staticmethod]
    fn parse(text: &str) -> PyResult<Self> {
        let machine = vtax_model::model::machine::Machine::parse(text).map_err(raise)?;
        Ok(Self(machine))
    }

    /// The name on the command line.
    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    /// What it is, for people.
    #[getter]
    fn title(&self) -> &str {
        &self.0.title
    }

    /// Its clock in hertz.
    #[getter]
    fn clock_hz(&self) -> f64 {
        self.0.clock_hz
    }
}
