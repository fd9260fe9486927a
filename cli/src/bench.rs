//! `syncline bench`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use syncline_bench::compare::{Comparison, Recording};
use syncline_bench::hops;
use syncline_bench::lab::Pace;
use syncline_bench::limit::words;
use syncline_bench::measure::{Nothing, Options, Plan};
use syncline_bench::page::{self, BEGIN, END, Recorded};
use syncline_bench::{Machine, Report, measure};

use crate::failure::Failure;
use crate::output::{complain, say, text};

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
    /// Rounds of a row; four times as many if a limit is in nanoseconds above raw or the floor
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
    /// A recorded run (--json) as a table in Markdown; measures nothing
    Tables(TablesArgs),
    /// Rows that grew by more than 20 % between two recorded runs (--json); measures nothing
    Compare(CompareArgs),
}

#[derive(clap::Args, Debug)]
struct CompareArgs {
    /// The earlier run
    #[arg(value_name = "OLD")]
    before: PathBuf,
    /// The later run
    #[arg(value_name = "NEW")]
    after: PathBuf,
    /// Exit with 1 if a row grew by more than its limit allows
    #[arg(long)]
    require: bool,
}

#[derive(clap::Args, Debug)]
struct TablesArgs {
    /// The run
    recording: PathBuf,
    /// Write the table between the marks of this page instead of printing it
    #[arg(long, value_name = "FILE")]
    into: Option<PathBuf>,
}

#[derive(clap::Args, Debug)]
struct HopsArgs {
    /// Only queues of devices whose names contain this, or of the device with this index
    #[arg(long)]
    device: Option<String>,
    /// A few chains of each, to check that everything runs; the figures are not reliable
    #[arg(long)]
    quick: bool,
    /// Write all measurements as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
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
        Some(What::Tables(args)) => return tables(args),
        Some(What::Compare(args)) => return compare(args),
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
    let report = measure(&machine, &plan, args.pace(), |record| {
        say!("{}", record.lines());
    });
    close(&report);
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
    if let Some(path) = &args.json {
        prepare(path)?;
    }
    warn();
    let budget = Duration::from_millis(if args.quick { 1 } else { 100 });
    let matrix = hops::measure(&machine, args.device.as_deref(), budget, |hop, places| {
        if let Some(reason) = &hop.failed {
            let (from, to) = (&places[hop.from].name, &places[hop.to].name);
            say!("FAILED: {from} to {to}: {reason}");
        }
    })
    .map_err(|stop| Failure::Words(stop.to_string()))?;
    say!("{}", matrix.table());
    matrix.advice.iter().for_each(|line| say!("* {line}"));
    if let Some(path) = &args.json {
        std::fs::write(path, matrix.to_json()?).map_err(Failure::write(path))?;
    }
    Ok(if matrix.all_ran() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

fn tables(args: &TablesArgs) -> Result<ExitCode, Failure> {
    let read = |path: &Path| std::fs::read_to_string(path).map_err(Failure::read(path));
    let path = &args.recording;
    let report = Report::from_json(&read(path)?).map_err(Failure::read(path))?;
    let table = page::table(Recorded {
        path: &path.to_string_lossy(),
        report: &report,
    });
    match &args.into {
        None => text(&table),
        Some(path) => {
            let none = || {
                let (path, begin, end) = (path.display(), BEGIN.trim_end(), END.trim_end());
                Failure::Words(format!("{path} does not have, once each: {begin} {end}"))
            };
            let page = page::with(&read(path)?, &table).ok_or_else(none)?;
            std::fs::write(path, page).map_err(Failure::write(path))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn compare(args: &CompareArgs) -> Result<ExitCode, Failure> {
    let (before, after) = (
        Recording::read(&args.before)?,
        Recording::read(&args.after)?,
    );
    let compared = Comparison::of(&before, &after);
    text(&compared.to_string());
    compared.require_complete()?;
    let (rows, grown) = (compared.rows.len(), compared.grown().count());
    let slow = compared.too_slow().count();
    say!("{rows} rows compared, {grown} grew by more than 20 %, {slow} by more than their limits");
    Ok(if args.require && slow > 0 {
        ExitCode::from(1)
    } else {
        ExitCode::SUCCESS
    })
}

/// Prints the skipped rows by reason, and the counts.
fn close(report: &Report) {
    for (reason, rows) in report.skips() {
        say!("\nskipped: {}\n    {reason}", rows.join(", "));
    }
    say!("\n{}", report.tally());
}

fn list(plan: &Plan) {
    for entry in &plan.entries {
        say!(
            "{:<28} {}\n    ours  {}\n    raw   {}\n    floor {}\n    limit {}",
            entry.row.id,
            entry.name(),
            entry.row.ours,
            entry.row.raw,
            entry.row.floor,
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
