//! Descriptions of machines: what is refused, and that nothing makes the reader panic.

use proptest::prelude::*;

use vtax_model::model::machine::Machine;
use vtax_model::presets;

/// A preset with `old`, which must be there, replaced by `new`.
fn changed(name: &str, old: &str, new: &str) -> String {
    let text = presets::description(name).expect("a preset");
    assert!(text.contains(old), "{name} has no {old:?}");
    text.replacen(old, new, 1)
}

fn error_of(text: &str) -> String {
    let error = Machine::parse(text).expect_err("an impossible machine");
    let message = error.to_string();
    assert_eq!(message.lines().count(), 1, "{message}");
    message
}

/// The refusal of the Opteron's description with this change.
fn refusal(old: &str, new: &str) -> String {
    error_of(&changed("opteron2350", old, new))
}

#[test]
fn impossible_tlbs_are_refused_by_field() {
    let entries = "entries = 48\nways = 48";
    let cases = [
        (entries, "entries = 48\nways = 0", "tlb.l1[0].ways: "),
        (entries, "entries = 0\nways = 48", "tlb.l1[0].entries: "),
        (entries, "entries = 48\nways = 16", "tlb.l1[0].entries: "),
        (entries, "entries = 48\nways = 96", "tlb.l1[0].entries: "),
        (
            entries,
            "entries = 2097152\nways = 4",
            "tlb.l1[0].entries: ",
        ),
        (
            entries,
            "entries = 48\nways = 48\nreplacement = \"tree-plru\"",
            "tlb.l1[0].ways: tree pseudo-LRU",
        ),
        (
            r#"pages = ["4K", "2M", "1G"]"#,
            "pages = []",
            "tlb.l1[0].pages: ",
        ),
        (
            r#"pages = ["4K", "2M", "1G"]"#,
            r#"pages = ["2M"]"#,
            "tlb.l1: no array holds 4K",
        ),
        (
            r#"pages = ["4K", "2M", "1G"]"#,
            r#"pages = ["4K", "4K"]"#,
            "tlb.l1: 4K pages are held twice",
        ),
        (
            r#"pages = ["2M"]"#,
            r#"pages = ["4K"]"#,
            "tlb.l2: 4K pages are held twice",
        ),
    ];
    for (old, new, expected) in cases {
        let message = refusal(old, new);
        assert!(message.starts_with(expected), "{new}: {message}");
    }
}

#[test]
fn impossible_walk_caches_are_refused_by_field() {
    let levels = "levels = [2, 3, 4]\nentries = 24";
    let cases = [
        (levels, "levels = [1, 2]\nentries = 24", "levels: "),
        (levels, "levels = [6]\nentries = 24", "levels: "),
        (levels, "levels = []\nentries = 24", "levels: "),
        (
            levels,
            "levels = [2, 2]\nentries = 24",
            "levels: level 2 is held twice",
        ),
        (levels, "levels = [2]\nentries = 0", "entries: "),
        (levels, "levels = [2]\nentries = 25", "entries: "),
    ];
    for (old, new, expected) in cases {
        let message = refusal(old, new);
        let expected = format!("walk.page_walk[0].{expected}");
        assert!(message.starts_with(&expected), "{new}: {message}");
    }
    let message = refusal("[walk.nested_tlb]\n", "[walk.nested_tlb]\nlevels = [2]\n");
    assert!(message.starts_with("walk.nested_tlb.levels: "), "{message}");
    let twice = changed("xeon8269cy", "levels = [3]", "levels = [2]");
    let message = error_of(&twice);
    assert!(
        message.starts_with("walk.page_walk[1].levels: level 2 is held twice"),
        "{message}"
    );
}

#[test]
fn impossible_caches_are_refused_by_field() {
    let cases = [
        ("bytes = 524288", "bytes = 524289", "caches[0].bytes: "),
        ("bytes = 524288", "bytes = 0", "caches[0].bytes: "),
        ("bytes = 524288", "bytes = 786432", "caches[0].bytes: "),
        (
            "bytes = 524288",
            "bytes = 17179869184",
            "caches[0].bytes: must be at most",
        ),
        ("line = 64", "line = 1048576", "caches[0].line: "),
        ("line = 64", "line = 48", "caches[0].line: "),
        ("line = 64", "line = 0", "caches[0].line: "),
        ("ways = 16\nline", "ways = 0\nline", "caches[0].ways: "),
        ("ways = 16\nline", "ways = 65\nline", "caches[0].ways: "),
        ("pte_ways = 4", "pte_ways = 0", "caches[0].pte_ways: "),
        ("pte_ways = 4", "pte_ways = 17", "caches[0].pte_ways: "),
        ("latency = 46", "latency = 11", "caches[1].latency: "),
        (
            "memory_latency = 170",
            "memory_latency = 45",
            "memory_latency: ",
        ),
    ];
    for (old, new, expected) in cases {
        let message = refusal(old, new);
        assert!(message.starts_with(expected), "{new}: {message}");
    }
    let level = "\n[[caches]]\nbytes = 2097152\nways = 32\nline = 64\nlatency = 60\npte_ways = 8\n";
    let five = changed(
        "opteron2350",
        "[costs]\n",
        &format!("{}[costs]\n", level.repeat(3)),
    );
    assert!(error_of(&five).starts_with("caches: at most four"));
}

#[test]
fn impossible_clocks_and_costs_are_refused_by_field() {
    for clock in ["nan", "inf", "-2.0e9", "0.0", "1e300"] {
        let message = refusal("clock_hz = 2.0e9", &format!("clock_hz = {clock}"));
        assert!(message.starts_with("clock_hz: "), "{clock}: {message}");
    }
    for cost in ["nan", "-1", "1.5", "4294967296", "\"much\"", "true"] {
        let message = refusal("exit = 2000", &format!("exit = {cost}"));
        assert!(message.starts_with("costs.exit: "), "{cost}: {message}");
    }
}

#[test]
fn wrong_types_and_names_are_refused_by_field() {
    let cases = [
        ("tagged = false", "tagged = 0", "tlb.tagged: "),
        (
            "tagged = false",
            "tagged = false\ntaged = true",
            "tlb.taged: ",
        ),
        ("tagged = false\n", "", "tlb: missing field `tagged`"),
        ("zap = 2000\n", "", "costs: missing field `zap`"),
        (
            "pages = [\"2M\"]",
            "pages = [\"3M\"]",
            "tlb.l2[1].pages[0]: ",
        ),
        (
            "host_tables = \"4\"",
            "host_tables = \"6\"",
            "host_tables: ",
        ),
        ("name = \"opteron2350\"", "name = \" \"", "name: "),
        ("[costs]", "[cost]", "cost: unknown field"),
    ];
    for (old, new, expected) in cases {
        let message = refusal(old, new);
        assert!(message.starts_with(expected), "{new}: {message}");
    }
}

#[test]
fn text_that_is_no_description_is_refused_by_line() {
    assert!(error_of("name = ").starts_with("line 1: "));
    assert!(error_of("\n\n[tlb\n").starts_with("line 3: "));
    assert!(error_of("").contains("missing field"));
    assert!(error_of("\u{0}").starts_with("line 1: "));
}

/// One change of a text: a range of its bytes replaced.
#[derive(Clone, Debug)]
struct Change {
    at: usize,
    length: usize,
    with: String,
}

fn change() -> impl Strategy<Value = Change> {
    let with = prop_oneof![
        Just(String::new()),
        "[0-9]{1,20}",
        "[-+.e0-9]{1,6}",
        "[\\[\\]{}=\",#\n ]{1,4}",
        any::<char>().prop_map(String::from),
        prop_oneof![
            Just("nan"),
            Just("4294967295"),
            Just("18446744073709551615"),
            Just("= 0\n"),
            Just("[[caches]]\n"),
            Just("[[tlb.l1]]\n"),
        ]
        .prop_map(String::from),
    ];
    (any::<usize>(), 0_usize..12, with).prop_map(|(at, length, with)| Change { at, length, with })
}

fn apply(text: &mut String, change: &Change) {
    let boundary = |text: &str, mut at: usize| {
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        at
    };
    let start = boundary(text, change.at % (text.len() + 1));
    let end = boundary(text, (start + change.length).min(text.len())).max(start);
    text.replace_range(start..end, &change.with);
}

/// The numbers of the description, each as a byte range.
fn numbers(text: &str) -> Vec<std::ops::Range<usize>> {
    let end = text.find("[sources]").unwrap_or(text.len());
    let bytes = &text.as_bytes()[..end];
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let length = bytes[at..]
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        if length > 0 {
            found.push(at..at + length);
        }
        at += length.max(1);
    }
    found
}

proptest! {
    #[test]
    fn no_change_of_a_description_makes_the_reader_panic(
        preset in 0..presets::names().len(),
        changes in prop::collection::vec(change(), 1..6),
    ) {
        let mut text = presets::description(presets::names()[preset]).unwrap().to_owned();
        for change in &changes {
            apply(&mut text, change);
        }
        if let Err(error) = Machine::parse(&text) {
            prop_assert_eq!(error.to_string().lines().count(), 1);
        }
    }

    #[test]
    fn any_text_is_read_or_refused_in_one_line(text in "\\PC{0,200}") {
        let error = Machine::parse(&text).unwrap_err();
        prop_assert_eq!(error.to_string().lines().count(), 1);
    }

    /// Whatever number is put anywhere, a machine that passes the checks can be indexed and
    /// allocated.
    #[test]
    fn a_machine_that_passes_has_sane_sets(
        preset in 0..presets::names().len(),
        choice in any::<usize>(),
        number in prop_oneof![0..130_u64, any::<u32>().prop_map(u64::from), any::<u64>()],
        shift in 0..64_u32,
    ) {
        let mut text = presets::description(presets::names()[preset]).unwrap().to_owned();
        let numbers = numbers(&text);
        let range = numbers[choice % numbers.len()].clone();
        text.replace_range(range, &(number >> shift).to_string());
        if let Ok(machine) = Machine::parse(&text) {
            for array in machine.tlb.l1.iter().chain(&machine.tlb.l2) {
                prop_assert!((array.entries / array.ways).is_power_of_two());
            }
            for level in &machine.caches {
                prop_assert!(level.sets().is_power_of_two());
                prop_assert!(level.sets() * u64::from(level.pte_ways) <= 1 << 24);
            }
            prop_assert!(machine.clock_hz.is_finite());
        }
    }
}
