//! The program `vtax-recorder`: see the library `vtax_record`.

mod cli;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::Arguments;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return vtax_cli::explain("vtax-recorder", &error),
    };
    match arguments.carry_out() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("vtax-recorder: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}
