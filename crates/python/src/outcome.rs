//! Results as columns: lists of names, and numbers as the bytes of native 64-bit floats, which
//! numpy and polars take over without a Python object for each number.

use std::collections::BTreeMap;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use vtax_model::model::counters::{Counters, Exit, WALK_SOURCE_NAMES};
use vtax_model::simulation::{self, ModeOutcome, StateRow, SwitchRow, WindowRow};
use vtax_sys::kvm::PagingMode;

/// A column: its name, and its number in a row.
type Column<T> = (String, Box<dyn Fn(&T) -> f64>);

/// The result of a simulation. All cycles are modelled.
#[pyclass(frozen, module = "vtax._native")]
pub(crate) struct Outcome(simulation::Outcome, Option<String>);

impl Outcome {
    pub(crate) fn new(outcome: simulation::Outcome) -> Self {
        Self(outcome, None)
    }

    /// The same, of a trace whose file was cut there.
    pub(crate) fn up_to(self, cut: Option<String>) -> Self {
        Self(self.0, cut)
    }
}

#[pymethods]
impl Outcome {
    /// Whether every reference was followed.
    #[getter]
    fn whole(&self) -> bool {
        self.0.whole
    }

    /// Where the trace's file was cut, and what is missing; None: it is complete.
    #[getter]
    fn cut(&self) -> Option<&str> {
        self.1.as_deref()
    }

    /// The names of the modes, in the order in which they were asked for.
    #[getter]
    fn mode_names(&self) -> Vec<&str> {
        self.0.modes.iter().map(|mode| mode.name.as_str()).collect()
    }

    /// One row per mode: totals. Missing values are NaN.
    fn modes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let mut columns = counters(|mode: &ModeOutcome| &mode.totals);
        let error = |mode: &ModeOutcome| mode.relative_error.map_or(f64::NAN, |e| 100.0 * e);
        columns.push(column("relative_error_percent", error));
        let table = numbers(py, &columns, &self.0.modes)?;
        let overhead = self
            .0
            .modes
            .iter()
            .map(|mode| self.0.overhead_percent(mode));
        let overhead = overhead.map(|percent| percent.unwrap_or(f64::NAN));
        table.set_item("overhead_percent", bytes(py, overhead))?;
        Ok(table)
    }

    /// Totals without virtualization, which overheads refer to, by the names of the columns.
    fn native(&self) -> BTreeMap<String, f64> {
        let columns = counters(|counters: &Counters| counters);
        let value = |(name, value): Column<Counters>| (name, value(&self.0.native));
        columns.into_iter().map(value).collect()
    }

    /// One row per window of the mode at `index`.
    fn windows<'py>(&self, py: Python<'py>, index: usize) -> PyResult<Bound<'py, PyDict>> {
        let rows = self
            .0
            .modes
            .get(index)
            .map_or(&[][..], |mode| &mode.windows);
        let mut columns = counters(|row: &WindowRow| &row.counters);
        let threshold = |value: Option<f64>| value.unwrap_or(f64::NAN);
        columns.extend([
            column("window", |row: &WindowRow| f64::from(row.index)),
            column("phase", |row: &WindowRow| f64::from(row.phase)),
            column("cpi", |row: &WindowRow| row.counters.cpi()),
            column("smoothed_cpi", |row: &WindowRow| row.smoothed_cpi),
            column("threshold_vexit", move |row: &WindowRow| {
                threshold(row.view.and_then(|view| view.threshold_vexit))
            }),
            column("threshold_tmiss", move |row: &WindowRow| {
                threshold(row.view.and_then(|view| view.threshold_tmiss))
            }),
        ]);
        let table = numbers(py, &columns, rows)?;
        let paging: Vec<_> = rows
            .iter()
            .map(|row: &WindowRow| row.paging.map(PagingMode::name))
            .collect();
        let state: Vec<_> = rows
            .iter()
            .map(|row| row.view.map(|view| view.state))
            .collect();
        table.set_item("paging", paging)?;
        table.set_item("state", state)?;
        Ok(table)
    }

    /// The causes of exits, in the order of [`Self::exit_counts`].
    #[staticmethod]
    fn exit_causes() -> Vec<&'static str> {
        Exit::ALL.map(Exit::name).to_vec()
    }

    /// Exits by cause of the mode at `index`.
    fn exit_counts(&self, index: usize) -> Vec<f64> {
        let mode = self.0.modes.get(index);
        mode.map_or_else(Vec::new, |mode| mode.totals.exits.to_vec())
    }

    /// One row per change of the paging mode of the mode at `index`.
    fn switches<'py>(&self, py: Python<'py>, index: usize) -> PyResult<Bound<'py, PyDict>> {
        let rows = self
            .0
            .modes
            .get(index)
            .map_or(&[][..], |mode| &mode.switches);
        let columns = [
            column("instructions", |row: &SwitchRow| row.instructions),
            column("cost_cycles", |row: &SwitchRow| row.cost_cycles),
        ];
        let table = numbers(py, &columns, rows)?;
        let to: Vec<_> = rows.iter().map(|row: &SwitchRow| row.to.name()).collect();
        table.set_item("to", to)?;
        Ok(table)
    }

    /// The first state and one row per change of the state of the policy at `index`.
    fn states<'py>(&self, py: Python<'py>, index: usize) -> PyResult<Bound<'py, PyDict>> {
        let rows = self.0.modes.get(index).map_or(&[][..], |mode| &mode.states);
        let columns = [column("instructions", |row: &StateRow| row.instructions)];
        let table = numbers(py, &columns, rows)?;
        let state: Vec<_> = rows.iter().map(|row| row.state).collect();
        table.set_item("state", state)?;
        Ok(table)
    }
}

fn column<T>(name: &str, value: impl Fn(&T) -> f64 + 'static) -> Column<T> {
    (name.to_owned(), Box::new(value))
}

/// The columns that totals and windows have in common.
fn counters<T: 'static>(of: impl Fn(&T) -> &Counters + Copy + 'static) -> Vec<Column<T>> {
    let counter =
        |name: &str, value: fn(&Counters) -> f64| column(name, move |row: &T| value(of(row)));
    let mut columns = vec![
        counter("instructions", |c| c.instructions),
        counter("references", |c| c.references),
        counter("cycles", |c| c.cycles.total()),
        counter("l1_tlb_misses", |c| c.l1_tlb_misses),
        counter("l2_tlb_misses", |c| c.l2_tlb_misses),
        counter("walk_references", Counters::total_walk_references),
        counter("exits", Counters::total_exits),
        counter("shadow_exits", Counters::shadow_paging_exits),
        counter("flooded", |c| c.flooded),
        counter("switches", |c| c.switches),
        counter("cycles_base", |c| c.cycles.base),
        counter("cycles_tlb", |c| c.cycles.tlb),
        counter("cycles_walks", |c| c.cycles.walks),
        counter("cycles_exits", |c| c.cycles.exits),
        counter("cycles_guest", |c| c.cycles.guest),
        counter("cycles_switches", |c| c.cycles.switches),
        counter("cycles_refill", |c| c.cycles.refill),
    ];
    columns.extend(WALK_SOURCE_NAMES.iter().enumerate().map(|(at, source)| {
        let name = format!("walk_references_{source}");
        column(&name, move |row: &T| of(row).walk_references[at])
    }));
    columns.extend(Exit::ALL.map(|exit| {
        let name = format!("exits_{}", exit.name());
        column(&name, move |row: &T| of(row).exits[exit as usize])
    }));
    columns
}

fn numbers<'py, T>(
    py: Python<'py>,
    columns: &[Column<T>],
    rows: &[T],
) -> PyResult<Bound<'py, PyDict>> {
    let table = PyDict::new(py);
    for (name, value) in columns {
        table.set_item(name, bytes(py, rows.iter().map(value)))?;
    }
    Ok(table)
}

fn bytes(py: Python<'_>, values: impl Iterator<Item = f64>) -> Bound<'_, PyBytes> {
    let flat: Vec<u8> = values.flat_map(f64::to_ne_bytes).collect();
    PyBytes::new(py, &flat)
}
