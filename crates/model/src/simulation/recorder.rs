//! Divides a run into windows.

use std::collections::VecDeque;

use super::outcome::{StateRow, WindowRow};
use crate::model::counters::Counters;
use crate::policy::{Policy, PolicyView};
use vtax_sys::kvm::PagingMode;

/// Steps of the moving average of CPI (the DAV2M paper, section 4).
const SMOOTHING: usize = 10;

/// Collects the windows of one mode from cumulative counters.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    rows: Vec<WindowRow>,
    states: Vec<StateRow>,
    last: Counters,
    recent: VecDeque<f64>,
}

impl Recorder {
    /// Ends a window at `now`.
    pub(super) fn cut(
        &mut self,
        now: Counters,
        phase: u32,
        paging: Option<PagingMode>,
        view: Option<PolicyView>,
    ) {
        let counters = now - self.last;
        if counters.instructions <= 0.0 {
            return;
        }
        self.last = now;
        if self.recent.len() == SMOOTHING {
            self.recent.pop_front();
        }
        self.recent.push_back(counters.cpi());
        let smoothed_cpi = self.recent.iter().sum::<f64>() / self.recent.len() as f64;
        let index = u32::try_from(self.rows.len()).unwrap_or(u32::MAX);
        self.rows.push(WindowRow {
            index,
            phase,
            counters,
            smoothed_cpi,
            paging,
            view,
        });
    }

    /// Notes the policy's state, where it is another one than before.
    pub(super) fn state(&mut self, instructions: f64, policy: &dyn Policy) {
        let state = policy.view().state;
        if self.states.last().is_none_or(|last| last.state != state) {
            self.states.push(StateRow {
                instructions,
                state,
            });
        }
    }

    pub(super) fn rows(&self) -> usize {
        self.rows.len() + self.states.len()
    }

    pub(super) fn into_rows(self) -> (Vec<WindowRow>, Vec<StateRow>) {
        (self.rows, self.states)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_differences_and_cpi_is_averaged_over_ten() {
        let mut recorder = Recorder::default();
        let mut now = Counters::default();
        for window in 0..12 {
            now.instructions += 100.0;
            now.cycles.base += if window == 11 { 200.0 } else { 100.0 };
            recorder.cut(now, 0, None, None);
        }
        recorder.cut(now, 0, None, None); // an empty window is none
        let (rows, _) = recorder.into_rows();
        assert_eq!(rows.len(), 12);
        assert!((rows[11].counters.cpi() - 2.0).abs() < 1e-12);
        assert!((rows[11].smoothed_cpi - 1.1).abs() < 1e-12);
    }
}
