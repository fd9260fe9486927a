//! How threads sleep on pages, and are woken: a futex in each page, which is rung if somebody sleeps.
//!
//! A thread that is to sleep marks the page, takes down how often the bell has been rung, and only then looks at the counter. The system lets it sleep only if the
//! bell is still where it was. A signaller stores the value, and only then looks for the mark. One of the two sees the other, so no
//! wakeup is lost.
//!
//! Each ring takes the mark away first, and wakes all. Threads that go on sleeping mark the page again. So a mark that nobody stands behind,
//! as a thread that is killed in its sleep leaves, costs one system call and is gone.
//!
//! What another process writes to the bell or the count can keep a thread asleep until its time is over, 100 ms later at the most, and no longer.

use std::ptr::from_ref;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::thread::futex::{self, Flags, Wait, WaitFlags, WaitPtr, WaitvFlags};
use rustix::time::{ClockId, Timespec, clock_gettime};
use smallvec::SmallVec;

use super::Counter;

/// A thread that no bell wakes looks again and again for this long first: most waits are for work that is nearly done.
const SPIN: Duration = Duration::from_micros(20);

/// Then it sleeps in proportion to the time waited, within these bounds.
const NAPS: (Duration, Duration) = (Duration::from_micros(20), Duration::from_millis(1));

/// On so many words the system lets one thread sleep at a time (`FUTEX_WAITV_MAX`).
const MOST: usize = 128;

/// A place for one thread at a time to sleep in, on counters, until it is nudged.
#[derive(Debug)]
pub(crate) struct Sleeper {
    /// 1 once it is nudged.
    nudge: AtomicU32,
    /// The system has futex_waitv(2), as far as it is known.
    waits_for_many: AtomicBool,
}

/// How a sleep ended.
enum Slept {
    /// Something has been rung, or may have been.
    Woken,
    /// The system does not let a thread sleep like that.
    Unable,
}

impl Sleeper {
    pub(crate) const fn new() -> Self {
        Self {
            nudge: AtomicU32::new(0),
            waits_for_many: AtomicBool::new(true),
        }
    }

    /// Ends the present sleep, or the next one.
    pub(crate) fn nudge(&self) {
        if self.nudge.swap(1, Ordering::SeqCst) == 0 {
            let _ = futex::wake(&self.nudge, Flags::PRIVATE, 1);
        }
    }

    /// Sleeps until one of the counters has its value, or will not have it, or there is [news](Counter::has_news) of what is pending there, or the sleeper
    /// is nudged, or `until` has passed.
    pub(crate) fn sleep(&self, counters: &[(&Counter, u64)], until: Instant) {
        let started = Instant::now();
        let settled = |&(counter, value): &(&Counter, u64)| {
            counter.has_news() || counter.value().map_or(true, |reached| reached >= value)
        };
        loop {
            let nudged = self.nudge.swap(0, Ordering::SeqCst) == 1;
            let now = Instant::now();
            // Before the mark, so that a thread that was woken mostly leaves none.
            if nudged || now >= until || counters.iter().any(settled) {
                return;
            }
            let bells = mark(counters);
            if counters.iter().any(settled) {
                return;
            }
            let quiet =
                |(counter, _): &(&Counter, u64)| counter.page.quiet.load(Ordering::SeqCst) != 0;
            if !counters.iter().any(quiet)
                && let Slept::Woken = self.on_bells(counters, &bells, until - now)
            {
                continue;
            }
            let waited = now.saturating_duration_since(started);
            if waited < SPIN {
                std::hint::spin_loop();
            } else {
                self.nap(waited.clamp(NAPS.0, NAPS.1).min(until - now));
            }
        }
    }

    /// Sleeps on all bells, as they were, and the nudge; `left` at the most.
    fn on_bells(&self, counters: &[(&Counter, u64)], bells: &[u32], left: Duration) -> Slept {
        if counters.len() >= MOST || !self.waits_for_many.load(Ordering::Relaxed) {
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
        for ((counter, _), &bell) in counters.iter().zip(bells) {
            waits.push(on(&counter.page.bell, bell, WaitFlags::empty()));
        }
        let until = after(left);
        match futex::waitv(
            &waits,
            WaitvFlags::empty(),
            Some(&until),
            ClockId::Monotonic,
        ) {
            // Rung, or just before; nudged; interrupted; over.
            Ok(_) | Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT) => Slept::Woken,
            // Before Linux 5.16, or where somebody does not allow it.
            Err(Errno::NOSYS | Errno::PERM | Errno::ACCESS) => {
                self.waits_for_many.store(false, Ordering::Relaxed);
                Slept::Unable
            }
            // No memory for it, at the moment.
            Err(_) => Slept::Unable,
        }
    }

    /// Sleeps until it is nudged, for so long at the most. See futex(2).
    fn nap(&self, time: Duration) {
        let time = Timespec::try_from(time).unwrap_or_default();
        match futex::wait(&self.nudge, Flags::PRIVATE, 0, Some(&time)) {
            Ok(()) | Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT) => {}
            Err(_) => std::thread::sleep(NAPS.1),
        }
    }
}

/// A time from now on the monotonic clock, as futex_waitv(2) wants it.
fn after(left: Duration) -> Timespec {
    let now = clock_gettime(ClockId::Monotonic);
    let left = Timespec::try_from(left).unwrap_or_default();
    now.checked_add(left).unwrap_or(now)
}

impl Counter {
    /// Wakes every thread that sleeps on the page: a system call.
    pub fn ring(&self) {
        // Before the bell: a thread that marks the page after this sees the bell of before, and does not sleep, or sleeps after the ring.
        self.page.sleepers.store(0, Ordering::SeqCst);
        self.page.bell.fetch_add(1, Ordering::SeqCst);
        // Nobody to wake is no error, and there is no other.
        let _ = futex::wake(&self.page.bell, Flags::empty(), i32::MAX as u32);
    }
}

/// Marks the pages: a thread may sleep there from here on. How often their bells have been rung.
fn mark(counters: &[(&Counter, u64)]) -> SmallVec<[u32; 8]> {
    let bells = counters.iter().map(|(counter, _)| {
        counter.page.sleepers.store(1, Ordering::SeqCst);
        counter.page.bell.load(Ordering::SeqCst)
    });
    bells.collect()
}

#[cfg(test)]
mod tests;
