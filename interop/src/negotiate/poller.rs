//! A thread that polls an object while it is asked to.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

#[cfg(doc)]
use syncline_core::Error;
use syncline_core::backend::kit::{Condvar, Mutex, StandbyThread};
use syncline_core::internal::MakerProcess;
use syncline_core::{Result, error::Object};

/// The time between two polls, which is also the time in which a loss must be noticed (E3).
const INTERVAL: Duration = Duration::from_millis(100);

/// What a [`Poller`] polls.
pub(super) trait Poll: Send + Sync {
    /// True if it must be polled again.
    fn poll(&self) -> bool;
}

/// A thread that is parked, or polls one object every 100 ms. It ends when this is dropped.
///
/// The object may own the poller.
pub(super) struct Poller {
    inner: Arc<Inner>,
    thread: StandbyThread,
    /// The process that made it, and has the thread.
    maker: MakerProcess,
}

impl Default for Poller {
    fn default() -> Self {
        Self {
            inner: Arc::default(),
            thread: StandbyThread::default(),
            maker: MakerProcess::this(),
        }
    }
}

#[derive(Default)]
struct Inner {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    stopped: bool,
    polled: Option<Weak<dyn Poll>>,
    /// When it is polled next.
    at: Option<Instant>,
}

impl Poller {
    /// Starts the thread, unless it has been started. `object` is what needs it.
    ///
    /// # Errors
    /// [`Error::Native`] if the system has no thread.
    pub(super) fn start(&self, object: &Object) -> Result<()> {
        self.thread.start("syncline-releases", object)?;
        let inner = self.inner.clone();
        // Only the first call has an effect.
        self.thread.run(move || inner.run());
        Ok(())
    }

    /// Polls `polled` until its `poll` returns false. The thread must have been started.
    pub(super) fn ask(&self, polled: Weak<dyn Poll>) {
        let mut state = self.inner.state.lock();
        state.polled = Some(polled);
        if state.at.is_none() {
            state.at = Some(Instant::now() + INTERVAL);
            self.inner.changed.notify_one();
        }
    }
}

impl Drop for Poller {
    /// Takes no lock in a forked child, where a thread of the parent may have held it.
    fn drop(&mut self) {
        if !self.maker.is_this() {
            return;
        }
        self.inner.state.lock().stopped = true;
        self.inner.changed.notify_one();
    }
}

impl Inner {
    fn run(&self) {
        while let Some(polled) = self.next() {
            // Without the lock: this may be the last handle, and own the poller.
            if polled.upgrade().is_some_and(|polled| polled.poll()) {
                let mut state = self.state.lock();
                state.at.get_or_insert_with(|| Instant::now() + INTERVAL);
            }
        }
    }

    /// Blocks until it is time to poll. `None` if the poller has been dropped.
    fn next(&self) -> Option<Weak<dyn Poll>> {
        let mut state = self.state.lock();
        while !state.stopped {
            state = match state.at.map(|at| at.checked_duration_since(Instant::now())) {
                Some(None) => {
                    state.at = None;
                    return state.polled.clone();
                }
                Some(Some(left)) => self.changed.wait_timeout(state, left),
                None => self.changed.wait(state),
            };
        }
        None
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test's")]

    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// Sends one message for each poll, and asks for `again` more polls.
    struct Polled {
        tell: Sender<()>,
        again: Mutex<u32>,
        poller: Poller,
    }

    impl Poll for Polled {
        fn poll(&self) -> bool {
            let mut again = self.again.lock();
            let more = *again > 0;
            *again = again.saturating_sub(1);
            self.tell.send(()).unwrap();
            more
        }
    }

    fn polled(again: u32) -> (Arc<Polled>, Receiver<()>) {
        let (tell, told) = channel();
        let polled = Arc::new(Polled {
            tell,
            again: Mutex::new(again),
            poller: Poller::default(),
        });
        polled.poller.start(&Object::new("test", "")).unwrap();
        polled.poller.start(&Object::new("test", "")).unwrap();
        (polled, told)
    }

    fn ask(polled: &Arc<Polled>) {
        let weak: Weak<Polled> = Arc::downgrade(polled);
        polled.poller.ask(weak);
    }

    #[test]
    fn it_polls_as_long_as_it_is_needed_and_again_when_asked() {
        let (polled, told) = polled(2);
        ask(&polled);
        for _ in 0..3 {
            told.recv().unwrap();
        }
        let more = told.recv_timeout(3 * INTERVAL);
        assert!(more.is_err(), "it is polled although it needs that no more");
        ask(&polled);
        told.recv().unwrap();
    }

    /// P3: as in a child of fork(2), whose parent held the lock.
    #[test]
    fn a_copy_of_another_process_is_dropped_without_the_lock() {
        let mut poller = Poller::default();
        poller.start(&Object::new("test", "")).unwrap();
        poller.maker = MakerProcess::NONE;
        let inner = poller.inner.clone();
        let locked = inner.state.lock();
        let (tell, told) = channel();
        std::thread::spawn(move || {
            drop(poller);
            tell.send(())
        });
        let dropped = told.recv_timeout(Duration::from_secs(20));
        drop(locked);
        dropped.unwrap();
        // Ends the thread.
        let mut ending = Poller::default();
        ending.inner = inner;
    }

    /// The channel closes when the object is dropped. So the thread must not keep the object.
    #[test]
    fn the_object_is_dropped_while_it_is_to_be_polled() {
        let (polled, told) = polled(u32::MAX);
        ask(&polled);
        told.recv().unwrap();
        let inner = Arc::downgrade(&polled.poller.inner);
        drop(polled);
        while told.recv().is_ok() {}
        // The thread ends, and drops its handle.
        while inner.strong_count() > 0 {
            std::thread::yield_now();
        }
    }
}
