//! The floor: the least code over the driver's calls for timelines that several threads use.
//!
//! It keeps these rules of the contract by hand, with std, and no others:
//!
//! - T1 to T4 and Q1: each value is claimed once and in order. Signals complete in order, also from
//!   different queues.
//! - Q2: a wait reaches the driver only after its signal is pending. Until then the submission and
//!   all later ones of its queue are held. Units in flight are counted. Above the bound, the driver
//!   is asked what has finished.
//! - Q6: an application's work runs without a lock, on one thread at a time.
//! - E1 and E2: timelines and queues fail. A submission that would wait for a failed timeline fails
//!   its own signals.
//! - E3, on CUDA, as far as a submission pays for it: a queue notes which of its submissions wait
//!   for other devices and what they signal. What a watching thread does after a loss is not part.
//!
//! There is one lock for each queue and one for each ring of events. No lock of a timeline is held
//! across a driver call. A claim is one atomic exchange. An event is recorded again when only its
//! queue has a reference.
//!
//! Among other rules, these are left out: circles (Q4), waits that park, and claims out of order
//! (T2; a signal claims everything up to its value). No submission is held for lack of budget: it
//! goes to the driver after the query. Each of them would only add cost.
//!
//! Rows use the floor from one thread, as they use ours.

#[cfg(feature = "cuda")]
pub(crate) mod cuda;
#[cfg(feature = "vulkan")]
pub(crate) mod vulkan;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::side::{Outcome, Stop};

/// The claimed values of a timeline: all up to a value.
#[derive(Default)]
struct Claims(AtomicU64);

impl Claims {
    /// Claims the values up to `value`. Returns the highest value claimed before.
    ///
    /// Of two callers with the same value, one succeeds.
    #[cfg(feature = "cuda")]
    #[inline]
    fn claim(&self, value: u64) -> Outcome<u64> {
        let mut before = self.0.load(Ordering::Relaxed);
        while before < value && value < u64::MAX {
            match self
                .0
                .compare_exchange_weak(before, value, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => return Ok(before),
                Err(now) => before = now,
            }
        }
        Err(refused(value, before))
    }

    /// As [`Claims::claim`], but only if exactly the values up to `before` are claimed.
    #[inline]
    fn claim_above(&self, before: u64, value: u64) -> Outcome<()> {
        if value <= before || value == u64::MAX {
            return Err(refused(value, before));
        }
        let claimed = self
            .0
            .compare_exchange(before, value, Ordering::AcqRel, Ordering::Relaxed);
        claimed.map(drop).map_err(|now| refused(value, now))
    }

    /// Withdraws a claim. Returns false if a higher value was claimed in the meantime.
    fn withdraw(&self, before: u64, value: u64) -> bool {
        self.0
            .compare_exchange(value, before, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }
}

#[cold]
fn refused(value: u64, claimed: u64) -> Stop {
    Stop::Failed(format!(
        "{value} cannot be signalled: everything up to {claimed} is claimed"
    ))
}

/// Units in flight of queues that share a part of the driver, as the driver counts them.
#[derive(Default)]
pub(crate) struct Budget(AtomicU64);

/// Above this bound the driver might block the submitting thread.
const BOUND: u64 = 416;

impl Budget {
    /// Adds units. Returns true above the bound; the caller then checks what has finished.
    #[inline]
    fn take(&self, units: u64) -> bool {
        self.0.fetch_add(units, Ordering::Relaxed) + units > BOUND
    }

    #[inline]
    fn give_back(&self, units: u64) {
        if units > 0 {
            self.0.fetch_sub(units, Ordering::Relaxed);
        }
    }
}

/// Returns a number that no other queue has. No queue has 0.
fn number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Locks a mutex and ignores poisoning: no thread leaves the guarded state half changed.
#[inline]
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    #[cfg(feature = "cuda")]
    fn each_value_is_claimed_once() {
        let claims = Claims::default();
        let won: u64 = std::thread::scope(|scope| {
            let racer = || {
                (1..=1000)
                    .filter(|value| claims.claim(*value).is_ok())
                    .count() as u64
            };
            let racers: Vec<_> = (0..4).map(|_| scope.spawn(racer)).collect();
            racers
                .into_iter()
                .map(|racer| racer.join().expect("no panic"))
                .sum()
        });
        assert!((1..=1000).contains(&won), "{won}");
        assert!(claims.claim(1000).is_err() && claims.claim(u64::MAX).is_err());
        assert_eq!(claims.claim(1002), Ok(1000));
        assert!(claims.withdraw(1000, 1002) && !claims.withdraw(1000, 1002));
    }

    #[rstest]
    #[case::above_an_outdated_value(0, 4)]
    #[case::not_above(3, 3)]
    #[case::the_largest_value(3, u64::MAX)]
    fn a_wrong_claim_is_refused_and_changes_nothing(#[case] before: u64, #[case] value: u64) {
        let claims = Claims::default();
        assert_eq!(claims.claim_above(0, 3), Ok(()));
        assert!(claims.claim_above(before, value).is_err());
        assert!(claims.withdraw(0, 3));
        assert_eq!(claims.claim_above(0, 1), Ok(()));
    }
}
