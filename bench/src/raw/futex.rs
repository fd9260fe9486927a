//! A host timeline by hand: a counter in a futex word.

use std::ptr::from_ref;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

pub(crate) use rustix::thread::futex::Timespec;
use rustix::thread::futex::{self, Flags, Wait, WaitFlags, WaitPtr, WaitvFlags};
use rustix::time::{ClockId, clock_gettime};

/// Polls for each reading of the clock.
const LOOKS: u32 = 4;

/// Whether `now` is at or above `value`, in 32 bits that wrap around.
const fn is_past(now: u32, value: u32) -> bool {
    now.wrapping_sub(value) as i32 >= 0
}

/// How a thread sleeps for a word.
#[derive(Clone, Copy)]
pub(crate) enum Sleep<'w> {
    /// Until it is woken.
    Long,
    /// For at most this time at once, as a wait with a time-out does.
    For(&'static Timespec),
    /// As [`Sleep::For`], and also for a second word.
    ForOr(&'static Timespec, &'w AtomicU32),
}

/// A counter that threads wait for, by its two words.
#[derive(Clone, Copy)]
pub(crate) struct Futex<'w> {
    value: &'w AtomicU32,
    sleepers: &'w AtomicU32,
    flags: Flags,
}

impl<'w> Futex<'w> {
    /// A counter in the first two of `words`, in memory that several processes have.
    pub(crate) fn shared(words: &'w [AtomicU32]) -> Option<Self> {
        let [value, sleepers, ..] = words else {
            return None;
        };
        Some(Self {
            value,
            sleepers,
            flags: Flags::empty(),
        })
    }

    /// Sets the value and wakes all threads that sleep.
    pub(crate) fn signal(&self, value: u32) {
        self.value.store(value, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            // Waking fails only with an invalid word.
            let _ = futex::wake(self.value, self.flags, i32::MAX as u32);
        }
    }

    /// Waits until the counter is at or above `value`.
    ///
    /// Spins for `spin`, with yields after a moment, and then sleeps. Rows signal the words in
    /// time.
    pub(crate) fn wait(&self, value: u32, spin: Duration, sleep: Sleep<'_>) {
        if is_past(self.value.load(Ordering::SeqCst), value) {
            return;
        }
        if !spin.is_zero() {
            let start = Instant::now();
            let mut spun = Duration::ZERO;
            while spun < spin {
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
            self.sleep(now, sleep);
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    /// Sleeps while the word is `now`. Also returns after an interruption, so the caller polls
    /// again.
    fn sleep(&self, now: u32, sleep: Sleep<'_>) {
        let (time, other) = match sleep {
            Sleep::Long => {
                let _ = futex::wait(self.value, self.flags, now, None);
                return;
            }
            Sleep::For(time) => {
                let _ = futex::wait(self.value, self.flags, now, Some(time));
                return;
            }
            Sleep::ForOr(time, other) => (time, other),
        };
        let on = |word: &AtomicU32, value: u32, private: bool| {
            let mut wait = Wait::new();
            wait.val = value.into();
            wait.uaddr = WaitPtr::new(from_ref(word).cast_mut().cast());
            wait.flags = WaitFlags::SIZE_U32;
            if private {
                wait.flags |= WaitFlags::PRIVATE;
            }
            wait
        };
        let both = [
            on(self.value, now, self.flags.contains(Flags::PRIVATE)),
            on(other, other.load(Ordering::SeqCst), true),
        ];
        let until = clock_gettime(ClockId::Monotonic).checked_add(*time);
        let _ = futex::waitv(
            &both,
            WaitvFlags::empty(),
            until.as_ref(),
            ClockId::Monotonic,
        );
    }
}

/// A counter of this process in a cache line of its own.
#[repr(align(128))]
#[derive(Default)]
pub(crate) struct Word {
    value: AtomicU32,
    sleepers: AtomicU32,
}

impl Word {
    const fn futex(&self) -> Futex<'_> {
        Futex {
            value: &self.value,
            sleepers: &self.sleepers,
            flags: Flags::PRIVATE,
        }
    }

    /// As [`Futex::signal`].
    pub(crate) fn signal(&self, value: u32) {
        self.futex().signal(value);
    }

    /// As [`Futex::wait`].
    pub(crate) fn wait(&self, value: u32, spin: Duration, sleep: Sleep<'_>) {
        self.futex().wait(value, spin, sleep);
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
    fn a_sleeping_thread_is_woken() {
        let word = Word::default();
        thread::scope(|scope| {
            let sleeper = scope.spawn(|| word.wait(2, Duration::ZERO, Sleep::Long));
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
