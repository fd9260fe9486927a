//! The suite on the backend of `examples/clockwork`.

#[path = "../examples/clockwork/backend/mod.rs"]
mod clockwork;
mod common;

use std::process::ExitCode;

use clockwork::suite::ClockworkSuite;
use syncline_conformance::Settings;
use syncline_conformance::runner::child;

fn main() -> ExitCode {
    if let Some(done) = child(|_| ClockworkSuite::default()) {
        return done;
    }
    common::run(&ClockworkSuite::default(), &Settings::from_env())
}
