//! The program `vtax-control`: see the library `vtax_control`.

mod cli;
mod unit;
mod view;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::Arguments;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return vtax_cli::explain("vtax-control", &error),
    };
    match arguments.carry_out() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("vtax-control: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}
