//! Publishing of timelines to other processes (P4), and the death of a signaller (E3).

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Weak};

use crate::base::error::{Error, Failure, Result};
use crate::base::run::{Wake, call_backend};
use crate::base::stage::Stage;
use crate::base::sync::{AtomicBool, Mutex, Ordering};
use crate::memory::counter::Counter;
use crate::timeline::Timeline;
use crate::timeline::point::{KeptPoint, Point, Signal};
use crate::timeline::state::{Publish, RecoveryMode, Shared};

/// How a page is related to its timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Page {
    /// The page's counter is the timeline's home. Signals write it.
    Own,
    /// The page is beside a driver's object, for processes that cannot query the object.
    Beside,
}

/// The most polls of a page for the last value of a signaller that is dead or given up.
///
/// Bounded, because any process can raise the value forever.
const FINAL_POLLS: u32 = 4;

/// Writes the state of a timeline to its page.
///
/// One thread at a time writes. A thread that finds a change meanwhile only asks the writing thread
/// to repeat.
struct Publisher {
    of: Weak<Shared>,
    counter: Arc<Counter>,
    page: Page,
    writing: Mutex<Writing>,
    /// Registered for the next pending and the next reached value.
    pending: Arc<StageWaker>,
    reached: Arc<StageWaker>,
}

enum Writing {
    /// No thread writes. Keeps a closed timeline alive while values of it can still come.
    Idle {
        _kept: Option<Arc<Shared>>,
    },
    /// A thread writes. It must repeat if `again` is true.
    Busy {
        again: bool,
    },
    Over,
}

/// Waker for the next value of a timeline that comes to `stage`.
struct StageWaker {
    publisher: Weak<Publisher>,
    stage: Stage,
    /// True while it is registered, until its wake has begun.
    is_registered: AtomicBool,
}

impl StageWaker {
    fn new(publisher: &Weak<Publisher>, stage: Stage) -> Arc<Self> {
        Arc::new(Self {
            publisher: publisher.clone(),
            stage,
            is_registered: AtomicBool::new(false),
        })
    }

    /// Registers for `value`, unless it is registered. False if the value has come or never will.
    fn register(self: &Arc<Self>, of: &Arc<Shared>, value: u64) -> bool {
        if self.is_registered.swap(true, Ordering::SeqCst) {
            return true;
        }
        let registered = of.register(value, self.stage, self.clone()).is_some();
        if !registered {
            self.is_registered.store(false, Ordering::SeqCst);
        }
        registered
    }
}

impl Wake for StageWaker {
    fn wake(self: Arc<Self>) {
        self.is_registered.store(false, Ordering::SeqCst);
        if let Some(publisher) = self.publisher.upgrade() {
            publisher.publish();
        }
    }
}

impl Wake for Publisher {
    /// Called when the last handle of the timeline is dropped.
    fn wake(self: Arc<Self>) {
        self.publish();
    }

    /// Not queued, because the dropping thread may hold the last reference to the timeline.
    fn is_prompt(&self) -> bool {
        true
    }
}

impl Publish for Publisher {
    fn publish_ahead(&self, of: &Shared, value: u64) {
        if self.page == Page::Beside {
            of.publish_times(value);
            self.counter.publish(of.pending().max(value), value);
        }
    }
}

/// The result of one update of the page.
enum Updated {
    /// A waker is registered for the next value.
    Registered,
    /// A waker is registered for the next value, and the timeline is closed.
    RegisteredClosed,
    /// Something has changed meanwhile.
    Repeat,
    /// No value can come any more.
    Over,
}

impl Publisher {
    fn publish(self: &Arc<Self>) {
        let before = {
            let mut writing = self.writing.lock();
            match &mut *writing {
                Writing::Idle { .. } => {
                    std::mem::replace(&mut *writing, Writing::Busy { again: false })
                }
                Writing::Busy { again } => {
                    *again = true;
                    return;
                }
                Writing::Over => return,
            }
        };
        let of = self.of.upgrade();
        loop {
            let update = |of| self.update_page_or_fail(of);
            let found = of.as_ref().map_or(Updated::Over, update);
            let mut writing = self.writing.lock();
            let again = matches!(*writing, Writing::Busy { again: true });
            *writing = match found {
                Updated::Over => Writing::Over,
                _ if again => Writing::Busy { again: false },
                Updated::Repeat => Writing::Busy { again: false },
                Updated::Registered => Writing::Idle { _kept: None },
                Updated::RegisteredClosed => Writing::Idle { _kept: of.clone() },
            };
            if !matches!(*writing, Writing::Busy { .. }) {
                drop(writing);
                break;
            }
        }
        // With no lock held, because this may drop the last reference to the timeline.
        drop((before, of));
    }

    /// Same as [`Publisher::update_page`], but a panic of a backend fails the page.
    ///
    /// Otherwise the peers would wait in vain.
    fn update_page_or_fail(self: &Arc<Self>, of: &Arc<Shared>) -> Updated {
        let updated = call_backend(of.object(), "updating the page for other processes", || {
            Ok(self.update_page(of))
        });
        updated.unwrap_or_else(|error| {
            self.counter.fail_for(of.reached(), &error);
            Updated::Over
        })
    }

    fn update_page(self: &Arc<Self>, of: &Arc<Shared>) -> Updated {
        let (reached, pending) = (of.reached(), of.pending());
        // Times before values.
        of.publish_times(reached);
        if pending > reached {
            of.prepare_times();
        }
        if self.page == Page::Beside {
            self.counter.publish(pending, reached);
        }
        if let Some(cause) = of.failure() {
            // The value at which the timeline froze may be above the value read before.
            let frozen = of.reached();
            of.publish_times(frozen);
            if self.page == Page::Beside {
                self.counter.publish(of.pending(), frozen);
            }
            self.fail(frozen, &cause);
            return Updated::Over;
        }
        let closed = of.is_closed();
        let mut next = pending.saturating_add(1);
        if closed {
            // Claims can still become pending.
            match of.lowest_outstanding(pending) {
                Some(claimed) => next = claimed,
                // A claim that is no longer in the list has become pending since the first read.
                None if of.pending() > pending => return Updated::Repeat,
                // Pending values come first, because nothing comes after the end.
                None if reached == pending => {
                    let cause = of.cancelled(next);
                    self.counter.fail_for(reached, &cause);
                    return Updated::Over;
                }
                None => {}
            }
        }
        // Values that devices signal are watched here, because only this process can check whether
        // the devices are lost (E3).
        let is_driven = of.ports().has_others();
        let watches_reached = self.page == Page::Beside || closed || is_driven;
        let pending_registered = self.pending.register(of, next);
        let reached_registered =
            watches_reached && self.reached.register(of, reached.saturating_add(1));
        let is_registered = pending_registered && (reached_registered || !watches_reached);
        // Without a registration, no thread would publish the end. So withdrawn claims count as a
        // change.
        let is_unwatched = closed && !pending_registered && !reached_registered;
        let news = of.pending() > pending
            || (watches_reached && of.reached() > reached)
            || of.is_failed()
            || of.is_closed() != closed
            || is_unwatched;
        match (is_registered || !news, closed) {
            (false, _) => Updated::Repeat,
            (true, false) => Updated::Registered,
            (true, true) => Updated::RegisteredClosed,
        }
    }

    fn fail(&self, frozen: u64, cause: &Failure) {
        if matches!(**cause, Error::DeviceLost { .. }) {
            // Pending values of a lost device never come.
            self.counter.note_lost();
        }
        self.counter.fail_for(frozen, cause);
    }
}

impl Timeline {
    /// Publishes this timeline's state on `counter`'s page from now on.
    ///
    /// The page has:
    ///
    /// - the pending value;
    /// - the reached value, if the page lies beside the timeline;
    /// - a failure and its cause;
    /// - the close of the last handle, once all claims of that time are reached.
    ///
    /// Call it once, in the process that signals the timeline. It does not keep the timeline open.
    /// A forked child that drops its copies publishes nothing. Each promotion and each newly
    /// reached value writes to the page, with a system call if a thread sleeps there.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if another side of its [bridge](Timeline::bridged) is published.
    #[doc(hidden)]
    pub fn publish(&self, counter: Arc<Counter>, page: Page) -> Result<()> {
        let publisher = Arc::new_cyclic(|publisher| Publisher {
            of: Arc::downgrade(self.shared()),
            counter,
            page,
            writing: Mutex::new(Writing::Idle { _kept: None }),
            pending: StageWaker::new(publisher, Stage::Pending),
            reached: StageWaker::new(publisher, Stage::Reached),
        });
        // The timeline owns the publisher, which has only a weak reference back.
        let ahead = page == Page::Beside;
        let publication = self.shared().make_extras().publication();
        publication.keep_publisher(self.shared(), publisher.clone(), ahead)?;
        publisher.publish();
        Ok(())
    }

    /// Notes that another process signals this timeline. The last handle here does not close it.
    ///
    /// `kept` is dropped with the timeline, which points and submissions in flight keep alive.
    #[doc(hidden)]
    pub fn follow(&self, kept: Arc<dyn Any + Send + Sync>) {
        self.shared().make_extras().set_remote_signaller(kept);
    }

    /// A weak reference to the timeline.
    #[doc(hidden)]
    #[must_use]
    pub fn downgrade(&self) -> WeakTimeline {
        WeakTimeline(Arc::downgrade(self.shared()))
    }
}

/// A weak reference to a timeline, which handles, points and submissions in flight keep alive.
#[derive(Clone)]
pub struct WeakTimeline(Weak<Shared>);

impl WeakTimeline {
    /// The point at `value`, if the timeline still exists.
    #[must_use]
    pub fn at(&self, value: u64) -> Option<KeptPoint> {
        let of = Some(self.0.upgrade()?);
        Some(KeptPoint { of, value })
    }

    /// Fails the timeline, if it still exists, and everything that waits natively for it.
    pub fn fail(&self, cause: Error) {
        if let Some(of) = self.0.upgrade() {
            of.fail_with_dependents(&cause.into_cause());
        }
    }

    /// True for points of this timeline.
    #[must_use]
    pub fn has(&self, point: Point<'_>) -> bool {
        point.of.is_some_and(|of| self.is(of))
    }

    /// True for signals of this timeline.
    #[must_use]
    pub fn has_signal(&self, signal: Signal<'_>) -> bool {
        self.is(signal.of)
    }

    fn is(&self, of: &Arc<Shared>) -> bool {
        std::ptr::eq(self.0.as_ptr(), Arc::as_ptr(of))
    }

    /// Fails the timeline because its signalling process is dead, and ends native waits for it.
    ///
    /// For a timeline that another process signals and that has its home on `counter`'s page.
    /// `cause` says how that process ended. The steps are:
    ///
    /// 1. It fails the timeline in this process.
    /// 2. It fails the signals of work that waits natively for the timeline, because that work may
    ///    find incomplete data.
    /// 3. It fails the page, for all other processes.
    /// 4. It makes the signals that the dead process had reported as pending. So no queue stays
    ///    blocked.
    ///
    /// With [`RecoveryMode::InTurn`] another thread does step 4. That thread first gives the other
    /// survivors time for steps 1 to 3. It does nothing if one of them has made the signals.
    ///
    /// Values that were reached stay reached. Held submissions are released on the calling thread.
    /// With [`RecoveryMode::Alone`] the call blocks for the driver's signal.
    pub fn lose(&self, counter: &Counter, cause: Error, mode: RecoveryMode) {
        let cause = cause.into_cause();
        let of = self.0.upgrade();
        if let Some(of) = &of {
            of.refresh_last();
            of.fail_with_dependents(&cause);
        }
        counter.note_lost();
        let reached = of.as_ref().map_or_else(
            || counter.value().unwrap_or(counter.seen()),
            |of| of.reached(),
        );
        counter.fail_for(reached, &cause);
        if let Some(of) = &of {
            of.recover(mode);
        }
    }

    /// Fails the timeline in this process alone: the application gives up the signalling process.
    ///
    /// The signalling process lives. So the page stays as it is, and no signal is made in place of
    /// that process. Native waits end with a signal that a driver has, so they are left alone. Held
    /// submissions are released on the calling thread.
    pub fn give_up(&self, cause: Error) {
        if let Some(of) = self.0.upgrade() {
            of.refresh_last();
            of.fail(cause.into_cause());
        }
    }
}

impl Shared {
    /// Polls the home before the timeline fails: a page shows its last value before its failure.
    fn refresh_last(&self) {
        for _ in 0..FINAL_POLLS {
            let before = self.reached();
            if self.refresh() <= before {
                break;
            }
        }
    }
}

impl fmt::Debug for WeakTimeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.upgrade() {
            Some(of) => fmt::Debug::fmt(&of, f),
            None => f.write_str("a timeline that is gone"),
        }
    }
}
