//! Queues as the engine and applications call them.

use syncline_core::backend::{BackendQueue, EngineQueue};
use syncline_core::{Fence, Result};

use crate::device::open::Device;
use crate::queue::submission::{Feed, Queue};

impl From<EngineQueue<Device, Feed>> for Queue {
    fn from(engine: EngineQueue<Device, Feed>) -> Self {
        Self::with_engine(engine)
    }
}

impl BackendQueue for Queue {
    type Device = Device;

    #[inline]
    fn engine(&self) -> &EngineQueue<Device, Feed> {
        self.inner()
    }

    /// Refuses submissions while the stream is being captured into a graph.
    ///
    /// A submission that meets a capture later than here waits for its end.
    #[inline]
    fn admit(&self) -> Result<()> {
        self.queue_stream()
            .stream
            .refuse_capture("take a submission")
    }

    /// While the stream is being captured into a graph, `fence` becomes a place in it.
    ///
    /// While another thread has the stream's [guard](Queue::stream), the record is held like a
    /// submission, and comes behind the capture.
    #[inline]
    fn record_natively(&self, fence: &Fence) -> Result<bool> {
        self.record_anywhere(fence).map(|()| true)
    }

    /// For a fence of a graph capture, an edge of the graph.
    ///
    /// The stream becomes part of the capture by it, if it is not already. For such a fence this
    /// takes the guards of two streams until it returns: of this queue's, and of the one where the
    /// fence was recorded. It blocks while another thread has either. So two threads block each
    /// other for good if each holds the [guard](Queue::stream) of one stream and waits for a fence
    /// captured on the other.
    fn wait_natively(&self, fence: &Fence) -> Result<bool> {
        self.wait_anywhere(fence).map(|()| true)
    }
}
