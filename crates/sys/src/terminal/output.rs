//! What a program prints when its work is done.

use std::io::{self, Write};

use serde::Serialize;

use super::Error;
use crate::reason;

/// Print a text and a line break.
///
/// # Errors
/// A failure when the standard output cannot be written.
pub fn line(text: &str) -> Result<(), Error> {
    writeln!(io::stdout(), "{text}")
        .map_err(|error| Error::failure("output", reason(&error), "free space or read the pipe"))
}

/// Print a value as JSON in one line.
///
/// # Errors
/// As for [`line`], and for a value that has no JSON form.
pub fn json(value: &impl Serialize) -> Result<(), Error> {
    line(&serde_json::to_string(value).map_err(no_json)?)
}

/// Print a value as indented JSON.
///
/// # Errors
/// As [`json`].
pub fn pretty_json(value: &impl Serialize) -> Result<(), Error> {
    line(&serde_json::to_string_pretty(value).map_err(no_json)?)
}

fn no_json(error: serde_json::Error) -> Error {
    Error::failure("output", error, "report this as a bug")
}

/// A text without characters that a terminal would obey; programs choose the names of threads.
pub fn plain(text: &str) -> String {
    let visible = |letter: char| if letter.is_control() { '?' } else { letter };
    text.chars().map(visible).collect()
}
