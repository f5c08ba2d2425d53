//! The daemon's loop: wait, read, report.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::sys::signal::Signal;
use vtax_sys::clock;
use vtax_sys::signals::Signals;
use vtax_sys::terminal::Error;

use crate::control::decision::Control;
use crate::control::host::Host;
use crate::control::line::Line;
use crate::control::metrics::Metrics;
use crate::control::policy_file::Recipe;
use crate::control::state::{Folder, State};

/// The times of windows, and what a reload reads.
#[derive(Debug)]
pub struct Schedule {
    /// The length of a window.
    pub every: Duration,
    /// End after this time.
    pub time: Option<Duration>,
    /// The policy, or the file of one, that the command line names.
    pub policy: Option<String>,
    /// The machine description, where the file names none.
    pub machine: &'static str,
}

/// Decide window after window until the time is over or a signal comes, and then return from a mode
/// that is only tried. `folder` keeps the state; without a folder nothing is kept. `say` gets a line
/// for each window.
///
/// Fails when waiting for signals fails, and when `say` fails.
pub fn run<H: Host>(
    mut control: Control<H>,
    folder: Option<&Folder>,
    schedule: &Schedule,
    signals: &Signals,
    metrics: &mut Metrics,
    mut say: impl FnMut(&Line) -> Result<(), Error>,
) -> Result<(), Error> {
    let (state, said) = folder.map(Folder::read).unwrap_or_default();
    control.resume(state, said, now_s());
    let ended = windows(&mut control, folder, schedule, signals, metrics, &mut say);
    let mut save = |state: &State| folder.map_or(Ok(()), |folder| folder.write(state));
    let last = control.leave(now_s(), time(), &mut save);
    last.map_or(Ok(()), |line| say(&line)).and(ended)
}

fn windows<H: Host>(
    control: &mut Control<H>,
    folder: Option<&Folder>,
    schedule: &Schedule,
    signals: &Signals,
    metrics: &mut Metrics,
    say: &mut impl FnMut(&Line) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut save = |state: &State| folder.map_or(Ok(()), |folder| folder.write(state));
    let end = schedule.time.map(|time| Instant::now() + time);
    let mut next = Instant::now();
    loop {
        let until = end.map_or(next, |end| end.min(next));
        let asked = signals.wait_until(until);
        match asked.map_err(|errno| Error::system("waiting", errno, "try again"))? {
            Some(Signal::SIGHUP) => {
                let recipe = Recipe::read(schedule.policy.as_deref(), schedule.machine);
                control.reload(recipe);
                continue;
            }
            Some(_) => return Ok(()),
            None => {}
        }
        if end.is_some_and(|end| Instant::now() >= end) && Instant::now() < next {
            return Ok(());
        }
        let line = control.window(now_s(), time(), &mut save);
        metrics.add(&line, &control.state().guard);
        if let Some(folder) = folder {
            // A program that follows it misses a window; the next one is written again.
            let _ = folder.publish(&line);
        }
        say(&line)?;
        // Counted from the end of a window that took long because of a switch.
        next = (next + schedule.every).max(Instant::now());
    }
}

fn now_s() -> f64 {
    Duration::from_nanos(clock::monotonic_ns()).as_secs_f64()
}

fn time() -> f64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_secs_f64()
}
