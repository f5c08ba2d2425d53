//! Compares the model with published measurements, each with its tolerance and the reason for it:
//! `calibration/measurements.toml`. Run with `--nocapture` to see the table.

mod measurements;
mod rig;
mod scenarios;

use std::collections::BTreeSet;

use measurements::{Measurement, Play, Quantity, Scenario, Use};
use vtax_model::error::ModelError;
use vtax_model::model::counters::{Counters, Exit};
use vtax_model::presets;

/// System calls and interrupts for each page fault in a boot: see the list.
const BOOT_CALLS: u32 = 5;

/// The modelled value of a measurement.
fn modelled(machine: &str, play: Play) -> Result<f64, ModelError> {
    let machine = presets::by_name(machine)?;
    let isolation = play.isolation;
    let time = match play.scenario {
        Scenario::NullCall => scenarios::null_call(&machine, isolation)?,
        Scenario::PageFault => scenarios::page_fault(&machine, isolation)?,
        Scenario::ProtectionFault => scenarios::protection_fault(&machine, isolation)?,
        Scenario::Fork => scenarios::fork(&machine, isolation)?,
        Scenario::Exec => scenarios::exec(&machine, isolation)?,
        Scenario::Shell => scenarios::shell(&machine, isolation)?,
        Scenario::Boot => {
            let exits = scenarios::boot(&machine, isolation, BOOT_CALLS)?.shadow;
            return Ok(share(play.quantity, &exits));
        }
    };
    Ok(match play.quantity {
        Quantity::Nested => time.nested,
        Quantity::Shadow => time.shadow,
        Quantity::Extra => time.extra(),
        Quantity::LoadCr3Share | Quantity::ExceptionShare | Quantity::InvlpgShare => f64::NAN,
    })
}

/// A share of the exits that shadow paging causes.
fn share(quantity: Quantity, counters: &Counters) -> f64 {
    let count = match quantity {
        Quantity::LoadCr3Share => rig::exits(counters, Exit::LoadCr3),
        Quantity::ExceptionShare => scenarios::exceptions(counters),
        Quantity::InvlpgShare => rig::exits(counters, Exit::Invlpg),
        Quantity::Nested | Quantity::Shadow | Quantity::Extra => f64::NAN,
    };
    count / counters.shadow_paging_exits()
}

#[test]
fn the_model_is_within_tolerance_of_each_published_measurement() {
    let mut outside = Vec::new();
    for measurement in measurements::all().unwrap() {
        let Some(play) = measurement.play() else {
            continue;
        };
        let value = modelled(&measurement.machine, play).unwrap();
        let row = format!(
            "{}: published {} {unit}, modelled {value:.3} {unit}, accepted {} to {}",
            measurement.name,
            measurement.value,
            play.low,
            play.high,
            unit = measurement.unit,
        );
        println!("{row}");
        if !(play.low..=play.high).contains(&value) {
            outside.push(row);
        }
    }
    assert!(outside.is_empty(), "{}", outside.join("\n"));
}

/// Which cause dominates does not depend on the assumed number of system calls.
#[test]
fn cr3_loads_dominate_a_boot_with_isolation_only() {
    let machine = presets::by_name("xeon8269cy").unwrap();
    let loads = |isolation, calls| {
        let exits = scenarios::boot(&machine, isolation, calls).unwrap().shadow;
        share(Quantity::LoadCr3Share, &exits)
    };
    let shares: Vec<f64> = [1, 2, 5, 12].map(|calls| loads(true, calls)).into();
    assert!(shares.is_sorted(), "{shares:?}");
    assert!(shares[0] > 0.5 && shares[3] < 0.9, "{shares:?}");
    assert!(loads(false, 5) < 0.05);
}

/// The reservation in the list: these measurements fit only if the guest isolated its tables.
#[test]
fn fork_and_exec_come_out_too_low_without_isolation() {
    for measurement in measurements::all().unwrap() {
        let Some(play) = measurement.play() else {
            continue;
        };
        let inferred = [Scenario::Fork, Scenario::Exec, Scenario::Shell];
        if inferred.contains(&play.scenario) {
            let without = Play {
                isolation: false,
                ..play
            };
            let value = modelled(&measurement.machine, without).unwrap();
            println!("{} without isolation: {value:.0}", measurement.name);
            assert!(value < play.low, "{}: {value}", measurement.name);
        }
    }
}

#[test]
fn nested_paging_has_no_exits_for_page_tables() {
    let machine = presets::by_name("xeon8269cy").unwrap();
    let exits = scenarios::boot(&machine, true, 5).unwrap().nested;
    assert!(exits.shadow_paging_exits().abs() < 0.5);
}

fn is_well_formed(measurement: &Measurement) -> bool {
    let texts = [
        &measurement.name,
        &measurement.unit,
        &measurement.source,
        &measurement.reason,
    ];
    let complete = texts.iter().all(|text| !text.trim().is_empty());
    let bounds = match (measurement.used, measurement.play()) {
        (Use::Open, play) => play.is_none(),
        (_, Some(play)) => (play.low..=play.high).contains(&measurement.value),
        (_, None) => false,
    };
    complete && bounds && measurement.value.is_finite()
}

#[test]
fn the_list_is_complete_and_its_bounds_hold_the_published_values() {
    let all = measurements::all().unwrap();
    for measurement in &all {
        assert!(is_well_formed(measurement), "{}", measurement.name);
        presets::by_name(&measurement.machine).unwrap();
    }
    let names: BTreeSet<&str> = all.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names.len(), all.len());
    let checks = all.iter().filter(|one| one.used == Use::Check);
    assert!(checks.count() >= 5);
}
