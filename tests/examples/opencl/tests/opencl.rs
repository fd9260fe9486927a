//! The conformance suite on OpenCL, and on pairs of it with the devices of Syncline.
//!
//! Without arguments it runs the quick cases on each device alone. The pairs, and all cases:
//! `cargo test -p syncline-opencl --test opencl -- --include-ignored`.

mod work;

use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Trial};
use syncline::backend::Candidate as _;
use syncline::{Error, Inventory, ProbeOptions, Result};
use syncline_conformance::inventory::name_of;
use syncline_conformance::report::{Ending, Tally};
use syncline_conformance::runner::{Suite, child};
use syncline_conformance::workload::Equipped;
use syncline_conformance::{Paired, Runner, Settings, World};
use syncline_opencl::Adapter;

use work::OpenCl;

/// The example of the README.
mod frames {
    include!("readme/frames.rs");

    pub(super) fn run() -> Result<()> {
        main()
    }
}

/// Every device of OpenCL alone, with another of its kind, and with each device of Syncline.
struct OpenClSuite {
    adapters: Vec<Adapter>,
    /// Why there is no device.
    missing: Option<Error>,
    others: Inventory,
}

/// The devices of a subject, by their numbers.
#[derive(Clone, Copy)]
enum Sides {
    One(usize),
    Two(usize),
    /// With this device of Syncline, on the right if `true`.
    With(usize, usize, bool),
}

impl OpenClSuite {
    fn probe() -> Self {
        let found = Adapter::all();
        Self {
            missing: found.as_ref().err().cloned(),
            adapters: found.unwrap_or_default(),
            others: Inventory::probe(&ProbeOptions::default()),
        }
    }

    fn sides(&self) -> Vec<(String, Sides)> {
        let mut all = Vec::new();
        for (index, adapter) in self.adapters.iter().enumerate() {
            if adapter.rejected().is_some() {
                continue;
            }
            let ours = format!("opencl {}", adapter.info().marked_name());
            all.push((ours.clone(), Sides::One(index)));
            all.push((format!("{ours} -> {ours}"), Sides::Two(index)));
            for found in self.others.devices() {
                if found.rejected().is_some() {
                    continue;
                }
                let other = name_of(&self.others, found);
                let number = found.index();
                all.push((
                    format!("{ours} -> {other}"),
                    Sides::With(index, number, true),
                ));
                all.push((
                    format!("{other} -> {ours}"),
                    Sides::With(index, number, false),
                ));
            }
        }
        all
    }

    fn device(&self, index: usize) -> Result<Paired<OpenCl, Equipped>> {
        Ok(Paired::left(OpenCl::new(self.adapters[index].open()?)?))
    }
}

impl Suite for OpenClSuite {
    type Subject = Paired<OpenCl, Equipped>;

    fn subjects(&self) -> Vec<String> {
        self.sides().into_iter().map(|(name, _)| name).collect()
    }

    fn open(&self, subject: &str) -> Result<World<Self::Subject>> {
        let sides = self.sides();
        let found = sides.iter().find(|(name, _)| name == subject);
        let (_, sides) = found.ok_or_else(|| Error::no_such_device(subject, ""))?;
        match *sides {
            Sides::One(index) => Ok(World::one(self.device(index)?)),
            Sides::Two(index) => Ok(World::two(self.device(index)?, self.device(index)?)),
            Sides::With(index, other, right) => {
                let ours = self.device(index)?;
                let other = self.others.devices()[other].open()?;
                let other = Paired::right(Equipped::new(other)?);
                Ok(if right {
                    World::two(ours, other)
                } else {
                    World::two(other, ours)
                })
            }
        }
    }
}

/// Slow cases that show little of a backend that the others do not.
fn is_slow(case: &str) -> bool {
    case.starts_with("stress.") || case == "clocks.holds_while_it_drifts"
}

/// Runs the cases on one subject, and prints what was skipped.
fn run(suite: &OpenClSuite, subject: &str, whole: bool) -> Result<(), String> {
    let mut runner = Runner::new(subject, &Settings::from_env());
    let cases = suite.cases();
    let chosen = cases.iter().filter(|case| whole || !is_slow(case.id));
    let mut records: Vec<_> = chosen.map(|case| runner.run(case)).collect();
    records.push(runner.finish());
    let mut tally = Tally::default();
    let mut failed = Vec::new();
    for record in records {
        tally.count(record.outcome);
        let reason = record.reason.unwrap_or_default();
        match record.outcome {
            Ending::Failed => {
                println!("  FAILED {subject}: {}: {reason}", record.id);
                failed.push(record.id);
            }
            Ending::Skipped => println!("{subject}: skipped: {}: {reason}", record.id),
            _ => {}
        }
    }
    println!("{subject}: {tally}");
    if failed.is_empty() {
        Ok(())
    } else {
        Err(failed.join(", "))
    }
}

fn main() -> ExitCode {
    if let Some(done) = child(|_| OpenClSuite::probe()) {
        return done;
    }
    let arguments = Arguments::from_args();
    let suite = Arc::new(OpenClSuite::probe());
    if let Some(reason) = &suite.missing {
        println!("skipped: {reason}");
        if std::env::var_os("SYNCLINE_REQUIRE_OPENCL").is_some() {
            return ExitCode::FAILURE;
        }
    }
    let whole = arguments.include_ignored || arguments.ignored;
    let trial = |(name, sides): (String, Sides)| {
        let (suite, subject) = (suite.clone(), name.clone());
        let run = move || Ok(run(&suite, &subject, whole)?);
        Trial::test(name, run).with_ignored_flag(!matches!(sides, Sides::One(_)))
    };
    let mut trials: Vec<_> = suite.sides().into_iter().map(trial).collect();
    if suite.missing.is_none() && suite.others.select("vulkan").is_ok() {
        trials.push(Trial::test("the example", || Ok(frames::run()?)));
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}
