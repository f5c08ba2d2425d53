//! Handles many references at once: what [`Core::access`] does for each, stage by stage.
//!
//! Under native and nested paging nothing that a walk does changes what the TLBs find for a later
//! reference, so the whole block goes through the TLBs first and the misses are walked after it:
//! each stage works on few tables, and the processor overlaps independent work. The one exception
//! is an exit that empties an untagged TLB, at the first touch of a host page. Under shadow paging
//! any miss can exit, and each reference is finished before the next.

use super::Core;
use super::tlb::Found;
use crate::model::guest::{Block, GuestTables};
use crate::model::guest_event::{Access, Seen, Translated};
use crate::model::mode::Translating;

/// References that missed the TLBs, with their positions in the block.
pub(super) type Missed = Vec<(Seen, usize)>;

impl Core {
    /// [`Self::access_all`] for the references of a block.
    pub fn follow_block(&mut self, block: &Block, tables: &GuestTables) {
        if self.is_staged() {
            self.access_staged(block);
            self.data.serve();
        } else {
            self.access_all(block.accesses(), tables);
        }
    }

    /// Follows these references of the guest, which does nothing else between them.
    ///
    /// The counts are the same as after calling [`Core::access`] for each reference in turn.
    pub fn access_all(&mut self, block: &[Access], tables: &GuestTables) {
        if self.is_staged() {
            self.access_staged(block);
        } else {
            for access in block {
                self.reach(access.address, &access.found, access.write, tables);
            }
        }
        self.data.serve();
    }

    fn is_staged(&self) -> bool {
        matches!(self.translating, Translating::Native | Translating::Nested)
    }

    fn access_staged(&mut self, block: &(impl Translated + ?Sized)) {
        // An exit empties the TLB in which a later reference of the block would be looked up.
        let exits_empty = self.translating == Translating::Nested && !self.machine.tlb.tagged;
        let space = self.spaces.current();
        let mut missed = std::mem::take(&mut self.missed);
        for (seen, at) in block.seen().zip(0..) {
            let size = self.size_of_entry(seen.address, seen.frame, seen.size);
            match self.tlb.look_up(seen.address, size, space, seen.write) {
                Found::First => continue,
                Found::Second => {
                    self.tally.second_tlb_hits += 1;
                    continue;
                }
                Found::Missed => self.tally.tlb_misses += 1,
            }
            if self.walks {
                if exits_empty && !self.is_mapped(block, &seen, at) {
                    self.walk_missed(block, &mut missed);
                    self.walk_staged(block, &seen, at);
                } else {
                    missed.push((seen, at));
                }
            }
            self.pieces |= size.shift() < self.guest_spans[seen.size as usize];
            self.tlb.insert(seen.address, size, space, seen.writable);
        }
        self.walk_missed(block, &mut missed);
        self.missed = missed;
    }

    /// Walks for these references of the block, in order.
    fn walk_missed(&mut self, block: &(impl Translated + ?Sized), missed: &mut Missed) {
        for (seen, at) in missed.drain(..) {
            self.walk_staged(block, &seen, at);
        }
    }

    #[inline]
    fn walk_staged(&mut self, block: &(impl Translated + ?Sized), seen: &Seen, at: usize) {
        let Some((tables, depth)) = block.tables(at) else {
            return;
        };
        if self.translating == Translating::Native {
            self.walk_native(seen.address, tables, depth);
        } else {
            let data = self.data_in(seen.address, seen.frame, seen.size);
            self.walk_nested(seen.address, tables, depth, data);
        }
    }

    /// Has the host mapped everything that a nested walk can translate? Then the walk does not
    /// exit.
    fn is_mapped(&self, block: &(impl Translated + ?Sized), seen: &Seen, at: usize) -> bool {
        let Some((tables, depth)) = block.tables(at) else {
            return true;
        };
        let tables = tables.iter().take(usize::from(depth));
        let mut frames = tables.map(|table| table.address());
        self.host
            .has(self.data_in(seen.address, seen.frame, seen.size))
            && frames.all(|at| self.host.has(at))
    }
}
