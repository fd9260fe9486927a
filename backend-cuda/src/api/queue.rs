//! [`BackendQueue`] for the CUDA queue, and submissions of the application's own.

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use cudarc::driver::sys;
use syncline_core::backend::{BackendQueue, EngineQueue, Queue as _};
use syncline_core::{Fence, Point, Result, Signal, Submitted};

use crate::device::open::Device;
use crate::queue::recorder::Recorder;
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
    /// A submission that meets a capture later is held until the capture ends.
    #[inline]
    fn admit(&self) -> Result<()> {
        self.refuse_capture()
    }

    /// Records `fence` in the graph if the stream is being captured into one.
    ///
    /// While another thread has the stream's [guard](Queue::stream), the record is held like a
    /// submission, and is made after the capture.
    #[inline]
    fn record_natively(&self, fence: &Fence) -> Result<bool> {
        self.record_captured(fence)
    }

    /// Waits for a fence of a graph capture, which becomes an edge of the graph.
    ///
    /// The stream becomes part of that capture if it is not yet. For such a fence the call takes
    /// the guards of two streams until it returns: this queue's stream, and the stream where the
    /// fence was recorded. The call blocks while another thread has one of these guards. So two
    /// threads deadlock if each holds the [guard](Queue::stream) of one stream and waits for a
    /// fence captured on the other.
    fn wait_natively(&self, fence: &Fence) -> Result<bool> {
        self.wait_captured(fence)
    }
}

/// The stream of a submission by the application's own calls, and what these keep.
pub struct RawSubmission<'s> {
    /// The stream to add work to. It already has the submission's waits.
    pub stream: sys::CUstream,
    kept: &'s Cell<Vec<Arc<dyn Any + Send + Sync>>>,
}

impl RawSubmission<'_> {
    /// Keeps `object` alive until the submission has finished, or has been refused.
    pub fn keep(&self, object: Arc<dyn Any + Send + Sync>) {
        let mut kept = self.kept.take();
        kept.push(object);
        self.kept.set(kept);
    }
}

impl fmt::Debug for RawSubmission<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut told = f.debug_struct("RawSubmission");
        told.field("stream", &self.stream).finish_non_exhaustive()
    }
}

impl Queue {
    /// Submits by the application's own calls on the raw stream, in place of recorded work.
    ///
    /// `launch` is held like any other work until all `waits` may go to the driver. Then this
    /// thread, or the thread that releases the submission, calls it once. The commands that
    /// `launch` adds to the stream run after the waits and before the signals, which the engine
    /// adds. Objects that `launch` passes to [`RawSubmission::keep`] live until these commands have
    /// finished. The application keeps everything else that the commands use.
    ///
    /// Same as [`submit`](syncline_core::backend::Queue::submit) with
    /// [`Recorder::stream`](crate::Recorder::stream). Use that for more than four commands, which
    /// must be [declared](crate::Recorder::commands).
    ///
    /// # Errors
    /// Same errors as [`Queue::submit`](syncline_core::backend::Queue::submit).
    pub fn submit_raw<'q, W>(
        &'q self,
        waits: &[Point<'_>],
        signals: &[Signal<'_>],
        launch: W,
    ) -> Result<Submitted<'q>>
    where
        W: FnOnce(RawSubmission<'_>) -> Result<()> + Send + 'static,
    {
        let work = move |recorder: &mut Recorder<'_>| {
            let kept = Cell::default();
            let launched = launch(RawSubmission {
                stream: recorder.stream(),
                kept: &kept,
            });
            for object in kept.take() {
                recorder.keep(object);
            }
            launched
        };
        self.submit(waits, work, signals)
    }
}
