//! DAV2M (Bae, Lange, Dinda, ICAC 2011, section 6): five states, two events, thresholds that move.
//!
//! The pseudo-code of the paper, taken word for word, can wait for ever: it tests `count_pmu` for
//! equality with a window after having left it at or beyond that window. In this implementation, a
//! window is over when `count_pmu` has reached *or passed* it, and counters restart where
//! [`Dav2mParameters`] says so. Two more points need interpretation:
//!
//! - `count_vexit` restarts in `PreShadow` only when the instruction counter overflows at a
//!   multiple of `window_vexit`. Tested after every exit, as printed, it would restart at each
//!   exit.
//! - `PreNested` lasts until "at least `window_vexit` instructions have been retired": an overflow
//!   that comes sooner after an exit-driven switch does not end it.
//!
//! Where nothing was retired since the last change of mode, the stored CPI stays as it was. A CPI
//! that was never known is no evidence: the probe counts as passed and no threshold moves.

mod parameters;

pub use parameters::{
    Dav2mParameters, PAPER_WINDOW, ShadowProbe, starting_tmisses, starting_vexits,
};

use super::measure::{Meter, MovingRate};
use super::{Policy, PolicyView, Reading};
use crate::error::ModelError;
use vtax_sys::kvm::PagingMode;

/// The states of the paper's figure 7.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Shadow paging, counting exits.
    Shadow,
    /// Nested paging on probation.
    PreNested,
    /// Nested paging, waiting until the TLB miss rate is steady.
    Prepaging,
    /// Nested paging, counting TLB misses.
    Nested,
    /// Shadow paging on probation.
    PreShadow,
}

impl State {
    pub const fn mode(self) -> PagingMode {
        match self {
            Self::Shadow | Self::PreShadow => PagingMode::Shadow,
            Self::PreNested | Self::Prepaging | Self::Nested => PagingMode::Nested,
        }
    }

    /// The name in the paper and in the output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shadow => "Shadow",
            Self::PreNested => "PreNested",
            Self::Prepaging => "Prepaging",
            Self::Nested => "Nested",
            Self::PreShadow => "PreShadow",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A paging exit under shadow paging.
    ShadowExit,
    /// The instruction counter overflowed.
    Overflow,
}

/// A transition of the diagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    pub from: State,
    pub on: Event,
    pub condition: &'static str,
    pub to: State,
    /// What else happens.
    pub action: &'static str,
    /// Is it in the paper's diagram? The other transitions exist for an ablation.
    pub in_paper: bool,
}

/// The diagram (the paper's figure 7, with section 6's pseudo-code).
pub const TRANSITIONS: [Transition; 9] = [
    Transition {
        from: State::Shadow,
        on: Event::ShadowExit,
        condition: "count_vexit > threshold_vexit",
        to: State::PreNested,
        action: "store cpi_shadow",
        in_paper: true,
    },
    Transition {
        from: State::PreNested,
        on: Event::Overflow,
        condition: "window_vexit over, cpi_nested > cpi_shadow x p_factor",
        to: State::Shadow,
        action: "raise threshold_vexit",
        in_paper: true,
    },
    Transition {
        from: State::PreNested,
        on: Event::Overflow,
        condition: "window_vexit over, otherwise",
        to: State::Prepaging,
        action: "lower threshold_vexit if cpi_nested < cpi_shadow",
        in_paper: true,
    },
    Transition {
        from: State::PreNested,
        on: Event::Overflow,
        condition: "the same with prepaging = false",
        to: State::Nested,
        action: "lower threshold_vexit if cpi_nested < cpi_shadow",
        in_paper: false,
    },
    Transition {
        from: State::Prepaging,
        on: Event::Overflow,
        condition: "window_prepaging over",
        to: State::Nested,
        action: "",
        in_paper: true,
    },
    Transition {
        from: State::Nested,
        on: Event::Overflow,
        condition: "window_tmiss over, count_tmiss > threshold_tmiss",
        to: State::PreShadow,
        action: "store cpi_nested",
        in_paper: true,
    },
    Transition {
        from: State::PreShadow,
        on: Event::ShadowExit,
        condition: "count_vexit > threshold_vexit",
        to: State::PreNested,
        action: "store cpi_shadow",
        in_paper: true,
    },
    Transition {
        from: State::PreShadow,
        on: Event::Overflow,
        condition: "shadow_probe over, cpi_shadow > cpi_nested x p_factor",
        to: State::Nested,
        action: "raise threshold_tmiss",
        in_paper: true,
    },
    Transition {
        from: State::PreShadow,
        on: Event::Overflow,
        condition: "shadow_probe over, otherwise",
        to: State::Shadow,
        action: "lower threshold_tmiss if cpi_shadow < cpi_nested",
        in_paper: true,
    },
];

/// How a probe ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Worse,
    Better,
    Indifferent,
}

/// An overflow may come early by this part of a window and still close the window: counters skid.
const SKID: f64 = 0.01;

#[derive(Clone, Debug)]
pub struct Dav2m {
    parameters: Dav2mParameters,
    state: State,
    threshold_vexit: f64,
    threshold_tmiss: f64,
    count_vexit: u64,
    /// Overflows since the last reset; the two fields below are counted likewise.
    count_pmu: u64,
    count_s2n: u64,
    count_n2s: u64,
    cpi_shadow: Option<f64>,
    cpi_nested: Option<f64>,
    meter: Meter,
    cpi: MovingRate,
    tmiss: MovingRate,
    /// The instruction counter at the last change of mode.
    switched_at: f64,
}

impl Dav2m {
    /// Fails when a parameter is invalid; names it.
    pub fn new(parameters: Dav2mParameters) -> Result<Self, ModelError> {
        parameters.check()?;
        Ok(Self {
            parameters,
            state: match parameters.start {
                PagingMode::Shadow => State::Shadow,
                PagingMode::Nested => State::Nested,
            },
            threshold_vexit: parameters.threshold_vexit,
            threshold_tmiss: parameters.threshold_tmiss,
            count_vexit: 0,
            count_pmu: 0,
            count_s2n: 0,
            count_n2s: 0,
            cpi_shadow: None,
            cpi_nested: None,
            meter: Meter::default(),
            cpi: MovingRate::new(parameters.smoothing_cpi as usize),
            tmiss: MovingRate::new(parameters.smoothing_tmiss as usize),
            switched_at: 0.0,
        })
    }

    pub fn state(&self) -> State {
        self.state
    }

    fn measure(&mut self, now: &Reading) {
        if let Some(step) = self.meter.advance(now) {
            self.cpi.push(step.cycles, step.instructions);
            self.tmiss.push(step.tlb_misses, step.instructions);
        }
    }

    /// Do `count_pmu` overflows make up `window` instructions?
    fn passed(&self, window: u64) -> bool {
        self.count_pmu.saturating_mul(self.parameters.window_inst) >= window
    }

    fn overflow_in_shadow(&mut self) {
        if self.passed(self.parameters.window_vexit) {
            self.count_vexit = 0;
            self.count_pmu = 0;
        }
    }

    fn overflow_in_pre_shadow(&mut self, now: &Reading) {
        if !self.passed(self.parameters.shadow_probe_window()) {
            let vexit_steps = self
                .parameters
                .window_vexit
                .div_ceil(self.parameters.window_inst);
            if self.count_pmu.is_multiple_of(vexit_steps) {
                self.count_vexit = 0;
            }
            return;
        }
        self.cpi_shadow = self.cpi.rate().or(self.cpi_shadow);
        let verdict = self.verdict(self.cpi_nested, self.cpi_shadow);
        self.threshold_tmiss = self.judged(self.threshold_tmiss, verdict);
        self.clamp_thresholds();
        self.count_pmu = 0;
        if verdict == Verdict::Worse {
            self.enter(State::Nested, now);
        } else {
            self.count_vexit = 0;
            self.enter(State::Shadow, now);
        }
    }

    fn overflow_in_pre_nested(&mut self, now: &Reading) {
        let window = self.parameters.window_vexit;
        let retired = now.instructions - self.switched_at;
        let early = retired < window as f64 * (1.0 - SKID);
        // One overflow may come too soon after an exit. If the next overflow does too, the
        // instruction counter is wrong, and must not keep the probe open.
        let first = !self.passed(window.saturating_add(self.parameters.window_inst));
        if !self.passed(window) || (early && first) {
            return;
        }
        self.cpi_nested = self.cpi.rate().or(self.cpi_nested);
        let verdict = self.verdict(self.cpi_shadow, self.cpi_nested);
        self.threshold_vexit = self.judged(self.threshold_vexit, verdict);
        self.clamp_thresholds();
        if verdict == Verdict::Worse {
            self.enter(State::Shadow, now);
        } else if self.parameters.prepaging {
            self.enter(State::Prepaging, now);
        } else {
            self.count_pmu = 0;
            self.enter(State::Nested, now);
        }
    }

    fn overflow_in_prepaging(&mut self, now: &Reading) {
        if self.passed(self.parameters.window_prepaging) {
            self.count_pmu = 0;
            self.enter(State::Nested, now);
        }
    }

    fn overflow_in_nested(&mut self, now: &Reading) {
        if !self.passed(self.parameters.window_tmiss) {
            return;
        }
        let count_tmiss = self
            .tmiss
            .rate()
            .map(|rate| rate * self.parameters.window_tmiss as f64);
        if count_tmiss.is_some_and(|count| count > self.threshold_tmiss) {
            self.cpi_nested = self.cpi.rate().or(self.cpi_nested);
            self.enter(State::PreShadow, now);
        } else {
            self.count_pmu = 0;
        }
    }

    fn verdict(&self, before: Option<f64>, after: Option<f64>) -> Verdict {
        match (before, after) {
            (Some(before), Some(after)) if after > before * self.parameters.p_factor => {
                Verdict::Worse
            }
            (Some(before), Some(after)) if after < before => Verdict::Better,
            _ => Verdict::Indifferent,
        }
    }

    /// The threshold that caused a probe, adjusted after the probe.
    fn judged(&self, threshold: f64, verdict: Verdict) -> f64 {
        match verdict {
            Verdict::Worse => threshold * self.parameters.threshold_rise,
            Verdict::Better => threshold * self.parameters.threshold_fall,
            Verdict::Indifferent => threshold,
        }
    }

    fn clamp_thresholds(&mut self) {
        let [low, high] = self.parameters.threshold_range;
        let within = |threshold: f64, start: f64| threshold.clamp(start * low, start * high);
        self.threshold_vexit = within(self.threshold_vexit, self.parameters.threshold_vexit);
        self.threshold_tmiss = within(self.threshold_tmiss, self.parameters.threshold_tmiss);
    }

    /// The paper's `transState`.
    fn enter(&mut self, next: State, now: &Reading) {
        let switches = next.mode() != self.state.mode();
        self.state = next;
        if !switches {
            return;
        }
        self.damp(next.mode());
        self.switched_at = now.instructions;
        if self.parameters.reset_at_switch {
            self.count_pmu = 0;
            self.count_vexit = 0;
        }
        if !self.parameters.smooth_across_switch {
            self.cpi.clear();
            self.tmiss.clear();
        }
    }

    /// Raises both thresholds when the mode changes too soon after the last change in this
    /// direction.
    fn damp(&mut self, to: PagingMode) {
        let window = self.parameters.window_trans;
        let count = match to {
            PagingMode::Shadow => &mut self.count_n2s,
            PagingMode::Nested => &mut self.count_s2n,
        };
        let soon = count.saturating_mul(self.parameters.window_inst) < window;
        if soon || self.parameters.reset_outside_damping {
            *count = 0;
        }
        if soon {
            self.threshold_vexit *= self.parameters.threshold_rise;
            self.threshold_tmiss *= self.parameters.threshold_rise;
            self.clamp_thresholds();
        }
    }
}

impl Policy for Dav2m {
    fn name(&self) -> &'static str {
        "dav2m"
    }

    fn window_instructions(&self) -> u64 {
        self.parameters.window_inst
    }

    fn wanted(&self) -> PagingMode {
        self.state.mode()
    }

    fn on_shadow_exits(&mut self, count: u64, now: &Reading) -> Result<PagingMode, ModelError> {
        if self.wanted() == PagingMode::Nested {
            return Ok(PagingMode::Nested);
        }
        self.count_vexit = self.count_vexit.saturating_add(count);
        if self.count_vexit as f64 > self.threshold_vexit {
            self.measure(now);
            self.cpi_shadow = self.cpi.rate().or(self.cpi_shadow);
            self.count_pmu = 0;
            self.enter(State::PreNested, now);
        }
        Ok(self.wanted())
    }

    fn exits_until_decision(&self) -> u64 {
        match self.wanted() {
            // The first count above the threshold; at most 1e30, and the cast saturates.
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            PagingMode::Shadow => (self.threshold_vexit.floor() as u64)
                .saturating_add(1)
                .saturating_sub(self.count_vexit)
                .max(1),
            PagingMode::Nested => u64::MAX,
        }
    }

    fn on_window(&mut self, now: &Reading) -> Result<PagingMode, ModelError> {
        self.measure(now);
        self.count_pmu = self.count_pmu.saturating_add(1);
        self.count_s2n = self.count_s2n.saturating_add(1);
        self.count_n2s = self.count_n2s.saturating_add(1);
        match self.state {
            State::Shadow => self.overflow_in_shadow(),
            State::PreShadow => self.overflow_in_pre_shadow(now),
            State::PreNested => self.overflow_in_pre_nested(now),
            State::Prepaging => self.overflow_in_prepaging(now),
            State::Nested => self.overflow_in_nested(now),
        }
        Ok(self.wanted())
    }

    fn is_trying(&self) -> bool {
        matches!(self.state, State::PreNested | State::PreShadow)
    }

    fn view(&self) -> PolicyView {
        PolicyView {
            state: self.state.name(),
            threshold_vexit: Some(self.threshold_vexit),
            threshold_tmiss: Some(self.threshold_tmiss),
        }
    }
}

#[cfg(test)]
mod tests;
