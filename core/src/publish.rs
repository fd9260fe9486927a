//! Timelines whose state other processes hear of, through a page of shared memory beside them (P4), and what is done there when one of these has
//! died (E3).

use std::sync::{Arc, Weak};

use crate::backend::ByEngine;
use crate::counter::Counter;
use crate::error::{Error, Failure};
use crate::run::Wake;
use crate::state::Shared;
use crate::sync::{AtomicBool, Mutex, Ordering};
use crate::timeline::Timeline;
use crate::waiters::Stage;

/// What a page is to a timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Page {
    /// Its counter is the timeline's own: who signals writes it.
    Own,
    /// It lies beside an object of a driver's, and tells what that has reached to those who cannot ask it.
    Beside,
}

/// Writes to a page how a timeline stands. One thread at a time does, whichever has noticed something; who comes meanwhile leaves word, and goes on.
struct Publisher {
    of: Weak<Shared>,
    counter: Arc<Counter>,
    page: Page,
    turn: Mutex<Turn>,
    /// Somebody is going to come for what is pending next, or reached.
    hears_of_pending: AtomicBool,
    hears_of_reached: AtomicBool,
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
    publisher: Arc<Publisher>,
    stage: Stage,
}

impl Wake for Listener {
    fn wake(self: Arc<Self>) {
        let hears = self.publisher.hears(self.stage);
        hears.store(false, Ordering::SeqCst);
        self.publisher.publish();
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
    const fn hears(&self, stage: Stage) -> &AtomicBool {
        match stage {
            Stage::Pending => &self.hears_of_pending,
            Stage::Reached => &self.hears_of_reached,
        }
    }

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
        if self.page == Page::Beside {
            self.counter.tell(pending, reached);
        }
        if let Some(cause) = of.failure() {
            self.fail(reached, &cause);
            return Found::Over;
        }
        let closed = of.is_closed();
        let mut next = pending.saturating_add(1);
        if closed {
            // Claims that are not pending yet may still become so.
            match of.still_to_come(pending) {
                Some(claimed) => next = claimed,
                // What is on its way comes first, as nothing comes behind the end.
                None if reached == pending => {
                    let cause = of.cancelled(next);
                    self.counter.fail(reached, 0, &cause.to_string());
                    return Found::Over;
                }
                None => {}
            }
        }
        let tells_reached = self.page == Page::Beside || closed;
        let registered = self.listen(of, Stage::Pending, next)
            & (!tells_reached || self.listen(of, Stage::Reached, reached.saturating_add(1)));
        let news = of.pending() > pending
            || (tells_reached && of.reached() > reached)
            || of.is_failed()
            || of.is_closed() != closed;
        match (registered || !news, closed) {
            (false, _) => Found::LookAgain,
            (true, false) => Found::GoesOn,
            (true, true) => Found::GoesOnClosed,
        }
    }

    /// Registers for `value`. False if it has come, or never will.
    fn listen(self: &Arc<Self>, of: &Arc<Shared>, stage: Stage, value: u64) -> bool {
        let hears = self.hears(stage);
        if hears.swap(true, Ordering::SeqCst) {
            return true;
        }
        let listener = Listener {
            publisher: self.clone(),
            stage,
        };
        let registered = of.register(value, stage, Arc::new(listener)).is_some();
        if !registered {
            hears.store(false, Ordering::SeqCst);
        }
        registered
    }

    fn fail(&self, frozen: u64, cause: &Failure) {
        self.counter.fail(frozen, code(cause), &cause.to_string());
    }
}

/// The native code beneath a failure, if there is one.
fn code(cause: &Error) -> i64 {
    match cause {
        Error::Native { code, .. }
        | Error::DeviceLost { code, .. }
        | Error::FailedElsewhere { code, .. } => *code,
        _ => 0,
    }
}

impl Timeline {
    /// Tells whoever has `counter`'s page how this timeline stands, from now on: what is pending; what is reached, if the page lies [beside](Page::Beside)
    /// it; that it has failed, and why; and that its last handle has gone, once all that was claimed by then is reached. For the one process that signals it.
    ///
    /// To be called once for a timeline. Does not keep it open. Who promotes a claim, or notices that a value is reached, writes to the page: a system call if somebody sleeps there.
    pub fn publish(&self, counter: Arc<Counter>, page: Page) {
        let publisher = Publisher {
            of: Arc::downgrade(self.shared()),
            counter,
            page,
            turn: Mutex::new(Turn::Free { _kept: None }),
            hears_of_pending: AtomicBool::new(false),
            hears_of_reached: AtomicBool::new(false),
        };
        let publisher = Arc::new(publisher);
        let weak = Arc::downgrade(&publisher);
        self.shared().hear_of_the_end(weak);
        publisher.publish();
    }

    /// For a timeline that another process signals and that has its home on `counter`'s page: that process is dead, for the reason that `cause` tells.
    ///
    /// Fails the timeline here, and on the page for everybody; then whatever would be signalled by work that waits for it natively, as that runs on what
    /// there is now. Then, if nobody else has taken that on, it makes in the place of the dead the signals that were said to be pending, so that
    /// no queue stays blocked. Values that were reached stay so.
    ///
    /// Does not block, but for what the driver takes for a signal.
    pub fn lose(&self, counter: &Counter, cause: Error) {
        let of = self.shared();
        let cause = cause.into_cause();
        of.lose(&cause);
        counter.fail(of.reached(), code(&cause), &cause.to_string());
        if counter.take_release() {
            let owed = counter.pending().unwrap_or(0).max(of.pending());
            of.release_natively(owed);
        }
    }
}

impl Shared {
    /// Makes the signals that nobody else makes any more, up to `value`, through one port that can: those of devices come first, since a page is no object
    /// of theirs.
    fn release_natively(&self, value: u64) {
        let home = [self.home()];
        let released = self.other_ports().chain(home).any(|port| {
            // An error, too, leaves it to the next.
            matches!(port.release(value, ByEngine::new()), Ok(true))
        });
        let _ = released;
    }
}
