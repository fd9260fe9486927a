//! Signals that the host makes for a queue without a port for them.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::SubmissionQueue;
use super::hold::Taken;
use crate::base::error::{Error, Result};
use crate::base::run::{Wake, is_put_off};
use crate::base::stage::Stage;
use crate::base::sync::Instant;
use crate::driver::enqueue::Enqueue;
use crate::held::RelayEntry;
use crate::timeline::point::Point;
use crate::timeline::state::{Interval, Shared, Standing};

/// Makes a signal from the host once a queue that has no port for it has done its work.
pub(super) struct Relay {
    pub(super) own: Arc<Shared>,
    pub(super) number: u64,
    pub(super) of: Arc<Shared>,
    pub(super) claim: Interval,
    /// The signal's place among those who wait for each other, given up once it is made.
    pub(super) _entry: Option<RelayEntry>,
}

impl Wake for Relay {
    fn wake(self: Arc<Self>) {
        loop {
            // First the work, then the predecessor; each wait ends in another call of this.
            let (of, value) = match self.own.standing(self.number) {
                Standing::Reached => match self.of.standing(self.claim.above) {
                    Standing::Reached => return self.of.signal_claimed(self.claim.upto),
                    Standing::Failed(_) => return,
                    // The predecessor never comes, so neither does this one.
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

/// With so many signals that the host is to make it is asked which have come, and with twice what that leaves.
const LOOK_AT: usize = 64;

/// A signal that the host is to make for the submission `number`.
#[derive(Clone)]
pub(super) struct Relayed {
    number: u64,
    of: Weak<Shared>,
    value: u64,
}

impl Relayed {
    fn is(&self, other: &Self) -> bool {
        self.number == other.number && Weak::ptr_eq(&self.of, &other.of)
    }
}

impl<E: Enqueue> SubmissionQueue<E> {
    /// Notes which signals the host is to make for the submission `number`, before the driver has it.
    pub(super) fn note_relays(&self, number: u64, claims: &[Taken<'_>]) {
        let relayed = claims.iter().filter(|claim| claim.port.is_none());
        let relayed = relayed.map(|claim| Relayed {
            number,
            of: Arc::downgrade(claim.of),
            value: claim.claim.upto,
        });
        // Perhaps the last that keep their timelines: to be dropped without the lock.
        let mut looked_at = Vec::new();
        let mut state = self.state.lock();
        state.relays.extend(relayed);
        if state.relays.len() >= state.look_at_relays.max(LOOK_AT) {
            state.relays.retain(|relayed| {
                let Some(of) = relayed.of.upgrade() else {
                    return false;
                };
                let standing = of.standing(relayed.value);
                looked_at.push(of);
                matches!(standing, Standing::Open | Standing::Pending)
            });
            state.look_at_relays = 2 * state.relays.len();
        }
        drop(state);
        drop(looked_at);
    }

    /// The submission `number` was refused, and its claims are withdrawn.
    pub(super) fn forget_relays(&self, number: u64) {
        let mut state = self.state.lock();
        state.relays.retain(|relayed| relayed.number != number);
    }

    /// Waits until the host has made the signals of all submissions up to `number`, which have finished, or never will make them.
    ///
    /// # Errors
    /// [`Error::TimedOut`].
    pub(super) fn wait_for_relays(
        &self,
        number: u64,
        begun: Instant,
        timeout: Duration,
    ) -> Result<()> {
        // Those that this thread is to make come once it is done with the call that it is in.
        if is_put_off() {
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

    /// Forgets the first signals of submissions up to `number` that the host is to make, as long as they have come.
    fn settle_relays(
        &self,
        number: u64,
        mut has_come: impl FnMut(Point<'_>) -> Result<bool>,
    ) -> Result<()> {
        let next = || {
            let state = self.state.lock();
            let next = state.relays.front();
            next.filter(|next| next.number <= number).cloned()
        };
        while let Some(next) = next() {
            // Not under the lock: this may be the last that keeps it.
            if let Some(of) = &next.of.upgrade() {
                let (of, value) = (Some(of), next.value);
                if !has_come(Point { of, value })? {
                    break;
                }
            }
            let mut state = self.state.lock();
            if state.relays.front().is_some_and(|front| front.is(&next)) {
                state.relays.pop_front();
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;
    use crate::api::{Device as _, Queue as _};
    use crate::backend::BackendQueue as _;
    use crate::{QueueKind, host};

    /// Memory follows what is outstanding, also behind a signal that waits for its predecessor.
    #[test]
    fn relayed_signals_that_have_come_are_forgotten() {
        let device = host::Device::new();
        let queue = device.queue(QueueKind::Compute, "queue").unwrap();
        let other = host::Device::new();
        for is_stuck in [false, true] {
            let first = other.timeline("first").unwrap();
            let predecessor = first.shared().claim(1, 0).unwrap();
            if is_stuck {
                let signals = [first.signal_at(2)];
                queue.submit(&[], |_| Ok(()), &signals).unwrap();
            }
            let mut kept = Vec::new();
            for number in 0..10 * LOOK_AT {
                let line = other.timeline("line").unwrap();
                let signals = [line.signal_at(1)];
                queue.submit(&[], |_| Ok(()), &signals).unwrap();
                line.at(1).wait(Duration::from_secs(20)).unwrap();
                let state = queue.engine().submissions().state.lock();
                let (length, capacity) = (state.relays.len(), state.relays.capacity());
                assert!(length <= 2 * LOOK_AT, "{length}");
                assert!(capacity <= 4 * LOOK_AT, "capacity for {capacity}");
                drop(state);
                if number % 2 == 0 {
                    kept.push(line);
                }
            }
            // What is still to come is remembered.
            let idle = queue.idle(Duration::ZERO);
            assert_eq!(idle.is_err(), is_stuck, "{idle:?}");
            first.shared().withdraw(predecessor);
            first.signal(1).unwrap();
            queue.idle(Duration::from_secs(20)).unwrap();
        }
    }
}
