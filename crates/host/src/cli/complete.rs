//! `complete`: how an unfinished command line of `vtax` may go on, for the shell.

use std::ffi::OsString;

use clap::{Args, CommandFactory};
use clap_complete::engine;
use vtax_sys::terminal::{Error, output};

use super::Arguments;

/// Print how the last word of a command line may go on, one possibility in each line
#[derive(Debug, Args)]
#[command(hide = true)]
pub struct CompleteArguments {
    /// The command line, from the verb on; the last word may be empty
    #[arg(last = true, required = true)]
    words: Vec<OsString>,
}

impl CompleteArguments {
    /// Print the possibilities.
    pub fn carry_out(self) -> Result<(), Error> {
        let mut command = Arguments::command().name("vtax").bin_name("vtax");
        let words: Vec<OsString> = [OsString::from("vtax")]
            .into_iter()
            .chain(self.words)
            .collect();
        let last = words.len() - 1;
        let found = engine::complete(&mut command, words, last, None);
        let found = found.map_err(|error| Error::input_output("completion", &error, "type it"))?;
        let values = found.iter().map(|each| each.get_value().to_string_lossy());
        output::line(&values.collect::<Vec<_>>().join("\n"))
    }
}
