//! Signals that the host makes for a queue without a port on its device.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::SubmissionQueue;
use super::verdict::Taken;
use crate::base::error::{Error, Result};
use crate::base::run::{Wake, are_wakes_deferred};
use crate::base::stage::Stage;
use crate::base::sync::Instant;
use crate::driver::enqueue::Enqueue;
use crate::held::RelayEntry;
use crate::timeline::point::Point;
use crate::timeline::state::{Interval, Shared, Standing};

/// Makes one such signal once the submission has finished and the predecessor is reached.
pub(super) struct Relay {
    pub(super) own: Arc<Shared>,
    pub(super) number: u64,
    pub(super) of: Arc<Shared>,
    pub(super) claim: Interval,
    /// The signal's graph entry. Removed once the signal is made.
    pub(super) _entry: Option<RelayEntry>,
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
const FIRST_PRUNE: usize = 64;

/// A signal that the host will make for submission `number`.
#[derive(Clone)]
pub(super) struct OutstandingRelay {
    number: u64,
    of: Weak<Shared>,
    value: u64,
}

impl OutstandingRelay {
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
    /// Adds signals. Returns timelines to be dropped without the lock.
    fn add(&mut self, relays: impl Iterator<Item = OutstandingRelay>) -> Vec<Arc<Shared>> {
        // These may be the last references to their timelines.
        let mut dropped = Vec::new();
        self.list.extend(relays);
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
}

impl<E: Enqueue> SubmissionQueue<E> {
    /// Notes the host signals of submission `number`, before the driver has it.
    pub(super) fn note_relays(&self, number: u64, claims: &[Taken<'_>]) {
        let relayed = claims.iter().filter(|claim| claim.port.is_none());
        let relayed = relayed.map(|claim| OutstandingRelay {
            number,
            of: Arc::downgrade(claim.of),
            value: claim.claim.upto,
        });
        let dropped = self.state.lock().relays.add(relayed);
        drop(dropped);
    }

    /// Forgets the host signals of submission `number`, which was refused.
    pub(super) fn forget_relays(&self, number: u64) {
        let mut state = self.state.lock();
        state.relays.list.retain(|relayed| relayed.number != number);
    }

    /// Waits until the host has made its signals of all submissions up to `number`, which have
    /// finished.
    ///
    /// A signal that will never be made ends the wait, too.
    ///
    /// # Errors
    /// [`Error::TimedOut`].
    pub(super) fn wait_for_relays(
        &self,
        number: u64,
        begun: Instant,
        timeout: Duration,
    ) -> Result<()> {
        // The signals that this thread must make itself come only after its present call.
        if are_wakes_deferred() {
            return Ok(());
        }
        self.settle_relays(number, |point| {
            let gone = Instant::now().duration_since(begun);
            match point.wait(timeout.saturating_sub(gone)) {
                Ok(()) | Err(Error::Failed { .. } | Error::Cancelled { .. }) => Ok(true),
                Err(error) => Err(error),
            }
        })
    }

    /// Removes the first relays of submissions up to `number` while `is_settled` returns true for
    /// them.
    fn settle_relays(
        &self,
        number: u64,
        mut is_settled: impl FnMut(Point<'_>) -> Result<bool>,
    ) -> Result<()> {
        let next = || {
            let state = self.state.lock();
            let next = state.relays.list.front();
            next.filter(|next| next.number <= number).cloned()
        };
        while let Some(next) = next() {
            // Not under the lock, because this may be the last reference to the timeline.
            if let Some(of) = &next.of.upgrade() {
                let (of, value) = (Some(of), next.value);
                if !is_settled(Point { of, value })? {
                    break;
                }
            }
            let mut state = self.state.lock();
            if state
                .relays
                .list
                .front()
                .is_some_and(|front| front.is(&next))
            {
                state.relays.list.pop_front();
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use rstest::rstest;

    use super::*;
    use crate::api::{Device as _, Queue as _};
    use crate::backend::BackendQueue as _;
    use crate::{QueueKind, host};

    /// The list stays short, also behind a signal that waits for its predecessor.
    #[rstest]
    #[case::in_front(false)]
    #[case::behind_a_stuck_one(true)]
    fn settled_relays_are_removed(#[case] is_stuck: bool) {
        let device = host::Device::new();
        let queue = device.queue(QueueKind::Compute, "queue").unwrap();
        let other = host::Device::new();
        let first = other.timeline("first").unwrap();
        let predecessor = first.shared().claim(1, 0).unwrap();
        if is_stuck {
            let signals = [first.signal_at(2)];
            queue.submit(&[], |_| Ok(()), &signals).unwrap();
        }
        let mut kept = Vec::new();
        for number in 0..10 * FIRST_PRUNE {
            let line = other.timeline("line").unwrap();
            let signals = [line.signal_at(1)];
            queue.submit(&[], |_| Ok(()), &signals).unwrap();
            line.at(1).wait(Duration::from_secs(20)).unwrap();
            let state = queue.engine().submissions().state.lock();
            let (length, capacity) = (state.relays.list.len(), state.relays.list.capacity());
            assert!(length <= 2 * FIRST_PRUNE, "{length}");
            assert!(capacity <= 4 * FIRST_PRUNE, "capacity {capacity}");
            drop(state);
            if number % 2 == 0 {
                kept.push(line);
            }
        }
        // The outstanding signal is still in the list.
        let idle = queue.idle(Duration::ZERO);
        assert_eq!(idle.is_err(), is_stuck, "{idle:?}");
        first.shared().withdraw(predecessor);
        first.signal(1).unwrap();
        queue.idle(Duration::from_secs(20)).unwrap();
    }
}
