//! Huge pages beside the switch: what they would gain, and the windows in which nothing is tried.

use super::{Control, usable};
use crate::control::gain::gain_of_huge_pages;
use crate::control::host::Host;
use crate::control::line::Line;
use crate::control::sensors::{Quantity, Step};

impl<H: Host> Control<H> {
    /// The guests' counters have restarted, by another mode.
    pub(super) fn restart(&mut self) {
        self.sensors.restart();
        if let Some(huge_pages) = &mut self.huge_pages {
            huge_pages.forget();
        }
    }

    /// Estimate what huge pages gain, and go on with them unless the mode is in question.
    pub(super) fn apply_huge_pages(&mut self, step: &Step, now_s: f64, line: &mut Line) {
        let Some(mode) = line.mode.filter(|_| !line.applied) else {
            return;
        };
        let gain = gain_of_huge_pages(mode, step);
        if let Some(gain) = &gain {
            line.huge_gain_percent = Some(gain.percent);
            line.huge_gain_source = Some(gain.source.clone());
        }
        let Some(huge_pages) = &mut self.huge_pages else {
            return;
        };
        let in_question = self.state.guard.trial.is_some()
            || self.state.switching.is_some()
            || self.stranded.is_some();
        if !in_question {
            let count = |quantity| step.counts.get(quantity);
            let cpi = || Some(count(Quantity::Cycles)? / count(Quantity::Instructions)?);
            let cpi = usable(step).ok().and_then(|()| cpi());
            let said = huge_pages.window(gain.as_ref(), cpi, step.seconds, now_s);
            line.events.extend(said);
        }
        line.huge_bytes = Some(huge_pages.bytes());
    }
}
