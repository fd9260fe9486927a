//! Claims without the lock: nearly every signal is claimed in order, alone, and with the driver a moment later.
//!
//! One word stands for such a claim, and while there is none for what is pending: so who takes the word knows that
//! nobody has claimed anything since he looked. Whoever has to see all claims takes the lock and moves that one to the
//! list first; from then on claims are listed, until the list is empty again. So the word goes from what is pending
//! to a claim and back without the lock, and only with it to [`LISTED`] and back. Once a timeline has failed it
//! stays there.
//!
//! A signal of the host for a timeline that is nothing but memory stands in the word, too, while it is made. It is legal
//! as soon as it stands there. Whoever takes the word from it, with the lock, makes the signal in its place: nobody
//! waits for anybody, and what is seen with the lock has no signal half made.

use super::claims::Claims;
use super::{Interval, Shared, State};
use crate::sync::Ordering;

/// The word is a value and a mark above it. Claims of values that do not fit always stand in the list.
const VALUE: u64 = (1 << 62) - 1;

/// What is pending, and nothing is claimed.
const PENDING: u64 = 0;

/// There is a claim up to the value.
const CLAIMED: u64 = 1 << 62;

/// The host signals the value.
const BY_HOST: u64 = 2 << 62;

/// As [`PENDING`], and all of it is known to be reached: so the next signal of the host need not look at what is
/// reached before it changes that, which would fetch the cache line twice.
const REACHED: u64 = 3 << 62;

/// The claims stand in the list.
const LISTED: u64 = u64::MAX;

const fn mark(word: u64) -> u64 {
    word & !VALUE
}

/// True if nothing is claimed.
#[inline]
const fn is_unclaimed(word: u64) -> bool {
    mark(word) == PENDING || (mark(word) == REACHED && word != LISTED)
}

/// The word where nothing is claimed.
pub(super) const fn unclaimed(pending: u64, reached: u64) -> u64 {
    match pending {
        VALUE.. => LISTED,
        _ if pending == reached => REACHED | pending,
        _ => PENDING | pending,
    }
}

impl Shared {
    /// Claims everything from what is pending up to `value`, if no other claim is outstanding and nothing is
    /// to be said against it. If not, nothing has changed.
    #[inline]
    pub(super) fn claim_quickly(&self, value: u64, own_wait: u64) -> Option<Interval> {
        let word = self.claimed.quick.load(Ordering::Acquire);
        let above = self.pending();
        let fine = is_unclaimed(word)
            && !self.seen.troubled.load(Ordering::Acquire)
            && (own_wait..value).contains(&above)
            && value < VALUE
            && value <= self.largest_legal();
        (fine && self.change_word(word, CLAIMED | value)).then_some(Interval { above, upto: value })
    }

    /// Makes a signal of the host for a timeline that counts here, if nothing is outstanding and there is nothing to
    /// be said against it. If not, nothing has changed. Those who wait have yet to be woken.
    #[inline]
    pub(super) fn signal_quickly(&self, value: u64) -> bool {
        let word = self.claimed.quick.load(Ordering::Acquire);
        let before = word & VALUE;
        let settled = match mark(word) {
            REACHED => word != LISTED,
            PENDING => self.reached() == before,
            _ => false,
        };
        let near = value.wrapping_sub(before) <= self.max_difference;
        let fine = settled && before < value && near && value < VALUE;
        if !(fine && self.change_word(word, BY_HOST | value)) {
            return false;
        }
        // Both unless somebody has done it, and perhaps gone on.
        let reached = &self.seen.reached;
        let _ = reached.compare_exchange(before, value, Ordering::SeqCst, Ordering::Relaxed);
        self.change_word(BY_HOST | value, REACHED | value);
        true
    }

    #[inline]
    fn change_word(&self, from: u64, to: u64) -> bool {
        let word = &self.claimed.quick;
        word.compare_exchange(from, to, Ordering::SeqCst, Ordering::Relaxed)
            .is_ok()
    }

    /// Notes that the claim of `value`, all of which is pending, is none any more. False if it does not stand in the
    /// word.
    #[inline]
    pub(super) fn drop_quick(&self, value: u64) -> bool {
        value < VALUE && self.change_word(CLAIMED | value, PENDING | value)
    }

    /// Takes a claim back. False if it does not stand in the word.
    pub(super) fn withdraw_quickly(&self, claim: Interval) -> bool {
        claim.upto < VALUE && self.change_word(CLAIMED | claim.upto, PENDING | claim.above)
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
        let word = self.claimed.quick.swap(LISTED, Ordering::SeqCst);
        let value = word & VALUE;
        match mark(word) {
            CLAIMED => {
                // If it has just become pending its owner finds nothing to remove.
                let above = self.pending();
                if above < value {
                    let claim = Interval { above, upto: value };
                    state.claims.add(claim);
                }
            }
            // The signaller may be doing the same.
            BY_HOST => {
                self.seen.reached.fetch_max(value, Ordering::AcqRel);
            }
            _ => {}
        }
    }

    /// To be called with the lock after each [`Shared::list`].
    pub(super) fn unlist(&self, state: &State) {
        if state.claims.is_empty() && state.failure.is_none() {
            let word = unclaimed(self.pending(), self.reached());
            self.claimed.quick.store(word, Ordering::Release);
        }
    }

    /// Forgets the claims up to `value`, which is reached. One in the word is left to its owner: until then
    /// whoever lists it finds it settled.
    pub(super) fn settle(&self, state: &mut State, value: u64) {
        if !state.claims.is_empty() {
            state.claims.settle(value);
            self.unlist(state);
        }
    }
}
