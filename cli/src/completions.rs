//! `syncline completions`.

use std::process::ExitCode;

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::Cli;
use crate::output;

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "syncline", &mut script);
    output::text(&String::from_utf8_lossy(&script));
    ExitCode::SUCCESS
}
