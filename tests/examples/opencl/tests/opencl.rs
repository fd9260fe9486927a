//! The conformance suite on each device of OpenCL, alone and as a pair of two devices.
//!
//! Without arguments it runs the quick cases on each device alone. The pairs, and all cases:
//! `cargo test -p syncline-opencl --test opencl -- --include-ignored`. The example `command` runs
//! it on pairs with Syncline's devices.

mod work;

use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Trial};
use syncline::backend::Candidate as _;
use syncline::{Error, Inventory, ProbeOptions, Result};
use syncline_conformance::report::{Ending, Tally};
use syncline_conformance::runner::{Suite, child};
use syncline_conformance::{Runner, Settings, World};
use syncline_opencl::Adapter;

use work::OpenCl;

/// The example of the README.
mod frames {
    include!("readme/frames.rs");

    pub(super) fn run() -> Result<()> {
        main()
    }
}

/// Every device of OpenCL alone, and with another of its kind.
struct OpenClSuite {
    adapters: Vec<Adapter>,
    /// Why there is no device.
    missing: Option<Error>,
}

impl OpenClSuite {
    fn probe() -> Self {
        let found = Adapter::all();
        let missing = found.as_ref().err().cloned();
        let mut adapters = found.unwrap_or_default();
        adapters.retain(|adapter| adapter.rejected().is_none());
        Self { adapters, missing }
    }

    /// The subjects of each adapter: one device, and two.
    fn names(&self) -> impl Iterator<Item = (&Adapter, [String; 2])> {
        self.adapters.iter().map(|adapter| {
            let one = format!("opencl {}", adapter.info().marked_name());
            let two = format!("{one} -> {one}");
            (adapter, [one, two])
        })
    }
}

impl Suite for OpenClSuite {
    type Subject = OpenCl;

    fn subjects(&self) -> Vec<String> {
        self.names().flat_map(|(_, names)| names).collect()
    }

    fn open(&self, subject: &str) -> Result<World<OpenCl>> {
        for (adapter, [one, two]) in self.names() {
            let open = || OpenCl::new(adapter.open()?);
            if subject == one {
                return Ok(World::one(open()?));
            }
            if subject == two {
                return Ok(World::two(open()?, open()?));
            }
        }
        Err(Error::no_such_device(subject, ""))
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
    let trial = |name: String| {
        let (suite, subject) = (suite.clone(), name.clone());
        let is_pair = subject.contains(" -> ");
        let run = move || Ok(run(&suite, &subject, whole)?);
        Trial::test(name, run).with_ignored_flag(is_pair)
    };
    let mut trials: Vec<_> = suite.subjects().into_iter().map(trial).collect();
    let vulkan = Inventory::probe(&ProbeOptions::default());
    if suite.missing.is_none() && vulkan.select("vulkan").is_ok() {
        trials.push(Trial::test("the example", || Ok(frames::run()?)));
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}
