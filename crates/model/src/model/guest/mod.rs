//! The guest: processes, page tables and the kernel's work on them, simulated once for all modes.
//!
//! For page tables, the kernel does what Linux does: it maps at first touch, copies on write after
//! fork, empties entries at munmap, invalidates up to 33 pages one by one and flushes everything
//! for more (`tlb_single_page_flush_ceiling`), and with page-table isolation keeps two roots per
//! process and loads CR3 at each entry and exit.

mod block;
mod frames;
mod observed;
mod process;
mod ranges;
mod tables;

use std::cell::Cell;
use std::collections::BTreeMap;

use crate::error::ModelError;
use crate::limits::Limits;
use crate::model::address::{Gfn, Gva, PageSize, TableFormat};
use crate::model::guest_event::{GuestEvent, PartialWalk, Translation};
use crate::model::machine::Costs;
use crate::step::Operation;

pub use block::Block;
use frames::Frames;
use observed::Observed;
use process::{Process, Region};
pub use tables::{GuestEntry, GuestTables, MAX_MEMORY_BYTES};

#[derive(Clone, Debug, PartialEq)]
pub struct GuestSetup {
    pub tables: TableFormat,
    pub memory_bytes: u64,
    /// Page-table isolation: the kernel has its own root.
    pub isolation: bool,
    /// CR3 loads preserve the TLB entries of other address spaces (PCID).
    pub pcid: bool,
    /// Treat every touched page as mapped, with this size: traces do not say what they mapped.
    pub map_on_touch: Option<PageSize>,
    /// Cycles of a page fault in the guest's kernel.
    pub fault_cycles: u32,
    pub system_call_cycles: u32,
    /// Cycles of a context switch.
    pub switch_cycles: u32,
}

impl GuestSetup {
    /// A guest whose kernel has the costs in `costs`.
    pub fn new(tables: TableFormat, memory_bytes: u64, costs: &Costs) -> Self {
        Self {
            tables,
            memory_bytes,
            isolation: false,
            pcid: false,
            map_on_touch: None,
            fault_cycles: costs.guest_fault,
            system_call_cycles: costs.system_call,
            switch_cycles: costs.context_switch,
        }
    }
}

/// A guest operating system. Process 0 exists and runs at the start.
#[derive(Debug)]
pub struct Guest {
    setup: GuestSetup,
    frames: Frames,
    tables: GuestTables,
    processes: BTreeMap<u32, Process>,
    running: u32,
    root: Gfn,
    /// The page tables of a real guest, where the trace observed one.
    observed: Option<Observed>,
    limits: Limits,
    /// The number of ranges in all processes.
    ranges: usize,
    /// See [`Self::work`].
    work: Cell<u64>,
}

impl Guest {
    /// A guest with one empty process.
    ///
    /// Fails when the memory is more than is modelled or too little for the first tables, or when
    /// the tables have no page of the size that is mapped on touch.
    pub fn new(setup: GuestSetup) -> Result<Self, ModelError> {
        if setup.memory_bytes > MAX_MEMORY_BYTES {
            let reason = format!("at most {MAX_MEMORY_BYTES} bytes are modelled");
            return Err(ModelError::field("memory", reason));
        }
        if let Some(size) = setup.map_on_touch {
            setup.tables.check(size)?;
        }
        let mut guest = Self {
            frames: Frames::new(setup.memory_bytes),
            tables: GuestTables::new(setup.tables),
            processes: BTreeMap::new(),
            running: 0,
            root: Gfn(0),
            observed: None,
            limits: Limits::NONE,
            ranges: 0,
            work: Cell::new(0),
            setup,
        };
        let process = guest.new_process()?;
        guest.root = process.user_root;
        guest.processes.insert(0, process);
        Ok(guest)
    }

    /// The same guest with limits, which refuses anything beyond them.
    #[must_use]
    pub fn limited(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// Pages, tables and ranges that operations visited: the work that one operation can multiply.
    pub fn work(&self) -> u64 {
        self.work.get()
    }

    fn worked(&self, visits: usize) {
        self.work.set(self.work.get().saturating_add(visits as u64));
    }

    /// The root in CR3 while user code runs.
    pub fn root(&self) -> Gfn {
        self.root
    }

    /// The number of table entries that the guest has written.
    pub fn clock(&self) -> u64 {
        self.tables.clock()
    }

    /// Pages mapped in all processes, of whatever size.
    pub fn resident_pages(&self) -> u64 {
        self.tables.pages()
    }

    /// The page tables, for the VMM to read.
    pub fn tables(&self) -> &GuestTables {
        &self.tables
    }

    /// Translates with the guest's tables as the hardware would; the accessed bit is set, by a
    /// write the dirty bit too.
    ///
    /// Fails with the partial walk when the page is absent, or when a read-only page is written.
    #[inline]
    pub fn translate(&mut self, address: Gva, write: bool) -> Result<Translation, PartialWalk> {
        self.tables.walk(self.root, address, write)
    }

    /// Does the kernel's work on a fault at `address`: maps the page, copies it, or allows the
    /// write.
    ///
    /// Fails when the address is not mapped or does not fit the tables, when a read-only page is
    /// written, or when the guest has no free memory.
    pub fn handle_fault(
        &mut self,
        address: Gva,
        write: bool,
        events: &mut Vec<GuestEvent>,
    ) -> Result<(), ModelError> {
        if self.observed.is_some() {
            return Err(observed::not_translated(address));
        }
        let process = self.running()?;
        let (root, user_root) = (process.kernel_root, process.user_root);
        let region = process
            .region(address)
            .or_else(|| self.touched())
            .ok_or_else(|| {
                let reason = format!("a reference to {:#x}, which is not mapped", address.0);
                ModelError::Operation {
                    operation: "reference",
                    reason,
                }
            })?;
        self.check_address(address)?;
        if write && !region.writable {
            let reason = format!("a write to {:#x}, which is read-only", address.0);
            return Err(ModelError::Operation {
                operation: "reference",
                reason,
            });
        }
        self.enter_kernel(events)?;
        events.push(GuestEvent::Kernel {
            cycles: self.setup.fault_cycles,
        });
        match self.tables.walk(root, address, false) {
            Ok(found) if write && !found.writable => self.copy_on_write(found, events)?,
            Ok(_) => {}
            Err(_) => self.map_page(root, user_root, address, region, events)?,
        }
        self.leave_kernel(events)
    }

    /// Carries out one operation of the system software.
    ///
    /// Fails when a process exists already, does not exist, or exits while it runs; when a range is
    /// not aligned, does not fit the tables, overlaps a mapped range or cuts a large page; and when
    /// the guest has no free memory.
    pub fn apply(
        &mut self,
        operation: &Operation,
        events: &mut Vec<GuestEvent>,
    ) -> Result<(), ModelError> {
        if self.observed.is_some() || observed::is_observed(operation) {
            return self.observe(operation, events);
        }
        match *operation {
            Operation::Spawn { process } => self.spawn(process),
            Operation::Map { start, bytes, size } => self.map(start, bytes, size, events),
            Operation::Unmap { start, bytes } => self.unmap(start, bytes, events),
            Operation::Protect {
                start,
                bytes,
                writable,
            } => self.protect(start, bytes, writable, events),
            Operation::Fork { child } => self.fork(child, events),
            Operation::Exit { process } => self.exit(process, events),
            Operation::Switch { process } => self.switch(process, events),
            Operation::SystemCalls { count } => {
                (0..count).try_for_each(|_| self.system_call(events))
            }
            Operation::OtherExits { count } => {
                events.extend((0..count).map(|_| GuestEvent::OtherExit));
                Ok(())
            }
            _ => Ok(()), // observed: above
        }
    }

    fn running(&self) -> Result<&Process, ModelError> {
        self.processes
            .get(&self.running)
            .ok_or_else(|| unknown("reference", self.running))
    }

    fn touched(&self) -> Option<Region> {
        let size = self.setup.map_on_touch?;
        Some(Region {
            end: u64::MAX,
            size,
            writable: true,
        })
    }

    fn check_address(&self, address: Gva) -> Result<(), ModelError> {
        let bits = self.setup.tables.address_bits();
        let upper = address.0 >> (bits - 1);
        // Addresses below are in the user half; with all upper bits one, in the kernel half. A
        // two-level table has 32-bit addresses.
        let canonical = upper == 0 || upper == u64::MAX >> (bits - 1);
        if canonical || (self.setup.tables == TableFormat::Two && address.0 >> 32 == 0) {
            return Ok(());
        }
        let reason = format!(
            "the address {:#x} does not fit {bits}-bit tables",
            address.0
        );
        Err(ModelError::Operation {
            operation: "reference",
            reason,
        })
    }

    fn new_process(&mut self) -> Result<Process, ModelError> {
        Limits::check(
            self.processes.len() + 1,
            self.limits.processes,
            "processes at once",
        )?;
        let levels = self.setup.tables.levels();
        let kernel_root = self.new_table(levels)?;
        let user_root = if self.setup.isolation {
            self.new_table(levels)?
        } else {
            kernel_root
        };
        Ok(Process::new(kernel_root, user_root))
    }

    fn new_table(&mut self, level: u8) -> Result<Gfn, ModelError> {
        self.room_for_table()?;
        let frame = self.frames.take()?;
        self.tables.add(frame, level);
        Ok(frame)
    }

    fn room_for_table(&self) -> Result<(), ModelError> {
        Limits::check(
            self.tables.len() + 1,
            self.limits.tables,
            "page tables at once",
        )
    }

    fn spawn(&mut self, number: u32) -> Result<(), ModelError> {
        if self.processes.contains_key(&number) {
            let reason = format!("process {number} exists already");
            return Err(ModelError::Operation {
                operation: "spawn",
                reason,
            });
        }
        let process = self.new_process()?;
        self.processes.insert(number, process);
        Ok(())
    }

    fn switch(&mut self, number: u32, events: &mut Vec<GuestEvent>) -> Result<(), ModelError> {
        let process = self
            .processes
            .get(&number)
            .ok_or_else(|| unknown("switch", number))?;
        let (kernel_root, user_root) = (process.kernel_root, process.user_root);
        let preserve = self.setup.pcid;
        self.enter_kernel(events)?;
        events.push(GuestEvent::Kernel {
            cycles: self.setup.switch_cycles,
        });
        self.running = number;
        self.root = user_root;
        events.push(GuestEvent::LoadCr3 {
            root: kernel_root,
            preserve,
        });
        self.leave_kernel(events)
    }

    fn system_call(&mut self, events: &mut Vec<GuestEvent>) -> Result<(), ModelError> {
        self.enter_kernel(events)?;
        events.push(GuestEvent::Kernel {
            cycles: self.setup.system_call_cycles,
        });
        self.leave_kernel(events)
    }

    /// With isolation, the kernel's entry code loads the kernel's root.
    fn enter_kernel(&self, events: &mut Vec<GuestEvent>) -> Result<(), ModelError> {
        let root = self.running()?.kernel_root;
        self.load_isolated(root, events);
        Ok(())
    }

    fn leave_kernel(&self, events: &mut Vec<GuestEvent>) -> Result<(), ModelError> {
        let root = self.running()?.user_root;
        self.load_isolated(root, events);
        Ok(())
    }

    fn load_isolated(&self, root: Gfn, events: &mut Vec<GuestEvent>) {
        if self.setup.isolation {
            events.push(GuestEvent::LoadCr3 {
                root,
                preserve: self.setup.pcid,
            });
        }
    }

    /// Fills the entry of a page that was absent.
    fn map_page(
        &mut self,
        root: Gfn,
        user_root: Gfn,
        address: Gva,
        region: Region,
        events: &mut Vec<GuestEvent>,
    ) -> Result<(), ModelError> {
        let level = region.size.level();
        let table = self.table_for(root, user_root, address, level, events)?;
        let frame = self.frames.take_run(self.frames_of(region.size))?;
        let large = level > 1;
        let entry = GuestEntry {
            frame,
            present: true,
            writable: region.writable,
            large,
            ..GuestEntry::ABSENT
        };
        self.write(table, level, address, entry, events);
        Ok(())
    }

    /// The table of level `leaf` for `address`; missing tables on the path are made.
    fn table_for(
        &mut self,
        root: Gfn,
        user_root: Gfn,
        address: Gva,
        leaf: u8,
        events: &mut Vec<GuestEvent>,
    ) -> Result<Gfn, ModelError> {
        let format = self.setup.tables;
        let mut table = root;
        for level in (leaf + 1..=format.levels()).rev() {
            let index = format.index(address.0, level);
            let found = self
                .tables
                .entry(table, index)
                .filter(|entry| entry.present);
            table = if let Some(entry) = found {
                entry.frame
            } else {
                let frame = self.new_table(level - 1)?;
                let entry = GuestEntry {
                    frame,
                    present: true,
                    writable: true,
                    ..GuestEntry::ABSENT
                };
                self.write(table, level, address, entry, events);
                if level == format.levels() && user_root != root {
                    self.write(user_root, level, address, entry, events);
                }
                frame
            };
        }
        Ok(table)
    }

    /// Handles a write to a page that forbids it: copies a shared page, or only allows the write.
    fn copy_on_write(
        &mut self,
        found: Translation,
        events: &mut Vec<GuestEvent>,
    ) -> Result<(), ModelError> {
        let level = found.size.level();
        let Some(&table) = found.tables.get(usize::from(found.depth) - 1) else {
            return Ok(());
        };
        let count = self.frames_of(found.size);
        let frame = if self.frames.is_shared(found.frame) {
            let copy = self.frames.take_run(count)?;
            self.frames.drop_run(found.frame, count);
            copy
        } else {
            found.frame
        };
        let large = level > 1;
        let entry = GuestEntry {
            frame,
            present: true,
            writable: true,
            large,
            ..GuestEntry::ABSENT
        };
        self.write(table, level, found.page, entry, events);
        events.push(GuestEvent::Invlpg {
            address: found.page,
        });
        Ok(())
    }

    /// Frames of a page: 512 or 1,024 for the second level, depending on the format.
    fn frames_of(&self, size: PageSize) -> u64 {
        1 << (self.setup.tables.span(size.level()) - crate::model::address::PAGE_SHIFT)
    }

    /// Writes an entry and reports the event.
    fn write(
        &mut self,
        table: Gfn,
        level: u8,
        address: Gva,
        entry: GuestEntry,
        events: &mut Vec<GuestEvent>,
    ) {
        let format = self.setup.tables;
        let index = format.index(address.0, level);
        let before = self.tables.set(table, index, entry);
        let address = Gva(address.0 >> format.span(level) << format.span(level));
        let (was_present, present) = (before.present, entry.present);
        events.push(GuestEvent::TableWrite {
            table,
            level,
            index,
            address,
            was_present,
            present,
        });
    }
}

fn unknown(operation: &'static str, process: u32) -> ModelError {
    ModelError::Operation {
        operation,
        reason: format!("there is no process {process}"),
    }
}

#[cfg(test)]
mod tests;
