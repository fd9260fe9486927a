//! Timelines whose state other processes hear of, through a page of shared memory beside them (P4), and what is done there when one of these has
//! died (E3).

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Weak};

use crate::base::error::{Error, Failure, Result};
use crate::base::run::Wake;
use crate::base::stage::Stage;
use crate::base::sync::{AtomicBool, Mutex, Ordering};
use crate::memory::counter::Counter;
use crate::timeline::Timeline;
use crate::timeline::point::{KeptPoint, Point, Signal};
use crate::timeline::state::{Publish, RemainingPeers, Shared};

/// What a page is to a timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Page {
    /// Its counter is the timeline's own: who signals writes it.
    Own,
    /// It lies beside an object of a driver's, and tells what that has reached to those who cannot ask it.
    Beside,
}

/// How often one looks at a page whose signaller is dead: for the value there, for what came before the failure, and for that. Not until nothing more comes: whoever
/// has the page may raise it for ever.
const LAST_LOOKS: u32 = 4;

/// Writes to a page how a timeline stands. One thread at a time does, whichever has noticed something; who comes meanwhile leaves word, and goes on.
struct Publisher {
    of: Weak<Shared>,
    counter: Arc<Counter>,
    page: Page,
    /// The id of the process that has it.
    process: u32,
    turn: Mutex<Turn>,
    /// Who comes for what is pending next, and for what is reached.
    pending: Arc<Listener>,
    reached: Arc<Listener>,
}

enum Turn {
    /// The timeline itself, once it is closed and as long as something of it is still to be told.
    Free {
        _kept: Option<Arc<Shared>>,
    },
    /// Somebody writes, and has to look once more if there is word for him.
    Taken {
        again: bool,
    },
    Over,
}

/// Registered with the timeline, for what comes next.
struct Listener {
    publisher: Weak<Publisher>,
    stage: Stage,
    /// It is, or its call has begun.
    is_registered: AtomicBool,
}

impl Listener {
    fn new(publisher: &Weak<Publisher>, stage: Stage) -> Arc<Self> {
        Arc::new(Self {
            publisher: publisher.clone(),
            stage,
            is_registered: AtomicBool::new(false),
        })
    }

    /// Registers for `value`. False if it has come, or never will.
    fn listen(self: &Arc<Self>, of: &Arc<Shared>, value: u64) -> bool {
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

impl Wake for Listener {
    fn wake(self: Arc<Self>) {
        self.is_registered.store(false, Ordering::SeqCst);
        if let Some(publisher) = self.publisher.upgrade() {
            publisher.publish();
        }
    }
}

impl Wake for Publisher {
    /// The last handle has gone.
    fn wake(self: Arc<Self>) {
        self.publish();
    }

    /// At once: whoever has let go of it may be the last to keep the timeline.
    fn is_prompt(&self) -> bool {
        true
    }
}

impl Publish for Publisher {
    fn tell_ahead(&self, of: &Shared, value: u64) {
        if self.page == Page::Beside {
            of.publish_times(value);
            self.counter.tell(of.pending().max(value), value);
        }
    }

    fn is_forked(&self) -> bool {
        self.process != std::process::id()
    }
}

/// What a look at a timeline has found.
enum Found {
    /// Word comes of what is next.
    GoesOn,
    /// And it has no handle any more.
    GoesOnClosed,
    /// Something has come meanwhile.
    LookAgain,
    /// Nothing comes any more.
    Over,
}

impl Publisher {
    fn publish(self: &Arc<Self>) {
        let before = {
            let mut turn = self.turn.lock();
            match &mut *turn {
                Turn::Free { .. } => std::mem::replace(&mut *turn, Turn::Taken { again: false }),
                Turn::Taken { again } => {
                    *again = true;
                    return;
                }
                Turn::Over => return,
            }
        };
        let of = self.of.upgrade();
        loop {
            let found = of.as_ref().map_or(Found::Over, |of| self.look(of));
            let mut turn = self.turn.lock();
            let again = matches!(*turn, Turn::Taken { again: true });
            *turn = match found {
                Found::Over => Turn::Over,
                _ if again => Turn::Taken { again: false },
                Found::LookAgain => Turn::Taken { again: false },
                Found::GoesOn => Turn::Free { _kept: None },
                Found::GoesOnClosed => Turn::Free { _kept: of.clone() },
            };
            if !matches!(*turn, Turn::Taken { .. }) {
                drop(turn);
                break;
            }
        }
        // Perhaps the last that keeps the timeline, so with no lock held.
        drop((before, of));
    }

    fn look(self: &Arc<Self>, of: &Arc<Shared>) -> Found {
        let (reached, pending) = (of.reached(), of.pending());
        // When it was reached, before that it is.
        of.publish_times(reached);
        if pending > reached {
            of.prepare_times();
        }
        if self.page == Page::Beside {
            self.counter.tell(pending, reached);
        }
        if let Some(cause) = of.failure() {
            // Where it froze: it may have come further since.
            let frozen = of.reached();
            of.publish_times(frozen);
            if self.page == Page::Beside {
                self.counter.tell(of.pending(), frozen);
            }
            self.fail(frozen, &cause);
            return Found::Over;
        }
        let closed = of.is_closed();
        let mut next = pending.saturating_add(1);
        if closed {
            // Claims that are not pending yet may still become so.
            match of.lowest_outstanding(pending) {
                Some(claimed) => next = claimed,
                // A claim that has left the list since the first look is pending by now.
                None if of.pending() > pending => return Found::LookAgain,
                // What is on its way comes first, as nothing comes behind the end.
                None if reached == pending => {
                    let cause = of.cancelled(next);
                    self.counter.fail_for(reached, &cause);
                    return Found::Over;
                }
                None => {}
            }
        }
        // What devices signal here is watched here: nobody else can ask them whether they live (E3).
        let is_driven = of.other_ports().next().is_some();
        let tells_reached = self.page == Page::Beside || closed || is_driven;
        let hears_of_pending = self.pending.listen(of, next);
        let hears_of_reached = tells_reached && self.reached.listen(of, reached.saturating_add(1));
        let registered = hears_of_pending && (hears_of_reached || !tells_reached);
        // With nobody there who would ever look again, what was to come has been withdrawn.
        let forgotten = closed && !hears_of_pending && !hears_of_reached;
        let news = of.pending() > pending
            || (tells_reached && of.reached() > reached)
            || of.is_failed()
            || of.is_closed() != closed
            || forgotten;
        match (registered || !news, closed) {
            (false, _) => Found::LookAgain,
            (true, false) => Found::GoesOn,
            (true, true) => Found::GoesOnClosed,
        }
    }

    fn fail(&self, frozen: u64, cause: &Failure) {
        if matches!(**cause, Error::DeviceLost { .. }) {
            // What it had taken does not come any more.
            self.counter.note_lost();
        }
        self.counter.fail_for(frozen, cause);
    }
}

impl Timeline {
    /// Tells whoever has `counter`'s page how this timeline stands, from now on: what is pending; what is reached, if the page lies [beside](Page::Beside)
    /// it; that it has failed, and why; and that its last handle has gone, once all that was claimed by then is reached. For the one process that signals it.
    ///
    /// To be called once for a timeline. Does not keep it open. A forked child that drops its copies tells nothing.
    /// Promoting a claim, or noticing that a value is reached, writes to the page. That is a system call if a thread sleeps there.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if another side of its [bridge](Timeline::bridged) is published.
    pub fn publish(&self, counter: Arc<Counter>, page: Page) -> Result<()> {
        let publisher = Arc::new_cyclic(|publisher| Publisher {
            of: Arc::downgrade(self.shared()),
            counter,
            page,
            process: std::process::id(),
            turn: Mutex::new(Turn::Free { _kept: None }),
            pending: Listener::new(publisher, Stage::Pending),
            reached: Listener::new(publisher, Stage::Reached),
        });
        // It stays as long as the timeline does, which it does not keep.
        let ahead = page == Page::Beside;
        self.shared().keep_publisher(publisher.clone(), ahead)?;
        publisher.publish();
        Ok(())
    }

    /// For a timeline that another process signals: the last handle here is not the last, so that it closes nothing. `kept` is let go with the timeline, which points and
    /// submissions in flight keep.
    pub fn follow(&self, kept: Arc<dyn Any + Send + Sync>) {
        self.shared().set_remote_signaller(kept);
    }

    /// The same without keeping it.
    #[must_use]
    pub fn downgrade(&self) -> WeakTimeline {
        WeakTimeline(Arc::downgrade(self.shared()))
    }
}

/// A timeline for as long as somebody else has a handle or a point of it, or a submission in flight uses it.
#[derive(Clone)]
pub struct WeakTimeline(Weak<Shared>);

impl WeakTimeline {
    /// The point at `value`, if the timeline is still there.
    #[must_use]
    pub fn at(&self, value: u64) -> Option<KeptPoint> {
        let of = Some(self.0.upgrade()?);
        Some(KeptPoint { of, value })
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

    /// For a timeline that another process signals and that has its home on `counter`'s page: that process is dead, for the reason that `cause` tells.
    ///
    /// Fails the timeline here, then whatever would be signalled by work that waits for it natively, as that runs on what there is now, and then the page, for everybody.
    /// Then it makes in the place of the dead the signals that were said to be pending, so that no queue stays blocked: where there may be other
    /// [remaining](RemainingPeers), on another thread, once those have had time to do the same, and unless one of them has been seen to make them. Values that were reached
    /// stay so.
    ///
    /// Releases what was held for it, on this thread. Where there are no others it blocks as long as the driver takes for a signal.
    pub fn lose(&self, counter: &Counter, cause: Error, remaining: RemainingPeers) {
        let cause = cause.into_cause();
        let of = self.0.upgrade();
        if let Some(of) = &of {
            // A failure that the page tells stands behind the last value there, and came first.
            for _ in 0..LAST_LOOKS {
                let before = of.reached();
                if of.refresh() <= before {
                    break;
                }
            }
            of.fail_with_dependents(&cause);
        }
        counter.note_lost();
        let reached = of.as_ref().map_or_else(
            || counter.value().unwrap_or(counter.seen()),
            |of| of.reached(),
        );
        counter.fail_for(reached, &cause);
        if let Some(of) = &of {
            of.recover(remaining);
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
