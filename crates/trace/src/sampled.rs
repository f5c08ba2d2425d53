//! What a run needs of which only some intervals are recorded.

use crate::api_unsafe::{Block, Counter, Instruction};
use crate::batch::Interval;
use crate::decode::repeated_string;
use crate::options::Sampling;
use crate::schedule::Schedule;

/// Elements of a block vector. A block belongs to the element that its address hashes to: a random
/// projection, as that of `SimPoint` (ASPLOS 2002) from all its blocks to 15 dimensions.
const GROUPS: usize = 32;

pub struct Sampled {
    /// Work of an interval.
    pub length: u64,
    /// Instructions of the current interval, and iterations of its repeated string instructions:
    /// one such instruction can sweep over all of memory.
    pub work: Counter,
    /// Instructions in intervals that have ended; the counter begins anew in each.
    pub before: u64,
    pub schedule: Schedule,
    blocks: [Counter; GROUPS],
}

impl Sampled {
    /// Called while the plugin is installed.
    pub fn new(sampling: Sampling) -> Self {
        Self {
            length: sampling.interval,
            work: Counter::new(),
            before: 0,
            schedule: Schedule::new(sampling.period),
            blocks: Counter::vector(),
        }
    }

    /// Counts the block each time it is executed. Counting by the block costs less than by the
    /// instruction; a block that a fault ends early counts whole.
    pub fn count(&self, block: &Block, instructions: Counter) {
        let hash = block.address().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let group = self.blocks[usize::try_from(hash).unwrap_or(0) % GROUPS];
        for counter in [instructions, self.work, group] {
            block.count(counter, block.length());
        }
        for instruction in block.instructions() {
            if let Some(stores) = repeats(&instruction) {
                instruction.count_memory(self.work, stores);
                instruction.count_memory(group, stores);
            }
        }
    }

    /// The interval that ends now; its block vector begins anew.
    pub fn ended(&self) -> Interval {
        self.work.take();
        Interval {
            recorded: self.schedule.recorded(),
            blocks: self.blocks.map(Counter::take).to_vec(),
        }
    }
}

fn repeats(instruction: &Instruction) -> Option<bool> {
    repeated_string(instruction.bytes(&mut [0; 16]))
}
