//! Collects what the callbacks see.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use vtax_model::model::address::{Gva, Reference};
use vtax_model::step::Operation;
use vtax_model::traces::BLOCK_REFERENCES;

use crate::batch::{After, Batch, Cut, FromGuest, Interval};

/// References in a batch: half a megabyte.
const BATCH_REFERENCES: usize = 16 * BLOCK_REFERENCES;
/// The most cuts in a batch.
const BATCH_CUTS: usize = 4096;
/// Batches in transit: how far the guest may be ahead of the consumer.
const BATCHES: usize = 16;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Loads and stores.
    pub references: u64,
    /// Instructions between begin and end.
    pub instructions: u64,
    pub operations: u64,
    /// Intervals of a sampled run, and how many of them were recorded.
    pub intervals: u64,
    pub recorded_intervals: u64,
}

/// Collects references and operations and sends them on in batches.
pub struct Recorder {
    batch: Batch,
    /// The number of references at which the block is cut.
    limit: usize,
    /// Where the current block begins.
    begin: usize,
    counted: u64,
    phase: u32,
    totals: Totals,
    to: SyncSender<Batch>,
    empty: Receiver<Batch>,
}

impl Recorder {
    /// A recorder whose instruction counter stands at `counted`, and the receiving end of what it
    /// records.
    pub fn new(counted: u64) -> (Self, FromGuest) {
        let (to, batches) = sync_channel(BATCHES);
        let (back, empty) = sync_channel(BATCHES);
        let recorder = Self {
            batch: fresh(),
            limit: BLOCK_REFERENCES,
            begin: 0,
            counted,
            phase: 0,
            totals: Totals::default(),
            to,
            empty,
        };
        (recorder, FromGuest::new(batches, back))
    }

    /// Records a load or a store; returns whether [`Self::cut`] is due.
    #[inline]
    pub fn reference(&mut self, address: u64, write: bool) -> bool {
        self.batch
            .references
            .push(Reference::new(Gva(address), write));
        self.batch.references.len() >= self.limit
    }

    /// Ends the block; the instruction counter stands at `counted`.
    pub fn cut(&mut self, counted: u64) {
        self.end_block(counted, None);
    }

    /// Records an operation after everything recorded so far.
    pub fn operation(&mut self, operation: Operation, counted: u64) {
        self.totals.operations += 1;
        self.end_block(counted, Some(After::Operation(operation)));
    }

    /// Begins the next phase; the first is 0.
    pub fn next_phase(&mut self, counted: u64) {
        self.phase += 1;
        self.end_block(counted, Some(After::Phase(self.phase)));
    }

    /// Ends an interval of a sampled run.
    pub fn interval(&mut self, interval: Interval, counted: u64) {
        self.totals.intervals += 1;
        self.totals.recorded_intervals += u64::from(interval.recorded);
        let at = self.batch.intervals.len();
        self.batch.intervals.push(interval);
        self.end_block(counted, Some(After::Interval(at)));
    }

    /// Sends what is left; after that the consumer ends.
    pub fn finish(mut self, counted: u64) -> Totals {
        self.end_block(counted, None);
        self.send();
        self.totals
    }

    fn end_block(&mut self, counted: u64, after: Option<After>) {
        let end = self.batch.references.len();
        let instructions = counted.saturating_sub(self.counted);
        self.totals.references += (end - self.begin) as u64;
        self.totals.instructions += instructions;
        self.counted = counted;
        self.batch.cuts.push(Cut {
            end,
            instructions,
            after,
        });
        self.begin = end;
        if end + BLOCK_REFERENCES > BATCH_REFERENCES || self.batch.cuts.len() >= BATCH_CUTS {
            self.send();
        }
        self.limit = self.batch.references.len() + BLOCK_REFERENCES;
    }

    fn send(&mut self) {
        let next = self.empty.try_recv().unwrap_or_else(|_| fresh());
        let full = std::mem::replace(&mut self.batch, next);
        // A consumer that failed has reported it; later batches are lost.
        let _ = self.to.send(full);
        self.begin = 0;
    }
}

fn fresh() -> Batch {
    Batch {
        references: Vec::with_capacity(BATCH_REFERENCES),
        cuts: Vec::with_capacity(BATCH_CUTS),
        intervals: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use vtax_model::step::{Step, StepSource};

    use super::*;

    #[test]
    fn everything_arrives_in_order() {
        let (mut recorder, mut guest) = Recorder::new(10);
        let consumer = thread::spawn(move || {
            let (mut addresses, mut instructions, mut faults) = (Vec::new(), 0, Vec::new());
            while let Some(step) = guest.next_step().unwrap() {
                match step {
                    Step::References {
                        references,
                        instructions: count,
                        ..
                    } => {
                        assert!(references.len() <= BLOCK_REFERENCES);
                        addresses.extend(references.iter().map(|each| each.address().0));
                        instructions += count;
                    }
                    Step::Operation(Operation::Fault { address }) => {
                        faults.push((addresses.len() as u64, address.0));
                    }
                    other => panic!("{other:?}"),
                }
            }
            (addresses, instructions, faults)
        });
        let count = 3 * BATCH_REFERENCES as u64 + 5;
        for i in 0..count {
            if recorder.reference(8 * i, false) {
                recorder.cut(10 + 2 * i);
            }
            if i % 10_000 == 0 {
                let address = Gva(i);
                recorder.operation(Operation::Fault { address }, 10 + 2 * i);
            }
        }
        let totals = recorder.finish(10 + 2 * count);
        let (addresses, instructions, faults) = consumer.join().unwrap();
        assert!(addresses.iter().copied().eq((0..count).map(|i| 8 * i)));
        assert_eq!(instructions, 2 * count);
        assert!(faults.iter().all(|&(before, i)| before == i + 1));
        assert_eq!(
            totals,
            Totals {
                references: count,
                instructions: 2 * count,
                operations: faults.len() as u64,
                ..Totals::default()
            }
        );
    }

    #[test]
    fn operations_alone_are_sent_too() {
        let (mut recorder, mut guest) = Recorder::new(0);
        let consumer = thread::spawn(move || {
            let mut count = 0;
            while let Some(step) = guest.next_step().unwrap() {
                count += u64::from(matches!(step, Step::Operation(_)));
            }
            count
        });
        for _ in 0..3 * BATCH_CUTS {
            recorder.operation(Operation::Invlpg { address: Gva(0) }, 0);
        }
        recorder.finish(0);
        assert_eq!(consumer.join().unwrap(), 3 * BATCH_CUTS as u64);
    }
}
