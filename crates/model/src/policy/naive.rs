//! Fixed thresholds without hysteresis: the "naive approach" of the DAV2M paper, section 6, which
//! oscillates wherever both metrics of a workload are above their thresholds.

use serde::{Deserialize, Serialize};

use super::dav2m;
use super::measure::{Meter, check_window, check_within};
use super::{Policy, PolicyView, Reading};
use crate::error::ModelError;
use vtax_sys::kvm::PagingMode;

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NaiveParameters {
    /// Retired instructions between two decisions.
    pub window: u64,
    pub start: PagingMode,
    /// The number of paging exits per window above which shadow paging is left.
    pub threshold_vexit: f64,
    /// The number of TLB misses per window above which nested paging is left.
    pub threshold_tmiss: f64,
}

impl NaiveParameters {
    /// DAV2M's starting thresholds as rates, for windows of `window` instructions.
    pub fn scaled(window: u64) -> Self {
        Self {
            window,
            start: PagingMode::Shadow,
            threshold_vexit: dav2m::starting_vexits(window),
            threshold_tmiss: dav2m::starting_tmisses(window),
        }
    }

    /// Fails on invalid values; names the field.
    pub fn check(&self) -> Result<(), ModelError> {
        check_window("window", self.window)?;
        check_within("threshold_vexit", self.threshold_vexit, 0.0, f64::MAX)?;
        check_within("threshold_tmiss", self.threshold_tmiss, 0.0, f64::MAX)
    }
}

/// Changes the mode at the end of every window whose metric is above the mode's threshold.
#[derive(Clone, Debug)]
pub struct Naive {
    parameters: NaiveParameters,
    mode: PagingMode,
    meter: Meter,
}

impl Naive {
    /// Fails when a parameter is invalid; names it.
    pub fn new(parameters: NaiveParameters) -> Result<Self, ModelError> {
        parameters.check()?;
        Ok(Self {
            parameters,
            mode: parameters.start,
            meter: Meter::default(),
        })
    }
}

impl Policy for Naive {
    fn name(&self) -> &'static str {
        "naive"
    }

    fn window_instructions(&self) -> u64 {
        self.parameters.window
    }

    fn wanted(&self) -> PagingMode {
        self.mode
    }

    fn on_window(&mut self, now: &Reading) -> Result<PagingMode, ModelError> {
        if let Some(step) = self.meter.advance(now) {
            let leave = match self.mode {
                PagingMode::Shadow => step.shadow_exits > self.parameters.threshold_vexit,
                PagingMode::Nested => step.tlb_misses > self.parameters.threshold_tmiss,
            };
            if leave {
                self.mode = self.mode.other();
            }
        }
        Ok(self.mode)
    }

    fn view(&self) -> PolicyView {
        PolicyView {
            threshold_vexit: Some(self.parameters.threshold_vexit),
            threshold_tmiss: Some(self.parameters.threshold_tmiss),
            ..PolicyView::of_mode(self.mode)
        }
    }
}
