//! The steps of a synthetic workload.

use std::collections::VecDeque;

use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::changes::{Calendar, Due};
use super::layout::{self, FOOTPRINT, HOT, HOT_BYTES};
use super::references::References;
use super::{Phase, Workload};
use crate::error::ModelError;
use crate::model::address::{Gva, PAGE_SHIFT, Reference};
use crate::step::{Operation, Step, StepSource};

/// The most references in one block.
const BLOCK: usize = 2048;
/// The first process; the guest makes it.
const FIRST: u32 = 0;

/// Which part of a workload to produce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Every phase in order, to the end.
    Whole,
    /// Enter one phase (by index) and stay in it for ever.
    Phase(usize),
}

/// A process of the workload: the part of the footprint that it has, and its live allocations.
#[derive(Clone, Debug, Default)]
struct Process {
    number: u32,
    mapped: u64,
    /// The first byte and the length of each allocation, oldest first.
    live: VecDeque<(Gva, u64)>,
}

impl Process {
    fn new(number: u32) -> Self {
        Self {
            number,
            ..Self::default()
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Pending {
    Operation(Operation),
    /// Write to each page of a range.
    Touch {
        start: Gva,
        pages: u64,
    },
}

/// Produces the steps of a [`Workload`]; the same seed gives the same steps.
#[derive(Debug)]
pub struct Synthetic {
    workload: Workload,
    order: VecDeque<usize>,
    endless: bool,
    random: Xoshiro256PlusPlus,
    pending: VecDeque<Pending>,
    block: Vec<Reference>,
    phase: Option<Current>,
    processes: Vec<Process>,
    next_process: u32,
    allocations_at: u64,
}

#[derive(Debug)]
struct Current {
    index: usize,
    references: References,
    calendar: Calendar,
    /// Instructions of the steady part so far.
    steady: f64,
    left: f64,
    entering: bool,
}

impl Synthetic {
    /// The steps of `workload`: all of them, or those of one phase.
    ///
    /// Fails, naming the field, when the workload is invalid or has no such phase.
    pub fn new(workload: &Workload, part: Part, seed: u64) -> Result<Self, ModelError> {
        workload.check()?;
        let order: VecDeque<usize> = match part {
            Part::Whole => workload.order().into(),
            Part::Phase(index) if index < workload.phase.len() => [index].into(),
            Part::Phase(index) => {
                return Err(ModelError::field(
                    "phase",
                    format!("there is no phase {index}"),
                ));
            }
        };
        let largest = workload
            .phase
            .iter()
            .map(|phase| phase.footprint.0)
            .max()
            .unwrap_or(0);
        Ok(Self {
            allocations_at: layout::allocations(largest),
            workload: workload.clone(),
            order,
            endless: part != Part::Whole,
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            pending: VecDeque::new(),
            block: Vec::with_capacity(BLOCK),
            phase: None,
            processes: vec![Process::new(FIRST)],
            next_process: FIRST + 1,
        })
    }

    /// Is the phase still being entered, that is, its memory mapped and touched?
    pub fn entering(&self) -> bool {
        self.phase.as_ref().is_none_or(|current| current.entering)
    }

    /// The footprint's first byte and length in the current phase.
    pub fn footprint(&self) -> (Gva, u64) {
        let bytes = self
            .phase
            .as_ref()
            .map_or(0, |at| self.workload.phase[at.index].footprint.0);
        (FOOTPRINT, bytes)
    }

    fn enter(&mut self, index: usize) {
        let phase = self.workload.phase[index].clone();
        if phase.new_process {
            self.replace_processes();
        }
        let wanted = if phase.changes.switches > 0.0 {
            phase.changes.processes as usize
        } else {
            1
        };
        while self.processes.len() < wanted {
            let number = self.fresh_number();
            self.operation(Operation::Spawn { process: number });
            self.processes.push(Process::new(number));
        }
        let several = self.processes.len() > 1;
        for at in (0..self.processes.len()).rev() {
            if several {
                self.operation(Operation::Switch {
                    process: self.processes[at].number,
                });
            }
            for (start, bytes) in std::mem::take(&mut self.processes[at].live) {
                self.operation(Operation::Unmap { start, bytes });
            }
            if at < wanted {
                self.populate(at, &phase);
            }
        }
        self.phase = Some(Current {
            index,
            references: References::new(&phase),
            calendar: Calendar::new(&phase.changes),
            steady: 0.0,
            left: phase.instructions,
            entering: true,
        });
    }

    /// A new program: its process replaces the earlier ones.
    fn replace_processes(&mut self) {
        let number = self.fresh_number();
        self.operation(Operation::Spawn { process: number });
        self.operation(Operation::Switch { process: number });
        for old in std::mem::replace(&mut self.processes, vec![Process::new(number)]) {
            self.operation(Operation::Exit {
                process: old.number,
            });
        }
    }

    /// Maps what the process lacks of the phase's memory, and touches it once.
    fn populate(&mut self, at: usize, phase: &Phase) {
        let size = self.workload.pages;
        let had = self.processes[at].mapped;
        if had == 0 {
            let bytes = layout::whole_pages(HOT_BYTES, size);
            self.operation(Operation::Map {
                start: HOT,
                bytes,
                size,
            });
            self.touch(HOT, HOT_BYTES >> PAGE_SHIFT);
        }
        let wanted = layout::whole_pages(phase.footprint.0, size);
        if wanted > had {
            let start = Gva(FOOTPRINT.0 + had);
            self.operation(Operation::Map {
                start,
                bytes: wanted - had,
                size,
            });
            self.touch(start, (wanted - had) >> PAGE_SHIFT);
            self.processes[at].mapped = wanted;
        }
    }

    fn fresh_number(&mut self) -> u32 {
        self.next_process += 1;
        self.next_process - 1
    }

    fn operation(&mut self, operation: Operation) {
        self.pending.push_back(Pending::Operation(operation));
    }

    fn touch(&mut self, start: Gva, pages: u64) {
        self.pending.push_back(Pending::Touch { start, pages });
    }

    fn do_due(&mut self, due: Due) {
        let Some(index) = self.phase.as_ref().map(|current| current.index) else {
            return;
        };
        let changes = self.workload.phase[index].changes;
        match due {
            Due::Allocation => self.allocate(changes.allocation_pages, changes.lifetime),
            Due::Protect => self.protect(u64::from(changes.protect_pages) << PAGE_SHIFT),
            Due::Fork => self.fork(u64::from(changes.fork_writes)),
            Due::Switch => {
                self.processes.rotate_left(1);
                self.operation(Operation::Switch {
                    process: self.processes[0].number,
                });
            }
            Due::SystemCall => self.operation(Operation::SystemCalls { count: 1 }),
            Due::OtherExit => self.operation(Operation::OtherExits { count: 1 }),
        }
    }

    fn allocate(&mut self, pages: u32, lifetime: u32) {
        let size = self.workload.pages;
        let bytes = layout::whole_pages(u64::from(pages) << PAGE_SHIFT, size);
        let live = &mut self.processes[0].live;
        let oldest = if live.len() >= lifetime as usize {
            live.pop_front()
        } else {
            None
        };
        let next = Gva(self.allocations_at + live.len() as u64 * bytes);
        let start = oldest.map_or(next, |(start, _)| start);
        live.push_back((start, bytes));
        if oldest.is_some() {
            self.operation(Operation::Unmap { start, bytes });
        }
        self.operation(Operation::Map { start, bytes, size });
        self.touch(start, bytes >> PAGE_SHIFT);
    }

    fn protect(&mut self, bytes: u64) {
        let bytes = layout::whole_pages(bytes, self.workload.pages).min(self.processes[0].mapped);
        for writable in [false, true] {
            self.operation(Operation::Protect {
                start: FOOTPRINT,
                bytes,
                writable,
            });
        }
    }

    fn fork(&mut self, writes: u64) {
        let child = self.fresh_number();
        let (parent, mapped) = (self.processes[0].number, self.processes[0].mapped);
        self.operation(Operation::Fork { child });
        self.operation(Operation::Switch { process: child });
        self.touch(FOOTPRINT, writes.min(mapped >> PAGE_SHIFT));
        self.operation(Operation::Switch { process: parent });
        self.operation(Operation::Exit { process: child });
    }

    /// A block of writes, one per page; the rest of the range stays pending.
    fn touch_step(&mut self, start: Gva, pages: u64) -> Step<'_> {
        let now = pages.min(BLOCK as u64);
        if pages > now {
            let start = Gva(start.0 + (now << PAGE_SHIFT));
            self.pending.push_front(Pending::Touch {
                start,
                pages: pages - now,
            });
        }
        self.block.clear();
        self.block
            .extend((0..now).map(|page| Reference::new(Gva(start.0 + (page << PAGE_SHIFT)), true)));
        self.block_step(now as f64)
    }

    /// Returns the block as a step; the number of instructions follows from the phase's rate of
    /// references.
    fn block_step(&mut self, references: f64) -> Step<'_> {
        let Some(current) = self.phase.as_mut() else {
            return Step::References {
                references: &[],
                instructions: 0,
                base_cpi: 1.0,
            };
        };
        let phase = &self.workload.phase[current.index];
        let rate = phase.references_per_instruction.max(0.05);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a few thousand
        let instructions = (references / rate).ceil() as u64;
        current.left -= instructions as f64;
        if !current.entering {
            current.steady += instructions as f64;
        }
        let base_cpi = phase.base_cpi;
        Step::References {
            references: &self.block,
            instructions,
            base_cpi,
        }
    }

    /// References in the phase's own pattern, up to the next occurrence of anything.
    fn steady_step(&mut self) -> Step<'_> {
        let Some(current) = self.phase.as_mut() else {
            return self.block_step(0.0);
        };
        current.entering = false;
        let phase = &self.workload.phase[current.index];
        let rate = phase.references_per_instruction;
        let room = (current.calendar.next() - current.steady).max(1.0);
        let room = if self.endless {
            room
        } else {
            room.min(current.left.max(1.0))
        };
        self.block.clear();
        if rate == 0.0 {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // at most 4,096
            let instructions = room.min(2.0 * BLOCK as f64).ceil() as u64;
            current.left -= instructions as f64;
            current.steady += instructions as f64;
            return Step::References {
                references: &[],
                instructions,
                base_cpi: phase.base_cpi,
            };
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // 1 to BLOCK
        let count = (room * rate).ceil().clamp(1.0, BLOCK as f64) as usize;
        current
            .references
            .fill(&mut self.block, count, &mut self.random);
        self.block_step(count as f64)
    }
}

impl StepSource for Synthetic {
    fn next_step(&mut self) -> Result<Option<Step<'_>>, ModelError> {
        loop {
            match self.pending.pop_front() {
                Some(Pending::Operation(operation)) => {
                    return Ok(Some(Step::Operation(operation)));
                }
                Some(Pending::Touch { start, pages }) if pages > 0 => {
                    return Ok(Some(self.touch_step(start, pages)));
                }
                Some(Pending::Touch { .. }) => continue,
                None => {}
            }
            let over = self
                .phase
                .as_ref()
                .is_none_or(|at| !self.endless && at.left <= 0.0);
            if over {
                let Some(index) = self.order.pop_front() else {
                    return Ok(None);
                };
                self.enter(index);
                return Ok(Some(Step::Phase(u32::try_from(index).unwrap_or(u32::MAX))));
            }
            let due = self
                .phase
                .as_mut()
                .and_then(|at| at.calendar.take(at.steady));
            match due {
                Some(due) => self.do_due(due),
                None => return Ok(Some(self.steady_step())),
            }
        }
    }
}

#[cfg(test)]
mod tests;
