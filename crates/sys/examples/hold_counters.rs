//! Holds hardware counters of CPU 0 while a command runs, as another user of the PMU does.
//!
//! `hold_counters INSTRUCTIONS CYCLES COMMAND...` opens that number of pinned events of each kind.
//! It ends as the command does. It ends with 1, without running the command, when one of the events
//! gets no counter. `packaging/arm64.py tests` builds it for tests in the emulated arm64 machine;
//! no package contains it.

use std::env;
use std::error::Error;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, ExitCode};

use perf_event_open_sys::bindings as perf;
use vtax_sys::calls::perf::{perf_event_enable, perf_event_open};

const CPU: i32 = 0;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let mut number = || -> Result<usize, Box<dyn Error>> {
        let text = arguments.next().ok_or("no number of events")?;
        Ok(text.parse()?)
    };
    let (instructions, cycles) = (number()?, number()?);
    let mut held = Vec::new();
    for (event, times) in [
        (perf::PERF_COUNT_HW_INSTRUCTIONS, instructions),
        (perf::PERF_COUNT_HW_CPU_CYCLES, cycles),
    ] {
        for _ in 0..times {
            held.push(hold(event)?);
        }
    }
    let program = arguments.next().ok_or("no command")?;
    let status = Command::new(program).args(arguments).status()?;
    for counter in &mut held {
        count(counter)?;
    }
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(1)))
}

/// Let an event count; it keeps its counter until it is closed.
fn hold(event: u32) -> Result<File, Box<dyn Error>> {
    let mut attributes = perf::perf_event_attr::default();
    attributes.type_ = perf::PERF_TYPE_HARDWARE;
    attributes.size = u32::try_from(size_of::<perf::perf_event_attr>())?;
    attributes.config = u64::from(event);
    attributes.set_disabled(1);
    attributes.set_pinned(1);
    let counter: OwnedFd = perf_event_open(&mut attributes, CPU, None)?;
    perf_event_enable(counter.as_fd(), true)?;
    let mut counter = File::from(counter);
    count(&mut counter)?;
    Ok(counter)
}

/// What an event has counted; a pinned event without a counter reads nothing
/// (`perf_event_open(2)`).
fn count(counter: &mut File) -> Result<u64, Box<dyn Error>> {
    let mut bytes = [0; 8];
    if counter.read(&mut bytes)? < bytes.len() {
        return Err("no counter is left".into());
    }
    Ok(u64::from_ne_bytes(bytes))
}
