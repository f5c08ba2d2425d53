//! Charges exits: keeps counts and cycles together.

use crate::model::counters::{Counters, Exit};
use crate::model::machine::Costs;

/// What one access or event costs a core; exits and cycles go to its counters at once.
pub struct CostAccount<'a> {
    counters: &'a mut Counters,
    costs: &'a Costs,
    exits: u32,
}

impl<'a> CostAccount<'a> {
    pub fn new(counters: &'a mut Counters, costs: &'a Costs) -> Self {
        Self {
            counters,
            costs,
            exits: 0,
        }
    }

    pub fn costs(&self) -> &'a Costs {
        self.costs
    }

    /// Charges one exit with `work` cycles of the VMM on top of leaving and entering.
    pub fn exit(&mut self, cause: Exit, work: u32) {
        self.charge(cause, work, false);
    }

    /// Charges an exit for filling an entry that a switch of modes had thrown away.
    pub fn refill(&mut self, cause: Exit, work: u32) {
        self.charge(cause, work, true);
    }

    /// Charges work of the VMM within an exit that is charged already.
    pub fn work(&mut self, cycles: u64) {
        self.counters.cycles.exits += cycles as f64;
    }

    /// Counts shadow pages thrown away because of writes to their guest tables.
    pub fn flooded(&mut self, pages: u64) {
        self.counters.flooded += pages as f64;
    }

    /// Exits charged so far: with an untagged TLB each of them emptied it.
    pub fn exits(&self) -> u32 {
        self.exits
    }

    fn charge(&mut self, cause: Exit, work: u32, refill: bool) {
        self.exits += 1;
        self.counters.exits[cause as usize] += 1.0;
        let cycles = f64::from(self.costs.exit) + f64::from(work);
        if refill {
            self.counters.cycles.refill += cycles;
        } else {
            self.counters.cycles.exits += cycles;
        }
    }
}
