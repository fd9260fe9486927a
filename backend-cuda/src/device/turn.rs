//! Which thread has a stream to itself: for one submission, or for the application.

use std::marker::PhantomData;
use std::sync::Condvar;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use syncline_core::backend::Mutex;

/// A lock without a guard, which the engine only ever tries, and which a thread of the application can take again
/// while it has it.
#[derive(Default)]
pub(crate) struct Turn {
    /// The thread that has it; 0 for none.
    owner: AtomicUsize,
    /// How often the owner has taken it.
    depth: AtomicU64,
    /// How many threads block.
    waiting: AtomicUsize,
    changed: (Mutex<()>, Condvar),
}

/// After so long who blocks looks again, though nobody has told him anything.
const UNSEEN: Duration = Duration::from_millis(1);

/// A number for this thread, unlike that of any other that lives.
#[inline]
fn me() -> usize {
    thread_local! { static HERE: u8 = const { 0 } }
    HERE.with(|here| std::ptr::from_ref(here).addr())
}

impl Turn {
    /// Takes it if nobody has it, not even this thread. For the engine.
    #[inline]
    pub(crate) fn try_enter(&self) -> bool {
        let taken = self
            .owner
            .compare_exchange(0, me(), Ordering::Acquire, Ordering::Relaxed)
            .is_ok();
        if taken {
            self.depth.store(1, Ordering::Relaxed);
        }
        taken
    }

    /// Takes it, or blocks until nobody else has it.
    pub(crate) fn enter(&self) -> Held<'_> {
        if let Some(held) = self.try_enter_again() {
            return held;
        }
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut guard = self.changed.0.lock();
        // Whoever leaves looks for who waits, but without the barrier that would let one of the two see the other in any
        // case: each submission would pay for that. Who was not seen looks again by himself.
        while !self.try_enter() {
            guard = self
                .changed
                .1
                .wait_timeout(guard, UNSEEN)
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .0;
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        self.taken()
    }

    /// Takes it if nobody else has it. Never blocks.
    pub(crate) fn try_enter_again(&self) -> Option<Held<'_>> {
        if self.owner.load(Ordering::Relaxed) == me() {
            let depth = self.depth.load(Ordering::Relaxed);
            self.depth.store(depth + 1, Ordering::Relaxed);
            return Some(self.taken());
        }
        self.try_enter().then(|| self.taken())
    }

    /// True if a thread blocks until it gets it.
    #[cfg(test)]
    pub(crate) fn is_waited_for(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    /// Somebody may have it now.
    #[cold]
    fn tell(&self) {
        drop(self.changed.0.lock());
        self.changed.1.notify_all();
    }

    /// What [`Turn::try_enter`] took, to be given up with what is returned.
    #[inline]
    pub(crate) const fn taken(&self) -> Held<'_> {
        Held {
            turn: self,
            _this_thread: PhantomData,
        }
    }
}

/// Takes both turns; one of them twice if they are the same. The order is that of their addresses,
/// so that two threads which take the same two do not block each other.
pub(crate) fn enter_both<'t>(one: &'t Turn, other: &'t Turn) -> (Held<'t>, Held<'t>) {
    if std::ptr::from_ref(one) <= std::ptr::from_ref(other) {
        let first = one.enter();
        (first, other.enter())
    } else {
        let first = other.enter();
        (one.enter(), first)
    }
}

/// The turn, until it is dropped. That happens on the thread that took it.
pub(crate) struct Held<'t> {
    turn: &'t Turn,
    _this_thread: PhantomData<*const ()>,
}

impl Held<'_> {
    /// True if it is that turn.
    pub(crate) fn is_of(&self, turn: &Turn) -> bool {
        std::ptr::eq(self.turn, turn)
    }
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        // Only the owner has anything to do with the depth.
        let depth = self.turn.depth.load(Ordering::Relaxed);
        if depth > 1 {
            self.turn.depth.store(depth - 1, Ordering::Relaxed);
            return;
        }
        self.turn.owner.store(0, Ordering::Release);
        if self.turn.waiting.load(Ordering::Acquire) > 0 {
            self.turn.tell();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_thread_takes_it_again_and_the_engine_never_waits() {
        let turn = Turn::default();
        let first = turn.enter();
        let second = turn.enter();
        assert!(!turn.try_enter());
        drop(first);
        assert!(!turn.try_enter());
        drop(second);
        assert!(turn.try_enter());
        assert!(!turn.try_enter());
        drop(turn.taken());
        assert!(turn.try_enter());
    }

    #[test]
    fn others_wait_for_it() {
        let (turn, left) = (Turn::default(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let held = turn.enter();
            for _ in 0..4 {
                scope.spawn(|| {
                    let _held = turn.enter();
                    assert!(left.load(Ordering::SeqCst));
                });
            }
            std::thread::sleep(Duration::from_millis(20));
            left.store(true, Ordering::SeqCst);
            drop(held);
        });
        assert!(turn.try_enter());
    }
}
