//! The whole run of a synthetic workload as segments with constant rates.

use super::phases::PerMode;
use super::sampling::BATCHES;
use super::setup::Setup;
use crate::error::ModelError;
use crate::workload::Workload;

const MOST_WINDOWS: f64 = 1e6;

/// A part of the run within one phase and one window.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Segment {
    pub(super) phase: usize,
    pub(super) window: u32,
    pub(super) instructions: f64,
    /// Its work per instruction, in the unit of its phase's rates.
    pub(super) work: f64,
    /// The batch of the phase that represents it.
    pub(super) batch: usize,
    /// Share of the phase's entry that happens at its start; 0 when the phase continues.
    pub(super) entry: f64,
    /// What was counted in this segment itself, besides its phase's entry and rates; may be empty.
    pub(super) own: PerMode,
}

/// Divides the run at phases and windows.
pub(super) fn segments(workload: &Workload, setup: &Setup) -> Result<Vec<Segment>, ModelError> {
    let window = setup.window_instructions as f64;
    let limit = setup.instruction_limit.unwrap_or(f64::INFINITY);
    let total = workload.instructions().min(limit);
    if total / window > MOST_WINDOWS {
        let reason = format!("the run of {total:.3e} instructions has over a million windows");
        return Err(ModelError::field("window", reason));
    }
    let mut found = Vec::new();
    let (mut at, mut mapped) = (0.0, 0.0);
    for index in workload.order() {
        let phase = &workload.phase[index];
        let footprint = phase.footprint.0 as f64;
        if phase.new_process {
            mapped = 0.0;
        }
        // Memory that the process has mapped and touched before is not entered again.
        let mut entry = ((footprint - mapped) / footprint).max(0.0);
        mapped = footprint.max(mapped);
        let end = (at + phase.instructions).min(total);
        while end - at > 0.5 {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // below 2^20
            let number = (at / window + 1e-9).floor() as u32;
            let length = (f64::from(number + 1) * window).min(end) - at;
            let batch = number as usize % BATCHES;
            found.push(Segment {
                phase: index,
                window: number,
                instructions: length,
                work: 1.0,
                batch,
                entry,
                own: Vec::new(),
            });
            entry = 0.0;
            at += length;
        }
        if at >= total - 0.5 {
            break;
        }
    }
    Ok(found)
}
