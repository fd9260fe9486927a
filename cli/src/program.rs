//! `syncline run`: any program on the software drivers.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use crate::failure::Failure;

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The program
    program: OsString,
    /// Its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Replaces this process by the program. Returns only if that fails.
pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let error = Command::new(&args.program).args(&args.arguments).exec();
    let program = args.program.display();
    Err(Failure::Words(format!("{program} cannot be run: {error}")))
}
