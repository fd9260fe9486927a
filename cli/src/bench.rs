//! `syncline bench`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use syncline_bench::hops;
use syncline_bench::lab::Pace;
use syncline_bench::limit::words;
use syncline_bench::measure::{Nothing, Options, Plan};
use syncline_bench::{Machine, Report, measure};

use crate::failure::Failure;
use crate::output::{complain, say};

#[derive(clap::Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: Option<What>,

    /// Only subjects with this in their names (see --list), or with the device of this index
    #[arg(long)]
    device: Option<String>,
    /// Only rows whose id contains this; repeat it for more rows
    #[arg(long = "filter", value_name = "FILTER")]
    filters: Vec<String>,
    /// Rounds of a row; four times as many if a limit is in nanoseconds above raw
    #[arg(long, default_value_t = Pace::FULL.rounds, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rounds: u32,
    /// A few short rounds, to check that everything runs; the figures are not reliable
    #[arg(long, conflicts_with = "rounds")]
    quick: bool,
    /// List rows and subjects, and measure nothing
    #[arg(long)]
    list: bool,
    /// Write all measurements as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Exit with 1 if a limit is missed
    #[arg(long)]
    require: bool,
}

#[derive(clap::Subcommand, Debug)]
enum What {
    /// What one dependency costs between every two queues of the machine
    Hops(HopsArgs),
    /// Prints a recorded run (--json); measures nothing
    Tables {
        /// The run
        recording: PathBuf,
    },
}

#[derive(clap::Args, Debug)]
struct HopsArgs {
    /// Only queues of devices whose names contain this, or of the device with this index
    #[arg(long)]
    device: Option<String>,
    /// A few chains of each, to check that everything runs; the figures are not reliable
    #[arg(long)]
    quick: bool,
}

impl Args {
    const fn pace(&self) -> Pace {
        if self.quick {
            return Pace::QUICK;
        }
        Pace {
            rounds: self.rounds,
            ..Pace::FULL
        }
    }
}

impl From<Nothing> for Failure {
    fn from(nothing: Nothing) -> Self {
        match nothing {
            Nothing::NoSuchRow(asked) => {
                Self::Words(format!("no row matches \"{asked}\"; --list shows them"))
            }
            Nothing::NoSuchDevice(error) => error.into(),
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    match &args.what {
        Some(What::Hops(args)) => return run_hops(args),
        Some(What::Tables { recording }) => return tables(recording),
        None => {}
    }
    let machine = Machine::new(crate::probe(false)?);
    let plan = Plan::new(
        &machine,
        &Options {
            filters: args.filters.clone(),
            device: args.device.clone(),
        },
    )?;
    if args.list {
        list(&plan);
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(path) = &args.json {
        prepare(path)?;
    }
    warn();
    // The screen comes first, at the end of the run. Until then this shows how far it is.
    let report = measure(&machine, &plan, args.pace(), |record| {
        complain(format_args!("{}", record.line()));
    });
    say!("{}", report.text());
    if let Some(path) = &args.json {
        std::fs::write(path, report.to_json()?).map_err(Failure::write(path))?;
    }
    let fine = report.all_ran() && (report.all_met() || !args.require);
    Ok(if fine {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

fn run_hops(args: &HopsArgs) -> Result<ExitCode, Failure> {
    let machine = Machine::new(crate::probe(false)?);
    warn();
    let budget = Duration::from_millis(if args.quick { 1 } else { 100 });
    let (table, all_ran) = hops::table(&machine, args.device.as_deref(), budget)
        .map_err(|stop| Failure::Words(stop.to_string()))?;
    say!("{table}");
    Ok(ExitCode::from(u8::from(!all_ran)))
}

fn tables(path: &Path) -> Result<ExitCode, Failure> {
    let report = std::fs::read_to_string(path).map_err(Failure::read(path))?;
    let report = Report::from_json(&report).map_err(Failure::read(path))?;
    say!("{}", report.text());
    Ok(ExitCode::SUCCESS)
}

fn list(plan: &Plan) {
    for entry in &plan.entries {
        say!(
            "{:<28} {}\n    ours  {}\n    raw   {}\n    limit {}",
            entry.row.id,
            entry.name(),
            entry.row.ours,
            entry.row.raw,
            words(entry.limits())
        );
    }
    for (row, reason) in &plan.absent {
        say!("{:<28} nothing to run it on: {reason}", row.id);
    }
}

/// Warns that the figures of a debug build say nothing about a release build.
fn warn() {
    if cfg!(debug_assertions) {
        complain(format_args!(
            "note: this is a debug build; its figures say nothing about a release"
        ));
    }
}

/// Checks before a long run that its result can be written.
fn prepare(path: &Path) -> Result<(), Failure> {
    let mut options = std::fs::OpenOptions::new();
    let opened = options.append(true).create(true).open(path);
    opened.map(drop).map_err(Failure::write(path))
}
