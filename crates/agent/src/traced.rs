//! `vtax-agent traced`: a command between marks that an emulator sees (docs/trace-format.md).

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use nix::unistd::Pid;
use serde_json::json;
use vtax_sys::calls::children::{End, wait_with_usage};
use vtax_sys::terminal::Error;
use vtax_sys::trace_mark::Mark;

use crate::memory::leave;

/// The emulator drops its translations at the end of a block that it executes. A sleep makes it
/// leave that block.
const ARMING: Duration = Duration::from_millis(20);

/// Run the command between marks, write how long that took, and end as the command ended.
///
/// With `warm_up` it runs once more before, in the trace's phase 0; what is timed is phase 1.
///
/// Fails when the command cannot be started, and when the result cannot be written.
pub fn run(argv: &[OsString], out: Option<&PathBuf>, warm_up: bool) -> Result<(), Error> {
    Mark::Arm.set();
    thread::sleep(ARMING);
    let mut command = Command::new(&argv[0]);
    command.args(&argv[1..]);
    Mark::Begin.set();
    if warm_up {
        // A command that cannot be started says so below.
        let _ = ended(&mut command);
        Mark::Phase.set();
    }
    let begin = Instant::now();
    let end = ended(&mut command);
    Mark::End.set();
    let wall_s = begin.elapsed().as_secs_f64();
    let end = end?;
    if let Some(out) = out {
        fs::write(out, json!({"wall_s": wall_s}).to_string()).map_err(|error| {
            let thing = format!("--out {}", out.display());
            Error::input_output(&thing, &error, "choose a file that can be written")
        })?;
    }
    leave(end)
}

/// Run the command to its end.
fn ended(command: &mut Command) -> Result<End, Error> {
    let child = command.spawn().map_err(|error| {
        let thing = format!("run {}", command.get_program().display());
        Error::input_output(&thing, &error, "check the command line")
    })?;
    let (end, _) = wait_with_usage(Pid::from_raw(child.id().cast_signed()))
        .map_err(|errno| Error::system("wait4", errno, "this is a fault of the machine"))?;
    Ok(end)
}
