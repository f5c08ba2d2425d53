//! What a workload gets from the program that runs it.

use std::ffi::CString;

use vtax_error::Error;

/// A program that ends at once with the exit code which its last argument says, 0 to 255.
#[derive(Debug, Clone)]
pub struct Program {
    /// Its file.
    pub path: CString,
    /// All arguments but the last, its own name included.
    pub arguments: Vec<CString>,
}

/// What a workload gets from the program that runs it.
pub struct Context<'a> {
    /// What fork-exec-storm starts.
    pub trivial_program: Program,
    /// Memory that can be had without swapping; `None`: unknown.
    pub available_bytes: Option<u64>,
    /// Told what a user must know while a workload runs, such as a port.
    pub announce: &'a dyn Fn(&str),
}

impl Context<'_> {
    /// Refuse to use more memory than there is: the kernel would kill a process later.
    pub fn require_memory(&self, bytes: u64) -> Result<(), Error> {
        match self.available_bytes {
            Some(available) if bytes > available => Err(Error::failure(
                "--mem",
                format!("needs {bytes} bytes, and {available} bytes of memory are available"),
                "give less, or a machine with more memory",
            )),
            _ => Ok(()),
        }
    }
}
