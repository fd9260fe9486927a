//! The command with a backend of another author: clockwork machines.
//!
//! The program is that command if a variable says so, and otherwise the tests, which run it.

#![allow(clippy::expect_used, clippy::panic, reason = "a test may panic")]

#[path = "../../../tests/examples/clockwork/backend/mod.rs"]
#[allow(dead_code, reason = "the suite of that example uses the rest")]
mod clockwork;
mod tests;
mod waves;

use std::process::ExitCode;
use std::sync::Arc;

use clockwork::Device;
use clockwork::device::Hardware;
use clockwork::suite::Clockwork;
use libtest_mimic::Arguments;
use syncline::backend::{Candidate, Device as _};
use syncline::info::{BackendKind, Info};
use syncline::{Error, Result};
use syncline_cli::{Checked, Command, ForeignBackend};
use syncline_conformance::expected::Expected;
use syncline_demo::{Producer, Size};

use waves::Waves;

/// The variable that makes this program the command. Its value is the defect of the machines.
const DEFECT: &str = "SYNCLINE_TEST_DEFECT";

/// Clockwork machines, with a defect if it has a name.
struct Machines(String);

impl Machines {
    fn has(&self, defect: &str) -> bool {
        self.0 == defect
    }
}

/// A machine as the inventory lists it.
#[derive(Debug)]
struct Machine {
    hardware: Hardware,
    info: Info,
    rejected: Option<Error>,
}

impl Candidate for Machine {
    type Device = Device;

    fn info(&self) -> &Info {
        &self.info
    }

    fn rejected(&self) -> Option<&Error> {
        self.rejected.as_ref()
    }

    fn open(&self) -> Result<Device> {
        Ok(self.hardware.open())
    }
}

impl ForeignBackend for Machines {
    type Candidate = Machine;
    type Subject = Clockwork;

    fn devices(&self) -> Result<Vec<Machine>> {
        let kind = BackendKind::Other("clockwork");
        if self.has("absent") {
            return Err(Error::unavailable(kind, "no machine is wound up"));
        }
        let hardware = Hardware::start()?;
        let mut info = Candidate::info(&hardware).clone();
        if self.has("name") {
            info.backend = BackendKind::Other("vulkan");
        }
        let broken = Error::unavailable(kind, "a spring is broken");
        let rejected = self.has("rejected").then_some(broken);
        let machine = |hardware| Machine {
            hardware,
            info: info.clone(),
            rejected: rejected.clone(),
        };
        if self.has("twice") {
            return Ok(vec![machine(hardware.clone()), machine(hardware)]);
        }
        Ok(vec![machine(hardware)])
    }

    fn subject(&self, device: Device) -> Result<Clockwork> {
        if self.has("tools") || self.has("known") {
            let tools = "its tools are gone";
            return Err(Error::unsupported(device.object(), "be equipped", tools));
        }
        Ok(Clockwork(device))
    }

    fn expected(&self, subject: &str) -> Vec<Expected> {
        let known = self.has("known") && subject == "clockwork clockwork machine";
        let case = "fence.never_recorded_is_complete".to_owned();
        let why = "known".to_owned();
        known
            .then_some(Expected { case, why })
            .into_iter()
            .collect()
    }

    fn complaints(&self) -> Vec<String> {
        if self.has("complains") {
            return vec!["the oil is old".into()];
        }
        Vec::new()
    }

    fn checks(&self) -> Vec<Checked> {
        let spring = match self.has("spring") {
            false => Checked::ok("clockwork-spring", "the spring is wound up"),
            true => Checked::found("clockwork-spring", "the spring is slack", "Wind it up."),
        };
        vec![spring]
    }

    fn producer(&self, device: &Device, size: Size) -> Result<Arc<dyn Producer<Device>>> {
        let forgets = self.has("forgets").then_some(7);
        Ok(Arc::new(Waves::new(device, size, forgets)))
    }
}

/// The same machines, without what a backend need not have.
struct Bare;

impl ForeignBackend for Bare {
    type Candidate = Hardware;
    type Subject = Clockwork;

    fn devices(&self) -> Result<Vec<Hardware>> {
        Ok(vec![Hardware::start()?])
    }

    fn subject(&self, device: Device) -> Result<Clockwork> {
        Ok(Clockwork(device))
    }
}

fn main() -> ExitCode {
    match std::env::var(DEFECT) {
        Ok(defect) if defect == "bare" => return Command::new().with(Bare).run(),
        Ok(defect) => return Command::new().with(Machines(defect)).run(),
        Err(_) => {}
    }
    let arguments = Arguments::from_args();
    libtest_mimic::run(&arguments, tests::all()).exit_code()
}
