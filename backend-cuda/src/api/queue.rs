//! [`BackendQueue`] for the CUDA queue, and submissions of the application's own.

use syncline_core::backend::{BackendQueue, EngineQueue, Queue as _};
use syncline_core::{Fence, Point, Result, Signal, Submitted};

use crate::device::open::Device;
use crate::queue::raw_submission::RawSubmission;
use crate::queue::recorder::Recorder;
use crate::queue::submission::{Feed, Queue};

impl From<EngineQueue<Feed>> for Queue {
    fn from(engine: EngineQueue<Feed>) -> Self {
        Self::with_engine(engine)
    }
}

impl BackendQueue for Queue {
    type Device = Device;

    #[inline]
    fn engine(&self) -> &EngineQueue<Feed> {
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
        let work = move |recorder: &mut Recorder<'_>| RawSubmission::run(recorder, launch);
        self.submit(waits, work, signals)
    }
}
