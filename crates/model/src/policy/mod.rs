//! Policies: pure state machines that choose between shadow and nested paging.
//!
//! The simulator and the live controller drive the same source. A policy sees only what a VMM can
//! measure cheaply. No policy in this crate reads the model's ground truth, except the oracle,
//! which is computed offline and is not a [`Policy`] that could run live.

pub mod dav2m;
pub mod fixed;
mod measure;
pub mod naive;
pub mod oracle;
pub mod registry;
pub mod rpms;
pub mod vtax;

use crate::error::ModelError;
use vtax_sys::kvm::PagingMode;

/// What a VMM can read at an event, cumulative since the start of the guest (the DAV2M paper,
/// section 4).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reading {
    /// Retired guest instructions.
    pub instructions: f64,
    /// Unhalted cycles, guest and VMM.
    pub cycles: f64,
    /// Misses of the second data TLB.
    pub tlb_misses: f64,
    /// Paging exits taken under shadow paging.
    pub shadow_exits: f64,
    /// Cycles in page walks, where the machine can count them; otherwise `None`.
    pub walk_cycles: Option<f64>,
    /// Cycles in the VMM for paging exits, where known; otherwise `None`.
    pub vmm_cycles: Option<f64>,
}

impl Reading {
    /// What happened since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let difference = |now: Option<f64>, then: Option<f64>| Some(now? - then.unwrap_or(0.0));
        Self {
            instructions: self.instructions - earlier.instructions,
            cycles: self.cycles - earlier.cycles,
            tlb_misses: self.tlb_misses - earlier.tlb_misses,
            shadow_exits: self.shadow_exits - earlier.shadow_exits,
            walk_cycles: difference(self.walk_cycles, earlier.walk_cycles),
            vmm_cycles: difference(self.vmm_cycles, earlier.vmm_cycles),
        }
    }

    /// Cycles per instruction, or `None` without an instruction.
    pub fn cpi(&self) -> Option<f64> {
        (self.instructions > 0.0).then(|| self.cycles / self.instructions)
    }
}

/// A policy's view of itself, for the output of every window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PolicyView {
    pub state: &'static str,
    /// The number of exits per window above which the policy would leave shadow paging, if it has
    /// such a threshold.
    pub threshold_vexit: Option<f64>,
    /// The number of TLB misses per window above which the policy would leave nested paging, if it
    /// has such a threshold.
    pub threshold_tmiss: Option<f64>,
}

impl PolicyView {
    /// The view of a policy without thresholds whose state is its mode.
    pub fn of_mode(mode: PagingMode) -> Self {
        Self {
            state: match mode {
                PagingMode::Shadow => "Shadow",
                PagingMode::Nested => "Nested",
            },
            threshold_vexit: None,
            threshold_tmiss: None,
        }
    }
}

/// A policy: it starts in a mode and answers two kinds of events with the mode that it wants next.
pub trait Policy: Send {
    /// The name on the command line and in tables.
    fn name(&self) -> &str;

    /// Retired instructions between two calls of [`Policy::on_window`].
    fn window_instructions(&self) -> u64;

    /// The currently wanted mode; before the first event, the mode to start in.
    fn wanted(&self) -> PagingMode;

    /// `count` further paging exits under shadow paging. Called only in shadow paging.
    ///
    /// `now` includes them. A driver may hand over several exits at once when nothing can be
    /// decided between them: at most [`Policy::exits_until_decision`] at a time. A policy that
    /// decides at windows only does nothing here.
    fn on_shadow_exits(&mut self, _count: u64, _now: &Reading) -> Result<PagingMode, ModelError> {
        Ok(self.wanted())
    }

    /// How many further shadow exits, at least one, may be handed over before the policy could
    /// decide something. `u64::MAX` when exits alone decide nothing.
    fn exits_until_decision(&self) -> u64 {
        u64::MAX
    }

    /// Handles an overflow of the instruction counter.
    fn on_window(&mut self, now: &Reading) -> Result<PagingMode, ModelError>;

    /// Is the wanted mode only tried? A trial ends when the policy wants the other mode again, or
    /// when this is false.
    fn is_trying(&self) -> bool {
        false
    }

    /// The policy's view of itself, for the output.
    fn view(&self) -> PolicyView;
}
