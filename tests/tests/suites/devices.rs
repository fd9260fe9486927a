//! The suite on the devices of this machine.

use syncline_conformance::Settings;
use syncline_conformance::inventory::Devices;

use crate::common::{Group, group};

pub(crate) fn trials() -> Group {
    let settings = Settings::default().patient().or_told();
    let suite = Devices::probe(&settings);
    for reason in suite.left_out() {
        println!("skipped: {reason}");
    }
    group("devices", &suite, &settings)
}
