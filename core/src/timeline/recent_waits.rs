//! How long host waits for a timeline have lasted of late.

use std::sync::atomic::Ordering;
use std::time::Duration;

/// Where waits have lasted longer than this of late, polling first would hardly ever save the parking.
const LONG: Duration = Duration::from_micros(300);

/// How long waits for a timeline that had to park have lasted of late, in nanoseconds; 0 if there was none.
/// A hint, and no part of a model.
#[derive(Debug, Default)]
pub(crate) struct RecentWaits(std::sync::atomic::AtomicU64);

impl RecentWaits {
    /// True if polling before parking would hardly ever save the parking.
    pub(crate) fn are_long(&self) -> bool {
        Duration::from_nanos(self.0.load(Ordering::Relaxed)) > LONG
    }

    /// Takes one into account that was given up: it would have lasted longer.
    pub(crate) fn at_least(&self, lasted: Duration) {
        if lasted > Duration::from_nanos(self.0.load(Ordering::Relaxed)) {
            self.learn(lasted);
        }
    }

    /// Takes one more into account: a longer one by a quarter, a shorter one by half; of very long ones not all, so that
    /// they are forgotten as soon. Of two at once one may be lost.
    pub(crate) fn learn(&self, lasted: Duration) {
        let lasted = lasted.min(8 * LONG);
        let before = self.0.load(Ordering::Relaxed);
        let lasted = u64::try_from(lasted.as_nanos()).unwrap_or(u64::MAX);
        let after = if lasted > before {
            before + (lasted - before) / 4
        } else {
            before.midpoint(lasted)
        };
        self.0.store(after, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_that_last_long_are_not_begun_by_polling() {
        let waits = RecentWaits::default();
        assert!(!waits.are_long());
        let (long, short) = (Duration::from_millis(3), Duration::from_micros(60));
        waits.learn(long);
        assert!(waits.are_long());
        // A timeline that has become quick again is noticed within a few waits, and one slow wait is forgiven.
        let again = (1..10).find(|_| {
            waits.learn(short);
            !waits.are_long()
        });
        assert!(again.is_some_and(|count| count <= 3), "{again:?}");
        for _ in 0..10 {
            waits.learn(short);
        }
        waits.learn(Duration::from_micros(900));
        assert!(!waits.are_long());
        waits.learn(Duration::MAX);
        assert!(waits.are_long());
        let forgotten = (1..10).find(|_| {
            waits.learn(short);
            !waits.are_long()
        });
        assert!(forgotten.is_some_and(|count| count <= 3), "{forgotten:?}");
        // One that was given up early says nothing; one that was given up late does.
        waits.at_least(short);
        assert!(!waits.are_long());
        (0..9).for_each(|_| waits.at_least(Duration::from_millis(1)));
        assert!(waits.are_long());
    }
}
