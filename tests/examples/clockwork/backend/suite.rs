//! The conformance suite for the machine: the neutral work, and which subjects there are.

use std::any::Any;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use syncline::Result;
use syncline_conformance::{Subject, Suite, World};

use super::driver::Faults;
use super::{Buffer, Device, Recorder};

/// A machine as the suite uses it.
#[derive(Clone)]
pub(crate) struct Clockwork(pub(crate) Device);

impl Subject for Clockwork {
    type Device = Device;
    type Buffer = Buffer;
    type Latch = Buffer;

    fn device(&self) -> &Device {
        &self.0
    }

    fn buffer(&self, words: usize) -> Result<Buffer> {
        Ok(self.0.buffer(words))
    }

    fn read(buffer: &Buffer) -> Vec<u32> {
        buffer.read()
    }

    fn fill(recorder: &mut Recorder<'_>, buffer: &Buffer, value: u32) -> Result<()> {
        recorder.fill(buffer, value);
        Ok(())
    }

    fn copy(recorder: &mut Recorder<'_>, from: &Buffer, to: &Buffer) -> Result<()> {
        recorder.copy(from, to);
        Ok(())
    }

    fn busy(&self, recorder: &mut Recorder<'_>, time: Duration) -> Result<()> {
        recorder.busy(time);
        Ok(())
    }

    fn keep(recorder: &mut Recorder<'_>, object: Arc<dyn Any + Send + Sync>) {
        recorder.keep(object);
    }

    fn latch(&self) -> Result<Buffer> {
        Ok(self.0.buffer(1))
    }

    fn block(recorder: &mut Recorder<'_>, latch: &Buffer) -> Result<()> {
        recorder.hold(latch);
        Ok(())
    }

    fn open(latch: &Buffer) -> Result<()> {
        latch.set_first(1);
        Ok(())
    }
}

/// One machine, and two of them.
#[derive(Default)]
pub(crate) struct ClockworkSuite {
    /// What the drivers have to say, of every machine that was started.
    faults: Mutex<Vec<Faults>>,
}

pub(crate) const ONE: &str = "clockwork";
pub(crate) const TWO: &str = "clockwork -> clockwork";

impl ClockworkSuite {
    fn start(&self) -> Result<Clockwork> {
        let device = Device::start()?;
        if let Ok(mut faults) = self.faults.lock() {
            faults.push(device.faults());
        }
        Ok(Clockwork(device))
    }
}

impl Suite for ClockworkSuite {
    type Subject = Clockwork;

    fn subjects(&self) -> Vec<String> {
        vec![ONE.into(), TWO.into()]
    }

    fn open(&self, subject: &str) -> Result<World<Clockwork>> {
        let left = self.start()?;
        if subject == ONE {
            return Ok(World::one(left));
        }
        Ok(World::two(left, self.start()?))
    }

    fn complaints(&self) -> Vec<String> {
        let faults = self.faults.lock();
        let faults = faults.as_deref().map(Vec::as_slice).unwrap_or_default();
        faults.iter().flat_map(Faults::list).collect()
    }
}
