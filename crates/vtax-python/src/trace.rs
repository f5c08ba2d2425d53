//! Traces of memory references.

use std::path::{Path, PathBuf};

use pyo3::prelude::*;
use vtax_paging::error::ModelError;
use vtax_trace::Options;

use crate::error::raise;

/// A file that begins as a trace does. It is opened anew for each simulation.
#[pyclass(frozen, module = "vtax._native")]
pub(crate) struct Trace {
    path: PathBuf,
    format: &'static str,
    /// The trace does not say what the guest mapped.
    pub(crate) map_on_touch: bool,
}

impl Trace {
    /// The references of the trace, from its beginning.
    pub(crate) fn source(&self) -> Result<vtax_trace::Trace, ModelError> {
        Ok(vtax_trace::open_file(&self.path, &Options::default())?)
    }
}

#[pymethods]
impl Trace {
    /// The trace in a file; finds its format by what it holds.
    #[staticmethod]
    fn open(path: PathBuf) -> PyResult<Self> {
        let trace = vtax_trace::open_file(&path, &Options::default());
        let trace = trace.map_err(|error| raise(error.into()))?;
        let format = trace.format().name();
        let map_on_touch = trace.map_on_touch();
        Ok(Self {
            path,
            format,
            map_on_touch,
        })
    }

    /// The file's name without its folder.
    #[getter]
    fn name(&self) -> String {
        let name = self.path.file_name().map(Path::new);
        name.unwrap_or(&self.path).display().to_string()
    }

    /// The name of the format.
    #[getter]
    fn format(&self) -> &'static str {
        self.format
    }

    /// The length in retired instructions: not known before the end.
    #[getter]
    #[expect(clippy::unused_self)] // the same attribute as a synthetic workload's
    fn instructions(&self) -> Option<f64> {
        None
    }

    /// The names of the phases: they have numbers only.
    #[getter]
    #[expect(clippy::unused_self)] // the same attribute as a synthetic workload's
    fn phases(&self) -> Vec<String> {
        Vec::new()
    }
}
