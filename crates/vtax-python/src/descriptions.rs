//! The texts of what vtax carries, for studies that change them, and figures of the workloads alone.

use pyo3::prelude::*;
use vtax_paging::presets;
use vtax_paging::workload::{self, profiles};

use crate::error::raise;
use crate::workload::Workload;

/// The TOML text of the machine of that name.
#[pyfunction]
pub(crate) fn machine_description(name: &str) -> PyResult<&'static str> {
    presets::description(name).map_err(raise)
}

/// The TOML text of the workload of that name.
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
