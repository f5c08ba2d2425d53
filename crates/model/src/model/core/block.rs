//! Handles many references at once: what [`Core::access`] does for each, stage by stage.
//!
//! Under native and nested paging nothing that a walk does changes what the TLBs find for a later
//! reference, so the whole block goes through the TLBs first and the misses are walked after it:
//! each stage works on few tables, and the processor overlaps independent work. The one exception
//! is an exit that empties an untagged TLB, at the first touch of a host page. Under shadow paging
//! any miss can exit, and each reference is finished before the next.

use super::Core;
use super::tlb::Found;
use crate::model::guest::GuestTables;
use crate::model::guest_event::Access;
use crate::model::mode::Translating;

impl Core {
    /// Follows these references of the guest, which does nothing else between them.
    ///
    /// The counts are the same as after calling [`Core::access`] for each reference in turn.
    pub fn access_all(&mut self, block: &[Access], tables: &GuestTables) {
        if block.is_empty() {
            return;
        }
        let staged = matches!(self.translating, Translating::Native | Translating::Nested);
        if staged {
            self.access_staged(block);
        } else {
            for access in block {
                self.reach(access.address, &access.found, access.write, tables);
            }
        }
        self.data.serve();
    }

    fn access_staged(&mut self, block: &[Access]) {
        // An exit empties the TLB in which a later reference of the block would be looked up.
        let exits_empty = self.translating == Translating::Nested && !self.machine.tlb.tagged;
        let space = self.spaces.current();
        let mut missed = std::mem::take(&mut self.missed);
        for (access, at) in block.iter().zip(0..) {
            let found = &access.found;
            let size = self.entry_size(access.address, found);
            match self.tlb.look_up(access.address, size, space, access.write) {
                Found::First => continue,
                Found::Second => {
                    self.tally.second_tlb_hits += 1;
                    continue;
                }
                Found::Missed => self.tally.tlb_misses += 1,
            }
            if self.walks {
                if exits_empty && !self.is_mapped(access) {
                    self.walk_missed(block, &mut missed);
                    self.walk_staged(access);
                } else {
                    missed.push(at);
                }
            }
            self.pieces |= size.shift() < self.guest_spans[found.size as usize];
            let writable = found.writable && found.dirty;
            self.tlb.insert(access.address, size, space, writable);
        }
        self.walk_missed(block, &mut missed);
        self.missed = missed;
    }

    /// Walks for the references at these positions of the block, in order.
    fn walk_missed(&mut self, block: &[Access], missed: &mut Vec<u32>) {
        for at in missed.drain(..) {
            if let Some(access) = block.get(at as usize) {
                self.walk_staged(access);
            }
        }
    }

    #[inline]
    fn walk_staged(&mut self, access: &Access) {
        let (address, found) = (access.address, &access.found);
        if self.translating == Translating::Native {
            self.walk_native(address, &found.tables, found.depth);
        } else {
            let data = self.data_address(address, found);
            self.walk_nested(address, &found.tables, found.depth, data);
        }
    }

    /// Has the host mapped everything that a nested walk can translate? Then the walk does not
    /// exit.
    fn is_mapped(&self, access: &Access) -> bool {
        let found = &access.found;
        let tables = found.tables.iter().take(usize::from(found.depth));
        let mut frames = tables.map(|table| table.address());
        self.host.has(self.data_address(access.address, found))
            && frames.all(|at| self.host.has(at))
    }
}
