//! The waits and claims of one submission.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::base::error::Failure;
use crate::base::stage::Stage;
use crate::held::{Lists, OwnedClaim};
use crate::port::Port;
use crate::timeline::point::KeptPoint;
use crate::timeline::state::{Interval, Shared};

/// A point that a submission waits for.
#[derive(Clone, Copy)]
pub(super) struct Awaited<'s> {
    pub(super) of: &'s Arc<Shared>,
    pub(super) value: u64,
    /// The port on the queue's device. `None`: the wait is made on the host.
    pub(super) port: Option<&'s dyn Port>,
}

/// The waits of a submission that are not reached.
pub(super) type AllAwaited<'s> = SmallVec<[Awaited<'s>; 8]>;

impl Awaited<'_> {
    /// The stage that the value must have come to before the submission can go.
    #[inline]
    pub(super) const fn needed(&self) -> Stage {
        match self.port {
            Some(_) => Stage::Pending,
            None => Stage::Reached,
        }
    }

    /// True if the value is known to have come to that stage. Takes no lock.
    #[inline]
    pub(super) fn has_plainly_come(&self) -> bool {
        self.of.has_plainly_come(self.needed(), self.value)
    }

    pub(super) fn keep(&self) -> KeptPoint {
        KeptPoint {
            of: Some(self.of.clone()),
            value: self.value,
        }
    }
}

/// A claim of a submission.
#[derive(Clone, Copy)]
pub(super) struct Taken<'s> {
    pub(super) of: &'s Arc<Shared>,
    pub(super) claim: Interval,
    /// The port on the queue's device. `None`: the host makes the signal.
    pub(super) port: Option<&'s dyn Port>,
}

/// The claims of a submission.
pub(super) type AllTaken<'s> = SmallVec<[Taken<'s>; 8]>;

impl Taken<'_> {
    pub(super) fn keep(&self) -> OwnedClaim {
        (Some(self.of.clone()), self.claim)
    }
}

/// The claims that the driver signals.
#[inline]
pub(super) fn signalled<'a>(
    claims: &'a [Taken<'_>],
) -> impl Iterator<Item = (&'a Arc<Shared>, Interval)> + Clone {
    let here = claims.iter().filter(|claim| claim.port.is_some());
    here.map(|claim| (claim.of, claim.claim))
}

/// Withdraws the claims of a refused submission.
///
/// The caller has handles of these timelines, so no wait is cancelled.
///
/// Wakes bridges. A caller with the queue's lock delays the wakes.
pub(super) fn withdraw_all(claims: &[Taken<'_>]) {
    for Taken { of, claim, .. } in claims {
        of.withdraw(*claim);
    }
}

/// Fails the timelines of the claims of a submission that will not run.
pub(super) fn fail_all(claims: &[OwnedClaim], cause: &Failure) {
    for of in claims.iter().filter_map(|(of, _)| of.as_ref()) {
        of.fail(cause.clone());
    }
}

/// The waits and claims of a submission.
pub(super) fn parts(lists: &Option<Box<Lists>>) -> (&[KeptPoint], &[OwnedClaim]) {
    lists
        .as_ref()
        .map_or((&[], &[]), |lists| (&lists.waits, &lists.claims))
}

/// Fills the empty `lists` with the waits and claims of a submission.
pub(super) fn fill(lists: &mut Lists, waits: &[Awaited<'_>], claims: &[Taken<'_>]) {
    for wait in waits {
        lists.waits.push(wait.keep());
    }
    for by_host in [false, true] {
        for claim in claims {
            if claim.port.is_none() == by_host {
                lists.claims.push(claim.keep());
            }
        }
    }
}
