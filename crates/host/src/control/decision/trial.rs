//! A mode that is only tried: what becomes of it, and the way back.

use vtax_sys::kvm::PagingMode;

use super::{Control, Held, Save};
use crate::control::drive::Driver;
use crate::control::guard::Trial;
use crate::control::host::Host;
use crate::control::line::{Decision, Line};
use crate::control::sensors::Step;

/// What becomes of a mode that is tried.
pub(super) enum Verdict {
    /// It is not known yet, for this reason.
    Open(String),
    /// The policy keeps the mode.
    Kept,
    /// The host returns, for this reason.
    Back(String),
}

impl<H: Host> Control<H> {
    /// The controller ends: return from a trial. `None`: nothing is being tried, or this one only
    /// looks.
    pub fn leave(&mut self, now_s: f64, time: f64, save: Save<'_>) -> Option<Line> {
        let trial = self.state.guard.trial.filter(|_| self.apply)?;
        let mut line = Line::new(time, self.recipe.name());
        line.mode = self.host.mode().ok();
        if line.mode == Some(trial.home) {
            self.state.guard.trial = None;
            self.keep(save);
            return None;
        }
        let why = "the controller ends".to_owned();
        if let Err(held) = self.go_back(trial, why, now_s, &mut line, &mut *save) {
            line.reason = format!(
                "{held}; run `vtax paging switch --to {}`",
                trial.home.name()
            );
        }
        self.keep(save);
        line.events.splice(0..0, self.events.drain(..));
        Some(line)
    }

    /// Go on with a trial, keep the mode, or return.
    pub(super) fn verdict(
        &mut self,
        trial: Trial,
        mode: PagingMode,
        step: &Step,
        now_s: f64,
    ) -> Verdict {
        if self.driver.is_none() {
            return Verdict::Back("the policy that tried it is gone".into());
        }
        let wanted = self.wanted(mode, step);
        let reason = match (wanted, self.driver.as_ref().map(Driver::is_trying)) {
            (Ok(wanted), _) if wanted != mode => {
                return Verdict::Back(format!("{} wants {}", self.said(), wanted.name()));
            }
            (Ok(_), Some(false)) => return Verdict::Kept,
            (Ok(_), _) => self.said(),
            (Err(reason), _) => reason,
        };
        if now_s >= trial.until_s {
            // Its conclusions would rest on a mode that was left.
            self.driver = None;
            return Verdict::Back(format!("the trial ended without a verdict: {reason}"));
        }
        Verdict::Open(reason)
    }

    /// Fails with the reason why the host does not return now.
    pub(super) fn may_go_back(&self, now_s: f64) -> Result<(), Held> {
        if !self.apply {
            return Err("this one only looks".into());
        }
        self.state.guard.return_waits(now_s)
    }

    /// Return to the mode before a trial, whatever the limits say.
    pub(super) fn go_back(
        &mut self,
        trial: Trial,
        why: String,
        now_s: f64,
        line: &mut Line,
        save: Save<'_>,
    ) -> Result<(), Held> {
        let home = trial.home;
        let wish = format!("back to {}: {why}", home.name());
        self.state.switching = Some(home);
        self.keep(save);
        self.switch(home, now_s, line)
            .map_err(|reason| format!("{wish}; {reason}"))?;
        self.state.guard.trial = None;
        line.decision = Decision::Switch;
        line.to = Some(home);
        line.reason = wish;
        Ok(())
    }
}
