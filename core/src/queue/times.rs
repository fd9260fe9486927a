//! The times of submissions that signal timelines with timestamps (M6).
//!
//! Such submissions take the slow path; see `Shared::claim_alone`.

use std::sync::Arc;

use super::submission_queue::SubmissionQueue;
use super::waits_and_claims::Taken;
use crate::base::error::{Error, Result};
use crate::base::timing::Timing;
use crate::driver::enqueue::Enqueue;
use crate::port::Stamp;
use crate::timeline::point::Signal;
use crate::timeline::times::LocalTimes;

/// The times of the claim's timeline, if the queue's device writes the time of this signal.
fn times_of<'s>(claim: &Taken<'s>) -> Option<&'s LocalTimes> {
    claim.port.and(claim.of.local_times())
}

impl<E: Enqueue> SubmissionQueue<E> {
    /// Refuses signals whose time the queue cannot write.
    ///
    /// Called before a submission is held, to return the error.
    ///
    /// # Errors
    /// [`Error::Unsupported`], or a driver error.
    pub(super) fn require_times(&self, signals: &[Signal<'_>]) -> Result<()> {
        for &Signal { of, .. } in signals {
            let Some(times) = of.local_times() else {
                continue;
            };
            if of.port_on(self.device()).is_none() {
                continue;
            }
            times.require(of.object(), self.device(), self.object())?;
            self.require_clock_times()?;
        }
        Ok(())
    }

    /// A stamp for the time of a submission's signals, if a timeline among them has timestamps.
    ///
    /// # Errors
    /// A driver error.
    pub(super) fn stamp_signals(
        &self,
        claims: &[Taken<'_>],
    ) -> Result<Option<Arc<dyn Stamp>>, Box<Error>> {
        if claims.iter().all(|claim| times_of(claim).is_none()) {
            return Ok(None);
        }
        let stamp = self.driver().stamp(self.object(), Timing::Clock)?;
        Ok(Some(stamp))
    }

    /// Adds `stamp` to the times of the claims.
    ///
    /// Called before the driver has the submission, which may finish at once.
    pub(super) fn expect_times(&self, claims: &[Taken<'_>], stamp: &Arc<dyn Stamp>) {
        for claim in claims.iter().filter(|claim| !claim.of.is_failed()) {
            if let Some(times) = times_of(claim) {
                times.expect(claim.claim, self.device(), stamp);
            }
        }
    }

    /// Removes the times again, because the driver has refused the submission.
    pub(super) fn forget_times(&self, claims: &[Taken<'_>]) {
        for claim in claims {
            if let Some(times) = times_of(claim) {
                times.forget_refused(claim.claim.upto);
            }
        }
    }
}
