//! The parameters of DAV2M: the paper's values, and a name for every point that its text leaves
//! open.

use serde::{Deserialize, Serialize};

use crate::error::ModelError;
use crate::policy::measure::{check_window, check_within};
use vtax_sys::kvm::PagingMode;

/// The starting `threshold_vexit` for a window of `window` retired instructions, at the rate of the
/// paper's 1e4 exits per `window_vexit` of 1e9 (section 6).
pub fn starting_vexits(window: u64) -> f64 {
    1e4 * window as f64 / 1e9
}

/// The starting `threshold_tmiss` for a window of `window` retired instructions, at the rate of the
/// paper's 1e5 misses per `window_tmiss` of 1e10 (section 6).
pub fn starting_tmisses(window: u64) -> f64 {
    1e5 * window as f64 / 1e10
}

/// The paper's `window_inst` in retired instructions.
pub const PAPER_WINDOW: u64 = 1_000_000_000;

/// How long `PreShadow` probes shadow paging.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShadowProbe {
    /// `window_tmiss`, as in the pseudo-code.
    WindowTmiss,
    /// `window_vexit`, as the text suggests ("like `PreNested`").
    WindowVexit,
}

impl ShadowProbe {
    const fn of(self, parameters: &Dav2mParameters) -> u64 {
        match self {
            Self::WindowTmiss => parameters.window_tmiss,
            Self::WindowVexit => parameters.window_vexit,
        }
    }
}

/// Parameters of [`super::Dav2m`]. All windows are in retired instructions.
///
/// The first group is the paper's (section 6, "Parameters and initial settings"); the second names
/// what the text leaves open, with this implementation's choice as the default.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
// Four independent open points, each a yes or no.
#[allow(clippy::struct_excessive_bools)]
pub struct Dav2mParameters {
    /// How many times dearer the new mode's CPI may be before a probe has failed: 1.1.
    pub p_factor: f64,
    /// Instructions between two overflows of the instruction counter: 1e9.
    pub window_inst: u64,
    /// The window over which shadow exits are counted, and the length of `PreNested`: 1e9.
    pub window_vexit: u64,
    /// The window over which TLB misses are counted: 1e10.
    pub window_tmiss: u64,
    /// Two changes of mode in the same direction within this window raise both thresholds: 1e11.
    pub window_trans: u64,
    /// The number of exits per `window_vexit` above which shadow paging is left, at the start: 1e4.
    pub threshold_vexit: f64,
    /// The number of misses per `window_tmiss` above which nested paging is left, at the start:
    /// 1e5.
    pub threshold_tmiss: f64,
    /// Steps of the moving average of the TLB miss rate: 10.
    pub smoothing_tmiss: u32,

    /// Open: steps (overflows) of the moving average of the CPI that is stored and compared. 1: it
    /// is "computed from the number of retired instructions and the number of cycles during
    /// `window_vexit`" (section 6, Shadow). Section 4 speaks of 10 for the CPI it shows; then a
    /// probe right after a change of phase compares with the previous phase.
    pub smoothing_cpi: u32,
    /// Open: the state at the start. Shadow, where the paper's figure 8 begins.
    pub start: PagingMode,
    /// Open: by how much "raise" and "increment" multiply a threshold. 2, an assumption.
    pub threshold_rise: f64,
    /// Open: by how much a switch that helped multiplies the threshold that caused it ("the switch
    /// will occur at a lower threshold"; not in the pseudo-code). 0.5, an assumption; 1 turns it
    /// off.
    pub threshold_fall: f64,
    /// Open: the bounds of both thresholds as multiples of their starting values. 2^-10 and 2^20,
    /// an assumption that only keeps them finite.
    pub threshold_range: [f64; 2],
    /// Ablation: whether `Prepaging` exists. With `false`, `PreNested` leads to `Nested` at once.
    pub prepaging: bool,
    /// Open: the overflow after the entry of `PreNested` at which `Prepaging` ends. The default is
    /// as long as `window_tmiss`, so that the average of 10 steps holds only nested steps.
    pub window_prepaging: u64,
    /// Open: whether `count_s2n` and `count_n2s` restart at every change of mode in their direction
    /// (the text: "the intervals between transitions") or only within the damping condition (the
    /// pseudo-code; after one quiet `window_trans` nothing would ever be damped again). `true`.
    pub reset_outside_damping: bool,
    /// Open: whether `count_pmu` and `count_vexit` restart at every change of mode. The pseudo-code
    /// leaves them unchanged on three of the four transitions, so that `PreShadow` would be over at
    /// its first event. `true`.
    pub reset_at_switch: bool,
    /// Open: whether the moving averages continue across a change of mode. `false`: a probe's CPI
    /// is then from the probe alone.
    pub smooth_across_switch: bool,
    /// Open: how long `PreShadow` lasts. The default is the pseudo-code's `window_tmiss`.
    pub shadow_probe: ShadowProbe,
}

impl Default for Dav2mParameters {
    fn default() -> Self {
        Self::scaled(PAPER_WINDOW)
    }
}

impl Dav2mParameters {
    /// The defaults for an overflow every `window_inst` instructions: all windows keep their
    /// proportions, and the thresholds, which are counts per window, keep their rates.
    pub fn scaled(window_inst: u64) -> Self {
        let window_tmiss = window_inst.saturating_mul(10);
        Self {
            p_factor: 1.1,
            window_inst,
            window_vexit: window_inst,
            window_tmiss,
            window_trans: window_inst.saturating_mul(100),
            threshold_vexit: starting_vexits(window_inst),
            threshold_tmiss: starting_tmisses(window_tmiss),
            smoothing_tmiss: 10,
            smoothing_cpi: 1,
            start: PagingMode::Shadow,
            threshold_rise: 2.0,
            threshold_fall: 0.5,
            threshold_range: [1.0 / 1024.0, 1_048_576.0],
            prepaging: true,
            window_prepaging: window_tmiss,
            reset_outside_damping: true,
            reset_at_switch: true,
            smooth_across_switch: false,
            shadow_probe: ShadowProbe::WindowTmiss,
        }
    }

    /// Fails on invalid values, among them windows that break `window_inst <= window_vexit <
    /// window_tmiss < window_trans`; names the field.
    pub fn check(&self) -> Result<(), ModelError> {
        self.check_windows()?;
        check_within("p_factor", self.p_factor, 1.0, 1e6)?;
        check_within("threshold_vexit", self.threshold_vexit, 1e-9, 1e18)?;
        check_within("threshold_tmiss", self.threshold_tmiss, 1e-9, 1e18)?;
        check_within("threshold_rise", self.threshold_rise, 1.0, 1e6)?;
        check_within("threshold_fall", self.threshold_fall, 1e-6, 1.0)?;
        check_within("threshold_range[0]", self.threshold_range[0], 1e-12, 1.0)?;
        check_within("threshold_range[1]", self.threshold_range[1], 1.0, 1e12)?;
        for (field, steps) in [
            ("smoothing_cpi", self.smoothing_cpi),
            ("smoothing_tmiss", self.smoothing_tmiss),
        ] {
            if !(1..=10_000).contains(&steps) {
                return Err(ModelError::field(field, "must be 1 to 10000 steps"));
            }
        }
        Ok(())
    }

    /// How long `PreShadow` lasts, in instructions.
    pub(super) const fn shadow_probe_window(&self) -> u64 {
        self.shadow_probe.of(self)
    }

    fn check_windows(&self) -> Result<(), ModelError> {
        check_window("window_inst", self.window_inst)?;
        check_window("window_trans", self.window_trans)?;
        check_window("window_prepaging", self.window_prepaging)?;
        let wrong = if self.window_vexit < self.window_inst {
            ("window_vexit", "at least window_inst", self.window_inst)
        } else if self.window_tmiss <= self.window_vexit {
            ("window_tmiss", "above window_vexit", self.window_vexit)
        } else if self.window_trans <= self.window_tmiss {
            ("window_trans", "above window_tmiss", self.window_tmiss)
        } else {
            return Ok(());
        };
        let (field, relation, limit) = wrong;
        Err(ModelError::field(
            field,
            format!("must be {relation} ({limit} instructions)"),
        ))
    }
}
