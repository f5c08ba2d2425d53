//! Synthetic workloads: the profiles, and users' descriptions.

use pyo3::prelude::*;
use vtax_model::workload::profiles;

use crate::error::raise;

/// A checked description of a synthetic workload.
#[pyclass(frozen, module = "vtax._native")]
pub(crate) struct Workload(pub(crate) vtax_model::workload::Workload);

#[pymethods]
impl Workload {
    /// The names of the profiles.
    #[staticmethod]
    fn names() -> Vec<&'static str> {
        profiles::names()
    }

    /// The profile with that name.
    #[staticmethod]
    fn profile(name: &str) -> PyResult<Self> {
        profiles::by_name(name).map(Self).map_err(raise)
    }

    /// The workload that a TOML text describes.
    #[staticmethod]
    fn parse(text: &str) -> PyResult<Self> {
        let workload = vtax_model::workload::Workload::parse(text).map_err(raise)?;
        Ok(Self(workload))
    }

    /// The name on the command line.
    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    /// What it stands for, for people.
    #[getter]
    fn title(&self) -> &str {
        &self.0.title
    }

    /// What is known about the original and what is assumed.
    #[getter]
    fn basis(&self) -> &str {
        &self.0.basis
    }

    /// Its length in retired instructions.
    #[getter]
    fn instructions(&self) -> f64 {
        self.0.instructions()
    }

    /// The names of its phases, in the order in which the output numbers them.
    #[getter]
    fn phases(&self) -> Vec<&str> {
        self.0
            .phase
            .iter()
            .map(|phase| phase.name.as_str())
            .collect()
    }
}
