//! `backend::Queue` for the CUDA queue.

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
        self.device().clone()
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
        self.submit_uncaptured(waits, work, signals)
    }

    /// Records `fence`, in the graph if the stream is being captured into one.
    ///
    /// While another thread has the stream's [guard](Queue::stream), the record is held like a
    /// submission, and is made after the capture.
    fn record(&self, fence: &Fence) -> Result<()> {
        self.record_anywhere(fence)
    }

    /// Waits for `fence`. A fence of a graph capture becomes an edge of the graph.
    ///
    /// The stream becomes part of that capture if it is not yet. For such a fence this takes the
    /// guards of two streams until it returns: of this queue's stream and of the stream where the
    /// fence was recorded. It blocks while another thread has either. So two threads deadlock if
    /// each holds the [guard](Queue::stream) of one stream and waits for a fence captured on the
    /// other.
    fn wait(&self, fence: &Fence) -> Result<()> {
        self.wait_anywhere(fence)
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
        let device = self.device();
        Ok(self.engine().traceable(device.info(), device.clock()))
    }
}
