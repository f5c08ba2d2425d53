//! Properties of every policy on any input, sensible or not.

#![allow(
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss
)]

mod policy_world;

use policy_world::{WINDOW, costs};
use proptest::prelude::*;
use vtax_model::error::ModelError;
use vtax_model::policy::dav2m::{Dav2m, Dav2mParameters, Event, ShadowProbe, TRANSITIONS};
use vtax_model::policy::{Policy, Reading, registry};
use vtax_sys::kvm::PagingMode;

/// What happens between two calls, and which call comes next.
#[derive(Clone, Debug)]
struct Step {
    instructions: f64,
    cycles: f64,
    misses: f64,
    walks: f64,
    vmm: f64,
    /// `None`: the instruction counter overflows; otherwise the number of shadow exits.
    exits: Option<u64>,
}

/// Ordinary amounts, zero, absurdly large amounts, and counters that go backwards.
fn amount(usual: f64) -> impl Strategy<Value = f64> {
    prop_oneof![
        12 => 0.0..2.0 * usual,
        2 => Just(0.0),
        1 => 1e15..1e300f64,
        1 => -10.0 * usual..0.0,
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let exits = prop_oneof![
        3 => Just(None),
        3 => (1u64..40).prop_map(Some),
        1 => any::<u64>().prop_map(|count| Some(count.max(1))),
    ];
    let window = WINDOW as f64;
    (
        amount(window),
        amount(1.5 * window),
        amount(3000.0),
        amount(3e5),
        amount(1e5),
        exits,
    )
        .prop_map(|(instructions, cycles, misses, walks, vmm, exits)| Step {
            instructions,
            cycles,
            misses,
            walks,
            vmm,
            exits,
        })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 0..150)
}

/// Hands the steps to a policy as a driver would, and calls `check` after each with the previous
/// mode.
fn drive(
    policy: &mut dyn Policy,
    steps: &[Step],
    counters: bool,
    mut check: impl FnMut(&dyn Policy, Event, PagingMode) -> Result<(), TestCaseError>,
) -> Result<Vec<PagingMode>, TestCaseError> {
    let mut now = Reading {
        walk_cycles: counters.then_some(0.0),
        vmm_cycles: counters.then_some(0.0),
        ..Reading::default()
    };
    let mut decisions = Vec::new();
    for step in steps {
        now.instructions += step.instructions;
        now.cycles += step.cycles;
        now.tlb_misses += step.misses;
        now.walk_cycles = now.walk_cycles.map(|walks| walks + step.walks);
        now.vmm_cycles = now.vmm_cycles.map(|vmm| vmm + step.vmm);
        let before = policy.wanted();
        let due = policy.exits_until_decision();
        prop_assert!(due >= 1);
        let answer = match step.exits {
            None => policy.on_window(&now),
            Some(_) if before == PagingMode::Nested => continue,
            Some(count) => {
                now.shadow_exits += count as f64;
                let answer = policy.on_shadow_exits(count, &now);
                prop_assert!(
                    count >= due || policy.wanted() == before,
                    "decided too early"
                );
                answer
            }
        };
        match answer {
            Ok(mode) => prop_assert_eq!(mode, policy.wanted()),
            // Only a counter that the machine does not have may stop a policy.
            Err(ModelError::Field { field, .. }) => {
                prop_assert!(!counters && field == "walk_cycles");
            }
            Err(error) => return Err(TestCaseError::fail(error.to_string())),
        }
        decisions.push(policy.wanted());
        let event = step.exits.map_or(Event::Overflow, |_| Event::ShadowExit);
        check(policy, event, before)?;
    }
    Ok(decisions)
}

fn make(name: &str) -> Box<dyn Policy> {
    registry::by_name(name, None, &costs(), WINDOW).unwrap()
}

/// Parameters of DAV2M with every open point at random.
fn parameters() -> impl Strategy<Value = Dav2mParameters> {
    (
        any::<[bool; 5]>(),
        1.0..8.0f64,
        0.05..1.0f64,
        1u64..30,
        1u32..20,
    )
        .prop_map(
            |(flags, threshold_rise, threshold_fall, prepaging, smoothing)| {
                let defaults = Dav2mParameters::scaled(WINDOW);
                Dav2mParameters {
                    start: if flags[0] {
                        PagingMode::Shadow
                    } else {
                        PagingMode::Nested
                    },
                    prepaging: flags[1],
                    reset_outside_damping: flags[2],
                    reset_at_switch: flags[3],
                    smooth_across_switch: flags[4],
                    shadow_probe: if flags[0] == flags[1] {
                        ShadowProbe::WindowTmiss
                    } else {
                        ShadowProbe::WindowVexit
                    },
                    threshold_rise,
                    threshold_fall,
                    window_prepaging: prepaging * WINDOW,
                    smoothing_cpi: smoothing,
                    smoothing_tmiss: smoothing,
                    ..defaults
                }
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_input_breaks_a_policy_and_the_same_input_decides_the_same(
        steps in steps(), counters in any::<bool>()
    ) {
        for name in registry::names() {
            let first = drive(make(name).as_mut(), &steps, counters, |_, _, _| Ok(()))?;
            let second = drive(make(name).as_mut(), &steps, counters, |_, _, _| Ok(()))?;
            prop_assert_eq!(first, second);
        }
    }

    #[test]
    fn switches_per_window_are_bounded(steps in steps()) {
        for name in registry::names() {
            // Between two overflows there are two changes: one that an overflow decided and one
            // that exits decided.
            let most = match name {
                "shadow" | "nested" => 0,
                "naive" | "rpms" => 1,
                _ => 2,
            };
            let mut switches = 0;
            drive(make(name).as_mut(), &steps, true, |policy, event, before| {
                if event == Event::Overflow {
                    switches = 0;
                }
                switches += usize::from(policy.wanted() != before);
                prop_assert!(switches <= most, "{} changed {switches} times", policy.name());
                Ok(())
            })?;
        }
    }

    #[test]
    fn the_controller_waits_and_counts_before_it_acts_again(steps in steps()) {
        // Two windows of waiting and four that count; at the start there is nothing to wait for.
        let mut since = 2;
        drive(make("rpms").as_mut(), &steps, true, |policy, event, before| {
            since += usize::from(event == Event::Overflow);
            if policy.wanted() != before {
                prop_assert!(since >= 6, "after {since} windows");
                since = 0;
            }
            Ok(())
        })?;
    }

    #[test]
    fn dav2m_keeps_to_its_diagram_and_its_thresholds_in_range(
        steps in steps(), parameters in parameters()
    ) {
        let [low, high] = parameters.threshold_range;
        let mut policy = Dav2m::new(parameters).unwrap();
        let mut state = policy.view().state;
        drive(&mut policy, &steps, true, |policy, event, _| {
            let view = policy.view();
            let allowed = view.state == state || TRANSITIONS.iter().any(|arrow| {
                arrow.from.name() == state
                    && arrow.to.name() == view.state
                    && arrow.on == event
                    && (arrow.in_paper || !parameters.prepaging)
            });
            prop_assert!(allowed, "{state} to {} at {event:?}", view.state);
            state = view.state;
            for (threshold, start) in [
                (view.threshold_vexit, parameters.threshold_vexit),
                (view.threshold_tmiss, parameters.threshold_tmiss),
            ] {
                let relative = threshold.unwrap() / start;
                prop_assert!((low * 0.999..=high * 1.001).contains(&relative), "{relative}");
            }
            Ok(())
        })?;
    }

    #[test]
    fn no_state_of_dav2m_on_probation_lasts_for_ever(
        steps in steps(), parameters in parameters(), moving in any::<bool>(), exits in 0u64..100
    ) {
        let mut policy = Dav2m::new(parameters).unwrap();
        drive(&mut policy, &steps, true, |_, _, _| Ok(()))?;
        let longest = parameters.window_prepaging.max(parameters.window_tmiss) / WINDOW + 2;
        let mut now = Reading::default();
        let mut lasted = 0;
        let mut state = policy.view().state;
        for _ in 0..4 * longest {
            if moving {
                now.instructions += WINDOW as f64;
                now.cycles += 2.0 * WINDOW as f64;
            }
            if policy.wanted() == PagingMode::Shadow && exits > 0 {
                policy.on_shadow_exits(exits, &now).unwrap();
            }
            policy.on_window(&now).unwrap();
            lasted = if policy.view().state == state { lasted + 1 } else { 0 };
            state = policy.view().state;
            let probation = matches!(state, "PreNested" | "Prepaging" | "PreShadow");
            prop_assert!(!probation || lasted <= longest, "{state} for {lasted} windows");
        }
    }
}

#[test]
fn probes_of_dav2m_that_always_fail_grow_rare() {
    let parameters = Dav2mParameters::scaled(WINDOW);
    let mut policy = Dav2m::new(parameters).unwrap();
    let mut now = Reading::default();
    let mut probes = 0;
    // 100 exits per window against a threshold of 10, and nested paging 30 % worse.
    for _ in 0..2000 {
        let cpi = match policy.wanted() {
            PagingMode::Shadow => 1.0,
            PagingMode::Nested => 1.3,
        };
        now.instructions += WINDOW as f64;
        now.cycles += cpi * WINDOW as f64;
        policy.on_window(&now).unwrap();
        if policy.wanted() == PagingMode::Shadow {
            policy.on_shadow_exits(100, &now).unwrap();
            probes += usize::from(policy.wanted() == PagingMode::Nested);
        }
    }
    // Each failure raises the threshold at least twofold: 10, 20, 40, 80, and 160 is above 100.
    assert!((1..=4).contains(&probes), "{probes} probes");
}
