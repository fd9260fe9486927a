//! The suite on the backend of `examples/clockwork`.

use syncline_conformance::Settings;

use crate::clockwork::suite::ClockworkSuite;
use crate::common::{Group, group};

pub(crate) fn trials() -> Group {
    group("example", &ClockworkSuite::default(), &Settings::from_env())
}
