//! The data that goes from the guest's CPU to the consumer thread.

use std::sync::mpsc::{Receiver, SyncSender};

use vtax_model::error::ModelError;
use vtax_model::model::address::Reference;
use vtax_model::step::{Operation, Step, StepSource};

/// Cycles per instruction without translation cost: an assumption, as for other traces.
const BASE_CPI: f32 = 1.0;

/// A part of the guest's run.
#[derive(Debug, Default)]
pub struct Batch {
    pub references: Vec<Reference>,
    /// The cuts between them, in order.
    pub cuts: Vec<Cut>,
    /// The intervals that end in it, in order.
    pub intervals: Vec<Interval>,
}

/// An interval of a sampled run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interval {
    pub recorded: bool,
    pub blocks: Vec<u64>,
}

/// What follows a cut.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum After {
    Operation(Operation),
    /// A phase begins.
    Phase(u32),
    /// The interval of this index in the batch ends.
    Interval(usize),
}

/// The end of a block of references.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cut {
    /// How many references of the batch lie before the cut.
    pub end: usize,
    /// Instructions since the previous cut.
    pub instructions: u64,
    pub after: Option<After>,
}

/// The guest's run as it comes in; it ends when the sender is gone.
pub struct FromGuest {
    batches: Receiver<Batch>,
    /// Where empty batches go back to be filled again.
    empty: SyncSender<Batch>,
    batch: Batch,
    cut: usize,
    begin: usize,
    /// What follows the previous cut and has not been given out yet.
    waiting: Option<After>,
}

impl FromGuest {
    /// Reads from `batches`; consumed batches go back through `empty`.
    pub fn new(batches: Receiver<Batch>, empty: SyncSender<Batch>) -> Self {
        Self {
            batches,
            empty,
            batch: Batch::default(),
            cut: 0,
            begin: 0,
            waiting: None,
        }
    }

    fn next_batch(&mut self) -> bool {
        let Ok(batch) = self.batches.recv() else {
            return false;
        };
        let mut done = std::mem::replace(&mut self.batch, batch);
        (self.cut, self.begin) = (0, 0);
        done.references.clear();
        done.cuts.clear();
        done.intervals.clear();
        if done.references.capacity() > 0 {
            // The channel is full or gone when the guest has ended.
            let _ = self.empty.try_send(done);
        }
        true
    }

    fn step_after(&self, after: After) -> Option<Step<'_>> {
        match after {
            After::Operation(operation) => Some(Step::Operation(operation)),
            After::Phase(phase) => Some(Step::Phase(phase)),
            After::Interval(at) => self.batch.intervals.get(at).map(|ended| Step::Interval {
                recorded: ended.recorded,
                blocks: &ended.blocks,
            }),
        }
    }
}

impl StepSource for FromGuest {
    fn next_step(&mut self) -> Result<Option<Step<'_>>, ModelError> {
        if let Some(after) = self.waiting.take() {
            return Ok(self.step_after(after));
        }
        while self.cut == self.batch.cuts.len() {
            if !self.next_batch() {
                return Ok(None);
            }
        }
        let cut = self.batch.cuts[self.cut];
        let references = &self.batch.references[self.begin..cut.end];
        (self.cut, self.begin) = (self.cut + 1, cut.end);
        if references.is_empty()
            && cut.instructions == 0
            && let Some(after) = cut.after
        {
            return Ok(self.step_after(after));
        }
        self.waiting = cut.after;
        Ok(Some(Step::References {
            references,
            instructions: cut.instructions,
            base_cpi: BASE_CPI,
        }))
    }
}
