//! The command `syncline`, as a library: an application runs it with a backend of its own.
//!
//! The binary `syncline` has the backends of this project. A program with one more is this long:
//!
//! ```no_run
//! # use syncline_cli::ForeignBackend;
//! # fn with<OpenCl: ForeignBackend>(OpenCl: OpenCl) -> std::process::ExitCode {
//! // fn main() -> std::process::ExitCode
//! syncline_cli::Command::new().with(OpenCl).run()
//! # }
//! ```
//!
//! `OpenCl` implements [`ForeignBackend`], which says what the subcommands need of it.

mod backend;
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
mod machine;
mod output;
mod program;
mod software;

use std::fmt;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use syncline::{Error, Found, Inventory, ProbeOptions, info::BackendKind};
use syncline_conformance::runner::child_subject;

pub use backend::ForeignBackend;
pub use doctor::Checked;
use failure::Failure;
use machine::{AnyBackend, Machine};

/// The command `syncline`, with the backends of this project and any number of others.
///
/// | subcommand | what it does with another backend |
/// |---|---|
/// | `info` | lists its devices, also with `--json` and `--pair` |
/// | `conformance` | runs the suite on its devices, and on pairs of them with all others |
/// | `demo --producer` | simulates on its device, if it has a [producer](ForeignBackend::producer) |
/// | `doctor` | runs its [checks](ForeignBackend::checks) behind the others |
/// | `clocks` | reads the clocks of its devices |
///
/// The others know only the backends of this project, and so do `demo --consumer` and the demo by
/// two processes: [`Error::Unsupported`] for another device.
#[derive(Default)]
pub struct Command {
    backends: Vec<Box<dyn AnyBackend>>,
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Command with {} more backends", self.backends.len())
    }
}

impl Command {
    /// The command with the backends of this project.
    #[must_use]
    pub const fn new() -> Self {
        let backends = Vec::new();
        Self { backends }
    }

    /// Adds a backend. Its devices get the next indices.
    #[must_use]
    pub fn with(mut self, backend: impl ForeignBackend) -> Self {
        self.backends.push(Box::new(backend));
        self
    }

    /// Runs the command line of this process to its end. Returns the exit code for `main`.
    ///
    /// Call it first in `main`, before the process has a second thread: the command starts its own
    /// program again, with other variables in the environment, and expects to come here. Prints
    /// errors on standard error and returns 2. Ends the process with 2 on wrong usage.
    #[must_use]
    pub fn run(self) -> ExitCode {
        if let Some(subject) = child_subject() {
            return machine::answer(&self.backends, &subject);
        }
        if let Some(done) = syncline_bench::child() {
            return done;
        }
        // Wrong usage exits with 2 here.
        let cli = Cli::parse();
        let ended = if cli.uses_software() && !software::is_on() {
            software::run_again()
        } else {
            self.run_line(&cli)
        };
        ended.unwrap_or_else(|failure| {
            output::complain(format_args!("error: {failure}"));
            ExitCode::from(2)
        })
    }

    fn run_line(&self, cli: &Cli) -> Result<ExitCode, Failure> {
        if cli.uses_software() {
            software::check()?;
        }
        match &cli.what {
            Some(What::Info(args)) => info::run(args, &self.probe(false)?),
            Some(What::Demo(args)) => demo::run(args, self),
            Some(What::Conformance(args)) => conformance::run(args, self),
            Some(What::Bench(args)) => bench::run(args),
            Some(What::Clocks(args)) => clocks::run(args, &self.probe(false)?),
            Some(What::Run(args)) => program::run(args),
            Some(What::Doctor(args)) => doctor::run(args, &self.backends),
            Some(What::Completions(args)) => Ok(completions::run(args)),
            None => demo::run(&demo::Args::with_picture(), self),
        }
    }

    /// Finds the devices of all backends. With `validation` it fails if Vulkan cannot be validated.
    fn probe(&self, validation: bool) -> Result<Machine<'_>, Failure> {
        Ok(Machine::new(probe(validation)?, &self.backends))
    }
}

const WITHOUT_SUBCOMMAND: &str = "\
Without a subcommand it runs the demo, and writes the last frame as a picture.";

/// Fences, timelines and timing for CUDA, Vulkan and the host.
#[derive(Parser, Debug)]
#[command(name = "syncline", version, after_help = WITHOUT_SUBCOMMAND)]
struct Cli {
    #[command(subcommand)]
    what: Option<What>,
    /// CUDA and Vulkan in software, by the drivers that come with Syncline. No GPU is used
    #[arg(long, global = true)]
    software: bool,
}

#[derive(Subcommand, Debug)]
enum What {
    /// Every device, what each can do, and the reason for what it cannot
    Info(info::Args),
    /// A frame pipeline over two APIs, every frame compared with a CPU reference
    Demo(demo::Args),
    /// The conformance suite, on every device and every pair of devices
    Conformance(conformance::Args),
    /// What Syncline costs beside hand-written driver calls
    Bench(bench::Args),
    /// Each device's clock beside the host's, live: offset, drift, and their error
    Clocks(clocks::Args),
    /// Any program on the software drivers: `syncline run PROGRAM ARGUMENTS`
    Run(program::Args),
    /// What prevents CUDA and Vulkan from sharing here, and what to do about it
    ///
    /// The checks run in the order in which a person would repair what they find. A check is
    /// skipped if it depends on a check that has found something. Exit code 0: the last check, in
    /// which CUDA and Vulkan share memory and a timeline, has found nothing. 1: something prevents
    /// that, or a check of another backend has found something.
    Doctor(doctor::Args),
    /// Completions for a shell, on standard output
    Completions(completions::Args),
}

impl Cli {
    /// True if the command uses the software drivers. `run` always does.
    const fn uses_software(&self) -> bool {
        self.software || matches!(self.what, Some(What::Run(_)))
    }
}

/// Finds the devices of this project's backends.
///
/// With `validation` it fails if Vulkan cannot be validated.
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
