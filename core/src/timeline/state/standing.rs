//! The standing of one value of a timeline: whether it is reached, pending, or can still come.

use super::locked::State;
use super::shared::Shared;
use crate::base::error::{Error, Failure, Result};
use crate::base::stage::Stage;
use crate::timeline::interval::Interval;

/// The standing of one value of a timeline.
#[derive(Debug, Clone)]
pub(crate) enum Standing {
    Reached,
    Pending,
    /// Claimed by a held submission, or not claimed yet.
    Open,
    Failed(Failure),
    Cancelled,
}

impl Standing {
    /// Turns `Failed` and `Cancelled` into errors about `value` of `of`.
    pub(crate) fn into_result(self, of: &Shared, value: u64) -> Result<Self> {
        match self {
            Self::Failed(cause) => Err(Error::failed(of.object(), value, cause)),
            Self::Cancelled => Err(of.cancelled(value)),
            fine => Ok(fine),
        }
    }
}

impl Stage {
    /// True if a value with this standing has come to this stage.
    pub(crate) const fn is_met(self, standing: &Standing) -> bool {
        match self {
            Self::Pending => matches!(standing, Standing::Reached | Standing::Pending),
            Self::Reached => matches!(standing, Standing::Reached),
        }
    }
}

impl Shared {
    /// True if a claim can still bring `value` to a closed timeline.
    ///
    /// The claim may be on another side of its bridge.
    fn is_outstanding(&self, state: &State, value: u64) -> bool {
        // The list first: a claim leaves it after it is pending.
        self.is_claimed(value)
            || self.pending() >= value
            || state.elsewhere.iter().any(|claim| claim.covers(value))
    }

    /// The lowest value above `pending` that a claim can still bring.
    ///
    /// The claim may be on another side of its bridge.
    pub(crate) fn lowest_outstanding(&self, pending: u64) -> Option<u64> {
        let state = self.lock();
        let claims = self.lock_claims();
        let all = claims.all().chain(state.elsewhere.iter().copied());
        let ahead = all.filter(|claim| claim.upto > pending);
        ahead.map(|claim| claim.above.max(pending) + 1).min()
    }

    /// The values that this side can still bring to another side of its bridge.
    ///
    /// These are the claimed, pending and reached ones.
    pub(crate) fn outstanding(&self) -> Vec<Interval> {
        let state = self.lock();
        let mut all: Vec<_> = self.lock_claims().all().collect();
        all.push(Interval {
            above: 0,
            upto: self.pending_locked(&state),
        });
        all
    }

    /// The cause, if `value` will never be reached.
    pub(crate) fn unreachable_cause(&self, value: u64) -> Option<Failure> {
        match self.standing(value) {
            Standing::Failed(cause) => Some(cause),
            Standing::Cancelled => Some(self.cancelled(value).into_cause()),
            _ => None,
        }
    }

    pub(crate) fn not_pending(&self, value: u64) -> Error {
        Error::NotPending {
            object: self.object().clone(),
            value,
            pending: self.pending(),
        }
    }

    pub(crate) fn cancelled(&self, value: u64) -> Error {
        Error::Cancelled {
            timeline: self.object().clone(),
            value,
            reached: self.reached(),
        }
    }

    /// The standing of `value` as far as the engine knows. Makes no driver call.
    #[inline]
    pub(crate) fn standing(&self, value: u64) -> Standing {
        if self.reached() >= value {
            return Standing::Reached;
        }
        if self.is_troubled() {
            return self.standing_in_trouble(value);
        }
        if self.pending() >= value {
            Standing::Pending
        } else {
            Standing::Open
        }
    }

    fn standing_in_trouble(&self, value: u64) -> Standing {
        self.standing_locked(&self.lock(), value)
    }

    pub(super) fn standing_locked(&self, state: &State, value: u64) -> Standing {
        if state.reached >= value {
            Standing::Reached
        } else if let Some(cause) = &state.failure {
            Standing::Failed(cause.clone())
        } else if self.pending_locked(state) >= value {
            Standing::Pending
        } else if !state.closed || self.is_outstanding(state, value) {
            Standing::Open
        } else {
            Standing::Cancelled
        }
    }
}
