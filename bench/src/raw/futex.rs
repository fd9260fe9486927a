//! A counter in a futex word: what a timeline is on the host, by hand.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

pub(crate) use rustix::thread::futex::Timespec;
use rustix::thread::futex::{self, Flags};

/// So long a waiting thread spins without letting others run.
const ALONE: Duration = syncline::WaitMode::ALONE;
/// Looks for each look at the clock.
const LOOKS: u32 = 4;

/// Whether `now` is `value` or past it: words are 32 bits, and begin again.
const fn is_past(now: u32, value: u32) -> bool {
    now.wrapping_sub(value) as i32 >= 0
}

/// A counter that threads wait for. It has a cache line to itself.
#[repr(align(128))]
#[derive(Default)]
pub(crate) struct Word {
    value: AtomicU32,
    sleepers: AtomicU32,
}

impl Word {
    /// Sets it, and wakes whoever sleeps.
    pub(crate) fn signal(&self, value: u32) {
        self.value.store(value, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            // Waking takes a valid word and is refused for no other reason.
            let _ = futex::wake(&self.value, Flags::PRIVATE, i32::MAX as u32);
        }
    }

    /// Waits until it is `value` or past it: spins for so long, after a moment letting others run, then sleeps, for so long at the most at
    /// a time if that is said: what a wait with a time-out asks of the system. (The words are signalled in time.)
    pub(crate) fn wait(&self, value: u32, spin: Duration, timeout: Option<&Timespec>) {
        if is_past(self.value.load(Ordering::SeqCst), value) {
            return;
        }
        if !spin.is_zero() {
            let start = Instant::now();
            let mut spun = Duration::ZERO;
            while spun < spin {
                if spun > ALONE {
                    // The other one may be waiting for this very processor.
                    std::thread::yield_now();
                }
                for _ in 0..LOOKS {
                    std::hint::spin_loop();
                    if is_past(self.value.load(Ordering::SeqCst), value) {
                        return;
                    }
                }
                spun = start.elapsed();
            }
        }
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        loop {
            let now = self.value.load(Ordering::SeqCst);
            if is_past(now, value) {
                break;
            }
            // Interrupted, or another value already: looked at again.
            let _ = futex::wait(&self.value, Flags::PRIVATE, now, timeout);
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn words_go_on_past_their_end() {
        assert!(is_past(5, 5) && is_past(6, 5) && !is_past(4, 5));
        assert!(is_past(2, u32::MAX) && !is_past(u32::MAX, 2));
    }

    #[test]
    fn who_sleeps_is_woken() {
        let word = Word::default();
        thread::scope(|scope| {
            let sleeper = scope.spawn(|| word.wait(2, Duration::ZERO, None));
            while word.sleepers.load(Ordering::SeqCst) == 0 {
                thread::yield_now();
            }
            word.signal(1);
            thread::sleep(Duration::from_millis(5));
            assert!(!sleeper.is_finished());
            word.signal(2);
        });
    }
}
