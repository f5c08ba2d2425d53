//! The best plan in hindsight, from the windows of both modes.

use super::outcome::{ModeOutcome, SwitchRow};
use super::recorder::Recorder;
use super::setup::Setup;
use crate::error::ModelError;
use crate::model::counters::Counters;
use crate::model::shadow::ShadowStyle;
use crate::policy::oracle::OracleInput;
use vtax_sys::kvm::PagingMode;

/// Cycles to fill the shadow entries of `pages` again: every page once, prefetched neighbours
/// free. An upper bound, because not every resident page is touched again.
pub(super) fn refill_bound(setup: &Setup, pages: u64) -> f64 {
    let costs = &setup.machine.costs;
    let per_fill = match setup.shadow {
        ShadowStyle::Kvm { prefetch, .. } => f64::from(prefetch.max(1)),
        ShadowStyle::Palacios => 1.0,
    };
    pages as f64 / per_fill * f64::from(costs.exit + costs.shadow_fill)
}

/// The optimum over windows: the cheaper mode in each, with the costs of the changes between them.
///
/// `refill` gives the cycles to fill the shadow tables again when shadow paging starts in a window.
pub(super) fn from_windows(
    setup: &Setup,
    shadow: &ModeOutcome,
    nested: &ModeOutcome,
    refill: impl Fn(usize) -> f64,
) -> Result<ModeOutcome, ModelError> {
    let costs = &setup.machine.costs;
    let cycles = |outcome: &ModeOutcome| {
        outcome
            .windows
            .iter()
            .map(|row| row.counters.cycles.total())
            .collect::<Vec<_>>()
    };
    let (to_nested, to_shadow) = (
        f64::from(costs.switch_to_nested),
        f64::from(costs.switch_to_shadow),
    );
    let windows = shadow.windows.len().min(nested.windows.len());
    let input = OracleInput {
        cycles: [cycles(shadow), cycles(nested)],
        to_nested,
        to_shadow,
        refill: (0..windows).map(&refill).collect(),
        start: None,
    };
    let plan = input.solve()?;
    let (mut now, mut recorder, mut switches) =
        (Counters::default(), Recorder::default(), Vec::new());
    let mut current = plan.modes.first().copied();
    for (at, &mode) in plan.modes.iter().enumerate() {
        if current != Some(mode) {
            let cost_cycles = match mode {
                PagingMode::Nested => to_nested,
                PagingMode::Shadow => to_shadow,
            };
            switches.push(SwitchRow {
                instructions: now.instructions,
                to: mode,
                cost_cycles,
            });
            now.switches += 1.0;
            now.cycles.switches += cost_cycles;
            now.cycles.refill += if mode == PagingMode::Shadow {
                refill(at)
            } else {
                0.0
            };
            current = Some(mode);
        }
        let row = match mode {
            PagingMode::Shadow => &shadow.windows[at],
            PagingMode::Nested => &nested.windows[at],
        };
        now = now + row.counters;
        recorder.cut(now, row.phase, Some(mode), None);
    }
    Ok(ModeOutcome {
        name: "oracle".to_owned(),
        totals: now,
        relative_error: None,
        windows: recorder.into_rows().0,
        switches,
        states: Vec::new(),
    })
}
