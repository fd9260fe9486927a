//! The conformance suite for the machine: the neutral work, and which subjects there are.

use std::any::Any;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use syncline::{Result, Timeline, connect};
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

    /// Native for two devices of one machine, otherwise through the engine.
    fn timeline_with(&self, other: &Self, label: &str, initial: u64) -> Result<Timeline> {
        connect(&self.0, &other.0).timeline_from(label, initial)
    }
}

/// One machine, two of them, and two devices of one machine.
#[derive(Default)]
pub(crate) struct ClockworkSuite {
    /// What the drivers have to say, of every machine that was started.
    faults: Mutex<Vec<Faults>>,
}

pub(crate) const ONE: &str = "clockwork";
pub(crate) const TWO: &str = "clockwork -> clockwork";
pub(crate) const SHARED: &str = "clockwork -> clockwork (same machine)";

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
        vec![ONE.into(), TWO.into(), SHARED.into()]
    }

    fn open(&self, subject: &str) -> Result<World<Clockwork>> {
        let left = self.start()?;
        match subject {
            ONE => Ok(World::one(left)),
            SHARED => {
                let right = Clockwork(left.0.open_again());
                Ok(World::two(left, right))
            }
            _ => Ok(World::two(left, self.start()?)),
        }
    }

    fn complaints(&self) -> Vec<String> {
        let faults = self.faults.lock();
        let faults = faults.as_deref().map(Vec::as_slice).unwrap_or_default();
        faults.iter().flat_map(Faults::list).collect()
    }
}
