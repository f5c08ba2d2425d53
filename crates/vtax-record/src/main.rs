//! The program `vtax-recorder`: see the library `vtax_record`.

mod cli;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::Arguments;

fn main() -> ExitCode {
    // Messages name the program that the user called, which may be vtax.
    let is_child = std::env::args_os()
        .take_while(|word| word != "--")
        .any(|word| word == "--child");
    let (verb, name) = if is_child {
        ("vtax record", "vtax")
    } else {
        ("vtax-recorder", "vtax-recorder")
    };
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return vtax_cli::explain(verb, &error),
    };
    match arguments.carry_out() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}
