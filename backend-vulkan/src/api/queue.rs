//! [`BackendQueue`] for the Vulkan queue, and submissions of the application's own.

use ash::vk;
use syncline_core::backend::{BackendQueue, EngineQueue, Queue as _};
use syncline_core::{Point, Result, Signal, Submitted};

use crate::device::open::Device;
use crate::queue::raw_submission::RawSubmission;
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
}

impl Queue {
    /// Submits by a driver call of the application's own, in place of recorded work.
    ///
    /// `submit` is held like any other work until all `waits` may go to the driver. Then it is
    /// called once with the `VkQueue` locked, on this thread or on the thread that releases the
    /// submission.
    ///
    /// `submit` makes one or more submissions. Together they wait for all waits of the
    /// [`RawSubmission`] and then make all its signals. The semaphores of the `RawSubmission` live
    /// until the submission has finished, and so do objects passed to [`RawSubmission::keep`]. The
    /// application keeps everything else that `submit` uses.
    ///
    /// During the call other submissions to this `VkQueue` are held. `submit` must not block. To
    /// [lock](Queue::lock) the same `VkQueue` is an error there. If a wait fails, `submit` is not
    /// called.
    ///
    /// If `submit` returns an error, none of the signals may be pending. If it returns `Ok`, it has
    /// made all of them. The engine cannot check that. A missing signal shows as a time-out.
    ///
    /// For a traced queue, and for signals with times, the engine makes up to two more small
    /// submissions, one before and one after the call.
    ///
    /// # Errors
    /// Same errors as [`Queue::submit`](syncline_core::backend::Queue::submit). An error of
    /// `submit` is a driver error of `vkQueueSubmit`, with the text of [`RawSubmission::explain`].
    /// It refuses the submission. If the submission
    /// was held, its timelines fail with the error instead (Q5).
    ///
    /// See `vkQueueSubmit2`, or `vkQueueSubmit` and `VkTimelineSemaphoreSubmitInfo`.
    pub fn submit_raw<'q, W>(
        &'q self,
        waits: &[Point<'_>],
        signals: &[Signal<'_>],
        submit: W,
    ) -> Result<Submitted<'q>>
    where
        W: FnOnce(RawSubmission<'_>) -> std::result::Result<(), vk::Result> + Send + 'static,
    {
        let submit = Box::new(submit);
        self.submit(
            waits,
            move |recorder| recorder.set_raw_work(submit),
            signals,
        )
    }
}
