//! The way of submissions to a worker thread: two lots of them in turn, which keep the room for the usual few.
//!
//! A submission is not kept as one thing, which would have to be as large as the largest: it is a few steps, and closures
//! beside them. So what waits behind a closure that takes long needs little memory, and little is moved.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::once::{Job, Small};
use crate::point::{Completion, KeptPoint};
use crate::run::quietly;

/// How long the worker looks for more before it sleeps: about what waking it costs.
const SPIN: Duration = Duration::from_micros(10);

/// A list that has held more than so many gives its room back: it is used again when it is empty.
const KEPT_STEPS: usize = 512;
const KEPT_CLOSURES: usize = 128;

/// For how long of that it keeps others off its processor.
const ALONE: Duration = Duration::from_micros(3);

/// How often it looks for each time that it looks at the clock.
const LOOKS: u32 = 8;

/// What a worker does next. Submissions follow each other, each up to its [`Step::End`].
pub(super) enum Step {
    /// Wait for a point whose signal is on its way; if that fails the submission does.
    Wait(KeptPoint),
    /// Call so many of the closures.
    Call(usize),
    /// Make a signal, or fail it.
    Signal(Completion),
    /// Fail a signal if the submission has failed; the engine makes it otherwise.
    Relayed(Completion),
    /// Tell that this one is done.
    End(u64),
}

// A submission that waits behind others takes one for each thing that it does, and one for its end.
const _: () = assert!(size_of::<Step>() <= 24, "a step is three words");

/// A submission on its way, and any number of them in the worker's hands.
#[derive(Default)]
pub(crate) struct Lot {
    pub(super) steps: VecDeque<Step>,
    /// In the order in which the steps call them.
    pub(super) closures: VecDeque<Small<dyn Job>>,
}

impl Lot {
    /// One with nothing in it, which mostly has room for a submission: by the thread, as nothing is to be locked then.
    pub(super) fn empty() -> Self {
        let spare = SPARE.try_with(|spare| spare.borrow_mut().pop());
        spare.ok().flatten().unwrap_or_default()
    }

    /// Keeps the room of one with nothing in it.
    fn put_back(mut self) {
        self.trim();
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < SPARES {
                spare.push(self);
            }
        });
    }

    /// Gives the room of a burst back.
    fn trim(&mut self) {
        if self.steps.capacity() > KEPT_STEPS {
            self.steps = VecDeque::new();
        }
        if self.closures.capacity() > KEPT_CLOSURES {
            self.closures = VecDeque::new();
        }
    }
}

/// How many lots a thread keeps: work that is recorded may itself submit to other queues.
const SPARES: usize = 4;

std::thread_local! { static SPARE: RefCell<Vec<Lot>> = const { RefCell::new(Vec::new()) } }

#[derive(Default)]
pub(super) struct Tasks {
    state: Mutex<State>,
    more: Condvar,
    ready: Ready,
}

/// There are tasks, or the queue is gone: to be looked at without the lock, in a cache line that changes when this does.
#[derive(Default)]
#[repr(align(128))]
struct Ready(AtomicBool);

#[derive(Default)]
struct State {
    tasks: Lot,
    asleep: bool,
    closed: bool,
    /// There is no worker any more.
    ended: bool,
}

impl Tasks {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No critical section here can leave the list in between.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands `lot`, which is not empty, to the worker. False if that has ended: `lot` is dropped, and that is all.
    pub(super) fn push(&self, mut lot: Lot) -> bool {
        let wakes = {
            let mut state = self.lock();
            if state.ended {
                return false;
            }
            if state.tasks.steps.is_empty() {
                std::mem::swap(&mut state.tasks, &mut lot);
                self.ready.0.store(true, Ordering::Release);
            } else {
                state.tasks.steps.append(&mut lot.steps);
                state.tasks.closures.append(&mut lot.closures);
            }
            std::mem::take(&mut state.asleep)
        };
        if wakes {
            self.more.notify_one();
        }
        lot.put_back();
        true
    }

    /// The worker ends once it has done what is there.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.ready.0.store(true, Ordering::Release);
        self.more.notify_one();
    }

    /// The worker has ended, whatever it was that ended it.
    pub(super) fn end(&self) {
        let left = {
            let mut state = self.lock();
            state.ended = true;
            std::mem::take(&mut state.tasks)
        };
        quietly(|| drop(left));
    }

    /// Puts what there is into `lot`, which is empty; waits until there is something. False at the end.
    pub(super) fn take(&self, lot: &mut Lot) -> bool {
        lot.trim();
        let start = Instant::now();
        while !self.ready.0.load(Ordering::Acquire) {
            let spun = start.elapsed();
            if spun > SPIN {
                break;
            }
            if spun > ALONE {
                std::thread::yield_now();
            }
            for _ in 0..LOOKS {
                std::hint::spin_loop();
                if self.ready.0.load(Ordering::Acquire) {
                    break;
                }
            }
        }
        let mut state = self.lock();
        while state.tasks.steps.is_empty() {
            if state.closed {
                return false;
            }
            state.asleep = true;
            state = self
                .more
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.asleep = false;
        std::mem::swap(&mut state.tasks, lot);
        self.ready.0.store(state.closed, Ordering::Relaxed);
        true
    }
}

impl std::fmt::Debug for Tasks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} steps", self.lock().tasks.steps.len())
    }
}
