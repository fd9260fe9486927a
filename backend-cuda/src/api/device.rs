//! Devices as the engine and applications call them.

use syncline_core::backend::{Attachment, Backend, Identity};
use syncline_core::clock::Clock;
use syncline_core::{Error, Object, QueueKind, Result, Timeline};

use crate::device::open::Device;
use crate::device::stream::Stream;
use crate::queue::submission::{Feed, QUEUE, Queue};

impl Backend for Device {
    type Queue = Queue;
    type Enqueue = Feed;
    const QUEUE: &'static str = QUEUE;

    fn identity(&self) -> Identity<'_> {
        Identity {
            id: self.id(),
            object: self.object(),
            info: self.info(),
        }
    }

    fn port(&self, initial: u64) -> Result<Attachment> {
        Ok(self.event_port(initial))
    }

    /// A queue over a non-blocking stream of its own.
    fn enqueue(&self, kind: QueueKind, queue: &Object, _: &Timeline) -> Result<Feed> {
        match kind {
            QueueKind::Compute | QueueKind::Transfer => {
                let stream = Stream::new(self.context(), queue.label())?;
                Ok(Feed::new(queue, stream, None, self))
            }
            _ => Err(Error::Unsupported {
                object: self.object().clone(),
                asked: format!("make a {kind} queue"),
                reason: "CUDA streams run compute and transfer work".into(),
            }),
        }
    }

    fn check(&self) -> Result<()> {
        self.check_health()
    }

    /// What `%globaltimer` shows, in nanoseconds, beside `CLOCK_MONOTONIC`.
    ///
    /// For the first call a thread makes a stream, allocates pinned memory and compiles kernels of a few instructions. Like
    /// [`Device::module`] that may wait for all work of the context, so call it at set-up. It is waited for for a second at most; after that there is a
    /// clock whose samples, and records of fences with its times, are refused until the kernels are there.
    ///
    /// A sample launches that kernel once,
    /// on a thread of its own; it takes some 100 µs, and 30 ms at most, after which it is an
    /// [`Error::ClockSilent`]: where the GPU is full, for instance, or the kernel stands behind a closed gate. Any thread may sample or
    /// convert, whatever context is current there, and whatever is being captured; a thread that comes while a sample is taken waits for that, and for the next one.
    /// The last handle of the clock and the device frees
    /// the memory, which may wait for all work of the context, too; in a context that nobody keeps it also waits for a kernel that is still being
    /// loaded, or has not begun.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where [`Capabilities::calibrated_clock`](syncline_core::Capabilities::calibrated_clock) is false; a driver
    /// error, also of later samples if the kernel could not be loaded in the end; [`Error::ClockSilent`] if the system has no thread.
    fn clock(&self) -> Result<Clock> {
        self.ready_clock()
    }
}
