//! The suite on the backend of `examples/clockwork`.

use libtest_mimic::Arguments;
use syncline_conformance::Settings;

use crate::clockwork::suite::ClockworkSuite;

pub(crate) fn run(arguments: &Arguments) -> bool {
    let suite = ClockworkSuite::default();
    crate::common::run("example", &suite, &Settings::from_env(), arguments)
}
