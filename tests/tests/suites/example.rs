//! The suite on the backend of `examples/clockwork`.

use syncline_conformance::Settings;

use crate::clockwork::suite::ClockworkSuite;
use crate::common::{Group, group};

pub(crate) fn trials() -> Group {
    let settings = Settings::default().patient().or_told();
    group("example", &ClockworkSuite::default(), &settings)
}
