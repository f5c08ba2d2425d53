//! The program `vtax-host`: see the library of the same name.

use std::process::ExitCode;

use vtax_host::cli;

fn main() -> ExitCode {
    cli::run(std::env::args_os().collect())
}
