//! The data that goes from the guest's CPU to the consumer thread.

use std::sync::mpsc::{Receiver, SyncSender};

use vtax_model::error::ModelError;
use vtax_model::model::address::Reference;
use vtax_model::step::{Step, StepSource};

/// Cycles per instruction without translation cost: an assumption, as for other traces.
const BASE_CPI: f32 = 1.0;

/// A part of the guest's run.
#[derive(Debug, Default)]
pub struct Batch {
    pub references: Vec<Reference>,
    /// The cuts between them, in order.
    pub cuts: Vec<Cut>,
}

/// The end of a block of references.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cut {
    /// How many references of the batch lie before the cut.
    pub end: usize,
    /// Instructions since the previous cut.
    pub instructions: u64,
    /// The operation or the phase that follows.
    pub then: Option<Step<'static>>,
}

/// The guest's run as it comes in; it ends when the sender is gone.
pub struct FromGuest {
    batches: Receiver<Batch>,
    /// Where empty batches go back to be filled again.
    empty: SyncSender<Batch>,
    batch: Batch,
    cut: usize,
    begin: usize,
    /// The step after the previous cut, which has not been given out yet.
    waiting: Option<Step<'static>>,
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
        if done.references.capacity() > 0 {
            // The channel is full or gone when the guest has ended.
            let _ = self.empty.try_send(done);
        }
        true
    }
}

impl StepSource for FromGuest {
    fn next_step(&mut self) -> Result<Option<Step<'_>>, ModelError> {
        if let Some(step) = self.waiting.take() {
            return Ok(Some(step));
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
            && let Some(step) = cut.then
        {
            return Ok(Some(step));
        }
        self.waiting = cut.then;
        Ok(Some(Step::References {
            references,
            instructions: cut.instructions,
            base_cpi: BASE_CPI,
        }))
    }
}
