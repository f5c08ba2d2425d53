//! The controller of a patched KVM 4.19 that changes between shadow paging and EPT at run time
//! (ntua-rpms; one vCPU; no published results. facts.md, "Paging").
//!
//! In each window it takes the overhead of the current mode: the VMM's share of the cycles under
//! shadow paging, the page walks' share under nested paging. A share above `high` moves a counter
//! up, one below `low` moves it down; at +4 it changes the mode, waits, and compares the IPC with
//! the IPC before: a much lower IPC raises the threshold that made it change, a much higher IPC
//! lowers it.
//!
//! The original's window is a second of time. A policy is called by retired instructions, so a
//! window is the number of instructions that the caller gives for a second.
//!
//! It needs [`Reading::walk_cycles`] and [`Reading::vmm_cycles`]. Where the machine does not count
//! one of them, the first window fails and names it: an estimate would be a different policy.

use serde::{Deserialize, Serialize};

use super::measure::{Meter, check_window, check_within};
use super::{Policy, PolicyView, Reading};
use crate::error::ModelError;
use vtax_sys::kvm::PagingMode;

/// What happens when the counter reaches its lower end (open in the source).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AtLowEnd {
    /// It stays there, so that a mode that was good for a long time needs twice as many bad
    /// windows.
    Hold,
    /// It starts again from 0.
    Restart,
}

/// Which cycles the IPC divides by (open in the source, which says "guest IPC").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IpcOver {
    /// Guest and VMM, as in the CPI of the DAV2M paper, section 4: what the guest loses to exits
    /// counts.
    All,
    /// All but the VMM's cycles for paging exits.
    Guest,
}

/// Parameters of [`Rpms`]. The first group is in the source, the second is open there.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RpmsParameters {
    /// Retired instructions that stand for the original's second.
    pub window: u64,
    /// Share of the cycles above which a window counts against the mode: 0.09.
    pub high: f64,
    /// Share of the cycles below which a window counts for the mode: 0.02.
    pub low: f64,
    /// The count at which the controller acts: 4.
    pub limit: u32,
    /// Windows to wait after a change of mode: 2. The IPC of the last of them is compared with the
    /// IPC of the last window before the change.
    pub settle_windows: u32,
    /// IPC after the change over IPC before, below which the change was bad: 0.9.
    pub worse: f64,
    /// The same ratio, above which the change was good: 1.1.
    pub better: f64,
    /// CPU load below which a window is skipped: 0.6. See [`Rpms::set_load`].
    pub min_load: f64,

    /// Open: the mode at the start. Nested, KVM's default.
    pub start: PagingMode,
    /// Open: the factor by which `high` of the mode that was left rises or falls. 1.5, an
    /// assumption.
    pub threshold_step: f64,
    /// Open: the largest value of `high`; its least value is `low`. 0.5, an assumption.
    pub high_limit: f64,
    /// Open: what happens at the counter's lower end. Hold.
    pub at_low_end: AtLowEnd,
    /// Open: the cycles of the IPC. All.
    pub ipc_over: IpcOver,
    /// Open: whether the controller goes back at once when the change was bad. `false`: only the
    /// threshold moves.
    pub go_back: bool,
}

impl RpmsParameters {
    /// The defaults, for windows of `window` instructions.
    pub fn with_window(window: u64) -> Self {
        Self {
            window,
            high: 0.09,
            low: 0.02,
            limit: 4,
            settle_windows: 2,
            worse: 0.9,
            better: 1.1,
            min_load: 0.6,
            start: PagingMode::Nested,
            threshold_step: 1.5,
            high_limit: 0.5,
            at_low_end: AtLowEnd::Hold,
            ipc_over: IpcOver::All,
            go_back: false,
        }
    }

    /// Fails on invalid values; names the field.
    pub fn check(&self) -> Result<(), ModelError> {
        check_window("window", self.window)?;
        check_within("high", self.high, 0.0, 1.0)?;
        check_within("low", self.low, 0.0, self.high)?;
        check_within("high_limit", self.high_limit, self.high, 1.0)?;
        check_within("worse", self.worse, 0.0, 1.0)?;
        check_within("better", self.better, 1.0, 1e6)?;
        check_within("min_load", self.min_load, 0.0, 1.0)?;
        check_within("threshold_step", self.threshold_step, 1.0, 1e6)?;
        if !(1..=1_000_000).contains(&self.limit) {
            return Err(ModelError::field("limit", "must be 1 to 1000000 windows"));
        }
        Ok(())
    }
}

/// The controller's state.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Stage {
    /// Counting good and bad windows.
    Watching,
    /// After a change of mode, with the IPC before it and the windows still to wait.
    Waiting { ipc_before: Option<f64>, left: u32 },
}

#[derive(Clone, Debug)]
pub struct Rpms {
    parameters: RpmsParameters,
    mode: PagingMode,
    stage: Stage,
    /// The counter, from minus `limit` to `limit`.
    count: i64,
    /// The current value of `high` for each mode.
    high: [f64; 2],
    load: f64,
    meter: Meter,
}

impl Rpms {
    /// Fails when a parameter is invalid; names it.
    pub fn new(parameters: RpmsParameters) -> Result<Self, ModelError> {
        parameters.check()?;
        Ok(Self {
            parameters,
            mode: parameters.start,
            stage: Stage::Watching,
            count: 0,
            high: [parameters.high; 2],
            load: 1.0,
            meter: Meter::default(),
        })
    }

    /// Sets the guest's CPU load, 0 to 1, during the window that [`Policy::on_window`] gets next.
    ///
    /// A [`Reading`] has no clock time, so a live driver sets the load with this. A simulated guest
    /// never idles: its load is 1, which is also the value until this is called.
    pub fn set_load(&mut self, load: f64) {
        self.load = load;
    }

    /// The share of the cycles above which a window currently counts against `mode`.
    pub fn high(&self, mode: PagingMode) -> f64 {
        self.high[mode as usize]
    }

    fn watch(&mut self, step: &Reading, spent: f64) {
        let share = spent / step.cycles;
        let limit = i64::from(self.parameters.limit);
        if share > self.high[self.mode as usize] {
            self.count += 1;
        } else if share < self.parameters.low {
            self.count -= 1;
        }
        if self.count >= limit {
            let ipc_before = self.ipc(step);
            self.change(ipc_before);
        } else if self.count <= -limit {
            self.count = match self.parameters.at_low_end {
                AtLowEnd::Hold => -limit,
                AtLowEnd::Restart => 0,
            };
        }
    }

    fn change(&mut self, ipc_before: Option<f64>) {
        self.mode = self.mode.other();
        self.count = 0;
        self.stage = Stage::Waiting {
            ipc_before,
            left: self.parameters.settle_windows,
        };
    }

    fn compare(&mut self, ipc_before: Option<f64>, step: &Reading) {
        self.stage = Stage::Watching;
        let (Some(before), Some(after)) = (ipc_before, self.ipc(step)) else {
            return;
        };
        let left = self.mode.other();
        let high = &mut self.high[left as usize];
        let bad = after < before * self.parameters.worse;
        if bad {
            *high = (*high * self.parameters.threshold_step).min(self.parameters.high_limit);
        } else if after > before * self.parameters.better {
            *high = (*high / self.parameters.threshold_step).max(self.parameters.low);
        }
        if bad && self.parameters.go_back {
            // The earlier IPC is known, so nothing is compared after this window.
            self.change(None);
        }
    }

    fn ipc(&self, step: &Reading) -> Option<f64> {
        let cycles = match self.parameters.ipc_over {
            IpcOver::All => step.cycles,
            IpcOver::Guest => step.cycles - step.vmm_cycles.unwrap_or(0.0),
        };
        let ipc = step.instructions / cycles;
        (cycles > 0.0 && ipc.is_finite()).then_some(ipc)
    }
}

/// Fails when the machine does not count the quantity.
fn require(field: &'static str, count: Option<f64>) -> Result<(), ModelError> {
    if count.is_some() {
        return Ok(());
    }
    Err(ModelError::field(
        field,
        "the policy \"rpms\" needs this counter and the machine has none; choose another policy",
    ))
}

impl Policy for Rpms {
    fn name(&self) -> &'static str {
        "rpms"
    }

    fn window_instructions(&self) -> u64 {
        self.parameters.window
    }

    fn wanted(&self) -> PagingMode {
        self.mode
    }

    fn on_window(&mut self, now: &Reading) -> Result<PagingMode, ModelError> {
        require("walk_cycles", now.walk_cycles)?;
        require("vmm_cycles", now.vmm_cycles)?;
        let Some(step) = self.meter.advance(now) else {
            return Ok(self.mode);
        };
        match self.stage {
            Stage::Waiting { ipc_before, left } if left <= 1 => self.compare(ipc_before, &step),
            Stage::Waiting { ipc_before, left } => {
                let left = left - 1;
                self.stage = Stage::Waiting { ipc_before, left };
            }
            Stage::Watching if self.load < self.parameters.min_load || step.cycles <= 0.0 => {}
            Stage::Watching => {
                let spent = match self.mode {
                    PagingMode::Shadow => step.vmm_cycles,
                    PagingMode::Nested => step.walk_cycles,
                };
                self.watch(&step, spent.unwrap_or(0.0));
            }
        }
        Ok(self.mode)
    }

    fn view(&self) -> PolicyView {
        PolicyView {
            state: match (self.stage, self.mode) {
                (Stage::Watching, PagingMode::Shadow) => "Shadow",
                (Stage::Watching, PagingMode::Nested) => "Nested",
                (Stage::Waiting { .. }, PagingMode::Shadow) => "ToShadow",
                (Stage::Waiting { .. }, PagingMode::Nested) => "ToNested",
            },
            // The controller's thresholds are shares of the cycles, not counts per window.
            threshold_vexit: None,
            threshold_tmiss: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: u64 = 1000;

    struct Script {
        policy: Rpms,
        now: Reading,
    }

    impl Script {
        fn new(change: fn(&mut RpmsParameters)) -> Self {
            let mut parameters = RpmsParameters::with_window(WINDOW);
            change(&mut parameters);
            Self {
                policy: Rpms::new(parameters).unwrap(),
                now: Reading {
                    walk_cycles: Some(0.0),
                    vmm_cycles: Some(0.0),
                    ..Reading::default()
                },
            }
        }

        /// Windows in which walks and VMM each take `share` of `cycles`.
        fn windows(&mut self, count: u32, cycles: f64, share: f64) -> &'static str {
            for _ in 0..count {
                self.now.instructions += WINDOW as f64;
                self.now.cycles += cycles;
                self.now.walk_cycles = self.now.walk_cycles.map(|walks| walks + share * cycles);
                self.now.vmm_cycles = self.now.vmm_cycles.map(|vmm| vmm + share * cycles);
                self.policy.on_window(&self.now).unwrap();
            }
            self.policy.view().state
        }
    }

    #[test]
    fn four_bad_windows_change_the_mode_and_a_lower_ipc_raises_the_threshold() {
        let mut script = Script::new(|_| {});
        assert_eq!(script.windows(3, 2000.0, 0.1), "Nested");
        assert_eq!(script.windows(1, 2000.0, 0.1), "ToShadow");
        assert_eq!(script.windows(2, 2300.0, 0.0), "Shadow");
        assert!((script.policy.high(PagingMode::Nested) - 0.135).abs() < 1e-12);
        assert!((script.policy.high(PagingMode::Shadow) - 0.09).abs() < 1e-12);
    }

    #[test]
    fn a_higher_ipc_lowers_the_threshold_but_not_below_low() {
        let mut script = Script::new(|parameters| parameters.threshold_step = 100.0);
        script.windows(4, 2000.0, 0.1);
        script.windows(2, 1500.0, 0.0);
        assert!((script.policy.high(PagingMode::Nested) - 0.02).abs() < 1e-12);
    }

    #[test]
    fn good_windows_count_against_bad_ones_down_to_the_low_end() {
        let mut hold = Script::new(|_| {});
        hold.windows(100, 2000.0, 0.01);
        assert_eq!(hold.windows(7, 2000.0, 0.1), "Nested");
        assert_eq!(hold.windows(1, 2000.0, 0.1), "ToShadow");
        let mut restart = Script::new(|parameters| parameters.at_low_end = AtLowEnd::Restart);
        restart.windows(100, 2000.0, 0.01);
        assert_eq!(restart.windows(4, 2000.0, 0.1), "ToShadow");
    }

    #[test]
    fn between_the_thresholds_and_under_low_load_nothing_is_counted() {
        let mut script = Script::new(|_| {});
        script.windows(3, 2000.0, 0.1);
        assert_eq!(script.windows(50, 2000.0, 0.05), "Nested");
        script.policy.set_load(0.5);
        assert_eq!(script.windows(50, 2000.0, 0.1), "Nested");
        script.policy.set_load(0.6);
        assert_eq!(script.windows(1, 2000.0, 0.1), "ToShadow");
    }

    #[test]
    fn it_can_go_back_at_once() {
        let mut script = Script::new(|parameters| parameters.go_back = true);
        script.windows(4, 2000.0, 0.1);
        assert_eq!(script.windows(2, 2300.0, 0.0), "ToNested");
        assert_eq!(script.windows(2, 2000.0, 0.1), "Nested");
    }

    #[test]
    fn a_missing_counter_is_named() {
        let mut script = Script::new(|_| {});
        script.now.walk_cycles = None;
        let error = script.policy.on_window(&script.now).unwrap_err();
        assert!(error.to_string().starts_with("walk_cycles: "));
    }

    #[test]
    fn a_low_above_high_is_named() {
        let mut parameters = RpmsParameters::with_window(WINDOW);
        parameters.low = 0.1;
        assert!(
            parameters
                .check()
                .unwrap_err()
                .to_string()
                .starts_with("low: ")
        );
    }
}
