//! The `syncline` command. The work is in the crates that it calls.

mod bench;
mod clocks;
mod completions;
mod conformance;
mod demo;
mod doctor;
#[cfg(test)]
mod documents;
mod failure;
mod info;
mod output;
mod program;
mod software;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use syncline::{Error, Found, Inventory, ProbeOptions, info::BackendKind};
use syncline_conformance::inventory::Devices;

use failure::Failure;

/// Counts allocations only while a row of the bench needs that.
#[global_allocator]
static ALLOCATOR: syncline_bench::heap::Allocator = syncline_bench::heap::Allocator;

/// Fences, timelines and timing for CUDA, Vulkan and the host.
///
/// Without a subcommand this runs the demo: frames over timelines that two APIs share.
#[derive(Parser, Debug)]
#[command(name = "syncline", version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    demo: demo::Args,
    /// CUDA and Vulkan on this machine's processors, by the software drivers that come with
    /// Syncline. No GPU is used
    #[arg(long, global = true)]
    software: bool,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Every device of every backend, what each can do, and the reason for what it cannot
    Info(info::Args),
    /// A frame pipeline over two APIs, every frame compared with a CPU reference
    Demo(demo::Args),
    /// The conformance suite, on every device and every pair of devices
    Conformance(conformance::Args),
    /// What Syncline costs beside hand-written driver calls
    Bench(bench::Args),
    /// Each device's clock beside the host's, live: offset, drift, and how far that may be off
    Clocks(clocks::Args),
    /// Any program on the software drivers: `syncline run PROGRAM ARGUMENTS`
    Run(program::Args),
    /// What prevents CUDA and Vulkan from sharing on this machine, and what to do about it
    ///
    /// The checks run in the order in which a person would repair what they find. A check is
    /// skipped if it depends on a check that has found something. Exit code 0: the last check, in
    /// which CUDA and Vulkan share memory and a timeline, has found nothing. 1: something prevents
    /// that.
    Doctor(doctor::Args),
    /// Completions for a shell, on standard output
    Completions(completions::Args),
}

fn main() -> ExitCode {
    if let Some(done) = syncline_conformance::runner::child(Devices::probe) {
        return done;
    }
    if let Some(done) = syncline_bench::child() {
        return done;
    }
    // Wrong usage exits with 2 here.
    let cli = Cli::parse_from(in_order(std::env::args_os().collect()));
    let ended = if cli.uses_software() && !software::is_on() {
        software::run_again()
    } else {
        run(&cli)
    };
    ended.unwrap_or_else(|failure| {
        output::complain(format_args!("error: {failure}"));
        ExitCode::from(2)
    })
}

/// Returns a command line with a leading `--software` moved behind the subcommand.
///
/// In front of a subcommand clap takes `--software` for an option of the demo. It does not go
/// further back, because later arguments may belong to a program that `run` starts.
fn in_order(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let is_option = |argument: &OsString| argument.as_encoded_bytes().starts_with(b"-");
    if let [_, first, second, ..] = &mut arguments[..]
        && first == "--software"
        && !is_option(second)
    {
        std::mem::swap(first, second);
    }
    arguments
}

impl Cli {
    /// True if the command uses the software drivers. `run` always does.
    const fn uses_software(&self) -> bool {
        self.software || matches!(self.command, Some(Command::Run(_)))
    }
}

fn run(cli: &Cli) -> Result<ExitCode, Failure> {
    if cli.uses_software() {
        software::check()?;
    }
    match &cli.command {
        Some(Command::Info(args)) => info::run(args),
        Some(Command::Demo(args)) => demo::run(args),
        Some(Command::Conformance(args)) => conformance::run(args),
        Some(Command::Bench(args)) => bench::run(args),
        Some(Command::Clocks(args)) => clocks::run(args),
        Some(Command::Run(args)) => program::run(args),
        Some(Command::Doctor(args)) => doctor::run(args),
        Some(Command::Completions(args)) => Ok(completions::run(args)),
        None => demo::run(&cli.demo),
    }
}

/// Finds the devices. With `validation` it fails if Vulkan cannot be validated.
fn probe(validation: bool) -> Result<Inventory, Failure> {
    let inventory = Inventory::probe(&ProbeOptions { validation });
    if software::is_on() {
        software::refuse_gpus(inventory.devices().iter().map(Found::info))?;
    }
    let absent = inventory.unavailable().iter().find(|error| {
        matches!(error, Error::Unavailable { backend, .. } if *backend == BackendKind::Vulkan)
    });
    match absent {
        Some(error) if validation => Err(error.clone().into()),
        _ => Ok(inventory),
    }
}
