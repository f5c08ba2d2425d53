//! The programs behind the published measurements, as far as the model knows them.

use vtax_model::error::ModelError;
use vtax_model::model::address::{Gva, PageSize};
use vtax_model::model::counters::{Counters, Exit};
use vtax_model::model::machine::Machine;
use vtax_model::step::Operation;

use crate::rig::{Both, PAGE, Rig, exits};

/// Timed repetitions, after the same number of untimed ones.
const REPETITIONS: u32 = 20;
const HEAP: u64 = 0x10_0000_0000;
const STACK: u64 = 0x20_0000_0000;
const LIBRARIES: u64 = 0x30_0000_0000;

/// The pages of a small C program like lmbench's. All are assumptions, of the order of what
/// `/proc/PID/smaps` and the fault counters of such a program show.
struct Program {
    /// Written pages: data, heap, stack. All are shared copy-on-write after a fork.
    written: u64,
    /// The part of them that the child writes before it exits, and that the parent writes after the
    /// fork.
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
    let mut rig = Rig::new(machine, isolation)?;
    let calls = Operation::SystemCalls { count: CALLS };
    rig.apply(calls)?;
    let time = rig.time_us(|rig| rig.apply(calls))?;
    Ok(time.per(CALLS))
}

/// Microseconds per page of a region that is touched for the first time, one fault per page.
pub fn page_fault(machine: &Machine, isolation: bool) -> Result<Both<f64>, ModelError> {
    const PAGES: u32 = 2048;
    let mut rig = Rig::new(machine, isolation)?;
    let bytes = u64::from(PAGES) * PAGE;
    let round = |rig: &mut Rig| {
        rig.apply(map(HEAP, bytes))?;
        rig.touch_pages(HEAP, u64::from(PAGES), false)?;
        rig.apply(unmap(HEAP, bytes))
    };
    round(&mut rig)?;
    rig.apply(map(HEAP, bytes))?;
    let time = rig.time_us(|rig| rig.touch_pages(HEAP, u64::from(PAGES), false))?;
    Ok(time.per(PAGES))
}

/// Microseconds per write that the tables forbid.
pub fn protection_fault(machine: &Machine, isolation: bool) -> Result<Both<f64>, ModelError> {
    let mut rig = Rig::new(machine, isolation)?;
    rig.apply(map(HEAP, PAGE))?;
    rig.touch(HEAP, true)?;
    rig.apply(Operation::Protect {
        start: Gva(HEAP),
        bytes: PAGE,
        writable: false,
    })?;
    let time = rig.time_us(|rig| (0..REPETITIONS).try_for_each(|_| rig.forbidden_write(HEAP)))?;
    Ok(time.per(REPETITIONS))
}

/// Microseconds of fork, exit of the child and wait.
pub fn fork(machine: &Machine, isolation: bool) -> Result<Both<f64>, ModelError> {
    repeated(machine, isolation, |rig, child| {
        rig.apply(Operation::Fork { child })?;
        rig.apply(Operation::Switch { process: child })?;
        run_forked(rig)?;
        rig.apply(Operation::Switch { process: 0 })?;
        rig.apply(Operation::Exit { process: child })?;
        rig.touch_pages(HEAP, PROGRAM.parent_writes, true)
    })
}

/// Microseconds of fork, exec of a small program, its exit, and wait.
pub fn exec(machine: &Machine, isolation: bool) -> Result<Both<f64>, ModelError> {
    repeated(machine, isolation, |rig, child| {
        fork_and_exec(rig, child, 0)
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
    let mut rig = Rig::new(machine, isolation)?;
    start(&mut rig)?;
    let before = rig.counters();
    (1..=PROCESSES).try_for_each(|child| fork_and_exec(&mut rig, 2 * child, calls))?;
    let after = rig.counters();
    Ok(Both {
        nested: after.nested - before.nested,
        shadow: after.shadow - before.shadow,
    })
}

/// Exits that Intel processors report as exceptions: all page faults that the VMM takes.
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

    /// What shadow paging costs beyond nested paging.
    pub fn extra(self) -> f64 {
        self.shadow - self.nested
    }
}

fn repeated(
    machine: &Machine,
    isolation: bool,
    mut round: impl FnMut(&mut Rig, u32) -> Result<(), ModelError>,
) -> Result<Both<f64>, ModelError> {
    let mut rig = Rig::new(machine, isolation)?;
    start(&mut rig)?;
    (1..=REPETITIONS).try_for_each(|child| round(&mut rig, 2 * child))?;
    let time = rig.time_us(|rig| {
        (REPETITIONS + 1..=2 * REPETITIONS).try_for_each(|child| round(rig, 2 * child))
    })?;
    Ok(time.per(REPETITIONS))
}

/// The parent before its first fork.
fn start(rig: &mut Rig) -> Result<(), ModelError> {
    rig.apply(map(HEAP, PROGRAM.written * PAGE))?;
    rig.apply(map(STACK, 4 * PAGE))?;
    rig.touch_pages(HEAP, PROGRAM.written, true)?;
    rig.touch_pages(STACK, 4, true)
}

fn run_forked(rig: &mut Rig) -> Result<(), ModelError> {
    rig.touch_pages(STACK, 4, true)?;
    rig.touch_pages(HEAP, PROGRAM.child_writes, true)?;
    rig.apply(map(LIBRARIES, PROGRAM.forked_file_faults * PAGE))?;
    rig.touch_pages(LIBRARIES, PROGRAM.forked_file_faults, false)
}

/// `child` is the process that forks off, `child` + 1 the address space that exec gives it.
fn fork_and_exec(rig: &mut Rig, child: u32, calls: u32) -> Result<(), ModelError> {
    rig.apply(Operation::Fork { child })?;
    rig.apply(Operation::Switch { process: child })?;
    run_forked(rig)?;
    let executed = child + 1;
    rig.apply(Operation::Spawn { process: executed })?;
    rig.apply(Operation::Switch { process: executed })?;
    rig.apply(Operation::Exit { process: child })?;
    run_executed(rig, calls)?;
    rig.apply(Operation::Switch { process: 0 })?;
    rig.apply(Operation::Exit { process: executed })?;
    rig.touch_pages(HEAP, PROGRAM.parent_writes, true)
}

fn run_executed(rig: &mut Rig, calls: u32) -> Result<(), ModelError> {
    rig.apply(map(STACK, 8 * PAGE))?;
    rig.touch_pages(STACK, 4, true)?;
    rig.apply(map(HEAP, PROGRAM.written * PAGE))?;
    let pages = PROGRAM.executed_file_faults / PROGRAM.maps;
    for library in 0..PROGRAM.maps {
        let start = LIBRARIES + library * 0x10_0000;
        rig.apply(map(start, pages * PAGE))?;
        rig.touch_pages(start, pages, library % 2 == 0)?;
        if library < PROGRAM.protects {
            rig.apply(Operation::Protect {
                start: Gva(start),
                bytes: pages * PAGE,
                writable: false,
            })?;
        }
        call(rig, calls * small(pages))?;
    }
    rig.touch_pages(HEAP, PROGRAM.written, true)?;
    call(rig, calls * small(PROGRAM.written))
}

fn call(rig: &mut Rig, count: u32) -> Result<(), ModelError> {
    rig.apply(Operation::SystemCalls { count })
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
