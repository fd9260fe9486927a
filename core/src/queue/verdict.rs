//! Decides whether a submission can go to the driver.

use std::sync::Arc;

use smallvec::SmallVec;

use super::submission_queue::SubmissionQueue;
use super::waits_and_claims::{AllAwaited, AllTaken, Awaited, Taken};
use crate::base::error::Failure;
use crate::base::stage::Stage;
use crate::base::steps;
use crate::driver::enqueue::Enqueue;
use crate::held::{OwnedClaim, Parts};
use crate::timeline::point::KeptPoint;
use crate::timeline::state::{Interval, Shared, Standing};

/// What a submission lacks, in the order of its waits. Never empty in a verdict.
pub(super) type Missing = SmallVec<[(KeptPoint, Stage); 2]>;

/// Whether a submission can go to the driver.
pub(super) enum Verdict {
    Ready,
    /// It could, but the shared budget is used up.
    Full,
    /// It lacks something. The queue registers for all of it, because one that fails skips the
    /// submission.
    Blocked(Missing),
    /// It never can, because a timeline that it waits for has failed.
    Skip(Failure),
}

impl<E: Enqueue> SubmissionQueue<E> {
    /// A wait of a submission to this queue.
    #[inline]
    pub(super) fn awaited<'s>(&self, of: &'s Arc<Shared>, value: u64) -> Awaited<'s> {
        let port = of.port_on(self.device());
        Awaited { of, value, port }
    }

    /// A claim of a submission to this queue.
    #[inline]
    pub(super) fn taken<'s>(&self, of: &'s Arc<Shared>, claim: Interval) -> Taken<'s> {
        let port = of.port_on(self.device());
        Taken { of, claim, port }
    }

    /// Decides whether a submission can go to the driver. Makes no driver call and wakes nothing.
    pub(super) fn judge(
        &self,
        number: u64,
        waits: &[Awaited<'_>],
        claims: &[Taken<'_>],
    ) -> Verdict {
        if let Some(cause) = self.loss() {
            return Verdict::Skip(cause.clone());
        }
        steps::count(waits.len() + claims.len());
        let mut missing = Missing::new();
        let mut block = |of: &Arc<Shared>, value, stage| {
            let of = Some(of.clone());
            missing.push((KeptPoint { of, value }, stage));
        };
        for &Awaited { of, value, port } in waits {
            let native = port.is_some();
            match of.standing(value) {
                Standing::Reached => {}
                Standing::Pending if native => {}
                Standing::Pending => block(of, value, Stage::Reached),
                Standing::Open if native => block(of, value, Stage::Pending),
                Standing::Open => block(of, value, Stage::Reached),
                Standing::Failed(cause) => return Verdict::Skip(cause),
                Standing::Cancelled => return Verdict::Skip(of.cancelled(value).into_cause()),
            }
        }
        for &Taken { of, claim, port } in claims {
            // A host signal waits for its predecessor later.
            if port.is_none() {
                continue;
            }
            match of.standing(claim.above) {
                Standing::Reached | Standing::Pending => {}
                Standing::Failed(cause) => return Verdict::Skip(cause),
                // It may not be claimed yet, or its claim was withdrawn. Both can still come.
                Standing::Open => block(of, claim.above, Stage::Pending),
                Standing::Cancelled => {
                    return Verdict::Skip(of.cancelled(claim.above).into_cause());
                }
            }
        }
        let own = self.own_shared();
        let budget = number.saturating_sub(E::MAX_IN_FLIGHT);
        match own.standing(budget) {
            Standing::Reached => {}
            // The queue itself has failed, so it never gets more of the budget.
            Standing::Failed(cause) => return Verdict::Skip(cause),
            _ => block(own, budget, Stage::Reached),
        }
        if !missing.is_empty() {
            Verdict::Blocked(missing)
        } else if self.is_full() {
            Verdict::Full
        } else {
            Verdict::Ready
        }
    }

    /// True if the budget shared with other queues is used up.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.budget().is_some_and(|budget| budget.is_full())
    }

    /// True if submission `number` is known to be within the in-flight budget. Takes no lock.
    #[inline]
    pub(super) fn has_budget(&self, number: u64) -> bool {
        self.own_shared().reached() >= number.saturating_sub(E::MAX_IN_FLIGHT) && !self.is_full()
    }

    /// True if a submission is known to be able to go. Takes no lock.
    ///
    /// Makes no driver call and wakes nothing. If it is false, [`SubmissionQueue::judge`] decides.
    pub(super) fn is_plainly_ready(
        &self,
        number: u64,
        waits: Parts<'_, KeptPoint>,
        claims: Parts<'_, OwnedClaim>,
    ) -> bool {
        for wait in waits.into_iter().flatten() {
            let Some(of) = &wait.of else { continue };
            if !self.awaited(of, wait.value).has_plainly_come() {
                return false;
            }
        }
        for (of, claim) in claims.into_iter().flatten() {
            let Some(of) = of else { continue };
            // A host signal waits for its predecessor later.
            if of.port_on(self.device()).is_some()
                && !of.has_plainly_come(Stage::Pending, claim.above)
            {
                return false;
            }
        }
        self.has_budget(number)
    }

    /// The waits of a held submission. A loop, because collecting usually costs more than the one
    /// element.
    pub(super) fn all_awaited<'s>(&self, points: &'s [KeptPoint]) -> AllAwaited<'s> {
        let mut all = AllAwaited::new();
        for point in points {
            let of = point.of.as_ref();
            if let Some(of) = of.filter(|of| of.reached() < point.value) {
                all.push(self.awaited(of, point.value));
            }
        }
        all
    }

    /// The claims of a held submission.
    pub(super) fn all_taken<'s>(&self, claims: &'s [OwnedClaim]) -> AllTaken<'s> {
        let mut all = AllTaken::new();
        for (of, claim) in claims {
            if let Some(of) = of {
                all.push(self.taken(of, *claim));
            }
        }
        all
    }
}
