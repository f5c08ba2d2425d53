//! The command line: the verbs of `vtax` that are carried out here, and what `vtax` asks.
//!
//! `vtax` becomes this program under its own name (`argv[0]`), with the words as the user typed
//! them, so that every option is declared once.

mod asked;
mod complete;
mod names;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use vtax_sys::terminal::{Error, explain};

use crate::{control, place, record, switch};

/// Records events, places threads and switches the paging mode of guests on this host
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100, after_help = EXAMPLES)]
pub struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

const EXAMPLES: &str = "\
Examples:
  vtax-host record --every 1ms --events default,kvm --for 10s --out run
  vtax-host place threads --for 5s
  vtax-host paging switch --to shadow --dry-run

Exit code: 0 done, 1 the machine failed, 2 misuse.";

#[derive(Debug, Subcommand)]
enum Verb {
    Record(Box<record::cli::RecordArguments>),
    Events(record::cli::EventsArguments),
    Sources(record::cli::SourcesArguments),
    Finish(record::cli::FinishArguments),
    ImportXen(record::xen::cli::ImportXenArguments),
    RecordXen(record::xen::cli::RecordXenArguments),
    /// Threads that work for guests: found, slowed and put on CPUs
    #[command(subcommand)]
    Place(place::cli::Verb),
    /// The paging mode of this host's KVM guests
    #[command(subcommand)]
    Paging(Box<Paging>),
    Asked(asked::AskedArguments),
    Complete(complete::CompleteArguments),
}

#[derive(Debug, Subcommand)]
enum Paging {
    Switch(switch::cli::SwitchArguments),
    Recover(switch::cli::RecoverArguments),
    Control(control::cli::ControlArguments),
    Watch(control::cli::WatchArguments),
}

/// Carry out a command line; the first word is the name that the program was started by.
pub fn run(words: Vec<OsString>) -> ExitCode {
    let (name, words) = names::as_host(words);
    let mut command = Arguments::command().name(name).bin_name(name);
    let parsed = command.try_get_matches_from_mut(&words);
    let arguments = match parsed.and_then(|found| Arguments::from_arg_matches(&found)) {
        Ok(arguments) => arguments,
        Err(error) => return explain(&names::verb(&command, &words), &error),
    };
    if let Verb::Asked(arguments) = arguments.verb {
        return arguments.answer();
    }
    match arguments.carry_out() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if !matches!(error, Error::Interrupted(_)) {
                eprintln!("vtax: {error}");
            }
            ExitCode::from(error.exit_code())
        }
    }
}

impl Arguments {
    /// Carry out the verb; fails as it does.
    fn carry_out(self) -> Result<(), Error> {
        match self.verb {
            Verb::Record(arguments) => arguments.carry_out(),
            Verb::Events(arguments) => arguments.carry_out(),
            Verb::Sources(arguments) => arguments.carry_out(),
            Verb::Finish(arguments) => arguments.carry_out(),
            Verb::ImportXen(arguments) => arguments.carry_out(),
            Verb::RecordXen(arguments) => arguments.carry_out(),
            Verb::Place(verb) => verb.carry_out(),
            Verb::Paging(verb) => match *verb {
                Paging::Switch(arguments) => arguments.carry_out(),
                Paging::Recover(arguments) => arguments.carry_out(),
                Paging::Control(arguments) => arguments.carry_out(),
                Paging::Watch(arguments) => arguments.carry_out(),
            },
            // Answered above, with an exit code of its own.
            Verb::Asked(_) => Ok(()),
            Verb::Complete(arguments) => arguments.carry_out(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Arguments::command().debug_assert();
    }
}
