//! `backend::Device` for the CUDA device.

use syncline_core::backend::{Backend, Identity, Sharing};
use syncline_core::clock::Clock;
use syncline_core::{Error, QueueKind, Result, error::Object, info::Pooled};

use crate::device::context::Owner;
use crate::device::open::Device;
use crate::device::stream::Stream;
use crate::queue::submission::{Feed, QUEUE, Queue};

impl Backend for Device {
    type Queue = Queue;
    const QUEUE: &'static str = QUEUE;

    fn identity(&self) -> Identity<'_> {
        Identity {
            id: self.id(),
            object: self.object(),
            info: self.info(),
        }
    }

    /// A queue over a non-blocking stream of its own.
    fn enqueue(&self, kind: QueueKind, queue: &Object) -> Result<Feed> {
        match kind {
            QueueKind::Compute | QueueKind::Transfer => {
                let stream = Stream::new(self.context(), queue.label())?;
                Ok(Feed::new(queue, stream, Owner::default(), self))
            }
            _ => Err(Error::unsupported(
                self.object(),
                format!("make a {kind} queue"),
                "CUDA streams run compute and transfer work",
            )),
        }
    }

    fn check(&self) -> Result<()> {
        self.inner().check_health()
    }

    /// The GPU's `%globaltimer` in nanoseconds, sampled together with `CLOCK_MONOTONIC`.
    ///
    /// The first call starts a thread that creates a stream, allocates pinned memory and compiles
    /// small kernels. Like [`Device::module`] this may wait for all work of the context, so call it
    /// at set-up. The call waits for the thread for at most one second. If the kernels are not
    /// loaded by then, the call still returns the clock. Its samples, and records of fences with
    /// its times, fail until the kernels are loaded.
    ///
    /// A sample launches one kernel on a separate thread and takes about 100 µs. If the GPU is full
    /// or the kernel is queued behind a wait, the sample fails with [`Error::ClockSilent`]: after
    /// 30 ms, or after 210 ms on a software device. Any thread may sample or convert, with any
    /// current context and during any capture. A thread that asks for a sample during another one
    /// waits for that sample and for the next.
    ///
    /// Dropping the last handle of the clock and the device frees the memory, which may also wait
    /// for all work of the context. If the application may destroy the context, this drop also
    /// waits for a kernel that is still being loaded or has not started.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if [`Capabilities::calibrated_clock`] is false,
    /// [`Error::ClockSilent`] if the system has no thread, or a driver error. Later samples return
    /// a driver error if the kernels could not be loaded in the end.
    ///
    /// [`Capabilities::calibrated_clock`]: syncline_core::info::Capabilities::calibrated_clock
    fn clock(&self) -> Result<Clock> {
        self.ready_clock()
    }

    fn trim(&self) -> Pooled {
        self.inner().trim()
    }

    fn sharing(&self) -> Option<&dyn Sharing> {
        Some(self)
    }
}
