//! Claims without the lock: nearly every signal is claimed in order, alone, and with the driver a moment later.
//!
//! One word stands for such a claim. Whoever has to see all claims takes the lock and moves it to the list first;
//! from then on claims are listed, until the list is empty again. So the word goes from 0 to a value and back
//! without the lock, and only with it to [`LISTED`] and back to 0.

use super::claims::Claims;
use super::{Interval, Shared, State};
use crate::sync::Ordering;

/// The claims stand in the list.
pub(super) const LISTED: u64 = u64::MAX;

impl Shared {
    /// Claims everything from what is pending up to `value`, if no other claim is outstanding and nothing is
    /// to be said against it. If not, nothing has changed.
    #[inline]
    pub(super) fn claim_quickly(&self, value: u64, own_wait: u64) -> Option<Interval> {
        let fine = self.quick.load(Ordering::Relaxed) == 0
            && !self.seen.troubled.load(Ordering::Acquire)
            && (own_wait..value).contains(&self.pending())
            && value <= self.largest_legal();
        if !fine {
            return None;
        }
        let taken = self
            .quick
            .compare_exchange(0, value, Ordering::SeqCst, Ordering::Relaxed);
        taken.ok()?;
        // Once more: others may have claimed and promoted meanwhile. It only grows, so this is all that can be wrong
        // now, and a claim up to what is pending already is in nobody's way until it is taken back.
        let above = self.pending();
        if above < value {
            return Some(Interval { above, upto: value });
        }
        if !self.drop_quick(value) {
            let mut state = self.state.lock();
            self.with_claims(&mut state, |claims| claims.remove(value));
        }
        None
    }

    /// Takes the claim of `value` back, or notes that it is pending. False if it does not stand in the word.
    #[inline]
    pub(super) fn drop_quick(&self, value: u64) -> bool {
        self.quick
            .compare_exchange(value, 0, Ordering::SeqCst, Ordering::Relaxed)
            .is_ok()
    }

    /// Calls `action` with all claims.
    pub(super) fn with_claims<T>(
        &self,
        state: &mut State,
        action: impl FnOnce(&mut Claims) -> T,
    ) -> T {
        self.list(state);
        let result = action(&mut state.claims);
        self.unlist(state);
        result
    }

    /// Sees to it that all claims stand in the list, and stay there.
    pub(super) fn list(&self, state: &mut State) {
        let quick = self.quick.swap(LISTED, Ordering::SeqCst);
        if quick != LISTED && quick != 0 {
            // If it has just become pending its owner finds nothing to remove.
            let above = self.pending();
            if above < quick {
                state.claims.add(Interval { above, upto: quick });
            }
        }
    }

    /// To be called with the lock after each [`Shared::list`].
    pub(super) fn unlist(&self, state: &State) {
        if state.claims.is_empty() {
            self.quick.store(0, Ordering::Release);
        }
    }

    /// Forgets the claims up to `value`, which is reached.
    pub(super) fn settle(&self, state: &mut State, value: u64) {
        let quick = self.quick.load(Ordering::SeqCst);
        if quick == LISTED {
            state.claims.settle(value);
            self.unlist(state);
        } else if quick != 0 && quick <= value {
            // Unless its owner does so right now.
            self.drop_quick(quick);
        }
    }
}
