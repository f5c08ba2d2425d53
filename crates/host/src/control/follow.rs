//! Following a running controller.

use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use vtax_sys::signals::Signals;
use vtax_sys::terminal::{Error, output};

use crate::control::line::Line;
use crate::control::state::published;

/// The time between two looks at what a controller has published.
const LOOK: Duration = Duration::from_millis(200);

/// Show a window. Names of guests and reasons are shown without control characters.
///
/// Fails when the standard output cannot be written.
pub fn show(line: &Line) -> Result<(), Error> {
    output::line(&output::plain(&line.to_string()))
}

/// Show the controller's windows until it ends, the time is over, or a signal comes.
///
/// `folder`: where the controller publishes.
///
/// Fails when the published status cannot be read.
pub fn until_the_end(
    folder: &Path,
    time: Option<Duration>,
    signals: &Signals,
) -> Result<(), Error> {
    let end = time.map(|time| Instant::now() + time);
    let mut last = None;
    loop {
        let Some(text) = published(folder)? else {
            eprintln!("vtax: the controller has ended");
            return Ok(());
        };
        let line: Line = serde_json::from_str(&text).map_err(|error| {
            let thing = folder.display().to_string();
            Error::failure(thing, error, "use the vtax that runs there")
        })?;
        if last != Some(line.time) {
            show(&line)?;
            last = Some(line.time);
        }
        let then = Instant::now() + LOOK;
        let then = end.map_or(then, |end| end.min(then));
        let asked = signals.wait_until(then);
        let asked = asked.map_err(|errno| Error::system("waiting", errno, "try again"))?;
        let ended = asked.is_some_and(|signal| signal != Signal::SIGHUP);
        if ended || end.is_some_and(|end| Instant::now() >= end) {
            return Ok(());
        }
    }
}
