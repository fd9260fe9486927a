//! The times of signals: of submissions that signal timelines with timestamps (M6). They all take the slow path: see `Shared::claim_alone`.

use std::sync::Arc;

use super::SubmissionQueue;
use super::hold::Taken;
use crate::base::error::{Error, Result};
use crate::base::sync::Ordering;
use crate::base::timing::Timing;
use crate::driver::enqueue::Enqueue;
use crate::port::Stamp;
use crate::timeline::point::Signal;
use crate::timeline::times::Here;

/// Where the times are that the queue's device is to write for a claim. Signals that the host makes have the host's.
fn times_of<'s>(claim: &Taken<'s>) -> Option<&'s Here> {
    claim.port.and(claim.of.times_here())
}

impl<E: Enqueue> SubmissionQueue<E> {
    /// Refuses signals whose time the queue cannot write, at the call: a held submission finds nobody to tell.
    ///
    /// # Errors
    /// [`Error::Unsupported`]; a driver error.
    pub(super) fn require_times(&self, signals: &[Signal<'_>]) -> Result<()> {
        for &Signal { of, .. } in signals {
            let Some(times) = of.times_here() else {
                continue;
            };
            if of.port_on(self.device).is_none() {
                continue;
            }
            times.require(&of.object, self.device, &self.object)?;
            if !self.writes_times.load(Ordering::Relaxed) {
                self.driver.stamp(&self.object, Timing::Clock)?;
                self.writes_times.store(true, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// A place for the time of all signals of a submission that goes to the driver now, if one of them wants it.
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
        let stamp = self.driver.stamp(&self.object, Timing::Clock)?;
        Ok(Some(stamp))
    }

    /// The driver is about to be given the submission that writes `stamp`: its signals may be reached before the call returns.
    pub(super) fn expect_times(&self, claims: &[Taken<'_>], stamp: &Arc<dyn Stamp>) {
        for claim in claims.iter().filter(|claim| !claim.of.is_failed()) {
            if let Some(times) = times_of(claim) {
                times.expect(claim.claim, self.device, stamp);
            }
        }
    }

    /// The driver has refused it.
    pub(super) fn expect_no_times(&self, claims: &[Taken<'_>]) {
        for claim in claims {
            if let Some(times) = times_of(claim) {
                times.expect_no_more(claim.claim.upto);
            }
        }
    }
}
