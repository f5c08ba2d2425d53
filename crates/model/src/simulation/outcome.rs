//! The results of a simulation.

use std::ops::ControlFlow;

use crate::model::counters::Counters;
use crate::policy::PolicyView;
use vtax_sys::kvm::PagingMode;

/// A callback with the number of instructions done; it may ask to stop.
pub type Progress<'a> = &'a mut dyn FnMut(f64) -> ControlFlow<()>;

/// The results of a simulation. All cycles are modelled.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// One result for each choice, in their order.
    pub modes: Vec<ModeOutcome>,
    /// The same workload without virtualization: what overheads refer to.
    pub native: Counters,
    /// Was every reference followed? Otherwise phases were sampled.
    pub whole: bool,
    /// Did the run end early because the progress callback asked for it?
    pub stopped: bool,
}

impl Outcome {
    /// Cycles of `mode` beyond native in percent of native; `None` without a native cycle.
    pub fn overhead_percent(&self, mode: &ModeOutcome) -> Option<f64> {
        let native = self.native.cycles.total();
        (native > 0.0).then(|| 100.0 * (mode.totals.cycles.total() / native - 1.0))
    }
}

/// One way of translation over the whole workload.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModeOutcome {
    pub name: String,
    /// Counters over the whole run.
    pub totals: Counters,
    /// Half-width of the 95 % interval of the cycles, relative to them; `None` when nothing was
    /// sampled.
    pub relative_error: Option<f64>,
    pub windows: Vec<WindowRow>,
    /// Changes of the paging mode, in order.
    pub switches: Vec<SwitchRow>,
    /// The policy's first state and every change of it, in order; empty without a policy.
    pub states: Vec<StateRow>,
}

/// One window of one mode.
#[derive(Clone, Debug, PartialEq)]
pub struct WindowRow {
    /// The window's number, from 0.
    pub index: u32,
    /// The phase at the window's end.
    pub phase: u32,
    /// Counters of this window alone; the length in instructions is exact.
    pub counters: Counters,
    /// Cycles per instruction, moving average over ten windows (the DAV2M paper, section 4).
    pub smoothed_cpi: f64,
    /// The paging mode at the window's end; `None` natively and under agile paging.
    pub paging: Option<PagingMode>,
    /// The policy's state and thresholds at the window's end.
    pub view: Option<PolicyView>,
}

/// A state of a policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StateRow {
    /// Retired instructions before it.
    pub instructions: f64,
    /// The state from then on.
    pub state: &'static str,
}

/// A change of the paging mode.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SwitchRow {
    /// Retired instructions before it.
    pub instructions: f64,
    /// The mode from then on.
    pub to: PagingMode,
    /// Cycles of the change itself, without the refill that follows.
    pub cost_cycles: f64,
}
