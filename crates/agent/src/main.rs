//! The program `vtax-agent`: see the library of the same name.

mod cli;

use std::process::ExitCode;

use clap::Parser;
use vtax_agent::{init, workload};
use vtax_sys::terminal::Error;

use crate::cli::Arguments;

fn main() -> ExitCode {
    if let Some(code) = workload::noop_code(std::env::args_os().skip(1)) {
        return ExitCode::from(code);
    }
    // The kernel starts the first process with no arguments, or with those parameters of its own
    // command line that it does not know.
    if nix::unistd::getpid().as_raw() == 1 && !started_by_hand() {
        init::init();
    }
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return vtax_sys::terminal::explain("vtax-agent", &error),
    };
    match arguments.carry_out() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if !matches!(error, Error::Interrupted(_)) {
                eprintln!("vtax-agent: {error}");
            }
            ExitCode::from(error.exit_code())
        }
    }
}

/// In a container the agent may also be process 1, but then somebody named a subcommand.
fn started_by_hand() -> bool {
    let first = std::env::args().nth(1);
    first.is_some_and(|word| cli::is_subcommand(&word) && word != "init")
}
