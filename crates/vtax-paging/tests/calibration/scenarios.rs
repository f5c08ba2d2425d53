//! The programs behind the published measurements, as far as the model knows them.

use vtax_paging::error::ModelError;
use vtax_paging::model::address::{Gva, PageSize};
use vtax_paging::model::counters::{Counters, Exit};
use vtax_paging::model::machine::Machine;
use vtax_paging::step::Operation;

use crate::bench::{Bench, Both, PAGE, exits};

/// Repetitions that are timed, after as many that are not.
const REPETITIONS: u32 = 20;
const HEAP: u64 = 0x10_0000_0000;
const STACK: u64 = 0x20_0000_0000;
const LIBRARIES: u64 = 0x30_0000_0000;

/// The pages of a small C program like lmbench's. All are assumptions, of the order of what
/// `/proc/PID/smaps` and the fault counters of such a program show.
struct Program {
    /// Written pages: data, heap, stack. All are shared copy-on-write after a fork.
    written: u64,
    /// Of those, what the child writes before it exits, and the parent after the fork.
    child_writes: u64,
    parent_writes: u64,
    /// Faults in files (text, libraries) of a process that has just been forked or executed: the
    /// kernel does not copy these entries.
    forked_file_faults: u64,
    executed_file_faults: u64,
    /// Calls of the dynamic linker that change the address space.
    maps: u64,
    protects: u64,
}

const PROGRAM: Program = Program {
    written: 60,
    child_writes: 25,
    parent_writes: 20,
    forked_file_faults: 20,
    executed_file_faults: 60,
    maps: 20,
    protects: 8,
};

/// Microseconds per system call.
pub fn null_call(machine: &Machine, isolation: bool) -> Result<Both<f64>, ModelError> {
    const CALLS: u32 = 1000;
    let mut bench = Bench::new(machine, isolation)?;
    let calls = Operation::SystemCalls { count: CALLS };
    bench.apply(calls)?;
    let time = bench.time_us(|bench| bench.apply(calls))?;
    Ok(time.per(CALLS))
}

/// Microseconds per page of a region that is touched for the first time, one fault per page.
pub fn page_fault(machine: &Machine, isolation: bool) -> Result<Both<f64>, ModelError> {
    const PAGES: u32 = 2048;
    let mut bench = Bench::new(machine, isolation)?;
    let bytes = u64::from(PAGES) * PAGE;
    let round = |bench: &mut Bench| {
        bench.apply(map(HEAP, bytes))?;
        bench.touch_pages(HEAP, u64::from(PAGES), false)?;
        bench.apply(unmap(HEAP, bytes))
    };
    round(&mut bench)?;
    bench.apply(map(HEAP, bytes))?;
    let time = bench.time_us(|bench| bench.touch_pages(HEAP, u64::from(PAGES), false))?;
    Ok(time.per(PAGES))
}

/// Microseconds per write that the tables forbid.
pub fn protection_fault(machine: &Machine, isolation: bool) -> Result<Both<f64>, ModelError> {
    let mut bench = Bench::new(machine, isolation)?;
    bench.apply(map(HEAP, PAGE))?;
    bench.touch(HEAP, true)?;
    bench.apply(Operation::Protect {
        start: Gva(HEAP),
        bytes: PAGE,
        writable: false,
    })?;
    let time =
        bench.time_us(|bench| (0..REPETITIONS).try_for_each(|_| bench.forbidden_write(HEAP)))?;
    Ok(time.per(REPETITIONS))
}

/// Microseconds of fork, exit of the child and wait.
pub fn fork(machine: &Machine, isolation: bool) -> Result<Both<f64>, ModelError> {
    repeated(machine, isolation, |bench, child| {
        bench.apply(Operation::Fork { child })?;
        bench.apply(Operation::Switch { process: child })?;
        run_forked(bench)?;
        bench.apply(Operation::Switch { process: 0 })?;
        bench.apply(Operation::Exit { process: child })?;
        bench.touch_pages(HEAP, PROGRAM.parent_writes, true)
    })
}

/// Microseconds of fork, exec of a small program, its exit and wait.
pub fn exec(machine: &Machine, isolation: bool) -> Result<Both<f64>, ModelError> {
    repeated(machine, isolation, |bench, child| {
        fork_and_exec(bench, child, 0)
    })
}

/// Microseconds of a program run by a shell: two forks and execs.
pub fn shell(machine: &Machine, isolation: bool) -> Result<Both<f64>, ModelError> {
    Ok(exec(machine, isolation)?.times(2))
}

/// The exits of a boot: processes are forked and executed one after the other, each with `calls`
/// system calls for each of its page faults.
pub fn boot(machine: &Machine, isolation: bool, calls: u32) -> Result<Both<Counters>, ModelError> {
    const PROCESSES: u32 = 50;
    let mut bench = Bench::new(machine, isolation)?;
    start(&mut bench)?;
    let before = bench.counters();
    (1..=PROCESSES).try_for_each(|child| fork_and_exec(&mut bench, 2 * child, calls))?;
    let after = bench.counters();
    Ok(Both {
        nested: after.nested - before.nested,
        shadow: after.shadow - before.shadow,
    })
}

/// Exits that Intel's processors report as exceptions: all page faults that the VMM takes.
pub fn exceptions(counters: &Counters) -> f64 {
    let causes = [
        Exit::ShadowFill,
        Exit::ShadowDirty,
        Exit::GuestFault,
        Exit::TableWrite,
        Exit::Unsync,
    ];
    causes.into_iter().map(|cause| exits(counters, cause)).sum()
}

impl Both<f64> {
    fn per(self, count: u32) -> Self {
        Self {
            nested: self.nested / f64::from(count),
            shadow: self.shadow / f64::from(count),
        }
    }

    fn times(self, count: u32) -> Self {
        Self {
            nested: self.nested * f64::from(count),
            shadow: self.shadow * f64::from(count),
        }
    }

    /// What shadow paging takes beyond nested paging.
    pub fn extra(self) -> f64 {
        self.shadow - self.nested
    }
}

fn repeated(
    machine: &Machine,
    isolation: bool,
    mut round: impl FnMut(&mut Bench, u32) -> Result<(), ModelError>,
) -> Result<Both<f64>, ModelError> {
    let mut bench = Bench::new(machine, isolation)?;
    start(&mut bench)?;
    (1..=REPETITIONS).try_for_each(|child| round(&mut bench, 2 * child))?;
    let time = bench.time_us(|bench| {
        (REPETITIONS + 1..=2 * REPETITIONS).try_for_each(|child| round(bench, 2 * child))
    })?;
    Ok(time.per(REPETITIONS))
}

/// The parent before its first fork.
fn start(bench: &mut Bench) -> Result<(), ModelError> {
    bench.apply(map(HEAP, PROGRAM.written * PAGE))?;
    bench.apply(map(STACK, 4 * PAGE))?;
    bench.touch_pages(HEAP, PROGRAM.written, true)?;
    bench.touch_pages(STACK, 4, true)
}

fn run_forked(bench: &mut Bench) -> Result<(), ModelError> {
    bench.touch_pages(STACK, 4, true)?;
    bench.touch_pages(HEAP, PROGRAM.child_writes, true)?;
    bench.apply(map(LIBRARIES, PROGRAM.forked_file_faults * PAGE))?;
    bench.touch_pages(LIBRARIES, PROGRAM.forked_file_faults, false)
}

/// `child` is the process that forks off, `child` + 1 the address space that exec gives it.
fn fork_and_exec(bench: &mut Bench, child: u32, calls: u32) -> Result<(), ModelError> {
    bench.apply(Operation::Fork { child })?;
    bench.apply(Operation::Switch { process: child })?;
    run_forked(bench)?;
    let executed = child + 1;
    bench.apply(Operation::Spawn { process: executed })?;
    bench.apply(Operation::Switch { process: executed })?;
    bench.apply(Operation::Exit { process: child })?;
    run_executed(bench, calls)?;
    bench.apply(Operation::Switch { process: 0 })?;
    bench.apply(Operation::Exit { process: executed })?;
    bench.touch_pages(HEAP, PROGRAM.parent_writes, true)
}

fn run_executed(bench: &mut Bench, calls: u32) -> Result<(), ModelError> {
    bench.apply(map(STACK, 8 * PAGE))?;
    bench.touch_pages(STACK, 4, true)?;
    bench.apply(map(HEAP, PROGRAM.written * PAGE))?;
    let pages = PROGRAM.executed_file_faults / PROGRAM.maps;
    for library in 0..PROGRAM.maps {
        let start = LIBRARIES + library * 0x10_0000;
        bench.apply(map(start, pages * PAGE))?;
        bench.touch_pages(start, pages, library % 2 == 0)?;
        if library < PROGRAM.protects {
            bench.apply(Operation::Protect {
                start: Gva(start),
                bytes: pages * PAGE,
                writable: false,
            })?;
        }
        call(bench, calls * small(pages))?;
    }
    bench.touch_pages(HEAP, PROGRAM.written, true)?;
    call(bench, calls * small(PROGRAM.written))
}

fn call(bench: &mut Bench, count: u32) -> Result<(), ModelError> {
    bench.apply(Operation::SystemCalls { count })
}

fn small(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn map(start: u64, bytes: u64) -> Operation {
    Operation::Map {
        start: Gva(start),
        bytes,
        size: PageSize::K4,
    }
}

fn unmap(start: u64, bytes: u64) -> Operation {
    Operation::Unmap {
        start: Gva(start),
        bytes,
    }
}
