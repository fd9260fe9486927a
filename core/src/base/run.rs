//! The run-queue of released work.
//!
//! Making one signal pending can release a queue, whose submission makes the next signal pending,
//! and so on for tens of thousands of links. Waking by calling would recurse once per link, so
//! everything that is woken goes through a queue of the waking thread and runs from its outermost
//! caller, one after the other.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;

use crate::base::sync::{contain, per_thread};

/// Something that a timeline can wake: a parked thread, a queue of held submissions, a relay.
pub(crate) trait Wake: Send + Sync {
    /// Called at most once per registration, with no lock of the engine held. May run user work.
    fn wake(self: Arc<Self>);

    /// True if it only tells a thread or a descriptor. Then it is called at once, whoever is waking and with whatever
    /// in his hands: somebody who sleeps does not wait until others' work has been recorded.
    fn is_prompt(&self) -> bool {
        false
    }
}

/// Whether somebody on this thread runs what is ready, now or once he is done.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Active {
    Nobody,
    /// And nothing is.
    Idle,
    Loaded,
}

per_thread! { static ACTIVE: Cell<Active> = Cell::new(Active::Nobody) }
// How many of `ForOthers` there are.
per_thread! { static DEPTH: Cell<u32> = Cell::new(0) }
per_thread! { static READY: RefCell<VecDeque<Arc<dyn Wake>>> = RefCell::new(VecDeque::new()) }

/// Gives this thread the room in [`READY`] that it would otherwise allocate when it first wakes others (H1).
pub(crate) fn prepare_thread() {
    let _ = READY.try_with(|ready| ready.borrow_mut().reserve(16));
}

/// Sets [`ACTIVE`]; false if it was set.
#[inline]
fn activate() -> bool {
    let activated = ACTIVE.try_with(|active| {
        let free = active.get() == Active::Nobody;
        if free {
            active.set(Active::Idle);
        }
        free
    });
    matches!(activated, Ok(true))
}

/// True if what this thread wakes now waits until somebody further up its stack is done.
pub(crate) fn is_put_off() -> bool {
    matches!(
        ACTIVE.try_with(|active| active.get() != Active::Nobody),
        Ok(true)
    )
}

/// Runs `woken` and everything they wake in turn, unless this thread is already doing so further
/// up its stack: then that caller runs them next.
#[inline]
pub(crate) fn wake_all(woken: impl IntoIterator<Item = Arc<dyn Wake>>) {
    let mut woken = woken.into_iter();
    // Mostly there is nobody.
    if let Some(first) = woken.next() {
        wake_several(first, woken);
    }
}

fn wake_several(first: Arc<dyn Wake>, others: impl Iterator<Item = Arc<dyn Wake>>) {
    let mut queued = false;
    for wake in [first].into_iter().chain(others) {
        if wake.is_prompt() {
            wake.wake();
            continue;
        }
        let mut wake = Some(wake);
        let _ = READY.try_with(|ready| ready.borrow_mut().extend(wake.take()));
        match wake {
            None => queued = true,
            // On a thread that is being torn down there is no queue any more; a plain call is then right.
            Some(wake) => wake.wake(),
        }
    }
    if queued {
        if activate() {
            drain();
        } else {
            let _ = ACTIVE.try_with(|active| active.set(Active::Loaded));
        }
    }
}

/// While it lives, what this thread wakes waits; then it runs. For whoever has a queue in his hands:
/// what is released may want to submit to it.
#[must_use]
pub(crate) struct PutOff {
    outermost: bool,
}

impl PutOff {
    #[inline]
    pub(crate) fn new() -> Self {
        let outermost = activate();
        Self { outermost }
    }
}

impl Drop for PutOff {
    #[inline]
    fn drop(&mut self) {
        if !self.outermost {
            return;
        }
        let idle = ACTIVE.try_with(|active| {
            let idle = active.get() == Active::Idle;
            if idle {
                active.set(Active::Nobody);
            }
            idle
        });
        if !matches!(idle, Ok(true)) {
            drain();
        }
    }
}

fn drain() {
    while let Ok(Some(next)) = READY.try_with(|ready| ready.borrow_mut().pop_front()) {
        // The next one in line has nothing to do with a panic of this one.
        quietly(|| next.wake());
    }
    let _ = ACTIVE.try_with(|active| active.set(Active::Nobody));
}

/// Runs what may drop objects of the application: a panic there, reported by the panic hook, must not
/// take a queue, a worker or the watcher down with it, and whoever waits for them.
pub(crate) fn quietly(action: impl FnOnce()) {
    let _for_others = ForOthers::new();
    contain(action);
}

/// While it lives, what goes on this thread is others': see [`is_letting_go`].
#[must_use]
pub(crate) struct ForOthers;

impl ForOthers {
    #[inline]
    pub(crate) fn new() -> Self {
        let _ = DEPTH.try_with(|depth| depth.set(depth.get() + 1));
        Self
    }
}

impl Drop for ForOthers {
    #[inline]
    fn drop(&mut self) {
        let _ = DEPTH.try_with(|depth| depth.set(depth.get() - 1));
    }
}

// How many of `LettingGo` there are.
per_thread! { static LETTING_GO: Cell<u32> = Cell::new(0) }

/// So deep what finished submissions kept is dropped inside of itself.
const DEEPEST: u32 = 4;

/// While it lives, this thread drops what finished submissions kept. That is the application's, and may submit where it is dropped; what
/// that lets go may, too. So it is let go by others where this [is deep](LettingGo::is_deep) already, and no stack overflows.
#[must_use]
pub(crate) struct LettingGo;

impl LettingGo {
    pub(crate) fn new() -> Self {
        let _ = LETTING_GO.try_with(|depth| depth.set(depth.get() + 1));
        Self
    }

    /// True if this thread is to let go of nothing more for now: a caller further up its stack does that, or a later call.
    pub(crate) fn is_deep() -> bool {
        matches!(
            LETTING_GO.try_with(|depth| depth.get() >= DEEPEST),
            Ok(true)
        )
    }
}

impl Drop for LettingGo {
    fn drop(&mut self) {
        let _ = LETTING_GO.try_with(|depth| depth.set(depth.get() - 1));
    }
}

/// True while the engine runs what belongs to others on this thread: drops what finished submissions kept, or runs and drops work that it has
/// just released, inside a call of somebody who may have nothing to do with that. A backend's object that
/// goes meanwhile must not wait for a device, which may stand still until that caller goes on: what would wait is put by, for
/// somebody who asks for it.
#[must_use]
pub fn is_letting_go() -> bool {
    matches!(DEPTH.try_with(|depth| depth.get() > 0), Ok(true))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    struct Link(usize, Arc<AtomicUsize>);
    impl Wake for Link {
        fn wake(self: Arc<Self>) {
            self.1.fetch_add(1, Ordering::Relaxed);
            if self.0 > 0 {
                wake_all([Arc::new(Link(self.0 - 1, self.1.clone())) as Arc<dyn Wake>]);
            }
        }
    }

    #[test]
    fn a_chain_of_a_million_does_not_recurse() {
        let count = Arc::new(AtomicUsize::new(0));
        wake_all([Arc::new(Link(1_000_000, count.clone())) as Arc<dyn Wake>]);
        assert_eq!(count.load(Ordering::Relaxed), 1_000_001);
    }
}
