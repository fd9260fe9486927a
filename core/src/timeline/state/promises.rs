//! Promises: values of a timeline that others signal, outside the engine (T2).
//!
//! Others signal the counter under a lock of their own. Under the same lock the application says
//! how far their signals go. So the engine and the others never signal the same values. The engine
//! cannot enforce that. It reads the counter before each of its own signals, and at each query. A
//! value inside a claim of the engine, whose signal was not made, is a broken promise. It fails the
//! timeline, because a further signal could lower the counter.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::owed::Owing;
use super::shared::Shared;
use crate::base::error::{Error, Result};
use crate::base::run::call_backend;
use crate::base::sync::Mutex;
use crate::timeline::claim::Claim;
use crate::timeline::interval::Interval;

/// What the engine knows of the signals of a timeline that others signal, too.
#[derive(Default)]
pub(super) struct Promises {
    /// The highest value that the engine has given to a driver, or is about to give.
    ///
    /// A driver may be so fast that the counter shows the value before it is pending here.
    ///
    /// Loom does not model it, because no model has others that signal.
    sent: AtomicU64,
    /// The last values that others have promised.
    last: Mutex<Option<Interval>>,
}

impl Shared {
    /// Notes that others signal the values up to `value`. See
    /// [`Timeline::signalled_by_others`](crate::Timeline::signalled_by_others).
    pub(crate) fn signalled_by_others(self: &Arc<Self>, value: u64) -> Result<()> {
        self.require_maker()?;
        if !self.ports().takes_promises() {
            return Err(Error::unsupported(
                self.object(),
                format!("be signalled up to {value} by others"),
                "only this engine signals it; adopt or import the semaphore that others signal",
            ));
        }
        if let Some(cause) = self.failure() {
            return Err(Error::failed(self.object(), value, cause));
        }
        self.check_signal_range(value)?;
        if self.pending() >= value {
            return Ok(());
        }
        // Before the claim: the counter may show its value already.
        self.add_raw_claim();
        let interval = match self.claim(value, 0) {
            Ok(claimed) => claimed.interval,
            Err(error) => {
                self.drop_raw_claim();
                // The counter may have shown the value meanwhile.
                let is_pending = self.pending() >= value;
                return if is_pending { Ok(()) } else { Err(*error) };
            }
        };
        let mut claim = Claim::new(self.clone(), interval);
        claim.note_submitted(Owing::Others)?;
        *self.make_extras().promises().last.lock() = Some(interval);
        Ok(())
    }

    /// The last values that others have promised to signal. `None` if there are none.
    pub(crate) fn last_promise(&self) -> Option<Interval> {
        *self.extras()?.promises().last.lock()
    }

    /// Checks that others have not signalled a value of `claim`, which this engine is to signal.
    ///
    /// Call it just before the driver gets the signal.
    ///
    /// # Errors
    /// [`Error::Corrupted`], which has failed the timeline.
    pub(crate) fn check_before_signal(&self, claim: Interval) -> Result<(), Box<Error>> {
        match self.read_before_signal(claim) {
            Some(found) => Err(Box::new(self.fail_passed_claim(found, claim))),
            None => Ok(()),
        }
    }

    /// The counter's value, if others have signalled a value of `claim`.
    ///
    /// Same as [`Shared::check_before_signal`], for a caller that holds a lock.
    pub(super) fn read_before_signal(&self, claim: Interval) -> Option<u64> {
        if !self.ports().takes_promises() {
            return None;
        }
        let read = || self.home().counter_value();
        // An error or the loss of the device shows at the next query.
        let read = call_backend(self.object(), "Port::counter_value", read);
        let found = read.ok().flatten().filter(|&found| found != u64::MAX);
        let found = found.filter(|&found| found > claim.above || found >= claim.upto);
        if found.is_none() {
            let sent = &self.make_extras().promises().sent;
            sent.fetch_max(claim.upto, Ordering::SeqCst);
        }
        found
    }

    /// Notes that the driver does not get the signal of `claim`, although it was checked.
    pub(crate) fn forget_sent(&self, claim: Interval) {
        // Another claim can have been checked since then only if this one is pending.
        if let Some(extras) = self.extras() {
            let order = Ordering::SeqCst;
            let sent = &extras.promises().sent;
            let _ = sent.compare_exchange(claim.upto, claim.above, order, order);
        }
    }

    /// Fails the timeline if `polled` has passed a claim of this engine without its signal.
    ///
    /// Call it after the poll that has returned `polled`. True if the timeline has failed.
    pub(super) fn check_after_poll(&self, polled: u64) -> bool {
        if polled <= self.pending() || !self.ports().takes_promises() {
            return false;
        }
        let passed = {
            let claims = self.lock_claims();
            // After the lock, because a promise is made in this order: it is counted as a raw
            // claim, is listed here, becomes pending, and is not counted any more. While a claim
            // of the application's own submission is open, the counter may show its value.
            if !self.is_signalled_outside() {
                return false;
            }
            let sent = self.extras().map_or(0, |extras| {
                let sent = &extras.promises().sent;
                sent.load(Ordering::SeqCst)
            });
            let settled = self.pending().max(sent);
            let mut open = claims.all().filter(|claim| claim.upto > settled);
            open.next().filter(|claim| claim.above < polled)
        };
        passed.is_some_and(|claim| {
            let _failed = self.fail_passed_claim(polled, claim);
            true
        })
    }

    /// Fails the timeline below `claim`, because the counter stands at `found`.
    #[cold]
    pub(super) fn fail_passed_claim(&self, found: u64, claim: Interval) -> Error {
        // All signals up to this value were claimed or promised.
        self.advance_to_last(claim.above);
        let Interval { above, upto } = claim;
        let error = Error::Corrupted {
            counter: self.object().clone(),
            found,
            reason: format!(
                "others have promised no signal above {above}, and a submission of this engine was \
                 to signal {upto}"
            ),
        };
        self.fail_frozen(Arc::new(error.clone()));
        error
    }
}
