//! The recent durations of host waits for a timeline.

use std::sync::atomic::Ordering;
use std::time::Duration;

/// After waits longer than this, polling before parking rarely saves the parking.
const LONG: Duration = Duration::from_micros(300);

/// Average duration of recent waits that had to park, in nanoseconds; 0 if there was none.
///
/// It is only a hint, and loom does not model it.
#[derive(Debug, Default)]
pub(crate) struct RecentWaits(std::sync::atomic::AtomicU64);

impl RecentWaits {
    /// True if polling before parking would rarely save the parking.
    pub(crate) fn are_long(&self) -> bool {
        Duration::from_nanos(self.0.load(Ordering::Relaxed)) > LONG
    }

    /// Accounts for a wait that timed out after `lasted`; its full duration is unknown.
    pub(crate) fn at_least(&self, lasted: Duration) {
        if lasted > Duration::from_nanos(self.0.load(Ordering::Relaxed)) {
            self.learn(lasted);
        }
    }

    /// Accounts for a wait.
    ///
    /// A wait that is longer than the average raises the average by a quarter of the difference. A
    /// shorter wait lowers the average by half of the difference.
    ///
    /// Very long durations are clamped, because the average would then need many waits to come down
    /// again. Two concurrent updates may lose one.
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
    fn long_waits_disable_polling_until_waits_are_short_again() {
        let waits = RecentWaits::default();
        assert!(!waits.are_long());
        let (long, short) = (Duration::from_millis(3), Duration::from_micros(60));
        waits.learn(long);
        assert!(waits.are_long());
        // A timeline that has become quick again is noticed within a few waits. One slow wait has
        // no effect.
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
        // A wait that timed out early has no effect. One that timed out late has.
        waits.at_least(short);
        assert!(!waits.are_long());
        (0..9).for_each(|_| waits.at_least(Duration::from_millis(1)));
        assert!(waits.are_long());
    }
}
