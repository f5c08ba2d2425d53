use std::ops::ControlFlow;

use super::*;
use crate::model::counters::Counters;
use crate::model::machine::Machine;
use crate::workload::{Part, Synthetic, Workload};

const WORKLOAD: &str = r#"
    name = "two-phases"
    title = "a TLB-bound phase and one that changes its page tables"
    basis = "Made for tests."
    schedule = ["walks", "changes"]
    repeat = 2
    [[phase]]
    name = "walks"
    instructions = 4e6
    base_cpi = 1.0
    references_per_instruction = 0.4
    footprint = "16M"
    mix = { random = 0.1 }
    [[phase]]
    name = "changes"
    instructions = 4e6
    base_cpi = 1.0
    references_per_instruction = 0.4
    footprint = "1M"
    mix = { random = 0.01 }
    [phase.changes]
    allocations = 20
    allocation_pages = 16
    lifetime = 4
"#;

fn machine() -> Machine {
    Machine::parse(include_str!("test_machine.toml")).unwrap()
}

fn setup() -> Setup {
    Setup {
        window_instructions: 500_000,
        ..Setup::new(machine())
    }
}

fn choices(names: &[&str]) -> Vec<(String, Choice)> {
    let choice = |name: &&str| Choice::by_name(name, None, &setup()).unwrap();
    names
        .iter()
        .map(|name| ((*name).to_owned(), choice(name)))
        .collect()
}

fn whole(names: &[&str]) -> Outcome {
    let workload = Workload::parse(WORKLOAD).unwrap();
    let mut source = Synthetic::new(&workload, Part::Whole, 1).unwrap();
    let mut go_on = |_| ControlFlow::Continue(());
    simulate(&mut source, &setup(), choices(names), &mut go_on).unwrap()
}

fn sampled(names: &[&str]) -> Outcome {
    let workload = Workload::parse(WORKLOAD).unwrap();
    let sampling = Sampling {
        warm_instructions: 5e5,
        batch_instructions: 2e5,
    };
    let mut go_on = |_| ControlFlow::Continue(());
    simulate_sampled(&workload, &setup(), choices(names), &sampling, &mut go_on).unwrap()
}

fn mode<'a>(outcome: &'a Outcome, name: &str) -> &'a ModeOutcome {
    outcome.modes.iter().find(|mode| mode.name == name).unwrap()
}

fn cycles(outcome: &Outcome, name: &str) -> f64 {
    mode(outcome, name).totals.cycles.total()
}

#[test]
fn every_mode_sees_the_same_workload_in_one_pass() {
    let outcome = whole(&[
        "native", "shadow", "nested", "agile", "dav2m", "naive", "oracle",
    ]);
    let native = &mode(&outcome, "native").totals;
    assert_eq!(*native, outcome.native);
    for mode in &outcome.modes {
        assert!(
            (mode.totals.instructions - native.instructions).abs() < 0.5,
            "{}",
            mode.name
        );
        assert!(
            (mode.totals.references - native.references).abs() < 0.5,
            "{}",
            mode.name
        );
        assert!(
            mode.totals.cycles.total() >= native.cycles.total(),
            "{}",
            mode.name
        );
    }
    assert!(
        outcome
            .overhead_percent(mode(&outcome, "native"))
            .unwrap()
            .abs()
            < 1e-9
    );
    assert!(mode(&outcome, "shadow").totals.shadow_paging_exits() > 1000.0);
    assert!(mode(&outcome, "nested").totals.shadow_paging_exits() < 0.5);
}

#[test]
fn windows_add_up_to_the_totals() {
    for outcome in [whole(&["shadow", "dav2m"]), sampled(&["shadow", "dav2m"])] {
        for mode in &outcome.modes {
            let sum = mode
                .windows
                .iter()
                .fold(Counters::default(), |sum, row| sum + row.counters);
            let (sum, total) = (sum.cycles.total(), mode.totals.cycles.total());
            assert!((sum / total - 1.0).abs() < 1e-9, "{}", mode.name);
        }
    }
}

#[test]
fn the_oracle_is_no_worse_than_either_mode() {
    for outcome in [
        whole(&["shadow", "nested", "oracle"]),
        sampled(&["shadow", "nested", "oracle"]),
    ] {
        let best = cycles(&outcome, "shadow").min(cycles(&outcome, "nested"));
        assert!(cycles(&outcome, "oracle") <= best * (1.0 + 1e-9));
    }
}

#[test]
fn samples_agree_with_the_whole_run() {
    let names = ["native", "shadow", "nested"];
    let (whole, sampled) = (whole(&names), sampled(&names));
    for name in names {
        let ratio = cycles(&sampled, name) / cycles(&whole, name);
        let stated = mode(&sampled, name).relative_error.unwrap();
        // The warm-up is short: 2 % beyond the stated error are allowed for what it misses.
        assert!(
            (ratio - 1.0).abs() < stated + 0.02,
            "{name}: {ratio} with {stated}"
        );
    }
}

#[test]
fn the_same_seed_gives_the_same_outcome() {
    let names = ["native", "shadow", "nested", "agile", "dav2m"];
    assert_eq!(whole(&names), whole(&names));
    assert_eq!(sampled(&names), sampled(&names));
}

#[test]
fn a_run_can_be_stopped() {
    let workload = Workload::parse(WORKLOAD).unwrap();
    let mut source = Synthetic::new(&workload, Part::Whole, 1).unwrap();
    let mut stop = |_| ControlFlow::Break(());
    let outcome = simulate(&mut source, &setup(), choices(&["nested"]), &mut stop).unwrap();
    assert!(outcome.stopped);
    assert!(outcome.native.instructions < 16e6);
}

#[test]
fn impossible_setups_are_refused() {
    let workload = Workload::parse(WORKLOAD).unwrap();
    let refused = |change: &dyn Fn(&mut Setup)| {
        let mut setup = setup();
        change(&mut setup);
        let mut source = Synthetic::new(&workload, Part::Whole, 1).unwrap();
        let mut go_on = |_| ControlFlow::Continue(());
        simulate(&mut source, &setup, choices(&["nested"]), &mut go_on)
            .unwrap_err()
            .to_string()
    };
    assert!(refused(&|setup| setup.window_instructions = 0).starts_with("window: "));
    assert!(refused(&|setup| setup.instruction_limit = Some(f64::NAN)).starts_with("instructions"));
    assert!(refused(&|setup| setup.memory_bytes = 1 << 20).starts_with("workload larger than"));
}
