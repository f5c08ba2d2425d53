//! Shows the progress of the search on one line of a terminal.

use std::io::{IsTerminal, Write, stderr};
use std::time::Duration;

use vtax_tuner::search::contest::Progress;

/// A reader sees no faster updates.
const EVERY: Duration = Duration::from_millis(100);

pub struct Shown {
    terminal: bool,
    budget: Duration,
    last: Option<Duration>,
}

impl Shown {
    /// Start with nothing shown; nothing is ever shown where the standard error is no terminal.
    pub fn new(budget: Duration) -> Self {
        Self {
            terminal: stderr().is_terminal(),
            budget,
            last: None,
        }
    }

    /// Show the line, unless it was shown a moment ago.
    pub fn show(&mut self, progress: &Progress, now: Duration) {
        let recent = self.last.is_some_and(|last| now < last + EVERY);
        if !self.terminal || recent {
            return;
        }
        self.last = Some(now);
        let left = self.budget.saturating_sub(now).as_secs();
        let Progress {
            routine,
            trials,
            gflops,
        } = progress;
        // A failure to show progress is no reason to stop.
        let _ = write!(
            stderr(),
            "\r{routine}: {trials} tried, {gflops:.1} GFLOP/s, at most {left} s left\x1b[K"
        );
    }

    pub fn clear(&mut self) {
        if self.last.take().is_some() {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}
