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
use crate::machine::AnyBackend;
use crate::output::say;

use checks::Outcome;
use facts::Facts;
use report::Report;

#[derive(clap::Args, Debug)]
#[command(after_help = checks::list())]
pub(crate) struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A check of `syncline doctor` that a foreign backend has run, and its result.
#[derive(Debug, Clone)]
pub struct Checked {
    id: String,
    outcome: Outcome,
}

impl Checked {
    /// The check has found nothing. `how` is a sentence that says how that is known.
    ///
    /// `id` names the check in the output and in the JSON, such as `opencl-library`.
    pub fn ok(id: impl Into<String>, how: impl Into<String>) -> Self {
        let (id, outcome) = (id.into(), Outcome::ok(how));
        Self { id, outcome }
    }

    /// The check has found `what`. `fix` says what to do, such as which package to install.
    pub fn found(id: impl Into<String>, what: impl Into<String>, fix: impl Into<String>) -> Self {
        let (id, outcome) = (id.into(), Outcome::found(what, fix));
        Self { id, outcome }
    }
}

pub(crate) fn run(args: &Args, backends: &[Box<dyn AnyBackend>]) -> Result<ExitCode, Failure> {
    let facts = Facts::gather()?;
    let own = checks::run(&facts);
    let foreign = backends.iter().flat_map(|backend| backend.checks());
    let report = Report::new(&facts, own, foreign.collect());
    if args.json {
        say!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        report.print();
    }
    Ok(ExitCode::from(u8::from(!report.is_fine())))
}
