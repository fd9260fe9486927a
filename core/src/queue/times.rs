//! The times of submissions that signal timelines with timestamps (M6).

use std::sync::Arc;

use super::submission::Submission;
use super::submission_queue::SubmissionQueue;
use crate::base::error::{Error, Result};
use crate::base::timing::Timing;
use crate::driver::enqueue::Enqueue;
use crate::port::Stamp;

impl<E: Enqueue> SubmissionQueue<E> {
    /// Refuses signals whose times the queue cannot write, and those that the host cannot make.
    ///
    /// Called before a submission is held, to return the error.
    ///
    /// # Errors
    /// [`Error::Unsupported`], [`Error::MadeBeforeFork`], or a driver error.
    #[inline(never)]
    pub(super) fn require_times(&self, submission: &Submission<'_>) -> Result<()> {
        for signal in &submission.signals {
            if let Some(times) = signal.of.local_times() {
                times.require(signal.of.object(), self.device, self.object())?;
                self.require_clock_times()?;
            }
        }
        let mut on_host = submission.host_signals().iter();
        on_host.try_for_each(|(of, claim)| {
            of.require_maker()?;
            of.home().takes_host_signals(claim.upto)
        })
    }

    /// Makes a stamp for a submission, and adds it to the times of its signals.
    ///
    /// `None` if no timeline among them has timestamps.
    ///
    /// Called before the driver has the submission, which may finish at once.
    ///
    /// # Errors
    /// A driver error.
    pub(super) fn note_times(
        &self,
        submission: &Submission<'_>,
    ) -> Result<Option<Arc<dyn Stamp>>, Box<Error>> {
        let mut signals = submission.signals.iter();
        if signals.all(|signal| signal.of.local_times().is_none()) {
            return Ok(None);
        }
        let stamp: Arc<dyn Stamp> = self.driver().stamp(self.object(), Timing::Clock)?;
        for signal in submission
            .signals
            .iter()
            .filter(|signal| !signal.of.is_failed())
        {
            if let Some(times) = signal.of.local_times() {
                times.expect(signal.claim(), self.device, &stamp);
            }
        }
        Ok(Some(stamp))
    }

    /// Removes the times again, because the driver has refused the submission.
    pub(super) fn forget_times(&self, submission: &Submission<'_>) {
        for signal in &submission.signals {
            if let Some(times) = signal.of.local_times() {
                times.forget_refused(signal.value);
            }
        }
    }
}
