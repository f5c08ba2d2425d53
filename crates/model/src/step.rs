//! The steps of a workload, and their sources.

use crate::error::ModelError;
use crate::limits::Limits;
use crate::model::address::{Gfn, Gva, PageSize, Reference};

/// The content of a page-table entry, as far as it matters for translation.
#[expect(clippy::struct_excessive_bools)] // they are bits of the entry
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableEntry {
    /// The next table's frame, or the first frame of the page.
    pub frame: Gfn,
    /// Does it map anything? If not, all other fields are 0.
    pub present: bool,
    /// Does it allow writes?
    pub writable: bool,
    /// Does the page count as written already?
    pub dirty: bool,
    /// Does it map a page although it is above level 1?
    pub large: bool,
    /// Is the accessed bit clear?
    pub old: bool,
}

/// Something the guest's system software does; references lie between operations.
///
/// The operations up to `OtherExits` say what a program asked for, and the model's own guest does
/// it. Later ones were observed in a real guest: they say what its kernel did to its page tables. A
/// workload has operations of one kind only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A new, empty address space; it does not run yet. Process numbers are the caller's.
    Spawn { process: u32 },
    /// Reserve `bytes` at `start` in the running process: pages appear at first touch.
    Map {
        /// First byte, page-aligned.
        start: Gva,
        /// Length, a multiple of the page size.
        bytes: u64,
        size: PageSize,
    },
    /// Remove the range from the running process's page tables (munmap).
    Unmap {
        /// First byte, page-aligned.
        start: Gva,
        bytes: u64,
    },
    /// Allow or forbid writes to the range in the running process (mprotect).
    Protect {
        /// First byte, page-aligned.
        start: Gva,
        bytes: u64,
        /// Are writes allowed afterwards?
        writable: bool,
    },
    /// Copy the running process, both sides copy-on-write; the parent continues.
    Fork { child: u32 },
    /// Drop a process and its page tables. The running process cannot exit: switch first.
    Exit { process: u32 },
    /// Let another process run.
    Switch {
        /// The process that runs next.
        process: u32,
    },
    /// Consecutive system calls that do not change page tables.
    SystemCalls { count: u32 },
    /// Exits that the paging mode does not decide.
    OtherExits { count: u32 },
    /// A frame becomes a page table, without present entries.
    Table {
        frame: Gfn,
        /// Its level: 1 holds the 4 KiB entries.
        level: u8,
        /// The first address that it maps.
        start: Gva,
    },
    Entry {
        table: Gfn,
        /// The entry's index in the table.
        index: u16,
        /// Its new content.
        entry: TableEntry,
        /// Did the guest write it at this moment? Otherwise it was there when its table was found.
        written: bool,
    },
    /// The guest writes to a frame for the first time after it stopped being a page table.
    FreeTable { table: Gfn },
    /// CR3 was loaded, or with `preserve` false the whole TLB was flushed in another way.
    LoadCr3 {
        root: Gfn,
        /// Do TLB entries stay (PCID with bit 63 set)?
        preserve: bool,
    },
    /// INVLPG, or INVPCID of one page.
    Invlpg {
        /// Any address in the page.
        address: Gva,
    },
    /// The processor raised a page fault.
    Fault {
        /// The address that was not translated (CR2).
        address: Gva,
    },
    /// The processor executes in this page, for the first time since the last operation.
    Fetch {
        /// Any address in the page.
        address: Gva,
    },
}

/// One step of a workload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step<'a> {
    /// A block of data references of the running process with the instructions around them.
    References {
        /// The references in order; may be empty (instructions alone).
        references: &'a [Reference],
        /// Instructions retired in the block, the references' own included.
        instructions: u64,
        /// Cycles per instruction without any translation cost.
        base_cpi: f32,
    },
    /// An operation of the system software.
    Operation(Operation),
    /// A phase begins: a label in the output, no effect on the model.
    Phase(u32),
    /// An interval of a sampled run ends here.
    Interval {
        /// Were its references recorded? Otherwise only instructions and operations were.
        recorded: bool,
        /// Its block vector: instructions, and iterations of repeated string instructions, by group
        /// of basic blocks. Groups are the same in all intervals of the run.
        blocks: &'a [u64],
    },
}

/// Supplies steps: a synthetic workload or the reader of a trace.
///
/// Blocks have at most a few thousand references, so that windows and policies are served in time.
pub trait StepSource: Send {
    /// The next step, or `None` at the end.
    fn next_step(&mut self) -> Result<Option<Step<'_>>, ModelError>;

    /// What the workload may ask for. A workload from a file is limited.
    fn limits(&self) -> Limits {
        Limits::NONE
    }

    /// The length of an interval in instructions, when only some intervals have their references.
    fn interval(&self) -> Option<u64> {
        None
    }
}
