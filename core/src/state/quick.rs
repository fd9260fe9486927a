//! Claims without the lock: nearly every signal is claimed in order, alone, and with the driver a moment later.
//!
//! One word stands for such a claim, and while there is none for what is pending: so who takes the word knows that
//! nobody has claimed anything since he looked. Whoever has to see all claims takes the lock and moves that one to the
//! list first; from then on claims are listed, until the list is empty again. So the word goes from one claim to the
//! next without the lock, and only with it to [`LISTED`] and back. Once a timeline has failed it stays there; and one with timestamps
//! always stands there, so that whatever signals it goes the long way, where its times are seen to, and others are not slower for that.
//!
//! A claim is taken by one locked instruction and promoted by none: its owner stores its value in `pending`, which nobody
//! else writes, as the word is not free for the next before. Then, behind a barrier that does for everything that a
//! submission promotes, he looks whether the claim has been moved to the list meanwhile. Who moves it looks whether it is
//! promoted after that: one sees the other. If it was not, it is *owed*: nothing stands in the word again until its owner
//! has come for it, even if it is reached before, so that no later claim is promoted by a store before his.
//!
//! A signal of the host for a timeline that is nothing but memory stands in the word, too, while it is made. It is legal
//! as soon as it stands there. Whoever takes the word from it, with the lock, makes the signal in its place: nobody
//! waits for anybody, and what is seen with the lock has no signal half made.
//!
//! A signal of the host through a driver is claimed in the word like any other. Its maker promotes it with the lock, as he
//! needs that for those who wait.

use super::claims::Claims;
use super::{Interval, Shared, State};
use crate::sync::{Ordering, in_order};

/// The word is a value and a mark above it. Claims of values that do not fit always stand in the list.
const VALUE: u64 = (1 << 62) - 1;

/// What is pending, and nothing is claimed.
const PENDING: u64 = 0;

/// There is a claim up to the value, unless that is promoted.
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
    pub(crate) fn claim_quickly(&self, value: u64, own_wait: u64) -> Option<Interval> {
        self.claim_in_the_word(value, |above| (own_wait..value).contains(&above))
    }

    /// Claims `value` for a signal of the host, which comes next: if nothing is outstanding, and there is nothing to be said
    /// against it. If not, nothing has changed.
    #[inline]
    pub(super) fn claim_next_quickly(&self, value: u64) -> bool {
        let is_next = |above| above < value && self.reached() == above;
        self.claim_in_the_word(value, is_next).is_some()
    }

    /// Claims everything from what is pending up to `value`, if that is a place which `fits`.
    #[inline]
    fn claim_in_the_word(&self, value: u64, fits: impl FnOnce(u64) -> bool) -> Option<Interval> {
        let word = self.claimed.quick.load(Ordering::Acquire);
        // Mostly the last one to claim has been here.
        let free = if mark(word) == CLAIMED {
            self.is_promoted(word & VALUE)
        } else {
            mark(word) != BY_HOST && word != LISTED
        };
        let above = self.pending();
        let fine = free
            && !self.seen.troubled.load(Ordering::Acquire)
            && fits(above)
            && value < VALUE
            && value <= self.largest_legal();
        (fine && self.change_word(word, CLAIMED | value)).then_some(Interval { above, upto: value })
    }

    /// Makes a signal of the host for a timeline that counts here, if nothing is outstanding and there is nothing to
    /// be said against it. If not, nothing has changed. Those who wait have yet to be woken: a load of
    /// `awaited` behind this sees each registration that has missed the value.
    #[inline]
    pub(super) fn signal_quickly(&self, value: u64) -> bool {
        let word = self.claimed.quick.load(Ordering::Acquire);
        let before = word & VALUE;
        let settled = match mark(word) {
            REACHED => word != LISTED,
            PENDING => self.reached() == before,
            CLAIMED => self.is_promoted(before) && self.reached() == before,
            _ => false,
        };
        let near = value.wrapping_sub(before) <= self.max_difference;
        let fine = settled && before < value && near && value < VALUE;
        if !(fine && self.change_word(word, BY_HOST | value)) {
            return false;
        }
        // Both, unless another thread has made the signal in `list`, and perhaps gone on.
        let reached = &self.seen.reached;
        let made = reached.compare_exchange(before, value, Ordering::SeqCst, Ordering::Acquire);
        if made.is_ok() {
            in_order();
        }
        // If it was made elsewhere, nothing was changed here that a fence could order. A registration before that is
        // seen all the same, as the other thread had the lock after it, and the failed exchange acquires.
        self.change_word(BY_HOST | value, REACHED | value);
        true
    }

    #[inline]
    fn change_word(&self, from: u64, to: u64) -> bool {
        let word = &self.claimed.quick;
        word.compare_exchange(from, to, Ordering::SeqCst, Ordering::Acquire)
            .is_ok()
    }

    /// True if the owner of the claim of `value`, which stands in the word, has promoted it. That it is reached does not
    /// tell.
    #[inline]
    fn is_promoted(&self, value: u64) -> bool {
        self.claimed.pending.load(Ordering::Acquire) >= value
    }

    /// Promotes the claim of `value`. False if it does not stand in the word. If it does, it may be moved to the list
    /// before it is promoted: [`Shared::is_listed`] tells, behind a barrier.
    #[inline]
    pub(super) fn promote_quickly(&self, value: u64) -> bool {
        let word = self.claimed.quick.load(Ordering::Acquire);
        let quick = value < VALUE && word == CLAIMED | value;
        if quick {
            self.claimed.pending.store(value, Ordering::Release);
        }
        quick
    }

    /// True if claims stand in the list.
    #[inline]
    pub(super) fn is_listed(&self) -> bool {
        self.claimed.quick.load(Ordering::SeqCst) == LISTED
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
                in_order();
                if self.claimed.pending.load(Ordering::SeqCst) < value {
                    let above = self.pending();
                    state.claims.owe(Interval { above, upto: value });
                }
            }
            // The signaller may be doing the same.
            BY_HOST => {
                self.seen.reached.fetch_max(value, Ordering::AcqRel);
            }
            _ => {}
        }
    }

    /// From here on claims stand in the list, and signals of the host are made with the lock. It has timestamps now.
    pub(crate) fn list_for_ever(&self) {
        let mut state = self.locked.state.lock();
        self.list(&mut state);
        self.unlist(&state);
    }

    /// To be called with the lock after each [`Shared::list`].
    pub(super) fn unlist(&self, state: &State) {
        if state.claims.is_empty() && state.failure.is_none() && self.times.get().is_none() {
            let word = unclaimed(self.pending(), self.reached());
            self.claimed.quick.store(word, Ordering::Release);
        }
    }

    /// Forgets the claims up to `value`, which is reached. One in the word is left to its owner.
    pub(super) fn settle(&self, state: &mut State, value: u64) {
        if !state.claims.is_empty() {
            state.claims.settle(value);
            self.unlist(state);
        }
    }
}
