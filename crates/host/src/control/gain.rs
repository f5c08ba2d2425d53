//! What the other mode would save at most, estimated from the current mode.
//!
//! The estimate says what it rests on: hardware counts only what happens in the current mode. In
//! shadow paging the other mode saves the exits; the cost of its longer walks is not subtracted. In
//! nested paging the other mode saves at most the references to the host's tables, 20 of 24; what
//! its exits cost is not taken off.

use vtax_model::model::machine::Costs;
use vtax_sys::kvm::PagingMode;

use crate::control::sensors::{Quantity, Step};

/// References of a nested walk that a shadow walk does not make: 20 of 24, where a shadow walk
/// makes 4 (policy `vtax`, `walk_ratio`).
const SAVED_OF_A_WALK: f64 = 20.0 / 24.0;
/// References of a nested walk that huge host pages save: one level of the host's tables in each of
/// five walks of them, 5 of 24.
const SAVED_BY_HUGE_PAGES: f64 = 5.0 / 24.0;
/// Cycles of a TLB miss in nested paging where walks are not counted (policy `vtax`,
/// `miss_cycles_nested`: an assumption).
const NESTED_MISS_CYCLES: f64 = 150.0;

/// An estimate of the gain.
#[derive(Debug, Clone, PartialEq)]
pub struct Gain {
    /// The largest possible gain, in percent of the guests' cycles.
    pub percent: f64,
    /// What the estimate rests on.
    pub source: String,
}

/// What leaving `mode` saves at most; `None` where that is unknown.
pub fn gain(mode: PagingMode, step: &Step, costs: &Costs, machine: &str) -> Option<Gain> {
    let cycles = step
        .counts
        .get(Quantity::Cycles)
        .filter(|count| *count > 0.0)?;
    let (saved, source) = match mode {
        PagingMode::Shadow => exits(step, costs, machine)?,
        PagingMode::Nested => {
            let (walks, source) = walks(step)?;
            (walks * SAVED_OF_A_WALK, format!("{source} x 20/24"))
        }
    };
    Some(Gain {
        percent: (100.0 * saved / cycles).clamp(0.0, 100.0),
        source: format!("estimated, at most: {source}"),
    })
}

/// What huge pages of the host save for guests whose memory has 4 KiB pages; `None` where that is
/// unknown.
///
/// In shadow paging it depends on the guests' own pages, which nobody counts. In nested paging walks
/// lose a level; the estimate takes each reference as equally dear, and leaves out fewer TLB misses,
/// where guests have huge pages too, and fewer nested page faults.
pub fn gain_of_huge_pages(mode: PagingMode, step: &Step) -> Option<Gain> {
    if mode == PagingMode::Shadow {
        return None;
    }
    let cycles = step
        .counts
        .get(Quantity::Cycles)
        .filter(|count| *count > 0.0)?;
    let (walks, source) = walks(step)?;
    Some(Gain {
        percent: (100.0 * walks * SAVED_BY_HUGE_PAGES / cycles).clamp(0.0, 100.0),
        source: format!("estimated: {source} x 5/24"),
    })
}

/// Cycles of exits, and their source.
fn exits(step: &Step, costs: &Costs, machine: &str) -> Option<(f64, String)> {
    if let Some(counted) = step.counts.get(Quantity::VmmCycles) {
        return Some((counted, step.name(Quantity::VmmCycles)));
    }
    let paging = step.counts.get(Quantity::PagingExits)?;
    let each = f64::from(costs.exit) + f64::from(costs.shadow_fill);
    let mut source = format!("{} x {each}", step.name(Quantity::PagingExits));
    let mut saved = paging * each;
    if let Some(loads) = step.counts.get(Quantity::Cr3Exits) {
        let each = f64::from(costs.exit) + f64::from(costs.load_cr3);
        source = format!("{source} + {} x {each}", step.name(Quantity::Cr3Exits));
        saved += loads * each;
    }
    Some((saved, format!("{source} cycles as on {machine} (model)")))
}

/// Cycles of walks, and their source.
fn walks(step: &Step) -> Option<(f64, String)> {
    if let Some(counted) = step.counts.get(Quantity::WalkCycles) {
        return Some((counted, step.name(Quantity::WalkCycles)));
    }
    let misses = step.counts.get(Quantity::TlbMisses)?;
    let name = step.name(Quantity::TlbMisses);
    let source = format!("{name} x {NESTED_MISS_CYCLES} cycles (assumed)");
    Some((misses * NESTED_MISS_CYCLES, source))
}

#[cfg(test)]
mod tests {
    use vtax_model::presets;

    use super::*;
    use crate::control::sensors::Values;

    fn step(counts: &[(Quantity, f64)]) -> Step {
        let mut values = Values::default();
        for (quantity, count) in counts {
            values.set(*quantity, *count);
        }
        Step {
            seconds: 1.0,
            counts: values,
            ..Step::default()
        }
    }

    fn of(mode: PagingMode, counts: &[(Quantity, f64)]) -> Option<Gain> {
        let mut costs = presets::by_name("zen4").unwrap().costs;
        (costs.exit, costs.shadow_fill, costs.load_cr3) = (1000, 1500, 250);
        gain(mode, &step(counts), &costs, "zen4")
    }

    #[test]
    fn it_says_what_it_rests_on() {
        let counts = [(Quantity::Cycles, 1e6), (Quantity::PagingExits, 40.0)];
        let found = of(PagingMode::Shadow, &counts).unwrap();
        assert!((found.percent - 10.0).abs() < 1e-9);
        let source = "estimated, at most: paging_exits x 2500 cycles as on zen4 (model)";
        assert_eq!(found.source, source);
        let loads = [&counts[..], &[(Quantity::Cr3Exits, 80.0)]].concat();
        let found = of(PagingMode::Shadow, &loads).unwrap();
        assert!((found.percent - 20.0).abs() < 1e-9);
        let source = "paging_exits x 2500 + cr3_exits x 1250 cycles as on zen4 (model)";
        assert!(found.source.ends_with(source), "{}", found.source);
        let counts = [(Quantity::Cycles, 1e6), (Quantity::WalkCycles, 3e5)];
        let found = of(PagingMode::Nested, &counts).unwrap();
        assert!((found.percent - 25.0).abs() < 1e-9);
        let counts = [(Quantity::Cycles, 1e6), (Quantity::TlbMisses, 1e6)];
        assert!((of(PagingMode::Nested, &counts).unwrap().percent - 100.0).abs() < 1e-9);
    }

    #[test]
    fn huge_pages_save_five_of_24_references_of_a_nested_walk() {
        let counted = step(&[(Quantity::Cycles, 1e6), (Quantity::WalkCycles, 2.4e5)]);
        let found = gain_of_huge_pages(PagingMode::Nested, &counted).unwrap();
        assert!((found.percent - 5.0).abs() < 1e-9);
        assert_eq!(found.source, "estimated: walk_cycles x 5/24");
        assert_eq!(gain_of_huge_pages(PagingMode::Shadow, &counted), None);
        let counted = step(&[(Quantity::Cycles, 1e6)]);
        assert_eq!(gain_of_huge_pages(PagingMode::Nested, &counted), None);
    }

    #[test]
    fn what_is_not_counted_is_not_known() {
        assert_eq!(
            of(PagingMode::Shadow, &[(Quantity::PagingExits, 9.0)]),
            None
        );
        assert_eq!(of(PagingMode::Nested, &[(Quantity::Cycles, 1e6)]), None);
        assert_eq!(of(PagingMode::Nested, &[(Quantity::Cycles, 0.0)]), None);
    }
}
