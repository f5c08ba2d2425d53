//! Operations on ranges and whole address spaces: map, unmap, protect, fork, exit.

use super::{Guest, Process, Region, unknown};
use crate::error::ModelError;
use crate::limits::Limits;
use crate::model::address::{Gfn, Gva, PageSize};
use crate::model::guest::tables::GuestEntry;
use crate::model::guest_event::GuestEvent;

/// Linux invalidates up to this many pages one by one, and flushes everything for more
/// (`tlb_single_page_flush_ceiling`, Documentation/arch/x86/tlb.rst).
const SINGLE_FLUSHES: usize = 33;
/// The cost of going through all entries of a table, in visits.
const TABLE_VISITS: usize = 16;

impl Guest {
    pub(super) fn map(
        &mut self,
        start: Gva,
        bytes: u64,
        size: PageSize,
        events: &mut Vec<GuestEvent>,
    ) -> Result<(), ModelError> {
        self.setup.tables.check(size)?;
        let end = self.range("map", start, bytes, size)?;
        self.check_address(start)?;
        self.check_address(Gva(end - 1))?;
        let region = Region {
            end,
            size,
            writable: true,
        };
        self.change_ranges("map", |process| process.reserve(start.0, region))??;
        self.system_call(events)
    }

    pub(super) fn unmap(
        &mut self,
        start: Gva,
        bytes: u64,
        events: &mut Vec<GuestEvent>,
    ) -> Result<(), ModelError> {
        let end = self.range("unmap", start, bytes, PageSize::K4)?;
        let found = self.mapped("unmap", start.0, end)?;
        let visited = self.change_ranges("unmap", |process| process.release(start.0, end))?;
        self.worked(visited);
        self.system_call(events)?;
        for leaf in &found {
            self.drop_leaf(leaf, events);
        }
        self.invalidate(&found, events)?;
        self.prune(&found, events)
    }

    pub(super) fn protect(
        &mut self,
        start: Gva,
        bytes: u64,
        writable: bool,
        events: &mut Vec<GuestEvent>,
    ) -> Result<(), ModelError> {
        let end = self.range("protect", start, bytes, PageSize::K4)?;
        let mut found = self.mapped("protect", start.0, end)?;
        let protect = |process: &mut Process| process.protect(start.0, end, writable);
        let visited = self.change_ranges("protect", protect)?;
        self.worked(visited);
        self.system_call(events)?;
        // A page shared after fork stays read-only: its copy is due at the next write.
        found.retain(|leaf| {
            leaf.entry.writable != writable
                && !(writable && self.frames.is_shared(leaf.entry.frame))
        });
        for leaf in &found {
            let entry = GuestEntry {
                writable,
                ..leaf.entry
            };
            self.write(leaf.table, leaf.size.level(), leaf.page, entry, events);
        }
        self.invalidate(&found, events)
    }

    /// Copies the tables of the running process; writable pages become read-only on both
    /// sides, and the child's count as not accessed, as Linux does it.
    pub(super) fn fork(
        &mut self,
        child: u32,
        events: &mut Vec<GuestEvent>,
    ) -> Result<(), ModelError> {
        if self.processes.contains_key(&child) {
            let reason = format!("process {child} exists already");
            return Err(ModelError::Operation {
                operation: "fork",
                reason,
            });
        }
        let leaves = self.mapped("fork", 0, u64::MAX)?;
        Limits::check(
            self.frames.shared().saturating_add(leaves.len()),
            self.limits.pages,
            "pages shared by processes",
        )?;
        self.system_call(events)?;
        self.copied_ranges()?;
        let fresh = self.new_process()?;
        let (root, user_root) = (fresh.kernel_root, fresh.user_root);
        let copy = self.running()?.copy(root, user_root);
        for leaf in &leaves {
            let entry = GuestEntry {
                writable: false,
                ..leaf.entry
            };
            if leaf.entry.writable {
                self.write(leaf.table, leaf.size.level(), leaf.page, entry, events);
            }
            self.frames.share(leaf.entry.frame);
            let table = self.table_for(root, user_root, leaf.page, leaf.size.level(), events)?;
            let entry = GuestEntry { old: true, ..entry };
            self.write(table, leaf.size.level(), leaf.page, entry, events);
        }
        self.processes.insert(child, copy);
        self.flush(events)
    }

    pub(super) fn exit(
        &mut self,
        number: u32,
        events: &mut Vec<GuestEvent>,
    ) -> Result<(), ModelError> {
        if number == self.running {
            let reason = format!("process {number} is running: switch first");
            return Err(ModelError::Operation {
                operation: "exit",
                reason,
            });
        }
        let process = self
            .processes
            .remove(&number)
            .ok_or_else(|| unknown("exit", number))?;
        self.ranges -= process.ranges();
        for leaf in self.leaves(process.kernel_root, 0, u64::MAX)? {
            self.drop_leaf(&leaf, events);
        }
        for table in self.tables.subtree(process.kernel_root) {
            self.free_table(table, events);
        }
        if process.user_root != process.kernel_root {
            self.free_table(process.user_root, events);
        }
        Ok(())
    }

    /// Empties a leaf's entry and gives its frames back.
    fn drop_leaf(&mut self, leaf: &Leaf, events: &mut Vec<GuestEvent>) {
        let level = leaf.size.level();
        self.write(leaf.table, level, leaf.page, GuestEntry::ABSENT, events);
        self.frames
            .drop_run(leaf.entry.frame, self.frames_of(leaf.size));
    }

    /// The end of a valid range.
    fn range(
        &self,
        operation: &'static str,
        start: Gva,
        bytes: u64,
        size: PageSize,
    ) -> Result<u64, ModelError> {
        let page = 1_u64 << self.setup.tables.span(size.level());
        let end = start.0.checked_add(bytes);
        match end {
            Some(end)
                if bytes > 0 && start.0.is_multiple_of(page) && bytes.is_multiple_of(page) =>
            {
                Ok(end)
            }
            _ => {
                let reason = format!(
                    "start {:#x} and length {bytes} must be positive multiples of {page} bytes",
                    start.0
                );
                Err(ModelError::Operation { operation, reason })
            }
        }
    }

    /// The present leaves of the running process in a range, which must contain large pages
    /// completely.
    fn mapped(
        &self,
        operation: &'static str,
        start: u64,
        end: u64,
    ) -> Result<Vec<Leaf>, ModelError> {
        let found = self.leaves(self.running()?.kernel_root, start, end)?;
        for leaf in &found {
            let bytes = 1 << self.setup.tables.span(leaf.size.level());
            if leaf.page.0 < start || leaf.page.0.saturating_add(bytes - 1) >= end {
                let reason = format!("the page at {:#x} is only partly inside", leaf.page.0);
                return Err(ModelError::Operation { operation, reason });
            }
        }
        Ok(found)
    }

    /// Changes the ranges of the running process and counts them.
    fn change_ranges<T>(
        &mut self,
        operation: &'static str,
        change: impl FnOnce(&mut Process) -> T,
    ) -> Result<T, ModelError> {
        let running = self.running;
        let process = self.processes.get_mut(&running);
        let process = process.ok_or_else(|| unknown(operation, running))?;
        let before = process.ranges();
        let changed = change(process);
        self.ranges = self.ranges - before + process.ranges();
        Limits::check(self.ranges, self.limits.ranges, "ranges mapped at once")?;
        Ok(changed)
    }

    /// Counts the ranges of the running process once more, for its copy.
    fn copied_ranges(&mut self) -> Result<(), ModelError> {
        let ranges = self.running()?.ranges();
        self.ranges += ranges;
        self.worked(ranges);
        Limits::check(self.ranges, self.limits.ranges, "ranges mapped at once")
    }

    /// Present leaves below `root` that overlap `start..end`, in the order of addresses.
    fn leaves(&self, root: Gfn, start: u64, end: u64) -> Result<Vec<Leaf>, ModelError> {
        let format = self.setup.tables;
        let mut found = Vec::new();
        let mut pending = vec![(root, format.levels(), 0_u64)];
        while let Some((table, level, base)) = pending.pop() {
            self.worked(TABLE_VISITS);
            let mut below = Vec::new();
            for (index, entry) in self.tables.entries(table) {
                let from = base + (u64::from(index) << format.span(level));
                let last = from + ((1 << format.span(level)) - 1);
                if self.canonical(last) < start || self.canonical(from) >= end {
                    continue;
                }
                if level > 1 && !entry.large {
                    below.push((entry.frame, level - 1, from));
                } else {
                    let size = PageSize::ALL[usize::from(level - 1)];
                    found.push(Leaf {
                        table,
                        page: Gva(self.canonical(from)),
                        entry,
                        size,
                    });
                }
            }
            pending.extend(below.into_iter().rev());
            Limits::check(found.len(), self.limits.pages, "pages in one operation")?;
        }
        self.worked(found.len());
        Ok(found)
    }

    /// Sign-extends an address of the upper half.
    fn canonical(&self, address: u64) -> u64 {
        let bits = self.setup.tables.address_bits();
        let upper = bits > 32 && address >> (bits - 1) == 1;
        if upper {
            address | u64::MAX << bits
        } else {
            address
        }
    }

    fn invalidate(
        &mut self,
        leaves: &[Leaf],
        events: &mut Vec<GuestEvent>,
    ) -> Result<(), ModelError> {
        if leaves.len() > SINGLE_FLUSHES {
            return self.flush(events);
        }
        events.extend(
            leaves
                .iter()
                .map(|leaf| GuestEvent::Invlpg { address: leaf.page }),
        );
        Ok(())
    }

    fn flush(&self, events: &mut Vec<GuestEvent>) -> Result<(), ModelError> {
        let root = self.running()?.user_root;
        events.push(GuestEvent::LoadCr3 {
            root,
            preserve: false,
        });
        Ok(())
    }

    /// Frees the tables that became empty, from the lowest level up (`free_pgtables`).
    fn prune(&mut self, leaves: &[Leaf], events: &mut Vec<GuestEvent>) -> Result<(), ModelError> {
        let process = self.running()?;
        let (root, user_root) = (process.kernel_root, process.user_root);
        let format = self.setup.tables;
        for parent_level in 2..=format.levels() {
            let mut last = None;
            for leaf in leaves {
                let group = leaf.page.0 >> format.span(parent_level);
                if last.replace(group) == Some(group) {
                    continue;
                }
                let Some(parent) = self.table_at(root, leaf.page, parent_level) else {
                    continue;
                };
                let index = format.index(leaf.page.0, parent_level);
                let entry = self.tables.entry(parent, index);
                let Some(entry) = entry.filter(|entry| entry.present && !entry.large) else {
                    continue;
                };
                if self.tables.present(entry.frame) > 0 {
                    continue;
                }
                self.write(parent, parent_level, leaf.page, GuestEntry::ABSENT, events);
                if parent_level == format.levels() && user_root != root {
                    self.write(
                        user_root,
                        parent_level,
                        leaf.page,
                        GuestEntry::ABSENT,
                        events,
                    );
                }
                self.free_table(entry.frame, events);
            }
        }
        Ok(())
    }

    /// The table of `level` on the path to `address`.
    fn table_at(&self, root: Gfn, address: Gva, level: u8) -> Option<Gfn> {
        let format = self.setup.tables;
        (level + 1..=format.levels())
            .rev()
            .try_fold(root, |table, above| {
                let entry = self.tables.entry(table, format.index(address.0, above))?;
                (entry.present && !entry.large).then_some(entry.frame)
            })
    }

    fn free_table(&mut self, table: Gfn, events: &mut Vec<GuestEvent>) {
        self.tables.remove(table);
        self.frames.drop_run(table, 1);
        events.push(GuestEvent::TableFreed { table });
    }
}

/// A present leaf entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaf {
    table: Gfn,
    page: Gva,
    entry: GuestEntry,
    size: PageSize,
}
