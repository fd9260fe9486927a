//! Whether threads that polled before they parked have gained by it.

use std::sync::atomic::{AtomicU32, Ordering};

/// The most times in a row that a thread parks at once.
const MOST: u32 = 64;

/// Bits of the number of times that are left.
const LEFT: u32 = 0xFFFF;

/// A back-off from polling before parking.
///
/// After polling in vain, threads park at once: the next time, then the next 2 times, 4, and so on
/// up to [`MOST`]. So polling costs little where it cannot help: if waits are long, or if the
/// signaller runs on the same processor. A poll that is not in vain ends the back-off.
///
/// It is only a hint. Two concurrent updates may lose one, and loom does not model it.
///
/// The upper half is the length of the back-off, and the lower half is how much of it is left.
#[derive(Debug, Default)]
pub(crate) struct RecentSpins(AtomicU32);

impl RecentSpins {
    /// True if a thread should park at once. Counts as one time.
    pub(crate) fn should_park(&self) -> bool {
        let now = self.0.load(Ordering::Relaxed);
        let left = now & LEFT;
        if left > 0 {
            self.0.store(now - 1, Ordering::Relaxed);
        }
        left > 0
    }

    /// Accounts for a thread that polled in vain.
    pub(crate) fn failed(&self) {
        let before = self.0.load(Ordering::Relaxed) / (LEFT + 1);
        let next = (2 * before).clamp(1, MOST);
        // In both halves.
        self.0.store(next * (LEFT + 2), Ordering::Relaxed);
    }

    /// Accounts for a thread that need not park.
    pub(crate) fn helped(&self) {
        // A store would take the cache line from other threads.
        if self.0.load(Ordering::Relaxed) > 0 {
            self.0.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many times a thread parks at once before it polls again.
    fn parked(spins: &RecentSpins) -> u32 {
        let mut count = 0;
        while spins.should_park() {
            count += 1;
        }
        count
    }

    #[test]
    fn polling_in_vain_is_repeated_less_and_less_often() {
        let spins = RecentSpins::default();
        let mut lengths = Vec::new();
        for _ in 0..9 {
            lengths.push(parked(&spins));
            spins.failed();
        }
        assert_eq!(lengths, [0, 1, 2, 4, 8, 16, 32, 64, 64]);
        assert_eq!(parked(&spins), 64);
        spins.helped();
        assert_eq!(parked(&spins), 0);
        spins.failed();
        assert_eq!(parked(&spins), 1);
    }
}
