//! Workloads that ask for much in few steps: the answer is a result or one clear error, soon; and
//! an event repeated by a count gives the same result as single events.

#![allow(clippy::unwrap_used)] // these are tests, although not marked one by one

use std::ops::ControlFlow;

use proptest::prelude::*;
use vtax_model::error::ModelError;
use vtax_model::limits::Limits;
use vtax_model::model::address::{Gfn, Gva, PageSize, Reference, TableFormat};
use vtax_model::model::counters::Exit;
use vtax_model::model::shadow::ShadowStyle;
use vtax_model::presets;
use vtax_model::simulation::{Choice, Outcome, Setup, simulate};
use vtax_model::step::{Operation, Step, StepSource, TableEntry};

#[derive(Clone, Debug)]
enum Owned {
    Block(Vec<Reference>, u64),
    Operation(Operation),
}

/// Steps like those of a trace.
struct Steps<I>(I, Option<Owned>);

impl<I: Iterator<Item = Owned> + Send> StepSource for Steps<I> {
    fn next_step(&mut self) -> Result<Option<Step<'_>>, ModelError> {
        self.1 = self.0.next();
        Ok(self.1.as_ref().map(|step| match step {
            Owned::Block(references, instructions) => Step::References {
                references,
                instructions: *instructions,
                base_cpi: 1.0,
            },
            Owned::Operation(operation) => Step::Operation(*operation),
        }))
    }

    fn limits(&self) -> Limits {
        Limits::TRACE
    }
}

fn setup(machine: &str) -> Setup {
    Setup {
        map_on_touch: true,
        window_instructions: 10_000,
        ..Setup::new(presets::by_name(machine).unwrap())
    }
}

fn run(
    setup: &Setup,
    names: &[&str],
    steps: impl IntoIterator<Item = Owned, IntoIter: Send>,
) -> Result<Outcome, ModelError> {
    let choice = |name: &&str| {
        let choice = Choice::by_name(name, None, setup).unwrap();
        ((*name).to_owned(), choice)
    };
    let choices = names.iter().map(choice).collect();
    let mut source = Steps(steps.into_iter(), None);
    simulate(&mut source, setup, choices, &mut |_| {
        ControlFlow::Continue(())
    })
}

const MODES: [&str; 4] = ["native", "shadow", "nested", "agile"];
const POLICIES: [&str; 4] = ["dav2m", "vtax", "naive", "oracle"];

fn refused(steps: impl IntoIterator<Item = Owned, IntoIter: Send>) -> String {
    run(&setup("zen4"), &MODES, steps).unwrap_err().to_string()
}

fn touch(address: u64, write: bool) -> Reference {
    Reference::new(Gva(address), write)
}

/// References to every page of a range, in blocks.
fn pages(start: u64, count: u64) -> impl Iterator<Item = Owned> + Send {
    (0..count).step_by(4096).map(move |first| {
        let block = first..count.min(first + 4096);
        let references = block
            .map(|page| touch(start + (page << 12), true))
            .collect();
        Owned::Block(references, 0)
    })
}

fn table(frame: u64, level: u8, start: u64) -> Owned {
    Owned::Operation(Operation::Table {
        frame: Gfn(frame),
        level,
        start: Gva(start),
    })
}

fn entry(table: u64, index: u16, frame: u64) -> Owned {
    let entry = TableEntry {
        frame: Gfn(frame),
        present: true,
        writable: true,
        ..TableEntry::default()
    };
    Owned::Operation(Operation::Entry {
        table: Gfn(table),
        index,
        entry,
        written: true,
    })
}

#[test]
fn a_count_gives_what_as_many_single_events_give() {
    let tables = [TableFormat::Two, TableFormat::Four, TableFormat::Five];
    for (machine, isolation, guest_tables, shadow) in [
        ("opteron2350", false, tables[1], ShadowStyle::KVM),
        ("opteron2350", true, tables[0], ShadowStyle::Palacios),
        ("zen4", true, tables[1], ShadowStyle::KVM),
        ("zen4", true, tables[2], ShadowStyle::Palacios),
    ] {
        let setup = Setup {
            isolation,
            guest_tables,
            shadow,
            ..setup(machine)
        };
        for once in [
            Operation::SystemCalls { count: 1 },
            Operation::OtherExits { count: 1 },
        ] {
            let at_once = match once {
                Operation::SystemCalls { .. } => Operation::SystemCalls { count: 1000 },
                _ => Operation::OtherExits { count: 1000 },
            };
            let around = |middle: Vec<Operation>| {
                let mut steps: Vec<_> = pages(1 << 20, 700).collect();
                let spawn = Operation::Spawn { process: 1 };
                steps.extend([spawn, Operation::Switch { process: 1 }].map(Owned::Operation));
                steps.extend(pages(1 << 20, 30));
                steps.extend(middle.into_iter().map(Owned::Operation));
                steps.extend(pages(1 << 20, 60));
                steps.push(Owned::Block(Vec::new(), 5000));
                run(&setup, &MODES, steps).unwrap()
            };
            let (one, many) = (around(vec![at_once]), around(vec![once; 1000]));
            assert_eq!(one, many, "{machine} {isolation} {once:?}");
        }
    }
}

#[test]
fn four_billion_events_are_counted_and_take_no_time() {
    let count = u32::MAX;
    let names = [&MODES[..], &POLICIES[..]].concat();
    let setup = Setup {
        isolation: true,
        ..setup("opteron2350")
    };
    let steps = [
        Operation::SystemCalls { count },
        Operation::OtherExits { count },
    ]
    .map(Owned::Operation)
    .into_iter()
    .chain([Owned::Block(Vec::new(), 1)]);
    let outcome = run(&setup, &names, steps).unwrap();
    for mode in &outcome.modes[1..4] {
        let exits = mode.totals.exits[Exit::Other as usize];
        assert!(
            (exits - f64::from(count)).abs() < 0.5,
            "{}: {exits}",
            mode.name
        );
    }
    // Two loads of CR3 for each call.
    let loads = outcome.modes[1].totals.exits[Exit::LoadCr3 as usize];
    assert!((loads - 2.0 * f64::from(count)).abs() < 0.5, "{loads}");
}

#[test]
fn the_limits_are_named() {
    let spawn = |process| Owned::Operation(Operation::Spawn { process });
    let text = refused((1..150_000).map(spawn));
    assert!(text.contains("more than 16384 processes at once"), "{text}");

    let tables = (1..200_000).map(|frame| table(frame, 1, 0));
    let text = refused(tables);
    assert!(
        text.contains("more than 65536 page tables at once"),
        "{text}"
    );

    let map = |at: u32| {
        Owned::Operation(Operation::Map {
            start: Gva(u64::from(at) << 13),
            bytes: 4096,
            size: PageSize::K4,
        })
    };
    let text = refused((0..1_100_000_u32).map(map));
    assert!(text.contains("more than 1048576 ranges mapped"), "{text}");

    let blocks = (0..200_000).map(|_| Owned::Block(Vec::new(), 10_000));
    let text = refused(blocks);
    assert!(text.contains("choose a longer window"), "{text}");
}

#[test]
fn tables_in_high_frames_take_no_room_for_those_below() {
    let setup = Setup {
        memory_bytes: 1 << 40,
        ..setup("zen4")
    };
    let steps = (1..100).map(|at| table(at * ((1 << 28) / 100), 1, 0));
    run(&setup, &["native"], steps).unwrap();
}

#[test]
fn gaps_before_aligned_pages_take_no_room() {
    let setup = Setup {
        memory_bytes: 1 << 40,
        ..setup("zen4")
    };
    let map = |at: u64, size: PageSize| {
        Owned::Operation(Operation::Map {
            start: Gva(at),
            bytes: 512 << 30,
            size,
        })
    };
    let (small, large) = (1 << 40, 1 << 41);
    let touched = (0..400).flat_map(|at| {
        [
            touch(small + (at << 21), true),
            touch(large + (at << 30), true),
        ]
    });
    let steps = [map(small, PageSize::M2), map(large, PageSize::G1)];
    let steps = steps
        .into_iter()
        .chain([Owned::Block(touched.collect(), 1)]);
    run(&setup, &["native"], steps).unwrap();
}

#[test]
fn work_that_the_length_does_not_pay_for_is_refused() {
    let many = 1 << 18;
    let protect = |writable| {
        Owned::Operation(Operation::Protect {
            start: Gva(0),
            bytes: many << 12,
            writable,
        })
    };
    let again = (0..100_000).map(|turn| protect(turn % 2 == 1));
    let text = refused(pages(0, many).chain(again));
    assert!(text.contains("more work than its length allows"), "{text}");
}

#[test]
fn one_operation_on_too_many_pages_is_refused() {
    let setup = Setup {
        memory_bytes: 1 << 40,
        ..setup("zen4")
    };
    let many = (1 << 21) + 1;
    let fork = Owned::Operation(Operation::Fork { child: 1 });
    let error = run(&setup, &["native"], pages(0, many).chain([fork])).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("more than 2097152 pages in one operation"),
        "{text}"
    );
}

#[test]
fn observed_tables_that_lead_to_themselves_end() {
    let mut steps = vec![table(4, 4, 0), table(3, 3, 0), table(2, 2, 0)];
    for index in 0..512 {
        steps.extend([entry(4, index, 4), entry(4, index, 3), entry(3, index, 3)]);
        steps.extend([entry(3, index, 2), entry(2, index, 4), entry(2, index, 2)]);
    }
    steps.push(Owned::Operation(Operation::LoadCr3 {
        root: Gfn(4),
        preserve: false,
    }));
    for turn in 0..1000 {
        steps.push(Owned::Block(vec![touch(turn << 21, false)], 2_000_000));
        steps.extend([entry(4, 1, 4), entry(4, 1, 4), entry(2, 1, 4)]);
    }
    for names in [&MODES[..], &POLICIES[..]] {
        // The simulation ends; whether the trace's tables allow the references does not matter
        // here.
        let _ = run(&setup("zen4"), names, steps.clone());
    }
}

/// Small numbers, numbers at the edges, and any numbers.
fn number(most: u64) -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0..most.min(9),
        1 => Just(most),
        1 => (0..64_u32).prop_map(move |bits| (1 << bits).min(most)),
        1 => 0..=most,
    ]
}

fn address() -> impl Strategy<Value = Gva> {
    let aligned = |at: u64| Gva(at & !0xfff);
    prop_oneof![
        4 => (0..64_u64).prop_map(|page| Gva(page << 12)),
        2 => (0..600_u64).prop_map(|page| Gva(page << 21)),
        1 => number(u64::MAX).prop_map(aligned),
        1 => any::<u64>().prop_map(Gva),
    ]
}

fn small() -> impl Strategy<Value = u32> {
    number(u32::MAX.into()).prop_map(|number| u32::try_from(number).unwrap())
}

fn frame() -> impl Strategy<Value = Gfn> {
    number((1 << 30) - 1).prop_map(Gfn)
}

fn size() -> impl Strategy<Value = PageSize> {
    prop::sample::select(PageSize::ALL.to_vec())
}

fn bytes() -> impl Strategy<Value = u64> {
    prop_oneof![
        number(u64::MAX).prop_map(|at| at & !0xfff),
        number(1 << 20).prop_map(|at| at << 21)
    ]
}

fn asked() -> impl Strategy<Value = Operation> {
    prop_oneof![
        small().prop_map(|process| Operation::Spawn { process }),
        (address(), bytes(), size()).prop_map(|(start, bytes, size)| Operation::Map {
            start,
            bytes,
            size
        }),
        (address(), bytes()).prop_map(|(start, bytes)| Operation::Unmap { start, bytes }),
        (address(), bytes(), any::<bool>()).prop_map(|(start, bytes, writable)| {
            Operation::Protect {
                start,
                bytes,
                writable,
            }
        }),
        small().prop_map(|child| Operation::Fork { child }),
        small().prop_map(|process| Operation::Exit { process }),
        small().prop_map(|process| Operation::Switch { process }),
        small().prop_map(|count| Operation::SystemCalls { count }),
        small().prop_map(|count| Operation::OtherExits { count }),
    ]
}

fn observed() -> impl Strategy<Value = Operation> {
    let table = (frame(), 1..6_u8, address());
    let bits = any::<[bool; 6]>();
    let entry = (frame(), number(1023), bits, frame());
    prop_oneof![
        1 => table.prop_map(|(frame, level, start)| Operation::Table { frame, level, start }),
        4 => entry.prop_map(|(table, index, [present, writable, dirty, large, old, written], frame)| {
            let index = u16::try_from(index).unwrap();
            let entry = TableEntry { frame, present, writable, dirty, large, old };
            Operation::Entry { table, index, entry, written }
        }),
        1 => frame().prop_map(|table| Operation::FreeTable { table }),
        1 => (frame(), any::<bool>()).prop_map(|(root, preserve)| Operation::LoadCr3 { root, preserve }),
        1 => address().prop_map(|address| Operation::Invlpg { address }),
        1 => address().prop_map(|address| Operation::Fault { address }),
        1 => address().prop_map(|address| Operation::Fetch { address }),
        1 => small().prop_map(|count| Operation::OtherExits { count }),
    ]
}

fn block() -> impl Strategy<Value = Owned> {
    let reference = (address(), any::<bool>()).prop_map(|(at, write)| Reference::new(at, write));
    (prop::collection::vec(reference, 0..20), number(1 << 40))
        .prop_map(|(references, instructions)| Owned::Block(references, instructions))
}

/// Steps of one kind of trace; operations that the state does not allow end it.
fn steps() -> impl Strategy<Value = Vec<Owned>> {
    let of = |operation: BoxedStrategy<Operation>| {
        prop::collection::vec(
            prop_oneof![operation.prop_map(Owned::Operation), block()],
            1..40,
        )
    };
    // A root and the tables below it, so that observed references are translated.
    let root = [
        table(4, 4, 0),
        table(3, 3, 0),
        table(2, 2, 0),
        table(1, 1, 0),
    ];
    let links = [
        entry(4, 0, 3),
        entry(3, 0, 2),
        entry(2, 0, 1),
        entry(1, 0, 9),
    ];
    let load = Owned::Operation(Operation::LoadCr3 {
        root: Gfn(4),
        preserve: true,
    });
    let begin: Vec<_> = root.into_iter().chain(links).chain([load]).collect();
    prop_oneof![
        of(asked().boxed()),
        of(observed().boxed()).prop_map(move |steps| begin.iter().cloned().chain(steps).collect()),
    ]
}

proptest! {
    #[test]
    fn any_steps_give_a_result_or_one_line(
        steps in steps(),
        isolation: bool,
        memory in prop::sample::select(vec![1_u64 << 20, 1 << 32, 1 << 40]),
        guest_tables in prop::sample::select(vec![TableFormat::Two, TableFormat::Four, TableFormat::Five]),
        map_on_touch: bool,
        palacios: bool,
    ) {
        let setup = Setup {
            isolation,
            memory_bytes: memory,
            guest_tables,
            map_on_touch,
            shadow: if palacios { ShadowStyle::Palacios } else { ShadowStyle::KVM },
            ..setup("zen4")
        };
        let names = [&MODES[..], &POLICIES[..]].concat();
        if let Err(error) = run(&setup, &names, steps) {
            let text = error.to_string();
            prop_assert!(!text.contains('\n') && text.len() < 300, "{}", text);
        }
    }
}
