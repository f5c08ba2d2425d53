//! What a workload is made of, and what supplies it.

use crate::error::ModelError;
use crate::model::address::{Gva, PageSize, Reference};

/// Something the guest's system software does; references lie between operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A new, empty address space; it does not run yet. Process numbers are the caller's.
    Spawn {
        /// The new process.
        process: u32,
    },
    /// Reserve `bytes` at `start` in the running process: pages appear at first touch.
    Map {
        /// First byte, page-aligned.
        start: Gva,
        /// Length, a multiple of the page size.
        bytes: u64,
        /// The size of its pages.
        size: PageSize,
    },
    /// Take the range out of the running process's page tables (munmap).
    Unmap {
        /// First byte, page-aligned.
        start: Gva,
        /// Length in bytes.
        bytes: u64,
    },
    /// Allow or forbid writes to the range in the running process (mprotect).
    Protect {
        /// First byte, page-aligned.
        start: Gva,
        /// Length in bytes.
        bytes: u64,
        /// Whether writes are allowed from now on.
        writable: bool,
    },
    /// Copy the running process, both sides copy-on-write; the parent goes on.
    Fork {
        /// The new process.
        child: u32,
    },
    /// Drop a process and its page tables. The running process cannot exit: switch first.
    Exit {
        /// The process that ends.
        process: u32,
    },
    /// Let another process run.
    Switch {
        /// The process that runs from now on.
        process: u32,
    },
    /// So many system calls in a row that do not change page tables.
    SystemCalls {
        /// How many.
        count: u32,
    },
    /// So many exits that the paging mode does not decide.
    OtherExits {
        /// How many.
        count: u32,
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
}

/// Supplies steps: a synthetic workload or the reader of a trace.
///
/// Blocks have at most a few thousand references, so that windows and policies are served in time.
pub trait Source: Send {
    /// The next step, or `None` at the end.
    fn next_step(&mut self) -> Result<Option<Step<'_>>, ModelError>;
}
