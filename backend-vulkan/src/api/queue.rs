//! [`backend::Queue`] for queues.

use std::time::Duration;

use syncline_core::backend::{self, Device as _, Held, Submitted, Traceable};
use syncline_core::{Fence, Object, Point, Result, Signal};

use crate::device::open::Device;
use crate::queue::recorder::Recorder;
use crate::queue::submission::Queue;

impl backend::Queue for Queue {
    type Device = Device;
    type Recorder<'a> = Recorder<'a>;

    fn device(&self) -> Device {
        self.own_device().clone()
    }

    fn object(&self) -> &Object {
        self.engine().object()
    }

    fn submit<'q, W>(
        &'q self,
        waits: &[Point<'_>],
        work: W,
        signals: &[Signal<'_>],
    ) -> Result<Submitted<'q>>
    where
        W: for<'r, 'a> FnOnce(&'r mut Recorder<'a>) -> Result<()> + Send + 'static,
    {
        self.engine().submit(waits, work, signals)
    }

    fn record(&self, fence: &Fence) -> Result<()> {
        self.engine().record(fence)
    }

    fn position(&self) -> Point<'_> {
        self.engine().position()
    }

    fn held(&self) -> Held {
        self.engine().held()
    }

    fn idle(&self, timeout: Duration) -> Result<()> {
        self.engine().idle(timeout)
    }

    fn traceable(&self) -> Result<Traceable> {
        Ok(self
            .engine()
            .traceable(self.own_device().info(), self.own_device().clock()))
    }
}
