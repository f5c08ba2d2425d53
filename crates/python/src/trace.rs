//! Traces of memory references.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use vtax_model::error::ModelError;
use vtax_model::model::address::PageSize;
use vtax_model::simulation::{self, Setup};
use vtax_model::traces::{self, TraceError};
use vtax_model::workload;

use crate::error::raise;
use crate::machine::Machine;
use crate::request::Settings;

fn open(path: &Path) -> Result<traces::Trace, TraceError> {
    let name = path.display().to_string();
    let file = File::open(path).map_err(|error| TraceError::cannot_open(&name, &error))?;
    traces::open(Box::new(file), &name)
}

/// A file that begins like a trace. Each simulation but the first opens it again, which is not
/// possible with a pipe.
#[pyclass(frozen, module = "vtax._native")]
pub(crate) struct Trace {
    path: PathBuf,
    /// The trace as it was opened, for the first simulation.
    first: Mutex<Option<traces::Trace>>,
    format: &'static str,
    /// The trace does not say what the guest mapped.
    map_on_touch: bool,
    /// The memory size of the observed guest.
    memory_bytes: Option<u64>,
}

impl Trace {
    /// The references of the trace, from its beginning.
    pub(crate) fn source(&self) -> Result<traces::Trace, ModelError> {
        let first = self
            .first
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        match first {
            Some(trace) => Ok(trace),
            None => Ok(open(&self.path)?),
        }
    }

    /// Takes over what the trace says of its guest.
    pub(crate) fn complete(&self, setup: &mut Setup) {
        setup.map_on_touch = self.map_on_touch;
        setup.memory_bytes = self.memory_bytes.unwrap_or(setup.memory_bytes);
    }
}

#[pymethods]
impl Trace {
    /// The trace in a file; the content determines the format.
    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        // Opening waits for the writer of a pipe.
        let trace = py
            .detach(|| open(&path))
            .map_err(|error| raise(error.into()))?;
        let format = trace.format().name();
        let map_on_touch = trace.map_on_touch();
        let memory_bytes = trace.header().and_then(|header| header.memory_bytes);
        Ok(Self {
            path,
            first: Mutex::new(Some(trace)),
            format,
            map_on_touch,
            memory_bytes,
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

    /// The length in retired instructions: unknown before the end.
    #[getter]
    #[expect(clippy::unused_self)] // the same attribute as a synthetic workload's
    fn instructions(&self) -> Option<f64> {
        None
    }

    /// References to each region of 4 MiB of user addresses, most referenced first.
    fn locality(&self, py: Python<'_>, references: u64) -> PyResult<Vec<u64>> {
        py.detach(|| workload::locality_of_trace(&mut self.source()?, references))
            .map_err(raise)
    }

    /// Walks of user addresses in a native run by their last page-table entry, and reads of entries
    /// by walks; each most frequent first.
    fn walk_locality(
        &self,
        py: Python<'_>,
        machine: &Bound<'_, Machine>,
        settings: Settings,
    ) -> PyResult<(Vec<u64>, Vec<u64>)> {
        let machine = &machine.get().0;
        let mut setup = settings.setup(machine, PageSize::K4).map_err(raise)?;
        self.complete(&mut setup);
        let counted = py.detach(|| simulation::count_entries(&mut self.source()?, &setup));
        let counts = counted.map_err(raise)?;
        let sorted = [counts.misses, counts.reads]
            .map(|counts| workload::busiest_first(counts.into_values()));
        Ok(sorted.into())
    }

    /// The names of the phases: phases of a trace have only numbers.
    #[getter]
    #[expect(clippy::unused_self)] // the same attribute as a synthetic workload's
    fn phases(&self) -> Vec<String> {
        Vec::new()
    }
}
