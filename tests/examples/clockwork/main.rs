//! A complete small backend, and the conformance suite on it:
//! `cargo run -p syncline-conformance --example clockwork`.
//!
//! `docs/write-a-backend.md` walks through it.

mod backend;

use std::process::ExitCode;

use backend::suite::ClockworkSuite;
use syncline_conformance::report::{Ending, Tally};
use syncline_conformance::runner::{Suite as _, child};
use syncline_conformance::{Runner, Settings};

fn main() -> ExitCode {
    if let Some(done) = child(|_| ClockworkSuite::default()) {
        return done;
    }
    let settings = Settings::from_env();
    let suite = ClockworkSuite::default();
    let mut tally = Tally::default();
    for subject in suite.subjects() {
        let known = suite.expected(&subject);
        let mut runner = Runner::new(&subject, &settings).expecting(known);
        let mut records: Vec<_> = suite.cases().iter().map(|case| runner.run(case)).collect();
        records.push(runner.finish());
        for record in records {
            tally.count(record.outcome);
            if let Some(reason) = &record.reason {
                let ended = record.outcome;
                println!("{subject}: {ended:?}: {}: {reason}", record.id);
            }
            if record.outcome == Ending::Failed {
                println!("  which shows {}", record.rules.join(", "));
            }
        }
    }
    println!("{tally}");
    if tally.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
