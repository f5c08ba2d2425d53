//! Page tables as a real guest's kernel wrote them.
//!
//! The first operation of this kind discards the model's own processes. From then on the trace says
//! what is mapped; the references include those of the guest's kernel, and no cycles are charged
//! for it.

use std::collections::HashMap;

use super::{Guest, GuestEntry};
use crate::error::ModelError;
use crate::model::address::{Gfn, Gva, PAGE_SHIFT, PageSize};
use crate::model::guest_event::{GuestEvent, PartialWalk, Translation};
use crate::step::{Operation, TableEntry};

/// What the tables themselves do not say.
#[derive(Debug, Default)]
pub(super) struct Observed {
    /// The first address that each table maps.
    starts: HashMap<Gfn, u64>,
}

/// Was the operation observed in a real guest?
pub(super) const fn is_observed(operation: &Operation) -> bool {
    matches!(
        operation,
        Operation::Table { .. }
            | Operation::Entry { .. }
            | Operation::FreeTable { .. }
            | Operation::LoadCr3 { .. }
            | Operation::Invlpg { .. }
            | Operation::Fault { .. }
            | Operation::Fetch { .. }
    )
}

/// A reference that the trace's own tables do not allow.
pub(super) fn not_translated(address: Gva) -> ModelError {
    wrong(
        "reference",
        format!(
            "the page tables of the trace do not map {:#x} for it",
            address.0
        ),
    )
}

fn wrong(operation: &'static str, reason: String) -> ModelError {
    ModelError::Operation { operation, reason }
}

impl Guest {
    /// Does `address`, translated as `found`, belong to a device instead of memory? Then the guest
    /// exits in any mode.
    #[inline]
    pub fn is_device(&self, address: Gva, found: &Translation) -> bool {
        self.is_device_frame(address, found.frame, found.size)
    }

    /// [`Self::is_device`] for an address in the page of `size` that begins at `frame`.
    #[inline]
    pub(super) fn is_device_frame(&self, address: Gva, frame: Gfn, size: PageSize) -> bool {
        if self.observed.is_none() {
            return false;
        }
        let inside = address.0 & ((1 << self.setup.tables.span(size.level())) - 1);
        frame.0 + (inside >> PAGE_SHIFT) >= self.setup.memory_bytes >> PAGE_SHIFT
    }

    /// The processor's partial walk before it raised a page fault at `address`.
    pub fn faulting_walk(&mut self, address: Gva) -> PartialWalk {
        match self.translate(address, false) {
            Err(walk) => walk,
            Ok(found) => PartialWalk {
                tables: found.tables,
                depth: found.depth,
                protection: true,
            },
        }
    }

    /// Follows an operation of a real guest.
    ///
    /// Fails when the trace contradicts itself, and for an operation of the other kind.
    pub(super) fn observe(
        &mut self,
        operation: &Operation,
        events: &mut Vec<GuestEvent>,
    ) -> Result<(), ModelError> {
        if self.observed.is_none() {
            self.processes.clear();
            self.tables.clear();
            self.observed = Some(Observed::default());
        }
        match *operation {
            Operation::Table {
                frame,
                level,
                start,
            } => self.found_table(frame, level, start),
            Operation::Entry {
                table,
                index,
                entry,
                written,
            } => self.found_entry(table, index, entry, written, events),
            Operation::FreeTable { table } => self.freed_table(table, events),
            Operation::LoadCr3 { root, preserve } => {
                if self.tables.level(root) != Some(self.setup.tables.levels()) {
                    return Err(wrong(
                        "load of CR3",
                        format!("frame {:#x} is no root", root.0),
                    ));
                }
                self.root = root;
                events.push(GuestEvent::LoadCr3 { root, preserve });
                Ok(())
            }
            Operation::Invlpg { address } => {
                events.push(GuestEvent::Invlpg { address });
                Ok(())
            }
            Operation::OtherExits { count } => {
                events.extend((0..count).map(|_| GuestEvent::OtherExit));
                Ok(())
            }
            // The caller tells the cores.
            Operation::Fault { .. } | Operation::Fetch { .. } => Ok(()),
            _ => Err(wrong(
                "process",
                "a trace of a real guest cannot have operations on processes".into(),
            )),
        }
    }

    fn found_table(&mut self, frame: Gfn, level: u8, start: Gva) -> Result<(), ModelError> {
        let fits = frame.0 < self.setup.memory_bytes >> PAGE_SHIFT
            && (1..=self.setup.tables.levels()).contains(&level);
        if !fits {
            let reason = format!(
                "frame {:#x} at level {level} is not in the guest's memory, or has no such level",
                frame.0
            );
            return Err(wrong("page table", reason));
        }
        if self.tables.level(frame).is_some() {
            return Err(wrong(
                "page table",
                format!("frame {:#x} is a page table already", frame.0),
            ));
        }
        self.room_for_table()?;
        self.tables.add(frame, level);
        if let Some(observed) = &mut self.observed {
            observed.starts.insert(frame, start.0);
        }
        Ok(())
    }

    fn found_entry(
        &mut self,
        table: Gfn,
        index: u16,
        entry: TableEntry,
        written: bool,
        events: &mut Vec<GuestEvent>,
    ) -> Result<(), ModelError> {
        let format = self.setup.tables;
        let level = self.tables.level(table).unwrap_or(0);
        let starts = self.observed.as_ref().map(|observed| &observed.starts);
        let start = starts.and_then(|starts| starts.get(&table)).copied();
        let (Some(start), true) = (start, u32::from(index) >> format.index_bits() == 0) else {
            let reason = format!(
                "entry {index} of frame {:#x}, which has no such entry",
                table.0
            );
            return Err(wrong("page table", reason));
        };
        if entry.large && !matches!(level, 2 | 3) {
            let reason = format!("an entry of level {level} maps no page of its own");
            return Err(wrong("page table", reason));
        }
        let now = GuestEntry {
            frame: entry.frame,
            present: entry.present,
            writable: entry.writable,
            dirty: entry.dirty,
            large: entry.large,
            old: entry.old,
            written_at: 0,
        };
        let before = self.tables.set(table, index, now);
        if written {
            let inside = u64::from(index) << format.span(level);
            events.push(GuestEvent::TableWrite {
                table,
                level,
                index,
                address: canonical(start | inside, format.address_bits()),
                was_present: before.present,
                present: now.present,
            });
        }
        Ok(())
    }

    fn freed_table(&mut self, table: Gfn, events: &mut Vec<GuestEvent>) -> Result<(), ModelError> {
        let observed = self.observed.as_mut();
        if observed
            .and_then(|observed| observed.starts.remove(&table))
            .is_none()
        {
            let reason = format!("frame {:#x} is freed but was no page table", table.0);
            return Err(wrong("page table", reason));
        }
        self.tables.remove(table);
        events.push(GuestEvent::TableFreed { table });
        Ok(())
    }
}

/// The address with its upper bits sign-extended, as the processor requires.
const fn canonical(address: u64, bits: u32) -> Gva {
    let unused = 64 - bits;
    Gva(((address << unused).cast_signed() >> unused).cast_unsigned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::address::{PageSize, Reference, TableFormat};
    use crate::model::guest::{Block, GuestSetup};

    const PAGE: TableEntry = TableEntry {
        frame: Gfn(9),
        present: true,
        writable: false,
        dirty: false,
        large: false,
        old: false,
    };

    fn guest() -> Guest {
        Guest::new(GuestSetup {
            tables: TableFormat::Four,
            memory_bytes: 1 << 20,
            isolation: false,
            pcid: false,
            map_on_touch: None,
            fault_cycles: 0,
            system_call_cycles: 0,
            switch_cycles: 0,
        })
        .unwrap()
    }

    fn entry(table: u64, index: u16, entry: TableEntry, written: bool) -> Operation {
        Operation::Entry {
            table: Gfn(table),
            index,
            entry,
            written,
        }
    }

    /// A root in frame 4 that maps the last page of the address space to frame 9.
    fn tables() -> Vec<Operation> {
        let mut operations = Vec::new();
        for level in (1..=4_u8).rev() {
            let bits = 12 + 9 * u32::from(level);
            let start = if level == 4 { 0 } else { u64::MAX << bits };
            let frame = Gfn(level.into());
            let start = Gva(start);
            operations.push(Operation::Table {
                frame,
                level,
                start,
            });
            if level < 4 {
                let next = TableEntry { frame, ..PAGE };
                operations.push(entry(u64::from(level) + 1, 511, next, false));
            }
        }
        operations.push(entry(1, 511, PAGE, true));
        operations.push(Operation::LoadCr3 {
            root: Gfn(4),
            preserve: false,
        });
        operations
    }

    fn observed() -> (Guest, Vec<GuestEvent>) {
        let (mut guest, mut events) = (guest(), Vec::new());
        for operation in tables() {
            guest.apply(&operation, &mut events).unwrap();
        }
        (guest, events)
    }

    #[test]
    fn the_real_tables_translate_and_only_writes_are_events() {
        let (mut guest, events) = observed();
        let last = Gva(u64::MAX - 7);
        let found = guest.translate(last, false).unwrap();
        assert_eq!((found.frame, found.depth), (Gfn(9), 4));
        let written = GuestEvent::TableWrite {
            table: Gfn(1),
            level: 1,
            index: 511,
            address: Gva(0xffff_ffff_ffff_f000),
            was_present: false,
            present: true,
        };
        let loaded = GuestEvent::LoadCr3 {
            root: Gfn(4),
            preserve: false,
        };
        assert_eq!(events, [written, loaded]);
    }

    #[test]
    fn what_the_tables_do_not_allow_is_an_error_and_a_fault_walks_as_far_as_it_goes() {
        let (mut guest, _) = observed();
        let last = Gva(u64::MAX - 7);
        assert!(guest.translate(last, true).is_err());
        let error = guest.handle_fault(last, true, &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("do not map"), "{error}");
        let walk = guest.faulting_walk(last);
        assert_eq!((walk.depth, walk.protection), (4, true));
        let walk = guest.faulting_walk(Gva(0x1000));
        assert_eq!((walk.depth, walk.protection), (1, false));
    }

    #[test]
    fn a_block_follows_the_tables_of_now_and_ends_before_a_device() {
        let touched = GuestSetup {
            map_on_touch: Some(PageSize::K4),
            ..guest().setup
        };
        let mut guest = Guest::new(touched).unwrap();
        let (last, mut block) = (Gva(u64::MAX - 7), Block::default());
        let references = [Reference::new(last, false)];
        guest.handle_fault(last, false, &mut Vec::new()).unwrap();
        assert_eq!(block.fill(&guest, &references), (1, false));
        for operation in tables() {
            guest.apply(&operation, &mut Vec::new()).unwrap();
        }
        block.forget();
        assert_eq!(block.fill(&guest, &references), (1, false));
        assert_eq!(block.accesses()[0].found.frame, Gfn(9));
        let device = TableEntry {
            frame: Gfn(256),
            ..PAGE
        };
        let moved = entry(1, 511, device, true);
        guest.apply(&moved, &mut Vec::new()).unwrap();
        block.forget();
        assert_eq!(block.fill(&guest, &references), (0, true));
    }

    #[test]
    fn frames_beyond_the_memory_are_devices() {
        let (mut guest, mut events) = observed();
        let device = TableEntry {
            frame: Gfn(256),
            ..PAGE
        };
        let last = Gva(u64::MAX - 7);
        let found = guest.translate(last, false).unwrap();
        assert!(!guest.is_device(last, &found));
        guest
            .apply(&entry(1, 511, device, true), &mut events)
            .unwrap();
        let found = guest.translate(last, false).unwrap();
        assert!(guest.is_device(last, &found));
    }

    #[test]
    fn contradictions_are_refused() {
        let (mut guest, mut events) = observed();
        let table = |frame, level| Operation::Table {
            frame: Gfn(frame),
            level,
            start: Gva(0),
        };
        let free = |table| Operation::FreeTable { table: Gfn(table) };
        let load = |root| Operation::LoadCr3 {
            root: Gfn(root),
            preserve: false,
        };
        let large = TableEntry {
            large: true,
            ..PAGE
        };
        for operation in [
            table(1, 1),
            table(256, 1),
            table(8, 5),
            free(8),
            load(3),
            entry(8, 0, PAGE, true),
            entry(1, 512, PAGE, true),
            entry(1, 0, large, true),
            entry(4, 0, large, true),
            Operation::Spawn { process: 1 },
        ] {
            assert!(
                guest.apply(&operation, &mut events).is_err(),
                "{operation:?}"
            );
        }
        guest.apply(&free(1), &mut events).unwrap();
        assert!(guest.translate(Gva(u64::MAX - 7), false).is_err());
    }
}
