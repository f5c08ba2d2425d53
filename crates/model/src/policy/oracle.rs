//! The offline optimum: the cheapest sequence of modes for costs known in advance.
//!
//! It reads the future, so it is not a [`super::Policy`]; policies are judged against it.

use crate::error::ModelError;
use vtax_sys::kvm::PagingMode;

/// The cycles that every window would cost in either mode, and that changes between the modes cost.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OracleInput {
    /// Cycles of each window under shadow paging and under nested paging, as if the mode had always
    /// been on (no refill).
    pub cycles: [Vec<f64>; 2],
    /// A change from shadow to nested paging.
    pub to_nested: f64,
    /// A change from nested to shadow paging, without the refill.
    pub to_shadow: f64,
    /// For each window, the cycles to fill the shadow tables again when the change to shadow paging
    /// comes at its beginning.
    pub refill: Vec<f64>,
    /// The mode the guest is in before the first window; `None`: the first mode is free to choose.
    pub start: Option<PagingMode>,
}

/// A sequence of modes and its cost.
#[derive(Clone, Debug, PartialEq)]
pub struct OraclePlan {
    /// The mode of each window.
    pub modes: Vec<PagingMode>,
    /// Cycles, including switches and refills.
    pub total: f64,
    /// Changes of mode, including one from [`OracleInput::start`].
    pub switches: usize,
}

const MODES: [PagingMode; 2] = [PagingMode::Shadow, PagingMode::Nested];

impl OracleInput {
    /// Fails on tables of different lengths and on cycles that are negative or not finite.
    pub fn check(&self) -> Result<(), ModelError> {
        let windows = self.cycles[0].len();
        for (field, table) in [
            ("cycles.shadow", &self.cycles[0]),
            ("cycles.nested", &self.cycles[1]),
            ("refill", &self.refill),
        ] {
            if table.len() != windows {
                let reason = format!("has {} windows, cycles.shadow has {windows}", table.len());
                return Err(ModelError::field(field, reason));
            }
            if let Some(at) = table.iter().position(|cycles| !is_cost(*cycles)) {
                let reason = "must be a finite number of cycles, at least 0";
                return Err(ModelError::field(format!("{field}[{at}]"), reason));
            }
        }
        for (field, cost) in [("to_nested", self.to_nested), ("to_shadow", self.to_shadow)] {
            if !is_cost(cost) {
                let reason = "must be a finite number of cycles, at least 0";
                return Err(ModelError::field(field, reason));
            }
        }
        Ok(())
    }

    /// The cheapest plan, by dynamic programming over (window, mode): time and memory linear in the
    /// number of windows. Among plans of equal cost it changes mode as late as possible.
    ///
    /// Fails on tables of different lengths and on cycles that are negative or not finite.
    pub fn solve(&self) -> Result<OraclePlan, ModelError> {
        self.check()?;
        let windows = self.cycles[0].len();
        let mut best = MODES.map(|mode| match self.start {
            Some(start) if start != mode => f64::INFINITY,
            _ => 0.0,
        });
        // For each window and mode: the best plan that ends there came from the other mode.
        let mut changed: Vec<[bool; 2]> = Vec::with_capacity(windows);
        for window in 0..windows {
            let mut next = [0.0; 2];
            let mut came = [false; 2];
            for mode in MODES {
                let stay = best[mode as usize];
                // A free first choice needs no change, which would only add cost.
                let change = best[mode.other() as usize] + self.change_cost(window, mode);
                came[mode as usize] = change < stay;
                next[mode as usize] = stay.min(change) + self.cycles[mode as usize][window];
            }
            best = next;
            changed.push(came);
        }
        Ok(self.trace_back(&best, &changed))
    }

    /// The cheaper of the two static modes, with the change from [`Self::start`] if it needs a
    /// change.
    ///
    /// Fails on tables of different lengths and on cycles that are negative or not finite.
    pub fn best_static(&self) -> Result<OraclePlan, ModelError> {
        self.check()?;
        let windows = self.cycles[0].len();
        let [shadow, nested] = MODES.map(|mode| {
            let modes = vec![mode; windows];
            let (total, switches) = self.price(&modes);
            OraclePlan {
                modes,
                total,
                switches,
            }
        });
        Ok(if nested.total < shadow.total {
            nested
        } else {
            shadow
        })
    }

    /// Cycles and changes of mode of a given sequence.
    fn price(&self, modes: &[PagingMode]) -> (f64, usize) {
        let mut total = 0.0;
        let mut switches = 0;
        let mut previous = self.start;
        for (window, mode) in modes.iter().enumerate() {
            if previous.is_some_and(|previous| previous != *mode) {
                total += self.change_cost(window, *mode);
                switches += 1;
            }
            total += self.cycles[*mode as usize][window];
            previous = Some(*mode);
        }
        (total, switches)
    }

    fn change_cost(&self, window: usize, to: PagingMode) -> f64 {
        match to {
            PagingMode::Shadow => self.to_shadow + self.refill[window],
            PagingMode::Nested => self.to_nested,
        }
    }

    fn trace_back(&self, best: &[f64; 2], changed: &[[bool; 2]]) -> OraclePlan {
        let mut mode = match self.start {
            // Without windows the guest stays in its mode.
            Some(start) if changed.is_empty() => start,
            _ if best[PagingMode::Nested as usize] < best[PagingMode::Shadow as usize] => {
                PagingMode::Nested
            }
            _ => PagingMode::Shadow,
        };
        let mut modes: Vec<PagingMode> = changed
            .iter()
            .rev()
            .map(|came| {
                let here = mode;
                if came[mode as usize] {
                    mode = mode.other();
                }
                here
            })
            .collect();
        modes.reverse();
        let (total, switches) = self.price(&modes);
        OraclePlan {
            modes,
            total,
            switches,
        }
    }
}

fn is_cost(cycles: f64) -> bool {
    cycles.is_finite() && cycles >= 0.0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn input(windows: usize) -> impl Strategy<Value = OracleInput> {
        let cost = || prop::collection::vec(0.0..100.0f64, windows);
        let start = prop_oneof![
            Just(None),
            Just(Some(PagingMode::Shadow)),
            Just(Some(PagingMode::Nested))
        ];
        (cost(), cost(), 0.0..150.0f64, 0.0..150.0f64, cost(), start).prop_map(
            |(shadow, nested, to_nested, to_shadow, refill, start)| OracleInput {
                cycles: [shadow, nested],
                to_nested,
                to_shadow,
                refill,
                start,
            },
        )
    }

    fn brute_force(input: &OracleInput) -> f64 {
        let windows = input.cycles[0].len();
        (0..1u32 << windows)
            .map(|bits| {
                let modes: Vec<PagingMode> = (0..windows)
                    .map(|at| MODES[(bits >> at & 1) as usize])
                    .collect();
                input.price(&modes).0
            })
            .fold(f64::INFINITY, f64::min)
    }

    proptest! {
        #[test]
        fn no_sequence_is_cheaper(input in (0usize..9).prop_flat_map(input)) {
            let plan = input.solve().unwrap();
            let least = brute_force(&input);
            prop_assert!((plan.total - least).abs() < 1e-6, "{} instead of {least}", plan.total);
            prop_assert_eq!(plan.modes.len(), input.cycles[0].len());
            prop_assert!(plan.total <= input.best_static().unwrap().total + 1e-6);
        }
    }

    #[test]
    fn it_changes_when_the_gain_pays_for_both_ways() {
        let mut input = OracleInput {
            cycles: [vec![10.0; 12], vec![12.0; 12]],
            to_nested: 3.0,
            to_shadow: 3.0,
            refill: vec![4.0; 12],
            start: Some(PagingMode::Shadow),
        };
        input.cycles[0][4..8].fill(14.6);
        let plan = input.solve().unwrap();
        assert_eq!(plan.switches, 2);
        assert_eq!(plan.modes[4..8], [PagingMode::Nested; 4]);
        assert!((plan.total - (8.0 * 10.0 + 4.0 * 12.0 + 10.0)).abs() < 1e-9);
        input.refill.fill(4.5);
        assert_eq!(input.solve().unwrap().switches, 0);
    }

    #[test]
    fn tables_that_do_not_fit_are_named() {
        let mut input = OracleInput {
            cycles: [vec![1.0; 2], vec![1.0; 2]],
            refill: vec![0.0; 2],
            ..OracleInput::default()
        };
        input.cycles[1][1] = f64::NAN;
        assert!(
            input
                .solve()
                .unwrap_err()
                .to_string()
                .starts_with("cycles.nested[1]: ")
        );
        input.refill.pop();
        input.cycles[1][1] = 1.0;
        assert_eq!(
            input.solve().unwrap_err().to_string(),
            "refill: has 1 windows, cycles.shadow has 2"
        );
    }
}
