//! Rehearses a switch as far as no guest pauses.

use std::fs;
use std::os::fd::AsFd;
use std::time::Instant;

use crate::switch::SwitchOptions;
use crate::switch::error::{Failure, SwitchError};
use crate::switch::guest::GuestPlan;
use crate::switch::incoming::IncomingQemu;
use crate::switch::journal::Journal;
use crate::switch::plan::plan;
use crate::switch::sys;

/// Start the new QEMU of each guest, up to where it would touch what it shares with the running
/// guest, and end it again. Returns the longest of these starts in milliseconds; 0 without guests.
///
/// A pause has the other part of that start, and a reload: a switch takes at least about as long.
///
/// Fails with `Refused` as `plan` does, when another switch is running, and when a new QEMU cannot
/// be started.
pub fn rehearse(options: &SwitchOptions) -> Result<f64, SwitchError> {
    let journal = Journal::open(&options.state_dir)?;
    journal.must_be_empty()?;
    let mut longest: f64 = 0.0;
    for guest in plan(options)?.guests {
        let took = start(&guest.plan, options).map_err(|failure| {
            SwitchError::refused(
                format!("rehearsal of {} (pid {})", guest.plan.name, guest.plan.pid),
                failure,
                "the guest runs on; see that its command line can be started again",
            )
        })?;
        longest = longest.max(took);
    }
    Ok(longest)
}

fn start(guest: &GuestPlan, options: &SwitchOptions) -> Result<f64, Failure> {
    let process = sys::pidfd_open(guest.pid).map_err(Failure::call("pidfd_open"))?;
    // No state is read before `/dev/kvm` is opened.
    let empty = options.state_dir.join("rehearsal");
    fs::write(&empty, []).map_err(Failure::file(&empty))?;
    let begin = Instant::now();
    let made = IncomingQemu::make(guest, Some(process.as_fd()), &empty, options.patience);
    let started = made.and_then(|mut incoming| {
        incoming.join(guest)?;
        incoming.run_to_touch(options.patience)?;
        Ok(begin.elapsed().as_secs_f64() * 1e3)
    });
    let _ = fs::remove_file(&empty);
    started
}
