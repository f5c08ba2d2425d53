//! What a run needs of which only some intervals are recorded.

use crate::api_unsafe::{Block, Counter};
use crate::batch::Interval;
use crate::options::Sampling;
use crate::schedule::Schedule;

/// Elements of a block vector. A block belongs to the element that its address hashes to: a random
/// projection, as that of `SimPoint` (ASPLOS 2002) from all its blocks to 15 dimensions.
const GROUPS: usize = 32;

pub struct Sampled {
    /// Instructions of an interval.
    pub length: u64,
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
            before: 0,
            schedule: Schedule::new(sampling.period),
            blocks: Counter::vector(),
        }
    }

    /// Counts the block each time it is executed. Counting by the block costs less than by the
    /// instruction; a block that a fault ends early counts whole.
    pub fn count(&self, block: &Block, instructions: Counter) {
        block.count(instructions, block.length());
        let hash = block.address().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let group = usize::try_from(hash).unwrap_or(0) % GROUPS;
        block.count(self.blocks[group], block.length());
    }

    /// The interval that ends now; its block vector begins anew.
    pub fn ended(&self) -> Interval {
        Interval {
            recorded: self.schedule.recorded(),
            blocks: self.blocks.map(Counter::take).to_vec(),
        }
    }
}
