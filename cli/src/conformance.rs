//! `syncline conformance`.

use std::cell::Cell;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use syncline_conformance::cases::merged::{current, is_named};
use syncline_conformance::inventory::{Sides, device_lines, left_out};
use syncline_conformance::report::{Ending, Exception, Record, Report, exceptions};
use syncline_conformance::{Runner, Settings};

use crate::Command;
use crate::failure::Failure;
use crate::output::say;

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Only the subject of this name, or subjects whose names contain it; --list prints them. An
    /// index stands for the device with this index
    #[arg(long)]
    device: Option<String>,
    /// Only cases whose name, or former name, contains this, or that show this rule
    #[arg(long)]
    filter: Option<String>,
    /// Run all cases this often, each until it does not pass
    #[arg(long, default_value_t = 1, value_name = "TIMES", value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// List subjects and cases, and run nothing
    #[arg(long)]
    list: bool,
    /// Write the full outcome as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the full outcome as JUnit XML
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Print a recorded JSON outcome as a page of rules by subjects, and run nothing
    #[arg(long, value_name = "FILE", exclusive = true)]
    matrix: Option<PathBuf>,
    /// Fail if a case that passed in this recorded JSON outcome does not pass. The subjects must
    /// have the same backends
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Cases that need not pass for --baseline: lines of `case | backends | reason`
    #[arg(long, value_name = "FILE", requires = "baseline")]
    exceptions: Option<PathBuf>,
    /// Load the Vulkan validation layer; what it complains about fails the case
    #[arg(long)]
    validation: bool,
}

/// The name of a case, and its rules.
type CaseName = (&'static str, &'static [&'static str]);

pub(crate) fn run(args: &Args, command: &Command) -> Result<ExitCode, Failure> {
    if let Some(path) = &args.matrix {
        return page(path);
    }
    let baseline = Baseline::read(args)?;
    let machine = command.probe(args.validation)?;
    for reason in left_out(machine.inventory()) {
        say!("skipped: {reason}");
    }
    let foreign = machine.foreign_suites();
    let mut suites = vec![machine.own_suite()];
    suites.extend(foreign.iter().map(|suite| &**suite));
    let mut settings = Settings::default();
    if crate::software::is_on() {
        settings = settings.patient();
    }
    settings = settings.or_told();
    if args.validation {
        settings = settings.with_validation();
    }
    let suites_of = suites.iter().enumerate();
    let subjects = suites_of.flat_map(|(suite, of)| {
        let sides = of.sides().into_iter();
        sides.map(move |sides| (sides, suite))
    });
    let mut subjects: Vec<(Sides, usize)> = subjects.collect();
    if let Some(wanted) = &args.device {
        let all: Vec<_> = subjects
            .iter()
            .map(|(sides, _)| sides.name.clone())
            .collect();
        let name = wanted.to_lowercase();
        let index: Option<usize> = wanted.parse().ok();
        // The whole name of a subject selects it alone. Every pair with the host contains "host".
        let whole = all.contains(wanted);
        subjects.retain(|(sides, _)| match index {
            Some(index) => sides.left == index || sides.right == index,
            None if whole => sides.name == *wanted,
            None => sides.name.to_lowercase().contains(&name),
        });
        if subjects.is_empty() {
            let (asked, have) = (wanted.clone(), all.join(", "));
            return Err(syncline::Error::no_such_device(asked, have).into());
        }
    }
    // The cases of each suite. A suite without a subject runs none.
    let is_wanted = |(id, rules): &CaseName| {
        let wanted = args.filter.as_deref();
        wanted.is_none_or(|wanted| is_named(id, wanted) || rules.contains(&wanted))
    };
    let cases = suites.iter().enumerate().map(|(number, suite)| {
        let mut cases = suite.cases();
        let runs = subjects.iter().any(|(_, suite)| *suite == number);
        cases.retain(|case| runs && is_wanted(case));
        cases
    });
    let cases: Vec<Vec<CaseName>> = cases.collect();
    if let Some(wanted) = &args.filter
        && cases.iter().all(Vec::is_empty)
    {
        return Err(Failure::Words(format!(
            "no case and no rule matches \"{wanted}\"; --list shows them"
        )));
    }
    if args.list {
        for (sides, _) in &subjects {
            say!("subject  {}", sides.name);
        }
        let mut listed = Vec::new();
        for (id, rules) in cases.iter().flatten() {
            if !listed.contains(id) {
                listed.push(*id);
                say!("case     {id:<50} {}", rules.join(" "));
            }
        }
        return Ok(ExitCode::SUCCESS);
    }

    // Fails before the long run if a file cannot be written.
    for path in [&args.json, &args.junit].into_iter().flatten() {
        let mut options = std::fs::OpenOptions::new();
        let opened = options.append(true).create(true).open(path);
        opened.map_err(Failure::write(path))?;
    }
    let bar = if std::io::stderr().is_terminal() {
        let records = subjects.iter().map(|(_, suite)| cases[*suite].len() + 1);
        ProgressBar::new(records.sum::<usize>() as u64)
    } else {
        ProgressBar::hidden()
    };
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    let mut report = Report::new(device_lines(machine.inventory()));
    let mut tell = |record: Record| {
        bar.inc(1);
        let reason = record.reason.as_deref().unwrap_or_default();
        let line = match record.outcome {
            Ending::Passed => {
                let line = format!("  passed   {:<50} {:.3} s", record.id, record.seconds);
                match &record.reason {
                    None => line,
                    Some(note) => format!("{line} ({note})"),
                }
            }
            Ending::Failed => format!("  FAILED   {:<50} {reason}", record.id),
            Ending::Skipped => format!("  skipped  {:<50} {reason}", record.id),
            Ending::Known => format!("  known    {:<50} {reason}", record.id),
        };
        bar.suspend(|| say!("{line}"));
        report.cases.push(record);
    };
    for (Sides { name, .. }, suite) in subjects {
        let (suite, cases) = (suites[suite], &cases[suite]);
        // The case of the filter is of another suite.
        if cases.is_empty() {
            continue;
        }
        say!("\n{name}");
        let mut runner = Runner::new(&name, &settings).expecting(suite.expected(&name));
        let mut before: Vec<Option<Record>> = cases.iter().map(|_| None).collect();
        for round in 1..=args.repeat {
            for ((id, rules), before) in cases.iter().zip(&mut before) {
                let mut seconds = 0.0;
                match before.take() {
                    Some(record) if record.outcome != Ending::Passed => {
                        *before = Some(record);
                        continue;
                    }
                    Some(record) => seconds = record.seconds,
                    None => {}
                }
                bar.set_message(*id);
                let mut record = runner.run_id(id, rules);
                record.seconds += seconds;
                let last = round == args.repeat || record.outcome != Ending::Passed;
                if last {
                    tell(record.clone());
                }
                *before = Some(record);
            }
        }
        tell(runner.finish());
    }
    bar.finish_and_clear();
    if let Some(path) = &args.json {
        write(path, &report.to_json()?)?;
    }
    if let Some(path) = &args.junit {
        write(
            path,
            &report
                .to_junit()
                .map_err(|error| Failure::Words(error.to_string()))?,
        )?;
    }
    let tally = report.tally();
    say!("\n{}", report.table());
    match args.repeat {
        1 => say!("{tally}"),
        times => say!("{tally}; what passed did so {times} times"),
    }
    let behind = baseline.map_or_else(Vec::new, |baseline| baseline.compare(&report, args));
    if !behind.is_empty() {
        say!("\nbehind the recorded run, {} times:", behind.len());
        behind.iter().for_each(|line| say!("  {line}"));
    }
    Ok(if tally.failed == 0 && behind.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

/// A recorded run to compare with.
struct Baseline {
    recorded: Report,
    exceptions: Vec<Exception>,
}

impl Baseline {
    /// Returns `None` if the command line names no recorded run.
    fn read(args: &Args) -> Result<Option<Self>, Failure> {
        let Some(path) = &args.baseline else {
            return Ok(None);
        };
        if args.device.as_deref().is_some_and(is_index) {
            let words = "--baseline compares subjects by name: --device must be part of a name";
            return Err(Failure::Words(words.into()));
        }
        let recorded = recorded(path)?;
        let mut listed = Vec::new();
        if let Some(path) = &args.exceptions {
            let text = std::fs::read_to_string(path).map_err(Failure::read(path))?;
            listed = exceptions(&text).map_err(|(line, text)| {
                let path = path.display();
                Failure::Words(format!(
                    "{path}:{line}: \"{text}\" is not of the form case | backends | reason"
                ))
            })?;
        }
        Ok(Some(Self {
            recorded,
            exceptions: listed,
        }))
    }

    /// Lists what is missing, among the subjects and cases that the command line chooses.
    fn compare(&self, report: &Report, args: &Args) -> Vec<String> {
        let device = args.device.as_deref().unwrap_or_default();
        // The whole name of a subject selects it alone, as in `run`.
        let whole = report.cases.iter().any(|record| record.subject == device);
        let part = device.to_lowercase();
        let compared = Cell::new(false);
        let chosen = |subject: &str, id: &str, rules: &[String]| {
            // Names of devices differ between machines.
            let is_subject =
                report.has_backends_of(subject) || !whole && subject.to_lowercase().contains(&part);
            let is_case = args.filter.as_deref().is_none_or(|wanted| {
                is_named(current(id), wanted) || rules.iter().any(|rule| rule == wanted)
            });
            let is_chosen = is_subject && is_case;
            compared.set(compared.get() || is_chosen);
            is_chosen
        };
        let mut behind = report.behind(&self.recorded, &self.exceptions, chosen);
        if !compared.get() {
            behind.push("no such case has passed there on a subject of these backends".into());
        }
        behind
    }
}

/// True if `--device` gives the index of a device.
fn is_index(wanted: &str) -> bool {
    wanted.parse::<usize>().is_ok()
}

/// Reads a run that --json has written.
fn recorded(path: &Path) -> Result<Report, Failure> {
    let text = std::fs::read_to_string(path).map_err(Failure::read(path))?;
    Report::from_json(&text).map_err(Failure::read(path))
}

/// Prints a recorded run as a page.
fn page(path: &Path) -> Result<ExitCode, Failure> {
    let report = recorded(path)?;
    crate::output::text(&report.page(&path.display().to_string()));
    Ok(ExitCode::SUCCESS)
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(Failure::write(path))
}
