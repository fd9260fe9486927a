//! `syncline doctor`: what prevents sharing between CUDA and Vulkan on this machine.

mod checks;
mod cuda;
mod exchange;
mod facts;
mod files;
mod manifests;
mod pair;
mod report;
mod vulkan;

use std::process::ExitCode;

use crate::failure::Failure;
use crate::output::say;

use facts::Facts;
use report::Report;

#[derive(clap::Args, Debug)]
#[command(after_help = checks::list())]
pub(crate) struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let facts = Facts::gather()?;
    let report = Report::new(&facts, checks::run(&facts));
    if args.json {
        say!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        report.print();
    }
    Ok(ExitCode::from(u8::from(!report.shares())))
}
