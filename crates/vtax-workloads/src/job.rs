//! What a workload gets from the program that runs it.

use vtax_cli::Error;
use vtax_sys::calls::children::Program;

/// What a workload gets from the program that runs it.
pub struct Context<'a> {
    /// What fork-exec-storm starts: a program that ends at once with the exit code which its last
    /// argument says, 0 to 255.
    pub trivial_program: Program,
    /// Memory that can be had without swapping; `None`: unknown.
    pub available_bytes: Option<u64>,
    /// Shows the user what must be known while a workload runs, such as a port.
    pub announce: &'a dyn Fn(&str),
}

impl Context<'_> {
    /// Check that so many bytes are available: if not, the kernel would kill a process later.
    ///
    /// Fails when fewer bytes are available; never where that is unknown.
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
