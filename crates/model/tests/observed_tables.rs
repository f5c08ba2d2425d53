//! What stock KVM does with a real guest's tables, worked out by hand: fills for pages that the guest
//! only executes, the prefetch of their neighbours, and frames of freed tables.

#![allow(clippy::unwrap_used)] // these are tests, although not marked one by one

use std::ops::ControlFlow;

use vtax_model::error::ModelError;
use vtax_model::limits::Limits;
use vtax_model::model::address::{Gfn, Gva, PageSize};
use vtax_model::model::counters::{Counters, Exit};
use vtax_model::model::host_pages::HostPages;
use vtax_model::presets;
use vtax_model::simulation::{Choice, Setup, simulate};
use vtax_model::step::{Operation, Step, StepSource, TableEntry};

const START: u64 = 0x4000_0000;
const ROOT: u64 = 1;

struct Operations(std::vec::IntoIter<Operation>);

impl StepSource for Operations {
    fn next_step(&mut self) -> Result<Option<Step<'_>>, ModelError> {
        Ok(self.0.next().map(Step::Operation))
    }

    fn limits(&self) -> Limits {
        Limits::TRACE
    }
}

fn entry(table: u64, index: u64, frame: u64, old: bool) -> Operation {
    Operation::Entry {
        table: Gfn(table),
        index: u16::try_from(index).unwrap(),
        entry: TableEntry {
            frame: Gfn(frame),
            present: true,
            writable: true,
            dirty: true,
            large: false,
            old,
        },
        written: false,
    }
}

/// Tables in frames 1 to 4 that map the pages from START on, and a load of their root. Pages in
/// `old` are not accessed yet, those in `absent` not there.
fn tables(pages: u64, old: &[u64], absent: &[u64]) -> Vec<Operation> {
    let mut operations = Vec::new();
    for (frame, level) in (ROOT..=4).zip((1..=4).rev()) {
        operations.push(Operation::Table {
            frame: Gfn(frame),
            level,
            start: Gva(if level > 2 { 0 } else { START }),
        });
    }
    for (table, index) in [(1, 0), (2, START >> 30), (3, 0)] {
        operations.push(entry(table, index, table + 1, false));
    }
    let mapped = (0..pages).filter(|page| !absent.contains(page));
    operations.extend(mapped.map(|page| entry(4, page, 100 + page, old.contains(&page))));
    operations.push(Operation::LoadCr3 {
        root: Gfn(ROOT),
        preserve: false,
    });
    operations
}

fn fetch(page: u64) -> Operation {
    Operation::Fetch {
        address: Gva(START + (page << 12) + 0x123),
    }
}

fn run(operations: Vec<Operation>) -> [Counters; 2] {
    let setup = Setup {
        host_pages: HostPages::of(PageSize::K4),
        ..Setup::new(presets::by_name("zen4").unwrap())
    };
    let choices = ["shadow", "nested"].map(|name| {
        let choice = Choice::by_name(name, None, &setup).unwrap();
        (name.to_owned(), choice)
    });
    let mut source = Operations(operations.into_iter());
    let mut go_on = |_| ControlFlow::Continue(());
    let outcome = simulate(&mut source, &setup, choices.into(), &mut go_on).unwrap();
    [0, 1].map(|at| outcome.modes[at].totals)
}

fn exits(counters: &Counters, exit: Exit) -> u32 {
    (0..1000)
        .find(|&count| (counters.exits[exit as usize] - f64::from(count)).abs() < 0.5)
        .unwrap()
}

#[test]
fn an_executed_page_is_filled_with_its_neighbours_up_to_the_first_that_cannot_be() {
    // 0 takes 1 and 2 along; the others of this block have the absent page 3 before them. 8 takes
    // none along, because 9 is not accessed, and neither does 10. Then 9 is accessed and takes 11
    // to 15 along.
    let filled = [0, 4, 6, 5, 7, 8, 10, 9];
    let along = [1, 2, 11, 15];
    let mut operations = tables(16, &[5, 9], &[3]);
    operations.extend(filled.iter().chain(&along).map(|&page| fetch(page)));
    operations.extend([fetch(0), fetch(9), fetch(3)]);
    let [shadow, nested] = run(operations);
    assert_eq!(exits(&shadow, Exit::ShadowFill), 8);
    assert_eq!(exits(&nested, Exit::NestedFault), 12);
    for counters in [shadow, nested] {
        assert!(counters.l1_tlb_misses == 0.0 && counters.references == 0.0);
    }
}

#[test]
fn the_next_use_of_a_freed_tables_frame_exits_once() {
    let mut operations = tables(8, &[], &[]);
    operations.extend([fetch(0)]);
    // First the leaf table, which goes out of step, then the one above it.
    operations.extend([4, 3].map(|table| Operation::FreeTable { table: Gfn(table) }));
    let [shadow, nested] = run(operations);
    assert_eq!(exits(&shadow, Exit::Unsync), 1);
    assert_eq!(exits(&shadow, Exit::Unprotect), 1);
    assert_eq!(exits(&shadow, Exit::TableWrite), 0);
    assert_eq!(exits(&nested, Exit::NestedFault), 1);
}
