//! The suite on devices, on the example's backend and on backends with a bug each; and its runner.
//!
//! Each is a module, whose name begins the names of its trials.

#[path = "../../examples/clockwork/backend/mod.rs"]
mod clockwork;
mod common;
mod devices;
mod example;
mod mutants;
mod runner;

use std::process::ExitCode;

use clockwork::suite::ClockworkSuite;
use libtest_mimic::Arguments;
use mutants::Mutants;
use runner::Lab;
use syncline_conformance::inventory::Devices;
use syncline_conformance::runner::{Suite, child, child_subject};

/// Runs the suite that has the subject of this child process. `None` if it is no child.
fn serve() -> Option<ExitCode> {
    let subject = child_subject()?;
    let is_of = |subjects: Vec<String>| subjects.contains(&subject);
    if is_of(Lab.subjects()) || subject == runner::UNKNOWN {
        child(|_| Lab)
    } else if is_of(ClockworkSuite::default().subjects()) {
        child(|_| ClockworkSuite::default())
    } else if is_of(Mutants::default().subjects()) {
        child(|_| Mutants::default())
    } else {
        child(Devices::probe)
    }
}

fn main() -> ExitCode {
    if let Some(done) = serve() {
        return done;
    }
    let arguments = Arguments::from_args();
    let passed = [
        !runner::run(&arguments).has_failed(),
        example::run(&arguments),
        !mutants::run(&arguments).has_failed(),
        devices::run(&arguments),
    ];
    if passed.contains(&false) {
        return ExitCode::from(101);
    }
    ExitCode::SUCCESS
}
