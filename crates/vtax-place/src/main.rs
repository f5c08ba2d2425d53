//! The program `vtax-place`: see the library `vtax_place`.

mod cli;
mod tables;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::Arguments;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return vtax_cli::explain("vtax-place", &error),
    };
    match arguments.carry_out() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("vtax-place: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}
