//! What a switch or a recovery did, and how long it took.

use std::time::Instant;

use serde::Serialize;

use crate::switch::saving::Lacked;
use crate::switch::steps::Phase;
use vtax_sys::kvm::PagingMode;

/// A finished switch.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The mode before the switch.
    pub from: PagingMode,
    /// The current mode.
    pub to: PagingMode,
    /// The module that was reloaded.
    pub module: String,
    /// False: the host was in that mode already, and nothing was done.
    pub switched: bool,
    pub guests: Vec<GuestReport>,
    /// The phases in order.
    pub phases: Vec<PhaseReport>,
    /// Unloading and loading in this switch, in milliseconds; absent when nothing was done. This is
    /// not the time of a bare reload: new QEMUs start meanwhile (`bench/paging_switch.py` measures
    /// both).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reload_ms: Option<f64>,
    /// The longest pause as a multiple of `reload_ms`; absent without a pause.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause_over_reload: Option<f64>,
    /// What the guests lost: connections that ended with their QEMUs.
    pub warnings: Vec<String>,
}

#[derive(Debug, Clone, Serialize)]
pub struct GuestReport {
    /// Its name, or `guest`.
    pub name: String,
    /// The QEMU before the switch.
    pub pid_before: i32,
    /// The QEMU after the switch.
    pub pid_after: i32,
    /// The pause from the guest's stop to its resumption by the two QEMUs' clocks, in milliseconds;
    /// absent for a guest that its owner had paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause_ms: Option<f64>,
    /// Size of the saved state in bytes, without memory.
    pub state_bytes: u64,
    /// How often the state was saved again because the guest would have lost something.
    pub retries: u32,
    /// What the incomplete states lacked.
    pub lacked: Lacked,
    /// How long the guest was paused for the incomplete states, before `pause_ms`, in milliseconds.
    pub retries_ms: f64,
}

#[derive(Debug, Clone, Serialize)]
pub struct PhaseReport {
    pub name: &'static str,
    /// When the phase began, in milliseconds since the switch began.
    pub begin_ms: f64,
    /// How long it took, in milliseconds.
    pub ms: f64,
}

/// A finished recovery.
#[derive(Debug, Clone, Serialize)]
pub struct RecoveryReport {
    /// False: there was nothing to recover.
    pub recovered: bool,
    /// The current mode; absent when there was nothing to recover.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<PagingMode>,
    pub guests: Vec<RecoveredGuest>,
}

#[derive(Debug, Clone, Serialize)]
pub struct RecoveredGuest {
    pub name: String,
    /// The QEMU that runs the guest.
    pub pid: i32,
    /// What was found: `old`, the QEMU from before the switch; `new`, the new QEMU; or `state`, no
    /// QEMU, so that one was started from the saved state.
    pub found: &'static str,
}

/// Measures phases.
#[derive(Debug)]
pub struct Clock {
    begin: Instant,
    phases: Vec<PhaseReport>,
}

impl Clock {
    /// Start the clock.
    pub fn start() -> Self {
        Self {
            begin: Instant::now(),
            phases: Vec::new(),
        }
    }

    /// Record that a phase ends, which began when the last one ended.
    pub fn ends(&mut self, phase: Phase) {
        self.ends_as(phase.name());
    }

    /// Like [`Clock::ends`], for a phase that is not in the fault table.
    pub fn ends_as(&mut self, name: &'static str) {
        let now = self.begin.elapsed().as_secs_f64() * 1e3;
        let begin_ms = self
            .phases
            .last()
            .map_or(0.0, |last| last.begin_ms + last.ms);
        self.phases.push(PhaseReport {
            name,
            begin_ms,
            ms: now - begin_ms,
        });
    }

    /// The total time of some phases, in milliseconds.
    pub fn sum(&self, phases: &[Phase]) -> f64 {
        let names: Vec<_> = phases.iter().map(|phase| phase.name()).collect();
        let wanted = self.phases.iter().filter(|one| names.contains(&one.name));
        wanted.map(|one| one.ms).sum()
    }

    pub fn phases(self) -> Vec<PhaseReport> {
        self.phases
    }
}
