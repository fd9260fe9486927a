//! What a queue answers to its callers.

use std::time::Duration;

use super::skipped::Skipped;
#[allow(unused_imports, reason = "for links, also in the facade")]
use crate::base::error::Error;
use crate::base::error::Result;
use crate::timeline::point::{KeptPoint, Point};

/// The result of a submission.
#[derive(Debug, Clone, Copy)]
pub struct Submitted<'q> {
    end: Point<'q>,
    held: bool,
    /// `None` if the driver got it during the call.
    skipped: Option<&'q Skipped>,
}

impl<'q> Submitted<'q> {
    /// A submission that the driver has.
    pub(super) const fn sent(end: Point<'q>) -> Self {
        Self {
            end,
            held: false,
            skipped: None,
        }
    }

    /// A submission that may be held or skipped.
    pub(super) const fn accepted(end: Point<'q>, held: bool, skipped: &'q Skipped) -> Self {
        Self {
            end,
            held,
            skipped: Some(skipped),
        }
    }

    /// The queue's position after the submission.
    ///
    /// It is reached once the submission and everything before it on the queue is finished or was
    /// skipped. Host signals on timelines without a port for the queue come after it (Q3).
    ///
    /// So this point does not say whether the submission ran; [`Submitted::wait_submitted`] does. A
    /// skipped submission fails the timelines of its signals. Its binary semaphores and `VkFence`s
    /// stay unsignalled and its events unrecorded.
    pub const fn end(self) -> Point<'q> {
        self.end
    }

    /// Blocks until the driver has the submission, or the submission is known never to run.
    ///
    /// Call it before anything that relies on the submission's work alone. Examples are presenting
    /// an image that it draws, and waiting for a binary semaphore that it signals. It costs a few
    /// loads if the driver got the submission at once.
    ///
    /// # Errors
    /// - [`Error::Skipped`] with the cause if the submission did not run: a wait has failed, or its
    ///   work or the driver refused it at its release.
    /// - [`Error::TimedOut`].
    /// - [`Error::Failed`] if the queue has failed.
    /// - [`Error::Unsupported`] if the queue has forgotten what became of it. A queue remembers the
    ///   last 256 failures that ended submissions, with their errors.
    pub fn wait_submitted(self, timeout: Duration) -> Result<()> {
        let Some(skipped) = self.skipped else {
            return self.end.wait_pending(timeout);
        };
        let answer = skipped.wait(self.end, timeout);
        #[cfg(feature = "tracing")]
        crate::base::events::waited(&[self.end], answer.as_ref().err());
        answer
    }

    /// True if the submission was held when the call returned. It is released by itself.
    #[must_use]
    pub const fn is_held(self) -> bool {
        self.held
    }
}

/// The held submissions of a queue.
#[derive(Debug, Clone, Default)]
pub struct Held {
    /// The number of held submissions.
    pub count: usize,
    /// A point that the first one waits for.
    ///
    /// `None` if nothing is held, or if it waits only for the driver queue's lock or for the
    /// in-flight budget.
    pub waiting_for: Option<KeptPoint>,
}
