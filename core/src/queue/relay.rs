//! Signals that the host makes for a queue without a port on its device.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use super::submission::Submission;
use crate::base::run::Wake;
use crate::base::stage::Stage;
use crate::held::RelayEntry;
use crate::timeline::state::{Interval, Shared, Standing};

/// Makes one such signal once the submission has finished and the predecessor is reached.
pub(super) struct Relay {
    own: Arc<Shared>,
    number: u64,
    of: Arc<Shared>,
    claim: Interval,
    /// The signal's graph entry. Removed once the signal is made.
    _entry: Option<RelayEntry>,
}

impl Relay {
    /// The relay of `claim` of `of` by submission `number` of the queue with position `own`.
    pub(super) fn new(
        own: &Arc<Shared>,
        number: u64,
        of: &Arc<Shared>,
        claim: Interval,
        entry: Option<RelayEntry>,
    ) -> Arc<Self> {
        Arc::new(Self {
            own: own.clone(),
            number,
            of: of.clone(),
            claim,
            _entry: entry,
        })
    }
}

impl Wake for Relay {
    fn wake(self: Arc<Self>) {
        loop {
            // First the submission, then the predecessor. After each wait `wake` is called again.
            let (of, value) = match self.own.standing(self.number) {
                Standing::Reached => match self.of.standing(self.claim.above) {
                    Standing::Reached => return self.of.signal_claimed(self.claim.upto),
                    Standing::Failed(_) => return,
                    // Without its predecessor this signal never comes either.
                    Standing::Cancelled => return self.of.withdraw(self.claim),
                    Standing::Pending | Standing::Open => (&self.of, self.claim.above),
                },
                Standing::Failed(cause) => return self.of.fail(cause),
                Standing::Cancelled => return self.of.withdraw(self.claim),
                Standing::Pending | Standing::Open => (&self.own, self.number),
            };
            if of.register(value, Stage::Reached, self.clone()).is_some() {
                return;
            }
        }
    }
}

/// The number of relays at which settled ones are removed first. After that, twice what removal
/// leaves.
pub(super) const FIRST_PRUNE: usize = 64;

/// A signal that the host will make for submission `number`.
#[derive(Clone)]
pub(super) struct OutstandingRelay {
    number: u64,
    of: Weak<Shared>,
    value: u64,
}

impl OutstandingRelay {
    /// The timeline, if it has not been dropped, and the value.
    pub(super) fn signal(&self) -> (Option<Arc<Shared>>, u64) {
        (self.of.upgrade(), self.value)
    }

    fn is(&self, other: &Self) -> bool {
        self.number == other.number && Weak::ptr_eq(&self.of, &other.of)
    }
}

/// The signals that the host will make for a queue, in order.
#[derive(Default)]
pub(super) struct Relays {
    list: VecDeque<OutstandingRelay>,
    /// Settled relays are removed when there are so many, at least [`FIRST_PRUNE`].
    prune_at: usize,
}

impl Relays {
    /// Adds the host signals of a submission.
    ///
    /// Returns timelines to be dropped without the lock.
    pub(super) fn add(&mut self, submission: &Submission<'_>) -> Vec<Arc<Shared>> {
        // These may be the last references to their timelines.
        let mut dropped = Vec::new();
        let signals = submission.host_signals().iter();
        self.list
            .extend(signals.map(|(of, claim)| OutstandingRelay {
                number: submission.number,
                of: Arc::downgrade(of),
                value: claim.upto,
            }));
        if self.list.len() >= self.prune_at.max(FIRST_PRUNE) {
            self.list.retain(|relayed| {
                let Some(of) = relayed.of.upgrade() else {
                    return false;
                };
                let standing = of.standing(relayed.value);
                dropped.push(of);
                matches!(standing, Standing::Open | Standing::Pending)
            });
            self.prune_at = 2 * self.list.len();
        }
        dropped
    }

    /// Removes the signals of submission `number`.
    pub(super) fn forget(&mut self, number: u64) {
        self.list.retain(|relayed| relayed.number != number);
    }

    /// The first signal, if it is of a submission up to `number`.
    pub(super) fn first_upto(&self, number: u64) -> Option<OutstandingRelay> {
        let first = self.list.front();
        first.filter(|first| first.number <= number).cloned()
    }

    /// Removes the first signal, if it is `relay`.
    pub(super) fn remove_first(&mut self, relay: &OutstandingRelay) {
        if self.list.front().is_some_and(|front| front.is(relay)) {
            self.list.pop_front();
        }
    }

    /// The length of the list, and its capacity.
    #[cfg(test)]
    pub(super) fn size(&self) -> (usize, usize) {
        (self.list.len(), self.list.capacity())
    }
}
