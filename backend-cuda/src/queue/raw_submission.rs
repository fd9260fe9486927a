//! The stream of a submission by the application's own calls, and what these keep.

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use cudarc::driver::sys;
use syncline_core::Result;

use crate::queue::recorder::Recorder;

/// The stream of a submission by the application's own calls, and what these keep.
pub struct RawSubmission<'s> {
    /// The stream to add work to. It already has the submission's waits.
    pub stream: sys::CUstream,
    kept: &'s Cell<Vec<Arc<dyn Any + Send + Sync>>>,
}

impl RawSubmission<'_> {
    /// Calls `launch`, and keeps for the submission what it passes to [`RawSubmission::keep`].
    ///
    /// # Errors
    /// The error of `launch`.
    pub(crate) fn run(
        recorder: &mut Recorder<'_>,
        launch: impl FnOnce(RawSubmission<'_>) -> Result<()>,
    ) -> Result<()> {
        let kept = Cell::default();
        let launched = launch(RawSubmission {
            stream: recorder.stream(),
            kept: &kept,
        });
        for object in kept.take() {
            recorder.keep(object);
        }
        launched
    }

    /// Keeps `object` alive until the submission has finished.
    ///
    /// Also if it is refused, because the driver may have a part of it. Then a later submission of
    /// the queue drops the object, or `Queue::idle`, or the drop of the queue.
    pub fn keep(&self, object: Arc<dyn Any + Send + Sync>) {
        let mut kept = self.kept.take();
        kept.push(object);
        self.kept.set(kept);
    }
}

impl fmt::Debug for RawSubmission<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawSubmission")
            .field("stream", &self.stream)
            .finish_non_exhaustive()
    }
}
