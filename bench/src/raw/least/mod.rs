//! The least that a timeline costs over the driver's calls, if several threads are to use it: the
//! floor of rows whose raw side only calls the driver.
//!
//! This is what an engine would write by hand, with std, to keep these rules of the contract, and
//! nothing else of it:
//!
//! - T1 to T4 and Q1: values that are claimed once and in order, and signals that complete in
//!   order, from whichever queue;
//! - Q2: a wait reaches the driver only once its signal is pending, and what must wait for that is
//!   held in order; what is in flight is counted, and where it is too much the driver is asked what
//!   has finished;
//! - Q6: an application's work runs without any lock, on one thread at a time;
//! - E1 and E2: timelines and queues fail, and what would wait for a failed timeline fails its own.
//!
//! There is one lock per queue and one per ring of events, none of a timeline held across a
//! driver's call; a claim is one atomic exchange, and an event is used again when nobody else has
//! it. Left out are, among others, circles (Q4), what is to be held for lack of room (it goes to
//! the driver all the same, once that was asked), waits that park, and claims out of order (T2): a
//! signal claims what lies above everything claimed. All of those would cost more, never less.
//!
//! The rows use it from one thread, as they use ours.

#[cfg(feature = "cuda")]
pub(crate) mod cuda;
#[cfg(feature = "vulkan")]
pub(crate) mod vulkan;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::lab::{Outcome, Stop};

/// Which values of a timeline are taken: everything up to one.
#[derive(Default)]
struct Claims(AtomicU64);

impl Claims {
    /// Takes what lies above everything taken, up to `value`; tells what was taken before. Of two
    /// that want the same, one gets it.
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

    /// As [`Claims::claim`], if everything up to `before` is taken and no more.
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

    /// Gives a claim back; false if somebody has claimed above it meanwhile.
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

/// What queues that share a part of the driver have there, in the units that the driver counts.
#[derive(Default)]
pub(crate) struct Room(AtomicU64);

/// With more there the driver might block who submits.
const BOUND: u64 = 480;

impl Room {
    /// Counts so many units more. True if there is too much now: whoever comes by looks what has
    /// finished.
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

/// A number that no other queue has; 0 is nobody's.
fn number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Nobody leaves what these locks guard half done.
#[inline]
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn a_claim_above_what_is_no_longer_the_last_is_refused() {
        let claims = Claims::default();
        assert_eq!(claims.claim_above(0, 3), Ok(()));
        for (before, value) in [(0, 4), (3, 3), (3, u64::MAX)] {
            assert!(
                claims.claim_above(before, value).is_err(),
                "{before} {value}"
            );
        }
        assert!(claims.withdraw(0, 3));
        assert_eq!(claims.claim_above(0, 1), Ok(()));
    }
}
