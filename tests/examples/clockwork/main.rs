//! A complete small backend, and the conformance suite on it:
//! `cargo run -p syncline-conformance --example clockwork`.
//!
//! `docs/write-a-backend.md` walks through it.

mod backend;

use std::process::ExitCode;

use backend::suite::ClockworkSuite;
use syncline_conformance::runner;

fn main() -> ExitCode {
    runner::main(|_| ClockworkSuite::default())
}
