//! The view for a terminal, and following a running controller.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::control::line::{Line, short};
use crate::control::state::published;
use nix::sys::signal::Signal;
use vtax_sys::clock::time_of_day;
use vtax_sys::kvm::PagingMode;
use vtax_sys::signals::Signals;
use vtax_sys::terminal::{Error, output};

/// The time between two looks at what a controller has published.
const LOOK: Duration = Duration::from_millis(200);
/// Clears from the cursor to the end of the screen.
const CLEAR: &str = "\x1b[J";

/// Shows window after window: in place on a terminal, otherwise one below the other.
#[derive(Debug)]
pub struct Screen {
    terminal: bool,
    /// The number of lines of the last window.
    lines: usize,
}

impl Screen {
    /// A view on the standard output.
    pub fn new() -> Self {
        Self {
            terminal: io::stdout().is_terminal(),
            lines: 0,
        }
    }

    /// Show a window.
    ///
    /// Fails when the standard output cannot be written.
    pub fn show(&mut self, line: &Line) -> Result<(), Error> {
        if !self.terminal {
            return output::line(&output::plain(&line.to_string()));
        }
        let block = block(line);
        let mut text = String::new();
        if self.lines > 0 {
            // Writing to a String cannot fail.
            let _ = write!(text, "\x1b[{}A", self.lines);
        }
        text.push_str(CLEAR);
        for row in &block {
            text.push_str(row);
            text.push('\n');
        }
        self.lines = block.len();
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())
            .and_then(|()| out.flush())
            .map_err(|error| Error::input_output("output", &error, "free space"))
    }
}

/// The most columns of a row: a row that wraps would not be overwritten.
const COLUMNS: usize = 78;

fn block(line: &Line) -> Vec<String> {
    let mut rows = vec![
        row("time", &time_of_day(line.time)),
        row("mode", line.mode.map_or("unknown", PagingMode::name)),
        row("decision", &line.verb()),
    ];
    rows.extend(wrapped("why", &line.reason));
    if let (Some(percent), Some(source)) = (line.gain_percent, &line.gain_source) {
        let text = format!("the other mode saves {percent:.1} % of the cycles ({source})");
        rows.extend(wrapped("gain", &text));
    }
    let state = line.state.as_deref().unwrap_or("not begun");
    rows.push(row("policy", &format!("{}, {state}", line.policy)));
    let thresholds = [
        (line.threshold_vexit, "exits leave shadow paging"),
        (line.threshold_tmiss, "TLB misses leave nested paging"),
    ];
    for (threshold, what) in thresholds {
        if let Some(threshold) = threshold {
            rows.push(row(
                "",
                &format!("above {} {what} (a window of the policy)", short(threshold)),
            ));
        }
    }
    for (name, rate) in &line.rates {
        let shown = match name.as_str() {
            "guests" => format!("{rate} guests"),
            _ => format!("{:>8} {name}/s", short(*rate)),
        };
        rows.push(row("", &shown));
    }
    for event in &line.events {
        rows.extend(wrapped("event", event));
    }
    rows
}

fn row(name: &str, text: &str) -> String {
    let text = format!("{name:<9} {}", output::plain(text));
    text.chars().take(COLUMNS).collect()
}

fn wrapped(name: &str, text: &str) -> Vec<String> {
    let mut rows: Vec<String> = Vec::new();
    let mut current = String::new();
    for word in text.split_whitespace() {
        if !current.is_empty() && current.len() + word.len() + 11 > COLUMNS {
            rows.push(std::mem::take(&mut current));
        }
        if !current.is_empty() {
            current.push(' ');
        }
        current.push_str(word);
    }
    rows.push(current);
    let named = rows.iter().enumerate();
    named
        .map(|(at, text)| row(if at == 0 { name } else { "" }, text))
        .collect()
}

#[derive(Debug)]
pub struct Follow<'a> {
    pub folder: &'a Path,
    /// End after this time.
    pub time: Option<Duration>,
}

impl Follow<'_> {
    /// Show the controller's windows until it ends, the time is over, or a signal comes.
    ///
    /// Fails when the published status cannot be read.
    pub fn until_the_end(&self, signals: &Signals, screen: &mut Screen) -> Result<(), Error> {
        let end = self.time.map(|time| Instant::now() + time);
        let mut last = None;
        loop {
            let Some(text) = published(self.folder)? else {
                eprintln!("vtax: the controller has ended");
                return Ok(());
            };
            let line: Line = serde_json::from_str(&text).map_err(|error| {
                let thing = self.folder.display().to_string();
                Error::failure(thing, error, "use the vtax that runs there")
            })?;
            if last != Some(line.time) {
                screen.show(&line)?;
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_fits_a_terminal_and_obeys_nothing_in_it() {
        let mut line = Line::new(0.0, "dav2m");
        line.reason = format!("a guest is called \x1b[2J{}", "word ".repeat(60));
        line.mode = Some(PagingMode::Nested);
        line.threshold_vexit = Some(10_000.0);
        line.rates.insert("model.tlb_misses".into(), 12_345.0);
        let rows = block(&line);
        assert!(rows.iter().all(|row| row.chars().count() <= COLUMNS));
        assert!(!rows.concat().contains('\x1b'));
        assert!(
            rows.iter()
                .any(|row| row.contains("12.3k model.tlb_misses/s"))
        );
        assert!(rows.iter().any(|row| row.contains("above 10.0k exits")));
        let words = rows.concat().matches("word").count();
        assert_eq!(words, 60, "{rows:?}");
    }
}
