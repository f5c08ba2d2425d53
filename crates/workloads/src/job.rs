//! What a workload gets from the program that runs it.

use vtax_sys::calls::children::Program;
use vtax_sys::terminal::Error;

pub struct Context<'a> {
    /// The program that fork-exec-storm starts: it ends at once with the exit code in its last
    /// argument, 0 to 255.
    pub trivial_program: Program,
    /// Memory that is available without swapping; `None`: unknown.
    pub available_bytes: Option<u64>,
    /// Shows the user what must be known while a workload runs, such as a port.
    pub announce: &'a dyn Fn(&str),
}

impl Context<'_> {
    /// Check that `bytes` bytes are available: otherwise the kernel would kill a process later.
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
