//! Phases of a workload, recognised online by the signatures of windows.
//!
//! A window's signature is its CPI, the cycles per instruction that its TLB misses represent and,
//! in shadow paging, those that its exits represent. All are in powers of two, so that a radius is
//! a ratio. A window belongs to the nearest known phase within the radius; otherwise it founds a
//! new phase (leader clustering). A phase has a different signature in each mode. The two
//! signatures are joined when the mode changes within the phase, which is also when the policy
//! learns how much the modes differ in it.

use vtax_sys::kvm::PagingMode;

/// The signature of a window, in log2 of cycles per instruction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Signature([f64; 3]);

/// Below this many cycles per instruction, misses and exits hardly distinguish phases.
const FLOOR: f64 = 0.02;
/// Weight of the newest window in the running means of a phase.
const NEWEST: f64 = 0.25;
/// Weight of the newest measurement in what changes of the mode have taught.
const NEWEST_GAP: f64 = 0.5;

impl Signature {
    /// All values are cycles per instruction: of everything, of TLB misses, of exits.
    pub(super) fn new(cpi: f64, misses: f64, exits: f64) -> Self {
        Self([cpi, misses, exits].map(|part| (part + FLOOR).log2()))
    }

    fn distance(&self, other: &Self) -> f64 {
        let differences = self.0.iter().zip(other.0).map(|(a, b)| (a - b).abs());
        differences.fold(0.0, f64::max)
    }

    fn move_towards(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine += NEWEST * (theirs - *mine);
        }
    }
}

/// What is known about a phase.
#[derive(Clone, Debug, Default)]
pub(super) struct Phase {
    looks: [Option<Signature>; 2],
    cpi: [Option<f64>; 2],
    /// Instructions observed in each mode.
    observed: [f64; 2],
    /// Mean length of its finished runs, in instructions.
    mean_run: Option<f64>,
    /// Instructions seen in total.
    spent: f64,
    /// The number of mode changes in the phase: each may have measured the gap.
    measured: i32,
    /// The value of `spent` at the last measurement.
    measured_at: f64,
    last_seen: u64,
}

/// All phases, and the current one.
#[derive(Clone, Debug)]
pub(super) struct Phases {
    known: Vec<Phase>,
    current: usize,
    /// Instructions since the current phase began.
    run: f64,
    clock: u64,
    radius: f64,
    limit: usize,
}

/// A window to assign to a phase.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observation {
    pub(super) mode: PagingMode,
    pub(super) signature: Signature,
    pub(super) cpi: f64,
    pub(super) instructions: f64,
    /// Unobserved instructions since the previous window.
    pub(super) unobserved: f64,
    /// It is the first window measured since the mode changed.
    pub(super) after_change: bool,
}

impl Phases {
    /// Begins without phases; at most `limit` phases are remembered, and the one unseen for longest
    /// is dropped.
    pub(super) fn new(radius: f64, limit: usize) -> Self {
        Self {
            known: Vec::new(),
            current: 0,
            run: 0.0,
            clock: 0,
            radius,
            limit: limit.max(2),
        }
    }

    /// Assigns a window to a phase; `true` when it continues the phase of the previous window.
    pub(super) fn observe(&mut self, window: &Observation) -> bool {
        self.clock += 1;
        let found = self.find(window);
        let joined = window.after_change && self.join(found, window);
        let same = joined || found.is_some_and(|at| at == self.current);
        if !same {
            self.finish_run();
            self.current = found.unwrap_or_else(|| self.found_phase());
            self.run = 0.0;
        }
        let clock = self.clock;
        // Unobserved instructions belong to the phase before and after them, if it is the same.
        self.run += window.instructions + if same { window.unobserved } else { 0.0 };
        if let Some(phase) = self.known.get_mut(self.current) {
            phase.last_seen = clock;
            phase.update(window);
        }
        same
    }

    /// CPI in nested minus CPI in shadow paging in the current phase, if it was ever measured.
    pub(super) fn gap(&self) -> Option<f64> {
        self.known.get(self.current)?.gap()
    }

    /// Instructions for which the current phase was observed in `mode`.
    pub(super) fn observed(&self, mode: PagingMode) -> f64 {
        self.known
            .get(self.current)
            .map_or(0.0, |phase| phase.observed[mode as usize])
    }

    /// Has the gap gone unmeasured for `unit` instructions of the phase, or twice as many after
    /// each attempt?
    pub(super) fn gap_is_stale(&self, unit: f64) -> bool {
        self.known.get(self.current).is_none_or(|phase| {
            phase.measured == 0
                || phase.spent - phase.measured_at > unit * 2f64.powi(phase.measured)
        })
    }

    /// Records that a change of mode comes that may measure the gap. It may fail to, because the
    /// phase may end.
    pub(super) fn try_to_measure(&mut self) {
        if let Some(phase) = self.known.get_mut(self.current) {
            phase.count_measurement();
        }
    }

    /// For how many more instructions the current phase is expected to run: as many as its distance
    /// from its usual length, before and after reaching it. `prior` is the assumed length of a
    /// phase that never ended.
    pub(super) fn remaining(&self, prior: f64) -> f64 {
        let usual = self
            .known
            .get(self.current)
            .and_then(|phase| phase.mean_run)
            .unwrap_or(prior);
        (usual - self.run).abs()
    }

    /// The phase that matches a window; the current one if it is near enough.
    fn find(&self, window: &Observation) -> Option<usize> {
        let near = |at: usize| {
            let look = self.known.get(at)?.looks[window.mode as usize]?;
            let distance = look.distance(&window.signature);
            (distance <= self.radius).then_some(distance)
        };
        if near(self.current).is_some() {
            return Some(self.current);
        }
        (0..self.known.len())
            .filter_map(|at| Some((at, near(at)?)))
            .min_by(|a, b| a.1.total_cmp(&b.1))
            .map(|(at, _)| at)
    }

    /// After a change of mode: does the previous phase continue as `found`? Joins the two
    /// signatures.
    fn join(&mut self, found: Option<usize>, window: &Observation) -> bool {
        let here = window.mode as usize;
        let before = window.mode.other() as usize;
        if self.current >= self.known.len() || self.known[self.current].looks[here].is_some() {
            return false;
        }
        let half_known = found.filter(|at| self.known[*at].looks[before].is_none());
        let Some(at) = half_known else {
            // Either no phase has this signature yet, or a phase has it whose signature in the
            // other mode differs: two phases may look alike in one mode. It is more likely that the
            // current phase continues than that it ended at this moment. `update` gives it this
            // signature.
            return true;
        };
        let Phase {
            looks,
            cpi,
            observed,
            spent,
            mean_run,
            ..
        } = std::mem::take(&mut self.known[self.current]);
        let phase = &mut self.known[at];
        phase.looks[before] = looks[before];
        phase.cpi[before] = cpi[before];
        phase.observed[before] += observed[before];
        phase.spent += spent;
        phase.mean_run = phase.mean_run.or(mean_run);
        self.current = at;
        true
    }

    fn found_phase(&mut self) -> usize {
        if self.known.len() < self.limit {
            self.known.push(Phase::default());
            return self.known.len() - 1;
        }
        let oldest = (0..self.known.len()).min_by_key(|at| self.known[*at].last_seen);
        let at = oldest.unwrap_or(0);
        self.known[at] = Phase::default();
        at
    }

    fn finish_run(&mut self) {
        let run = self.run;
        if let Some(phase) = self.known.get_mut(self.current) {
            phase.mean_run = Some(blend(phase.mean_run, run, NEWEST_GAP));
        }
    }
}

impl Phase {
    fn update(&mut self, window: &Observation) {
        let mode = window.mode as usize;
        match &mut self.looks[mode] {
            Some(look) => look.move_towards(&window.signature),
            look => *look = Some(window.signature),
        }
        self.cpi[mode] = Some(blend(self.cpi[mode], window.cpi, NEWEST));
        self.observed[mode] += window.instructions;
        self.spent += window.instructions;
    }

    fn count_measurement(&mut self) {
        self.measured = self.measured.saturating_add(1).min(100);
        self.measured_at = self.spent;
    }

    fn gap(&self) -> Option<f64> {
        Some(self.cpi[PagingMode::Nested as usize]? - self.cpi[PagingMode::Shadow as usize]?)
    }
}

/// The running mean with `weight` for the newest value.
pub(super) fn blend(mean: Option<f64>, newest: f64, weight: f64) -> f64 {
    mean.map_or(newest, |mean| mean + weight * (newest - mean))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(mode: PagingMode, cpi: f64, misses: f64, after_change: bool) -> Observation {
        Observation {
            mode,
            signature: Signature::new(cpi, misses, 0.0),
            cpi,
            instructions: 100.0,
            unobserved: 0.0,
            after_change,
        }
    }

    #[test]
    fn windows_that_look_alike_are_one_phase() {
        let mut phases = Phases::new(0.5, 8);
        assert!(!phases.observe(&window(PagingMode::Shadow, 2.0, 0.0, false)));
        assert!(phases.observe(&window(PagingMode::Shadow, 2.2, 0.0, false)));
        assert!(!phases.observe(&window(PagingMode::Shadow, 4.0, 0.5, false)));
        assert!(!phases.observe(&window(PagingMode::Shadow, 2.1, 0.0, false)));
        assert_eq!(phases.known.len(), 2);
        // Its run was 200 instructions; 100 of the next run have passed.
        assert!((phases.remaining(1e9) - 100.0).abs() < 1e-9);
    }

    #[test]
    fn a_change_of_mode_joins_two_looks_and_measures_the_gap() {
        let mut phases = Phases::new(0.5, 8);
        phases.observe(&window(PagingMode::Shadow, 2.0, 0.0, false));
        assert_eq!(phases.gap(), None);
        assert!(phases.observe(&window(PagingMode::Nested, 3.0, 0.8, true)));
        assert_eq!(phases.gap(), Some(1.0));
        // Back again: the same phase is known by its signature.
        assert!(phases.observe(&window(PagingMode::Shadow, 2.0, 0.0, true)));
        assert_eq!(phases.known.len(), 1);
    }

    #[test]
    fn two_half_known_phases_become_one() {
        let mut phases = Phases::new(0.5, 8);
        phases.observe(&window(PagingMode::Nested, 3.0, 0.8, false));
        phases.observe(&window(PagingMode::Nested, 9.0, 0.0, false));
        phases.observe(&window(PagingMode::Shadow, 8.0, 0.0, true));
        phases.observe(&window(PagingMode::Shadow, 2.0, 0.0, false));
        assert!(phases.observe(&window(PagingMode::Nested, 3.0, 0.8, true)));
        assert_eq!(phases.gap(), Some(1.0));
    }

    #[test]
    fn the_phase_unseen_for_longest_is_forgotten() {
        let mut phases = Phases::new(0.5, 2);
        for cpi in [1.0, 4.0, 16.0, 1.0, 4.0] {
            phases.observe(&window(PagingMode::Shadow, cpi, 0.0, false));
        }
        assert_eq!(phases.known.len(), 2);
    }
}
