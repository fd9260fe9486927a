//! The run-queue of released work.
//!
//! Making one signal pending can release a lane, whose submission makes the next signal pending,
//! and so on for tens of thousands of links. Waking by calling would recurse once per link, so
//! everything that is woken goes through a queue of the waking thread and runs from its outermost
//! caller, one after the other.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::sync::{contain, per_thread};

/// Something that a timeline can wake: a parked thread, a lane of held submissions, a relay.
pub(crate) trait Wake: Send + Sync {
    /// Called at most once per registration, with no lock of the engine held. May run user work.
    fn wake(self: Arc<Self>);

    /// True if it only tells a thread or a descriptor. Then it is called at once, whoever is waking and with whatever
    /// in his hands: somebody who sleeps does not wait until others' work has been recorded.
    fn is_prompt(&self) -> bool {
        false
    }
}

struct RunQueue {
    active: bool,
    ready: VecDeque<Arc<dyn Wake>>,
}

impl RunQueue {
    const fn new() -> Self {
        Self {
            active: false,
            ready: VecDeque::new(),
        }
    }
}

per_thread! { static RUN: RefCell<RunQueue> = RefCell::new(RunQueue::new()) }

/// Runs `woken` and everything they wake in turn, unless this thread is already doing so further
/// up its stack: then that caller runs them next.
pub(crate) fn wake_all(woken: impl IntoIterator<Item = Arc<dyn Wake>>) {
    let prompted = |wake: Arc<dyn Wake>| {
        if wake.is_prompt() {
            wake.wake();
            None
        } else {
            Some(wake)
        }
    };
    let mut woken: SmallVec<[_; 4]> = woken.into_iter().filter_map(prompted).collect();
    if woken.is_empty() {
        return;
    }
    // On a thread that is being torn down there is no queue any more; plain calls are then right.
    let outermost = RUN.try_with(|run| {
        let mut run = run.borrow_mut();
        run.ready.extend(woken.drain(..));
        !std::mem::replace(&mut run.active, true)
    });
    match outermost {
        Ok(true) => drain(),
        Ok(false) => {}
        Err(_) => woken.into_iter().for_each(Wake::wake),
    }
}

/// While it lives, what this thread wakes waits; then it runs. For whoever has a lane in his hands:
/// what is released may want to submit to it.
#[must_use]
pub(crate) struct PutOff {
    outermost: bool,
}

impl PutOff {
    pub(crate) fn new() -> Self {
        let already = RUN.try_with(|run| std::mem::replace(&mut run.borrow_mut().active, true));
        Self {
            outermost: matches!(already, Ok(false)),
        }
    }
}

impl Drop for PutOff {
    fn drop(&mut self) {
        if self.outermost {
            drain();
        }
    }
}

fn drain() {
    while let Ok(Some(next)) = RUN.try_with(|run| run.borrow_mut().ready.pop_front()) {
        // The next one in line has nothing to do with a panic of this one.
        quietly(|| next.wake());
    }
    let _ = RUN.try_with(|run| run.borrow_mut().active = false);
}

/// Runs what may drop objects of the application: a panic there, reported by the panic hook, must not
/// take a lane, a worker or the watcher down with it, and whoever waits for them.
pub(crate) fn quietly(action: impl FnOnce()) {
    contain(action);
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
