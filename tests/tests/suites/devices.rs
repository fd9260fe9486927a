//! The suite on the devices of this machine.

use libtest_mimic::Arguments;
use syncline_conformance::Settings;
use syncline_conformance::inventory::Devices;

pub(crate) fn run(arguments: &Arguments) -> bool {
    let settings = Settings::from_env();
    let suite = Devices::probe(&settings);
    for reason in suite.left_out() {
        println!("skipped: {reason}");
    }
    crate::common::run("devices", &suite, &settings, arguments)
}
