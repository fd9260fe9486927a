//! The suite on the devices of this machine.

mod common;

use std::process::ExitCode;

use syncline_conformance::Settings;
use syncline_conformance::inventory::Devices;
use syncline_conformance::runner::child;

fn main() -> ExitCode {
    if let Some(done) = child(Devices::probe) {
        return done;
    }
    let settings = Settings::from_env();
    let suite = Devices::probe(&settings);
    for reason in suite.left_out() {
        println!("skipped: {reason}");
    }
    common::run(&suite, &settings)
}
