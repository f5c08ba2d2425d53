//! Groups of counters for PMUs that are not in this machine, by their descriptions.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

#[path = "common/pmus/mod.rs"]
mod pmus;

use pmus::{ALL, ARM, Described, Description, ICE_LAKE, SKYLAKE, ZEN_3, ZEN_4, hardware};
use proptest::prelude::*;
use vtax_host::record::perf::Request;
use vtax_host::record::plan::Columns;
use vtax_host::record::sources::counters::grouping::{crowded_out, divide};
use vtax_host::record::sources::{self, select};

/// Whether the kernel accepts these events as one group, by its own rules (pmus/mod.rs names them),
/// not by the matching that judges the descriptions.
const ANSWERS: [(&Description, &str, bool); 25] = [
    // Three fixed counters and four others.
    (
        &SKYLAKE,
        "instructions cycles ref_cycles cache_references cache_misses branches branch_misses",
        true,
    ),
    (
        &SKYLAKE,
        "cache_references cache_misses branches branch_misses",
        true,
    ),
    (
        &SKYLAKE,
        "cache_references cache_misses branches branch_misses l1d_loads",
        false,
    ),
    (
        &SKYLAKE,
        "instructions cycles cache_references cache_misses branches branch_misses l1d_loads",
        false,
    ),
    // An event with a fixed counter can use a general one too; the reference cycles cannot.
    (
        &SKYLAKE,
        "cycles cycles.user cycles.kernel cycles.guest cycles.host",
        true,
    ),
    (
        &SKYLAKE,
        "cycles cycles.user cycles.kernel cycles.guest cycles.host branches",
        false,
    ),
    (
        &SKYLAKE,
        "instructions instructions.user cycles cycles.user branches branch_misses",
        true,
    ),
    (
        &SKYLAKE,
        "instructions instructions.user cycles cycles.user branches branch_misses l1d_loads",
        false,
    ),
    (&SKYLAKE, "ref_cycles ref_cycles.user", false),
    // Eight general counters, of which some events can use four.
    (
        &ICE_LAKE,
        "l1d_loads l1d_load_misses l1d_stores dtlb_load_misses",
        true,
    ),
    (
        &ICE_LAKE,
        "l1d_loads l1d_load_misses l1d_stores dtlb_load_misses itlb_misses",
        false,
    ),
    (
        &ICE_LAKE,
        "cache_references cache_misses branches branch_misses branches.user branch_misses.user",
        true,
    ),
    (
        &ICE_LAKE,
        "branches branch_misses cache_misses cache_references l1d_loads l1d_stores itlb_misses dtlb_load_misses",
        true,
    ),
    (
        &ICE_LAKE,
        "branches branches.user branches.kernel branch_misses cache_misses l1d_loads l1d_stores itlb_misses dtlb_load_misses",
        false,
    ),
    (
        &ICE_LAKE,
        "instructions cycles ref_cycles branches branch_misses cache_misses cache_references l1d_loads l1d_stores itlb_misses dtlb_load_misses",
        true,
    ),
    (&ICE_LAKE, "ref_cycles ref_cycles.kernel", false),
    // Six equal counters; since Zen 4 there is a generic event for the reference cycles.
    (
        &ZEN_3,
        "instructions cycles cache_references cache_misses branches branch_misses",
        true,
    ),
    (
        &ZEN_3,
        "instructions cycles cache_references cache_misses branches branch_misses l1d_loads",
        false,
    ),
    (&ZEN_3, "ref_cycles", false),
    (&ZEN_4, "ref_cycles ref_cycles.user cycles", true),
    // Six counters, and one for cycles.
    (
        &ARM,
        "instructions cycles cache_references cache_misses branches branch_misses l1d_loads",
        true,
    ),
    (
        &ARM,
        "instructions itlb_misses cache_references cache_misses branches branch_misses l1d_loads",
        false,
    ),
    (
        &ARM,
        "cycles cycles.user cache_references cache_misses branches branch_misses l1d_loads",
        true,
    ),
    (
        &ARM,
        "cycles cycles.user instructions cache_references cache_misses branches branch_misses l1d_loads",
        false,
    ),
    (&ARM, "l1d_stores", false),
];

fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

fn requests(names: &[&str]) -> Vec<Request> {
    let all = hardware();
    let find = |name: &&str| all.iter().find(|(known, _)| known == name).unwrap().1;
    names.iter().map(find).collect()
}

/// The groups of a PMU's events, by their names.
fn groups<'a>(pmu: &mut Described<'_>, names: &[&'a str], limit: usize) -> Vec<Vec<&'a str>> {
    let groups = divide(pmu, &requests(names), limit).unwrap();
    let name = |group: Vec<usize>| group.into_iter().map(|event| names[event]).collect();
    groups.into_iter().map(name).collect()
}

#[test]
fn the_descriptions_answer_as_the_kernel_does() {
    for (description, events, taken) in ANSWERS {
        let answer = description.schedules(&words(events));
        assert_eq!(answer, taken, "{}: {events}", description.name);
    }
}

#[test]
fn a_group_has_no_more_events_for_general_counters_than_there_are() {
    let events = words(
        "instructions cycles cache_misses cache_references branches branch_misses \
         dtlb_load_misses itlb_misses l1d_loads l1d_load_misses l1d_stores",
    );
    // A prefix of six fits; six events without fixed counters do not.
    let mut pmu = Described::new(&SKYLAKE, &[]);
    assert!(SKYLAKE.schedules(&events[..6]) && !SKYLAKE.schedules(&events[5..]));
    let found = groups(&mut pmu, &events, usize::MAX);
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found.iter().all(|group| SKYLAKE.schedules(group)));
}

#[test]
fn events_that_need_no_turns_take_none() {
    let events = words("instructions cycles cache_misses");
    for description in ALL {
        let mut pmu = Described::new(description, &[]);
        assert_eq!(groups(&mut pmu, &events, usize::MAX), [&events[..]]);
    }
}

#[test]
fn the_reference_event_and_the_watchdog_keep_their_counters() {
    let events = words("cycles cache_misses branches branch_misses dtlb_load_misses");
    let mut pmu = Described::new(&SKYLAKE, &["instructions"]);
    assert_eq!(groups(&mut pmu, &events, usize::MAX).len(), 1);
    let mut pmu = Described::new(&SKYLAKE, &["instructions", "cycles"]);
    assert_eq!(groups(&mut pmu, &events, usize::MAX).len(), 2);
}

#[test]
fn later_events_make_room_for_those_with_fewer_counters() {
    // First come, first served: the cycles fill a group, and each later group has six counters.
    let parts = |name: &str| {
        ["", ".user", ".kernel", ".guest", ".host"].map(|part| format!("{name}{part}"))
    };
    let names = ["cycles", "branches", "branch_misses", "cache_misses"]
        .map(parts)
        .concat();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut pmu = Described::new(&ARM, &[]);
    let found = groups(&mut pmu, &names, usize::MAX);
    assert_eq!(found.iter().map(Vec::len).sum::<usize>(), 20);
    assert_eq!(found.len(), 3, "{found:?}");
}

#[test]
fn an_event_whose_counters_others_hold_is_absent_with_the_reason() {
    let held = words("branches branch_misses cache_misses cache_references l1d_loads itlb_misses");
    let mut pmu = Described::new(&ZEN_3, &held);
    let choices = || select::select(&sources::all(), "default").unwrap();
    let mut lacks = |event: &sources::Event| match event.origin {
        sources::Origin::Perf(event) => crowded_out(&mut pmu, event),
        _ => None,
    };
    let columns = Columns::arrange(choices(), &mut lacks).unwrap();
    assert!(columns.perf.is_empty());
    let absent = columns
        .unavailable
        .iter()
        .find(|one| one.name == "hw.cycles");
    assert!(absent.unwrap().reason.contains("hold all"));
    let named = select::select(&sources::all(), "hw.cycles").unwrap();
    let error = Columns::arrange(named, lacks).unwrap_err().to_string();
    assert!(
        error.contains("hw.cycles") && error.contains("hold all"),
        "{error}"
    );
}

#[test]
fn the_most_events_are_divided_without_too_many_questions() {
    for description in ALL {
        let all = hardware();
        let names = all.iter().map(|(name, _)| name.as_str());
        let names: Vec<&str> = names
            .filter(|name| description.has(name))
            .take(24)
            .collect();
        let mut pmu = Described::new(description, &["instructions"]);
        groups(&mut pmu, &names, usize::MAX);
        assert!(pmu.asked < 600, "{}: {}", description.name, pmu.asked);
    }
}

proptest! {
    /// Whatever the events and the counters that others hold: each event is in one group, all
    /// groups can be on, and there is no division into fewer groups.
    #[test]
    fn groups_can_be_on_and_are_as_few_as_can_be(
        machine in 0..ALL.len(),
        chosen in proptest::sample::subsequence((0..65).collect::<Vec<usize>>(), 0..9).prop_shuffle(),
        held in 0_usize..5,
        limit in prop_oneof![Just(usize::MAX), 1_usize..4],
    ) {
        let description = ALL[machine];
        let held = &["instructions", "cycles", "branches", "itlb_misses"][..held];
        let all = hardware();
        let names = chosen.iter().map(|event| all[*event].0.as_str());
        let alone = |name: &&str| description.schedules(&[&[*name], held].concat());
        let names: Vec<&str> = names.filter(alone).collect();
        let mut pmu = Described::new(description, held);
        let found = groups(&mut pmu, &names, limit);
        let (mut placed, mut wanted) = (found.concat(), names.clone());
        placed.sort_unstable();
        wanted.sort_unstable();
        prop_assert_eq!(placed, wanted);
        for group in &found {
            prop_assert!(group.len() <= limit);
            prop_assert!(description.schedules(&[&group[..], held].concat()), "{:?}", group);
        }
        prop_assert_eq!(found.len(), description.fewest(&names, held, limit));
    }
}
