//! vtax's own policy: it compares the cost of the modes with the cost of a change.
//!
//! DAV2M moves thresholds on two rates until they fit; this policy counts in cycles instead.
//!
//! 1. **What a change costs** is known from the machine and learned from the windows after each
//!    change: the cycles beyond the CPI that follows.
//! 2. **What the other mode would cost** is bounded by measurements of the current mode. In shadow
//!    paging nested paging saves the exits (and at most the TLB misses they cause) and makes the
//!    walks dearer by a factor within `walk_ratio`. In nested paging shadow paging can save at most
//!    that part of the walks; what its exits would cost is unknown. Once a phase has seen a change
//!    of mode, the measured gap replaces the bounds, within them.
//! 3. **How long it will last** is learned per phase (`phases.rs`).
//! 4. It *wishes* for the other mode when the least gain over the rest of the phase pays for the way
//!    there and back; it wishes to *probe* an unmeasured phase when the greatest gain would.
//! 5. The [`governor`] lets it have its wishes within a budget and bounds the regret.
//!
//! The governor's bound holds for the policy's beliefs: it bounds the true cycles as far as the
//! learned gaps and costs of changes are true. In a phase that was never measured, the walker
//! counts only gains that the bounds of point 2 make certain. Windows that only measure a change
//! are charged when they are over, so the "one window" of the bound is `settle_windows` + 1
//! windows.

pub mod governor;
mod phases;

use serde::{Deserialize, Serialize};

use self::governor::{ChangeCosts, Governor};
use self::phases::{Observation, Phases, Signature, blend};
use super::measure::{Meter, check_window, check_within};
use super::{Policy, PolicyView, Reading};
use crate::error::ModelError;
use crate::model::machine::Costs;
use vtax_sys::kvm::PagingMode;

/// Parameters of [`Vtax`]. Where no source is named, a value is an assumption.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VtaxParameters {
    /// Retired instructions between two decisions; exits can bring a decision forward.
    pub window: u64,
    /// The mode at the start. Shadow, as in DAV2M.
    pub start: PagingMode,
    /// The fraction of all cycles that probes and predictions may lose compared with the lazy
    /// walker: 0.01.
    pub allowance: f64,
    /// The purse's content at the start, in round trips: 2.
    pub grant: f64,
    /// The most that the purse holds, in round trips: 4.
    pub purse: f64,
    /// A gain below this fraction of the CPI is not worth a probe: 0.02.
    pub worth: f64,
    /// A measured phase is probed again when the greatest gain would have paid for it this many
    /// times (and twice as many times after each attempt): 16.
    pub retry: f64,
    /// The assumed length of a phase in windows before one of its runs has ended: 32.
    pub supposed_run: f64,
    /// The range of the factor by which a walk is dearer in nested paging: from 1.2 to 6, which is
    /// 24 references against 4.
    pub walk_ratio: [f64; 2],
    /// Cycles of a TLB miss in shadow paging where walk cycles are not counted: 50.
    pub miss_cycles_shadow: f64,
    /// Cycles of a TLB miss in nested paging where walk cycles are not counted: 150.
    pub miss_cycles_nested: f64,
    /// Cycles that an exit can cost by emptying the TLB, beyond the VMM's: 5000.
    pub flush_cycles: f64,
    /// Entries that the shadow tables fill again after a change, until a change was measured: 512,
    /// the reach of the Opteron 2350's second-level TLB.
    pub refill_entries: f64,
    /// Exits bring a decision forward when they have cost this fraction of a round trip since the
    /// last decision: 0.25.
    pub patience: f64,
    /// Windows after a change of mode that only measure the cost of the change: 1.
    pub settle_windows: f64,
    /// How far windows of one phase may lie apart, in powers of two: 0.25.
    pub phase_radius: f64,
    /// The number of remembered phases: 32.
    pub phases: u32,
}

impl VtaxParameters {
    /// The defaults, for windows of `window` instructions.
    pub fn with_window(window: u64) -> Self {
        Self {
            window,
            start: PagingMode::Shadow,
            allowance: 0.01,
            grant: 2.0,
            purse: 4.0,
            worth: 0.02,
            retry: 16.0,
            supposed_run: 32.0,
            walk_ratio: [1.2, 6.0],
            miss_cycles_shadow: 50.0,
            miss_cycles_nested: 150.0,
            flush_cycles: 5000.0,
            refill_entries: 512.0,
            patience: 0.25,
            settle_windows: 1.0,
            phase_radius: 0.25,
            phases: 32,
        }
    }

    /// Fails on invalid values; names the field.
    pub fn check(&self) -> Result<(), ModelError> {
        check_window("window", self.window)?;
        check_within("allowance", self.allowance, 0.0, 0.5)?;
        check_within("grant", self.grant, 0.0, 1e6)?;
        check_within("purse", self.purse, 0.0, 1e6)?;
        check_within("worth", self.worth, 0.0, 1.0)?;
        check_within("retry", self.retry, 0.0, 1e12)?;
        check_within("supposed_run", self.supposed_run, 0.0, 1e12)?;
        check_within("walk_ratio[0]", self.walk_ratio[0], 1.0, 1e3)?;
        check_within("walk_ratio[1]", self.walk_ratio[1], self.walk_ratio[0], 1e3)?;
        check_within("miss_cycles_shadow", self.miss_cycles_shadow, 0.0, 1e9)?;
        check_within("miss_cycles_nested", self.miss_cycles_nested, 0.0, 1e9)?;
        check_within("flush_cycles", self.flush_cycles, 0.0, 1e9)?;
        check_within("refill_entries", self.refill_entries, 0.0, 1e12)?;
        check_within("patience", self.patience, 1e-6, 1e6)?;
        check_within("settle_windows", self.settle_windows, 0.0, 1e6)?;
        check_within("phase_radius", self.phase_radius, 0.0, 64.0)?;
        if !(2..=4096).contains(&self.phases) {
            return Err(ModelError::field("phases", "must be 2 to 4096"));
        }
        Ok(())
    }
}

/// The windows after a change of mode, until there are enough of them.
#[derive(Clone, Copy, Debug, Default)]
struct Transient {
    instructions: f64,
    cycles: f64,
    /// A flood of exits ended the measurement early: that is typical of the phase.
    flooded: bool,
}

/// The range of cycles per instruction that the other mode saves.
#[derive(Clone, Copy, Debug)]
struct Gain {
    least: f64,
    most: f64,
}

/// While the shadow tables fill again, only exits that cost this many round trips bring a decision
/// forward.
const SETTLING_PATIENCE: f64 = 3.0;
/// Fewer exits bring no decision forward: their rate would be off by more than an eighth.
const MIN_EXITS: u64 = 64;
/// An overflow may come early by this part of a window: counters skid.
const SKID: f64 = 0.01;
/// Weight of the newest measurement in learned costs.
const NEWEST: f64 = 0.5;

/// vtax's own policy.
#[derive(Clone, Debug)]
pub struct Vtax {
    parameters: VtaxParameters,
    meter: Meter,
    governor: Governor,
    phases: Phases,
    /// The least cost of a change: the VMM's part.
    direct: ChangeCosts,
    /// The measured costs of changes to either mode.
    measured: [Option<f64>; 2],
    /// The measured costs, or assumed costs until they are measured.
    costs: ChangeCosts,
    exit_cycles: f64,
    transient: Option<Transient>,
    /// The last change was a probe, and nothing was decided since.
    trying: bool,
    /// Exits since the last decision.
    exits: u64,
}

impl Vtax {
    /// Fails when a parameter is invalid; names it.
    pub fn new(parameters: VtaxParameters, costs: &Costs) -> Result<Self, ModelError> {
        parameters.check()?;
        let exit = f64::from(costs.exit);
        let fill = exit + f64::from(costs.shadow_fill);
        // A free change would let the walker change at every window.
        let direct = ChangeCosts {
            to_nested: (exit + f64::from(costs.switch_to_nested)).max(1.0),
            to_shadow: (exit + f64::from(costs.switch_to_shadow)).max(1.0),
        };
        let supposed = ChangeCosts {
            to_shadow: direct.to_shadow + parameters.refill_entries * fill,
            ..direct
        };
        Ok(Self {
            parameters,
            meter: Meter::default(),
            governor: Governor::new(
                parameters.start,
                parameters.grant * supposed.round_trip(),
                parameters.allowance,
                parameters.purse,
            ),
            phases: Phases::new(parameters.phase_radius, parameters.phases as usize),
            direct,
            measured: [None; 2],
            costs: supposed,
            exit_cycles: fill.max(1.0),
            transient: None,
            trying: false,
            exits: 0,
        })
    }

    /// The learned cost of a change of mode, in cycles.
    pub fn change_costs(&self) -> ChangeCosts {
        self.costs
    }

    fn decide(&mut self, now: &Reading) {
        self.exits = 0;
        let Some(step) = self.meter.advance(now) else {
            return;
        };
        let Some(cpi) = step.cpi().filter(|cpi| cpi.is_finite() && *cpi > 0.0) else {
            return;
        };
        self.learn_exit(&step);
        if self.still_transient(&step) {
            return;
        }
        let transient = self.transient.take();
        let unobserved = transient.map_or(0.0, |span| span.instructions);
        let mode = self.governor.mode();
        let same = self.phases.observe(&Observation {
            mode,
            signature: self.signature(&step, cpi),
            cpi,
            instructions: step.instructions,
            unobserved,
            after_change: transient.is_some(),
        });
        if let Some(transient) = transient.filter(|transient| same && !transient.flooded) {
            self.learn_change(mode, transient, cpi);
        }
        let bounds = self.bounds(&step);
        let gain = self.known(bounds);
        let (wish, is_sure) = self.wish(cpi, bounds, gain);
        // Only certain differences move the walker: without a sure gain or loss it counts 0.
        let sure = 0f64.clamp(gain.least.min(gain.most), gain.most);
        // The windows after the change count as if they had run like this one.
        let instructions = step.instructions + unobserved;
        let mut cycles = [cpi * instructions; 2];
        cycles[mode.other() as usize] = (cpi - sure).max(0.0) * instructions;
        let chosen = self.governor.step(cycles, &self.costs, wish);
        self.trying = chosen != mode && chosen == wish && !is_sure;
        if chosen != mode {
            self.phases.try_to_measure();
            self.transient = Some(Transient::default());
        }
    }

    fn still_transient(&mut self, step: &Reading) -> bool {
        let enough = self.parameters.settle_windows * self.parameters.window as f64 * (1.0 - SKID);
        match &mut self.transient {
            Some(transient) if !transient.flooded && transient.instructions < enough => {
                transient.instructions += step.instructions;
                transient.cycles += step.cycles;
                true
            }
            _ => false,
        }
    }

    fn learn_exit(&mut self, step: &Reading) {
        if let Some(vmm) = step.vmm_cycles
            && step.shadow_exits > 0.0
        {
            let cycles = (vmm / step.shadow_exits).clamp(1.0, 1e12);
            self.exit_cycles = blend(Some(self.exit_cycles), cycles, NEWEST);
        }
    }

    fn learn_change(&mut self, to: PagingMode, transient: Transient, cpi: f64) {
        let measured = transient.cycles - cpi * transient.instructions;
        if !measured.is_finite() {
            return;
        }
        let cost = &mut self.measured[to as usize];
        let newest = blend(*cost, measured.max(self.direct.to(to)), NEWEST);
        *cost = Some(newest);
        match to {
            PagingMode::Shadow => self.costs.to_shadow = newest,
            PagingMode::Nested => self.costs.to_nested = newest,
        }
    }

    fn walks(&self, step: &Reading, mode: PagingMode) -> f64 {
        let per_miss = match mode {
            PagingMode::Shadow => self.parameters.miss_cycles_shadow,
            PagingMode::Nested => self.parameters.miss_cycles_nested,
        };
        step.walk_cycles.unwrap_or(step.tlb_misses * per_miss)
    }

    fn signature(&self, step: &Reading, cpi: f64) -> Signature {
        let mode = self.governor.mode();
        let exits = match mode {
            PagingMode::Shadow => step.shadow_exits * self.exit_cycles,
            PagingMode::Nested => 0.0,
        };
        let walks = self.walks(step, mode);
        Signature::new(cpi, walks / step.instructions, exits / step.instructions)
    }

    /// What the other mode could save, estimated from the current mode.
    fn bounds(&self, step: &Reading) -> Gain {
        let mode = self.governor.mode();
        let walks = self.walks(step, mode) / step.instructions;
        let [low, high] = self.parameters.walk_ratio;
        match mode {
            PagingMode::Shadow => {
                let counted = step.shadow_exits * self.exit_cycles;
                let exits = step.vmm_cycles.unwrap_or(counted) / step.instructions;
                let flushes = step.shadow_exits * self.parameters.flush_cycles / step.instructions;
                Gain {
                    least: exits - walks * (high - 1.0),
                    most: exits + walks.min(flushes) - (walks - flushes).max(0.0) * (low - 1.0),
                }
            }
            PagingMode::Nested => Gain {
                least: f64::NEG_INFINITY,
                most: walks * (1.0 - 1.0 / high),
            },
        }
    }

    /// The bounds or, within them, what the phase has taught.
    fn known(&self, bounds: Gain) -> Gain {
        let Some(gap) = self.phases.gap() else {
            return bounds;
        };
        let measured = match self.governor.mode() {
            PagingMode::Shadow => -gap,
            PagingMode::Nested => gap,
        };
        let gain = measured.max(bounds.least).min(bounds.most);
        Gain {
            least: gain,
            most: gain,
        }
    }

    /// Instructions of a phase after which its gap may be measured again: the greatest gain would
    /// have paid for it many times, taking into account what the mode is known to lose meanwhile.
    fn retry_after(&self, bounds: Gain, known: Gain) -> f64 {
        let probe = (self.parameters.settle_windows + 1.0) * self.parameters.window as f64;
        let mut loss = (-known.least).clamp(0.0, f64::MAX) * probe;
        let glimpse =
            self.phases.observed(PagingMode::Shadow) < 0.5 * self.parameters.window as f64;
        if self.governor.mode() == PagingMode::Nested && glimpse {
            // Exits ended the only look at shadow paging, as the first touch of memory does. That
            // says little about the phase, and another probe with too many exits ends just as
            // early.
            loss = loss.min(SETTLING_PATIENCE * self.costs.round_trip());
        }
        self.parameters.retry * (self.costs.round_trip() + loss) / bounds.most
    }

    /// The mode to go to, and whether that is sure to gain.
    fn wish(&self, cpi: f64, bounds: Gain, known: Gain) -> (PagingMode, bool) {
        let mode = self.governor.mode();
        let window = self.parameters.window as f64;
        let remaining = self.phases.remaining(self.parameters.supposed_run * window);
        let round_trip = self.costs.round_trip();
        let price = if mode == self.governor.walker() {
            round_trip
        } else {
            self.costs.to(mode.other())
        };
        let sure = known.least * remaining > price;
        let probe = bounds.most > self.parameters.worth * cpi
            && bounds.most * remaining > round_trip
            && self.phases.gap_is_stale(self.retry_after(bounds, known));
        let wish = if sure || probe { mode.other() } else { mode };
        (wish, sure)
    }
}

impl Policy for Vtax {
    fn name(&self) -> &'static str {
        "vtax"
    }

    fn window_instructions(&self) -> u64 {
        self.parameters.window
    }

    fn wanted(&self) -> PagingMode {
        self.governor.mode()
    }

    fn on_shadow_exits(&mut self, count: u64, now: &Reading) -> Result<PagingMode, ModelError> {
        if self.wanted() == PagingMode::Shadow {
            let due = self.exits_until_decision();
            self.exits = self.exits.saturating_add(count);
            if count >= due {
                if let Some(transient) = &mut self.transient {
                    transient.flooded = true;
                }
                self.decide(now);
            }
        }
        Ok(self.wanted())
    }

    /// Exits can pay for a change long before a window is over, as rented skis can pay for their
    /// price.
    fn exits_until_decision(&self) -> u64 {
        if self.wanted() == PagingMode::Nested {
            return u64::MAX;
        }
        let patience = self
            .transient
            .map_or(self.parameters.patience, |_| SETTLING_PATIENCE);
        // Positive and finite; the cast saturates.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let exits = (patience * self.costs.round_trip() / self.exit_cycles).ceil() as u64;
        exits.max(MIN_EXITS).saturating_sub(self.exits).max(1)
    }

    fn on_window(&mut self, now: &Reading) -> Result<PagingMode, ModelError> {
        // After a decision that exits brought forward, the rest of the window may be too short to
        // say anything; it then belongs to the next window.
        let shortest = 0.5 * self.parameters.window as f64;
        let short = |step: Reading| step.instructions < shortest;
        if !self.meter.peek(now).is_some_and(short) {
            self.decide(now);
        }
        Ok(self.wanted())
    }

    fn is_trying(&self) -> bool {
        self.trying
    }

    fn view(&self) -> PolicyView {
        let detour = self.governor.mode() != self.governor.walker();
        PolicyView {
            state: match (self.governor.mode(), self.transient.is_some(), detour) {
                (PagingMode::Shadow, true, _) => "ToShadow",
                (PagingMode::Nested, true, _) => "ToNested",
                (PagingMode::Shadow, false, false) => "Shadow",
                (PagingMode::Nested, false, false) => "Nested",
                (PagingMode::Shadow, false, true) => "TryShadow",
                (PagingMode::Nested, false, true) => "TryNested",
            },
            // The policy weighs cycles; it has no thresholds on rates.
            threshold_vexit: None,
            threshold_tmiss: None,
        }
    }
}

#[cfg(test)]
mod tests;
