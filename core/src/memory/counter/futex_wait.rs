//! How threads sleep on pages and are woken, by a futex in each page.
//!
//! A thread that is about to sleep sets `sleepers` in the page, reads `wakes`, and only then checks
//! the counter. The kernel lets it sleep only if `wakes` has not changed. A signaller stores the
//! value, and only then reads `sleepers`. So at least one of the two sees the other, and no wakeup
//! is lost.
//!
//! Each wake first clears `sleepers`, and wakes all threads. Threads that go on sleeping set it
//! again. A thread that is killed in its sleep leaves `sleepers` set, which costs one system call.
//!
//! Another process can write wrong values to `wakes` or `sleepers`. A thread then sleeps for up to
//! 100 ms too long.

use std::ptr::from_ref;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::thread::futex::{self, Flags, Wait, WaitFlags, WaitPtr, WaitvFlags};
use rustix::time::{ClockId, Timespec, clock_gettime};
use smallvec::SmallVec;

use super::mapped::Counter;

/// How long a thread that no signaller wakes spins first.
///
/// Most waits are for work that is nearly done.
const SPIN: Duration = Duration::from_micros(20);

/// The shortest and the longest nap after that. Within these bounds a nap is as long as the wait so
/// far.
const NAP_BOUNDS: (Duration, Duration) = (Duration::from_micros(20), Duration::from_millis(1));

/// The most words that futex_waitv(2) takes (`FUTEX_WAITV_MAX`).
const MAX_WORDS: usize = 128;

/// Lets one thread at a time sleep on counters until it is nudged.
#[derive(Debug)]
pub(crate) struct Sleeper {
    /// 1 once it is nudged. A futex word of this process.
    nudge: AtomicU32,
    /// False once the system has refused futex_waitv(2).
    has_waitv: AtomicBool,
}

/// How a sleep ended.
enum Slept {
    /// A word has changed or may have changed, or the time is over.
    Woken,
    /// The system cannot wait for these words together.
    Unable,
}

impl Sleeper {
    pub(crate) const fn new() -> Self {
        Self {
            nudge: AtomicU32::new(0),
            has_waitv: AtomicBool::new(true),
        }
    }

    /// Ends the present sleep, or the next one.
    pub(crate) fn nudge(&self) {
        if self.nudge.swap(1, Ordering::SeqCst) == 0 {
            let _ = futex::wake(&self.nudge, Flags::PRIVATE, 1);
        }
    }

    /// Sleeps until a counter reaches its value, until a nudge, or until the time `until`.
    ///
    /// Also ends if a counter fails, is corrupted, or has a [new pending
    /// value](Counter::has_new_pending).
    pub(crate) fn sleep(&self, counters: &[(&Counter, u64)], until: Instant) {
        let started = Instant::now();
        let settled = |&(counter, value): &(&Counter, u64)| {
            counter.has_new_pending() || counter.value().map_or(true, |reached| reached >= value)
        };
        loop {
            let nudged = self.nudge.swap(0, Ordering::SeqCst) == 1;
            let now = Instant::now();
            // Before `sleepers` is set, so that a thread that was just woken seldom leaves it set.
            if nudged || now >= until || counters.iter().any(settled) {
                return;
            }
            let wakes = set_sleepers(counters);
            if counters.iter().any(settled) {
                return;
            }
            let quiet =
                |(counter, _): &(&Counter, u64)| counter.page().quiet.load(Ordering::SeqCst) != 0;
            if !counters.iter().any(quiet)
                && let Slept::Woken = self.sleep_on_words(counters, &wakes, until - now)
            {
                continue;
            }
            let waited = now.saturating_duration_since(started);
            if waited < SPIN {
                std::hint::spin_loop();
            } else {
                self.nap(waited.clamp(NAP_BOUNDS.0, NAP_BOUNDS.1).min(until - now));
            }
        }
    }

    /// Sleeps for at most `left`, until a counter's `wakes` differs from `wakes`, or until a nudge.
    fn sleep_on_words(&self, counters: &[(&Counter, u64)], wakes: &[u32], left: Duration) -> Slept {
        if counters.len() >= MAX_WORDS || !self.has_waitv.load(Ordering::Relaxed) {
            return Slept::Unable;
        }
        let on = |word: &AtomicU32, value: u32, flags: WaitFlags| {
            let mut wait = Wait::new();
            wait.val = value.into();
            wait.uaddr = WaitPtr::new(from_ref(word).cast_mut().cast());
            wait.flags = flags | WaitFlags::SIZE_U32;
            wait
        };
        let mut waits: SmallVec<[Wait; 8]> = SmallVec::new();
        waits.push(on(&self.nudge, 0, WaitFlags::PRIVATE));
        for ((counter, _), &count) in counters.iter().zip(wakes) {
            waits.push(on(&counter.page().wakes, count, WaitFlags::empty()));
        }
        let until = after(left);
        match futex::waitv(
            &waits,
            WaitvFlags::empty(),
            Some(&until),
            ClockId::Monotonic,
        ) {
            // Woken, changed before the sleep, interrupted, or timed out.
            Ok(_) | Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT) => Slept::Woken,
            // Linux before 5.16, or a sandbox that forbids the call.
            Err(Errno::NOSYS | Errno::PERM | Errno::ACCESS) => {
                self.has_waitv.store(false, Ordering::Relaxed);
                Slept::Unable
            }
            // The kernel has no memory for it at present.
            Err(_) => Slept::Unable,
        }
    }

    /// Sleeps for at most `time`, or until a nudge. See futex(2).
    fn nap(&self, time: Duration) {
        let time = Timespec::try_from(time).unwrap_or_default();
        match futex::wait(&self.nudge, Flags::PRIVATE, 0, Some(&time)) {
            Ok(()) | Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT) => {}
            Err(_) => std::thread::sleep(NAP_BOUNDS.1),
        }
    }
}

/// The time `left` from now on the monotonic clock, for futex_waitv(2).
fn after(left: Duration) -> Timespec {
    let now = clock_gettime(ClockId::Monotonic);
    let left = Timespec::try_from(left).unwrap_or_default();
    now.checked_add(left).unwrap_or(now)
}

impl Counter {
    /// Wakes every thread that sleeps on the page. A system call.
    pub fn wake_all(&self) {
        // Before the increment. A thread may set `sleepers` after this. If it reads the old count,
        // its sleep ends at once. If it reads the new count, `sleepers` stays set for the next
        // wake.
        self.page().sleepers.store(0, Ordering::SeqCst);
        self.page().wakes.fetch_add(1, Ordering::SeqCst);
        // The call cannot fail. That no thread sleeps is no error.
        let _ = futex::wake(&self.page().wakes, Flags::empty(), i32::MAX as u32);
    }

    /// Announces signallers that do not wake sleeping threads, such as a stream of a GPU.
    ///
    /// From then on, threads that wait for the counter poll it from time to time.
    pub fn expect_quiet_signals(&self) {
        self.page().quiet.store(1, Ordering::SeqCst);
        // Threads that sleep already must begin to poll.
        self.wake_all();
    }

    /// Wakes every thread that sleeps on the page. A system call if there is one.
    pub(super) fn wake_sleepers(&self) {
        if self.page().sleepers.load(Ordering::SeqCst) > 0 {
            self.wake_all();
        }
    }
}

/// Sets `sleepers` in all pages, because a thread may sleep there from now on.
///
/// Returns `wakes` of each page.
fn set_sleepers(counters: &[(&Counter, u64)]) -> SmallVec<[u32; 8]> {
    let wakes = counters.iter().map(|(counter, _)| {
        counter.page().sleepers.store(1, Ordering::SeqCst);
        counter.page().wakes.load(Ordering::SeqCst)
    });
    wakes.collect()
}

#[cfg(test)]
mod tests;
