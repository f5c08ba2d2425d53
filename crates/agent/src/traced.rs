//! `vtax-agent traced`: a command between marks that an emulator sees (docs/trace-format.md).

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use nix::unistd::Pid;
use serde_json::json;
use vtax_sys::calls::children::wait_with_usage;
use vtax_sys::terminal::Error;
use vtax_sys::trace_mark::Mark;

use crate::memory::leave;

/// The emulator drops its translations at the end of a block that it executes. A sleep makes it
/// leave that block.
const ARMING: Duration = Duration::from_millis(20);

/// Run the command between marks, write how long that took, and end as the command ended.
///
/// Fails when the command cannot be started, and when the result cannot be written.
pub fn run(argv: &[OsString], out: Option<&PathBuf>) -> Result<(), Error> {
    Mark::Arm.set();
    thread::sleep(ARMING);
    let mut command = Command::new(&argv[0]);
    command.args(&argv[1..]);
    let begin = Instant::now();
    Mark::Begin.set();
    let child = command.spawn();
    let ended = child.map(|child| wait_with_usage(Pid::from_raw(child.id().cast_signed())));
    Mark::End.set();
    let wall_s = begin.elapsed().as_secs_f64();
    let ended = ended.map_err(|error| {
        let thing = format!("run {}", argv[0].display());
        Error::input_output(&thing, &error, "check the command line")
    })?;
    let (end, _) =
        ended.map_err(|errno| Error::system("wait4", errno, "this is a fault of the machine"))?;
    if let Some(out) = out {
        fs::write(out, json!({"wall_s": wall_s}).to_string()).map_err(|error| {
            let thing = format!("--out {}", out.display());
            Error::input_output(&thing, &error, "choose a file that can be written")
        })?;
    }
    leave(end)
}
