//! Signals that the host makes for a queue without a port for them.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::Lane;
use super::hold::Taken;
use crate::backend::Enqueue;
use crate::error::{Error, Result};
use crate::graph::Place;
use crate::point::Point;
use crate::run::{Wake, is_put_off};
use crate::state::{Interval, Shared, Standing};
use crate::sync::Instant;
use crate::waiters::Stage;

/// Makes a signal from the host once a queue that has no port for it has done its work.
pub(super) struct Relay {
    pub(super) own: Arc<Shared>,
    pub(super) number: u64,
    pub(super) of: Arc<Shared>,
    pub(super) claim: Interval,
    /// The signal's place among those who wait for each other, given up once it is made.
    pub(super) _place: Option<Place>,
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

impl<E: Enqueue> Lane<E> {
    /// Notes which signals the host is to make for the submission `number`, before the driver has it.
    pub(super) fn note_relays(&self, number: u64, claims: &[Taken<'_>]) {
        let has_come = |point: Point<'_>| {
            let hopeless = |of: &Arc<Shared>| of.hopeless(point.value()).is_some();
            Ok(point
                .of
                .is_none_or(|of| of.reached() >= point.value() || hopeless(of)))
        };
        // What was made before is forgotten.
        let _ = self.settle_relays(number, has_come);
        let relayed = claims.iter().filter(|claim| claim.port.is_none());
        let relayed = relayed.map(|claim| Relayed {
            number,
            of: Arc::downgrade(claim.of),
            value: claim.claim.upto,
        });
        self.state.lock().relays.extend(relayed);
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
