//! `asked`: what a command line asks for, as JSON, for the parts of a verb that are Python's.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, CommandFactory};
use serde::Serialize;
use vtax_sys::terminal::{explain, output};

use super::{Arguments, names};

/// Print as JSON which options a command line of `vtax` has, after they were checked
#[derive(Debug, Args)]
#[command(hide = true)]
pub struct AskedArguments {
    /// The command line, from the verb on
    #[arg(last = true, required = true)]
    words: Vec<OsString>,
}

/// The options that were given, by their names, with their words as they were typed.
#[derive(Debug, Serialize)]
struct Asked {
    /// Options that take a value, each with all its values.
    values: BTreeMap<String, Vec<String>>,
    flags: Vec<String>,
    /// Arguments that are no options, such as a command.
    words: Vec<String>,
}

impl AskedArguments {
    /// Print it, or what is wrong with the command line, and return the exit code.
    pub fn answer(self) -> ExitCode {
        let mut command = Arguments::command().name("vtax").bin_name("vtax");
        let words: Vec<OsString> = [OsString::from("vtax")]
            .into_iter()
            .chain(self.words)
            .collect();
        match command.try_get_matches_from_mut(&words) {
            Ok(found) if output::json(&asked(&command, &found)).is_ok() => ExitCode::SUCCESS,
            Ok(_) => ExitCode::FAILURE,
            Err(error) => explain(&names::verb(&command, &words), &error),
        }
    }
}

fn asked(command: &Command, found: &ArgMatches) -> Asked {
    let (mut command, mut found) = (command, found);
    while let Some((name, inner)) = found.subcommand() {
        let Some(next) = command.find_subcommand(name) else {
            break;
        };
        (command, found) = (next, inner);
    }
    let mut asked = Asked {
        values: BTreeMap::new(),
        flags: Vec::new(),
        words: Vec::new(),
    };
    for argument in command.get_arguments() {
        let id = argument.get_id().as_str();
        if found.value_source(id) != Some(ValueSource::CommandLine) {
            continue;
        }
        let raw = found.get_raw(id).into_iter().flatten();
        let texts = raw.map(OsStr::to_string_lossy).map(Into::into);
        match argument.get_long() {
            None => asked.words.extend(texts),
            Some(long) if argument.get_action().takes_values() => {
                asked.values.insert(long.to_owned(), texts.collect());
            }
            Some(long) => asked.flags.push(long.to_owned()),
        }
    }
    asked
}
