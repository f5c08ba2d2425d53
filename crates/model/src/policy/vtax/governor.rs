//! Bounds the regret of [`super::Vtax`] by a lazy walker, and a purse that pays for leaving its
//! path.
//!
//! **The walker** is the work-function algorithm for a metrical task system of two states. It keeps
//! `lead`: how much dearer the cheapest past that ends in shadow paging is than the cheapest past
//! that ends in nested paging. It changes the mode only when the cheapest way to be in its own mode
//! would have been to come from the other mode.
//!
//! Between two changes, the walker's mode costs at least a round trip D more than the other mode.
//! While a cycle of two changes costs the walker at most 3 D plus what the optimum also pays, the
//! work function rises by at least D. So with true costs, constant costs of changing, and `o` the
//! part of a window's difference that comes after the threshold was reached:
//!
//! `walker <= 3 x optimum + sum of o over its changes + 2 D`
//!
//! A window is judged only after it has run, hence the `o`. Where no window is more than three times
//! as dear in one mode as in the other, `o` is at most twice what the optimum pays for that same
//! window, which the factor 3 has not used up, and the sum vanishes:
//!
//! `walker <= 3 x optimum + 2 D + the largest difference of one window`
//!
//! **The purse** pays for everything the walker would not do: probing the other mode, and following
//! a prediction. It receives a stated part of all cycles and a starting grant, pays for every
//! difference from the walker's costs (and keeps what was saved compared with the walker, up to a
//! cap), and a detour starts only when the purse can pay the way out and back. When the purse
//! cannot pay the way back any more, the detour ends. So, for any predictions:
//!
//! `total <= walker + allowance x total + grant + the largest difference of one window`

use vtax_sys::kvm::PagingMode;

/// The cycles that changes of the mode cost, including the refill.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChangeCosts {
    /// From shadow to nested paging.
    pub to_nested: f64,
    /// From nested to shadow paging.
    pub to_shadow: f64,
}

impl ChangeCosts {
    /// The cost of the change to `mode`.
    pub const fn to(&self, mode: PagingMode) -> f64 {
        match mode {
            PagingMode::Shadow => self.to_shadow,
            PagingMode::Nested => self.to_nested,
        }
    }

    /// The cost of a change and the change back.
    pub fn round_trip(&self) -> f64 {
        self.to_nested + self.to_shadow
    }
}

/// The walker and the purse.
#[derive(Clone, Debug)]
pub struct Governor {
    walker: PagingMode,
    actual: PagingMode,
    lead: f64,
    purse: f64,
    allowance: f64,
    cap_round_trips: f64,
}

impl Governor {
    /// Starts in `start` with `grant` cycles in the purse, which receives `allowance` (a fraction)
    /// of all cycles and holds at most `cap_round_trips` times a round trip (and the grant).
    pub fn new(start: PagingMode, grant: f64, allowance: f64, cap_round_trips: f64) -> Self {
        Self {
            walker: start,
            actual: start,
            lead: 0.0,
            purse: grant,
            allowance,
            cap_round_trips,
        }
    }

    /// The mode the guest is in.
    pub fn mode(&self) -> PagingMode {
        self.actual
    }

    /// The mode the lazy walker is in.
    pub fn walker(&self) -> PagingMode {
        self.walker
    }

    /// Cycles in the purse.
    pub fn purse(&self) -> f64 {
        self.purse
    }

    /// Records that a window has run in [`Self::mode`]. `cycles` is what it took (or would have
    /// taken) in shadow and in nested paging; `wish` is the mode the predictions want. Cycles that
    /// are not finite say nothing and are ignored.
    pub fn step(&mut self, cycles: [f64; 2], costs: &ChangeCosts, wish: PagingMode) -> PagingMode {
        if !cycles.iter().all(|cycles| cycles.is_finite()) {
            return self.actual;
        }
        let run = cycles[self.actual as usize];
        let detour = run - cycles[self.walker as usize];
        self.earn(self.allowance * run - detour, costs);
        self.walk(cycles, costs);
        let affordable = if self.actual == self.walker {
            costs.round_trip()
        } else {
            costs.to(self.walker)
        };
        // Going to the walker's mode costs the purse nothing; anything else does.
        let next = if wish == self.walker || self.purse < affordable {
            self.walker
        } else {
            wish
        };
        if next != self.actual {
            self.purse -= costs.to(next);
            self.actual = next;
        }
        self.actual
    }

    fn earn(&mut self, cycles: f64, costs: &ChangeCosts) {
        let cap = (self.cap_round_trips * costs.round_trip()).max(self.purse);
        self.purse = (self.purse + cycles).min(cap);
    }

    fn walk(&mut self, cycles: [f64; 2], costs: &ChangeCosts) {
        self.lead = (self.lead + cycles[0] - cycles[1]).clamp(-costs.to_nested, costs.to_shadow);
        let leave = match self.walker {
            PagingMode::Shadow => self.lead >= costs.to_shadow,
            PagingMode::Nested => self.lead <= -costs.to_nested,
        };
        if leave {
            self.walker = self.walker.other();
            // The walker pays for this change, whether the guest makes it now, made it earlier or
            // stays behind.
            self.purse += costs.to(self.walker);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::policy::oracle::OracleInput;

    struct Run {
        total: f64,
        optimum: f64,
        /// Largest difference of one window.
        largest: f64,
    }

    const COSTS: ChangeCosts = ChangeCosts {
        to_nested: 7.0,
        to_shadow: 20.0,
    };
    const ROUND_TRIP: f64 = 27.0;

    /// Windows with their true costs, and the predictions' wishes.
    fn run(windows: &[([f64; 2], bool)], grant: f64, allowance: f64) -> Run {
        let mut governor = Governor::new(PagingMode::Shadow, grant, allowance, 4.0);
        let mut total = 0.0;
        for (cycles, contrary) in windows {
            let before = governor.mode();
            total += cycles[before as usize];
            let wish = if *contrary { before.other() } else { before };
            let next = governor.step(*cycles, &COSTS, wish);
            if next != before {
                total += COSTS.to(next);
            }
        }
        let table = |mode: usize| windows.iter().map(|(cycles, _)| cycles[mode]).collect();
        let input = OracleInput {
            cycles: [table(0), table(1)],
            to_nested: COSTS.to_nested,
            to_shadow: COSTS.to_shadow,
            refill: vec![0.0; windows.len()],
            start: Some(PagingMode::Shadow),
        };
        Run {
            total,
            optimum: input.solve().unwrap().total,
            largest: windows
                .iter()
                .map(|(cycles, _)| (cycles[0] - cycles[1]).abs())
                .fold(0.0, f64::max),
        }
    }

    /// Random costs that differ by at most a factor of three, in runs that make both modes good.
    fn windows() -> impl Strategy<Value = Vec<([f64; 2], bool)>> {
        let burst = (1.0..20.0f64, 1.0..20.0f64, 1usize..12, any::<bool>()).prop_map(
            |(shadow, nested, length, contrary)| {
                let nested = nested.clamp(shadow / 3.0, shadow * 3.0);
                vec![([shadow, nested], contrary); length]
            },
        );
        prop::collection::vec(burst, 0..60).prop_map(|bursts| bursts.concat())
    }

    proptest! {
        #[test]
        fn without_a_purse_it_is_three_competitive(windows in windows()) {
            let windows: Vec<_> = windows.iter().map(|(cycles, _)| (*cycles, false)).collect();
            let run = run_lazily(&windows);
            let bound = 3.0 * run.optimum + 2.0 * ROUND_TRIP + run.largest;
            prop_assert!(run.total <= bound + 1e-6, "{} above {bound}", run.total);
        }

        #[test]
        fn any_predictions_cost_at_most_the_allowance_and_the_grant(
            windows in windows(), grant in 0.0..100.0f64, allowance in 0.0..0.1f64
        ) {
            let run = run(&windows, grant, allowance);
            let lazy = run_lazily(&windows);
            let detours = allowance * run.total + grant + run.largest;
            prop_assert!(run.total <= lazy.total + detours + 1e-6);
            let walker = 3.0 * run.optimum + 2.0 * ROUND_TRIP + run.largest;
            prop_assert!(run.total <= walker + detours + 1e-6);
        }
    }

    /// The walker alone: every wish is for its own mode.
    fn run_lazily(windows: &[([f64; 2], bool)]) -> Run {
        let windows: Vec<_> = windows.iter().map(|(cycles, _)| (*cycles, false)).collect();
        run(&windows, -1e300, 0.0)
    }

    #[test]
    fn an_adversary_who_always_makes_the_current_mode_dear_gets_no_more_than_the_bound() {
        for dear in [1.5, 2.0, 3.0] {
            let mut governor = Governor::new(PagingMode::Shadow, 0.0, 0.0, 4.0);
            let windows: Vec<_> = (0..2000)
                .map(|_| {
                    let mode = governor.mode();
                    let mut cycles = [10.0; 2];
                    cycles[mode as usize] = 10.0 * dear;
                    governor.step(cycles, &COSTS, mode);
                    (cycles, false)
                })
                .collect();
            let run = run_lazily(&windows);
            let bound = 3.0 * run.optimum + 2.0 * ROUND_TRIP + run.largest;
            assert!(run.total <= bound, "{} above {bound}", run.total);
        }
    }

    #[test]
    fn the_walker_waits_until_the_difference_has_paid_the_way_back() {
        let mut governor = Governor::new(PagingMode::Shadow, 0.0, 0.0, 4.0);
        for _ in 0..9 {
            assert_eq!(
                governor.step([12.0, 10.0], &COSTS, PagingMode::Shadow),
                PagingMode::Shadow
            );
        }
        // The walker's account has paid for the way out, but that is no reason to stay.
        assert_eq!(
            governor.step([12.0, 10.0], &COSTS, PagingMode::Nested),
            PagingMode::Nested
        );
    }

    #[test]
    fn a_detour_ends_when_the_purse_cannot_pay_the_way_back() {
        let mut governor = Governor::new(PagingMode::Shadow, 30.0, 0.0, 4.0);
        assert_eq!(
            governor.step([10.0, 10.0], &COSTS, PagingMode::Nested),
            PagingMode::Nested
        );
        assert_eq!(
            governor.step([10.0, 12.0], &COSTS, PagingMode::Nested),
            PagingMode::Nested
        );
        assert_eq!(
            governor.step([10.0, 12.0], &COSTS, PagingMode::Nested),
            PagingMode::Shadow
        );
    }
}
