use super::*;
use crate::model::address::TableFormat;
use crate::model::guest::{Guest, GuestSetup};

const TEXT: &str = r#"
    name = "test"
    title = "every kind of change"
    basis = "made up"
    repeat = 2
    [[phase]]
    name = "one"
    instructions = 3e5
    base_cpi = 1.0
    references_per_instruction = 0.4
    footprint = "1M"
    mix = { sequential = 0.3, stride = 64, random = 0.2, zipf = 0.2, exponent = 0.9 }
    [phase.changes]
    allocations = 50
    allocation_pages = 20
    lifetime = 3
    protects = 20
    protect_pages = 10
    forks = 20
    fork_writes = 4
    switches = 100
    processes = 3
    system_calls = 500
    other_exits = 20
    [[phase]]
    name = "two"
    new_process = true
    instructions = 2e5
    base_cpi = 1.0
    references_per_instruction = 0.0
    footprint = "2M"
    mix = {}
"#;

fn run(text: &str, seed: u64) -> (f64, Vec<String>) {
    let workload = Workload::parse(text).unwrap();
    let mut source = Synthetic::new(&workload, Part::Whole, seed).unwrap();
    let mut guest = Guest::new(GuestSetup {
        tables: TableFormat::Two,
        memory_bytes: 64 << 20,
        isolation: false,
        pcid: false,
        map_on_touch: None,
        fault_cycles: 1,
        system_call_cycles: 1,
        switch_cycles: 1,
    })
    .unwrap();
    let (mut instructions, mut log, mut events) = (0.0, Vec::new(), Vec::new());
    while let Some(step) = source.next_step().unwrap() {
        match step {
            Step::References {
                references,
                instructions: count,
                ..
            } => {
                instructions += count as f64;
                for reference in references {
                    let (at, write) = (reference.address(), reference.write());
                    if guest.translate(at, write).is_err() {
                        guest.handle_fault(at, write, &mut events).unwrap();
                    }
                }
            }
            Step::Operation(operation) => {
                guest.apply(&operation, &mut events).unwrap();
                log.push(format!("{operation:?}"));
            }
            Step::Phase(phase) => log.push(format!("phase {phase}")),
            Step::Interval { .. } => panic!("a synthetic workload has no intervals"),
        }
    }
    (instructions, log)
}

#[test]
fn a_guest_can_follow_every_kind_of_change() {
    let (instructions, log) = run(TEXT, 1);
    assert!((1.0e6..1.1e6).contains(&instructions), "{instructions}");
    assert_eq!(
        log.iter()
            .filter(|entry| entry.starts_with("phase"))
            .count(),
        4
    );
    for kind in [
        "Spawn",
        "Map",
        "Unmap",
        "Protect",
        "Fork",
        "Exit",
        "Switch",
        "SystemCalls",
    ] {
        assert!(log.iter().any(|entry| entry.starts_with(kind)), "{kind}");
    }
}

#[test]
fn the_seed_decides_everything() {
    assert_eq!(run(TEXT, 5), run(TEXT, 5));
}

#[test]
fn mistakes_are_named_by_field() {
    let cases = [
        (
            "instructions = 3e5",
            "instructions = -1",
            "phase[0].instructions: ",
        ),
        ("random = 0.2", "random = 0.9", "phase[0].mix: "),
        ("stride = 64", "stride = 0", "phase[0].mix.stride: "),
        ("name = \"two\"", "name = \"one\"", "phase[1].name: "),
        (
            "processes = 3",
            "processes = 0",
            "phase[0].changes.processes: ",
        ),
        ("repeat = 2", "repeat = 0", "repeat: "),
        ("repeat = 2", "schedule = [\"three\"]", "schedule[0]: "),
        (
            "footprint = \"1M\"",
            "footprint = \"1Mx\"",
            "phase[0].footprint: ",
        ),
        ("mix = {}", "mix = {", "line "),
    ];
    for (from, to, start) in cases {
        let error = Workload::parse(&TEXT.replacen(from, to, 1))
            .unwrap_err()
            .to_string();
        assert!(error.starts_with(start), "{to}: {error}");
        assert!(!error.contains('\n'));
    }
}
