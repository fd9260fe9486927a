//! The way of submissions to a worker thread: two lots of them in turn, which keep the room for the usual few.
//!
//! What costs most on this way are the cache lines that go from one thread to the other. So a submission as most are is kept
//! as one thing, beside others like it. Any other is not, as that would have to be as large as the largest: it is a few steps,
//! and closures beside them. So what waits behind a closure that takes long needs little memory, and little is moved: each step
//! and each closure once, from who submits to where the worker finds it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use smallbox::smallbox;

use crate::backend::Batch;
use crate::base::once::{self, Job, LITTLE, Little, Small};
use crate::base::run::quietly;
use crate::base::sync::{AtomicBool, CAN_SPIN, Condvar, Instant, Mutex, Ordering};
use crate::host::timing::Stamp;
use crate::timeline::point::{Completion, KeptPoint, NativePoint};
use crate::timeline::state::Shared;

/// How long the worker looks for more before it sleeps: about what waking it costs.
pub(super) const SPIN: Duration = Duration::from_micros(10);

/// A list that has held more than so many gives its room back: it is used again when it is empty.
const KEPT_USUAL: usize = 128;
const KEPT_STEPS: usize = 512;
const KEPT_CLOSURES: usize = 128;

/// A list has room for so many from its first use on. Grown step by step, it would allocate in steady state: whenever more
/// submissions than before come while the worker is busy.
const ROOM: usize = 16;
const ROOM_FOR_STEPS: usize = 64;

/// How often it looks for each time that it looks at the clock.
const LOOKS: u32 = 8;

/// A submission that has one closure, which captures little, and to do with one timeline at most.
pub(super) struct Usual {
    /// One reference for what is waited for and for what is signalled: to count it takes a cache line from one thread to the other.
    pub(super) of: Option<Arc<Shared>>,
    /// What to wait for, on its way; 0 for nothing.
    pub(super) wait: u64,
    pub(super) job: Little<dyn Job>,
    /// What to signal behind it; 0 for nothing.
    pub(super) signal: u64,
    pub(super) number: u64,
}

impl Usual {
    /// Takes the closure out, if the submission is such a one.
    #[inline]
    fn new(batch: &Batch<'_>, closures: &mut Closures) -> Option<Self> {
        let (of, wait, signal) = match (batch.waits, batch.signals) {
            ([], []) => (None, 0, 0),
            ([wait], []) => (Some(wait.of), wait.value, 0),
            ([], [signal]) => (Some(signal.of), 0, signal.value),
            ([wait], [signal]) if Arc::ptr_eq(wait.of, signal.of) => {
                (Some(wait.of), wait.value, signal.value)
            }
            _ => return None,
        };
        let is_usual = batch.order.is_empty()
            && batch.relayed.is_empty()
            && closures.others.is_empty()
            && batch.times.0.is_none();
        let job = closures.first.take_if(|_| is_usual)?;
        Some(Self {
            of: of.cloned(),
            wait,
            job,
            signal,
            number: batch.end.value(),
        })
    }
}

/// Makes room for at least so many.
#[inline]
fn reserve<T>(list: &mut VecDeque<T>, room: usize) {
    if list.capacity() < room {
        list.reserve(room - list.len());
    }
}

/// What a worker does next, of any other submission. They follow each other, each up to its [`Step::End`].
pub(super) enum Step {
    /// Wait for a point whose signal is on its way; if that fails the submission does.
    Wait(KeptPoint),
    /// Call the next of the closures that capture little.
    Run,
    /// Call so many of the others.
    Call(usize),
    /// Make a signal, or fail it.
    Signal(Completion),
    /// The same, of the timeline that the last wait was for: without a reference of its own.
    SignalWaited(u64),
    /// Fail a signal if the submission has failed; the engine makes it otherwise.
    Relayed(Completion),
    /// Tell that this one is done.
    End(u64),
}

// A submission that waits behind others takes one for each thing that it does, and one for its end.
const _: () = assert!(size_of::<Step>() <= 24, "a step is three words");

/// The closures of a submission that is being recorded.
#[derive(Default)]
pub(super) struct Closures {
    /// The first, if it captures little. Mostly it does, and is the only one.
    first: Option<Little<dyn Job>>,
    others: VecDeque<Small<dyn Job>>,
}

impl Closures {
    #[inline]
    pub(super) fn push<J: FnOnce() + Send + 'static>(&mut self, job: J) {
        if size_of::<Option<J>>() <= LITTLE && self.len() == 0 {
            self.first = Some(smallbox!(Some(job)));
            return;
        }
        if self.others.capacity() == 0 {
            self.others = once::take_list();
        }
        self.others.push_back(smallbox!(Some(job)));
    }

    /// True if there are none, and nothing is to be given back.
    #[inline]
    pub(super) fn have_no_room(&self) -> bool {
        self.first.is_none() && self.others.capacity() == 0
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.others.len()
    }
}

impl Drop for Closures {
    #[inline]
    fn drop(&mut self) {
        if self.others.capacity() > 0 && self.others.is_empty() {
            once::give_back_list(std::mem::take(&mut self.others));
        }
    }
}

/// Submissions on their way, and in the worker's hands. In this order, so that with those that are as most are nobody needs
/// more than one cache line of it.
#[derive(Default)]
#[repr(C)]
pub(super) struct Lot {
    /// There are others.
    stepped: bool,
    /// They come first: from the first other one on, all are.
    pub(super) usual: VecDeque<Usual>,
    pub(super) steps: VecDeque<Step>,
    /// In the order in which the steps call them.
    pub(super) little: VecDeque<Little<dyn Job>>,
    pub(super) closures: VecDeque<Small<dyn Job>>,
}

impl Lot {
    /// Adds a submission behind all others; its closures are taken out.
    #[inline]
    fn add(&mut self, batch: &Batch<'_>, closures: &mut Closures) {
        if !self.stepped
            && let Some(usual) = Usual::new(batch, closures)
        {
            reserve(&mut self.usual, ROOM);
            self.usual.push_back(usual);
        } else {
            self.add_steps(batch, closures);
        }
    }

    #[inline(never)]
    fn add_steps(&mut self, batch: &Batch<'_>, closures: &mut Closures) {
        self.stepped = true;
        reserve(&mut self.steps, ROOM_FOR_STEPS);
        reserve(&mut self.little, ROOM);
        let steps = &mut self.steps;
        for wait in batch.waits {
            steps.push_back(Step::Wait(wait.keep()));
        }
        if let Some(first) = closures.first.take() {
            self.little.push_back(first);
            steps.push_back(Step::Run);
        }
        if !closures.others.is_empty() {
            steps.push_back(Step::Call(closures.others.len()));
            reserve(&mut self.closures, ROOM);
            self.closures.append(&mut closures.others);
        }
        for wait in batch.order {
            steps.push_back(Step::Wait(wait.keep()));
        }
        if let Some(stamp) = batch.stamp::<Stamp>() {
            self.little
                .push_back(smallbox!(Some(move || stamp.write())));
            steps.push_back(Step::Run);
        }
        let waited = batch.order.last().or(batch.waits.last());
        for signal in batch.signals {
            let again = |wait: &NativePoint<'_>| Arc::ptr_eq(wait.of, signal.of);
            steps.push_back(if waited.is_some_and(again) {
                Step::SignalWaited(signal.value)
            } else {
                Step::Signal(signal.completion())
            });
        }
        for signal in batch.relayed {
            steps.push_back(Step::Relayed(signal.clone()));
        }
        steps.push_back(Step::End(batch.end.value()));
    }

    /// True if there is nothing in it.
    #[inline]
    fn is_empty(&self) -> bool {
        self.usual.is_empty() && !self.stepped
    }

    /// Changes it for another, which is empty.
    fn take(&mut self, other: &mut Self) {
        std::mem::swap(&mut self.usual, &mut other.usual);
        if self.stepped {
            std::mem::swap(&mut self.stepped, &mut other.stepped);
            std::mem::swap(&mut self.steps, &mut other.steps);
            std::mem::swap(&mut self.little, &mut other.little);
            std::mem::swap(&mut self.closures, &mut other.closures);
        }
    }

    /// Everything in it has been done. Gives the room of a burst back.
    fn trim(&mut self) {
        self.stepped = false;
        if self.usual.capacity() > KEPT_USUAL {
            self.usual = VecDeque::new();
        }
        if self.steps.capacity() > KEPT_STEPS {
            self.steps = VecDeque::new();
        }
        if self.little.capacity() > KEPT_CLOSURES {
            self.little = VecDeque::new();
        }
        if self.closures.capacity() > KEPT_CLOSURES {
            self.closures = VecDeque::new();
        }
    }
}

#[derive(Default)]
#[repr(C)]
pub(super) struct Tasks {
    state: Mutex<State>,
    ready: Ready,
    more: Condvar,
}

/// There are tasks, or the queue is gone: to be looked at without the lock, in a cache line that changes when this does.
#[repr(align(128))]
struct Ready(AtomicBool);

impl Default for Ready {
    fn default() -> Self {
        Self(AtomicBool::new(false))
    }
}

#[derive(Default)]
#[repr(C)]
struct State {
    asleep: bool,
    closed: bool,
    /// There is no worker any more.
    ended: bool,
    tasks: Lot,
}

impl Tasks {
    /// Hands a submission to the worker. False if that has ended: the closures are still there, and that is all.
    #[inline]
    pub(super) fn push(&self, batch: &Batch<'_>, closures: &mut Closures) -> bool {
        let (first, wakes) = {
            let mut state = self.state.lock();
            if state.ended {
                return false;
            }
            let first = state.tasks.is_empty();
            state.tasks.add(batch, closures);
            (first, std::mem::take(&mut state.asleep))
        };
        // Only now: a worker that sees it takes the lock at once.
        if first {
            self.ready.0.store(true, Ordering::Release);
        }
        if wakes {
            self.more.notify_one();
        }
        true
    }

    /// The worker ends once it has done what is there.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.ready.0.store(true, Ordering::Release);
        self.more.notify_one();
    }

    /// The worker has ended, whatever it was that ended it.
    pub(super) fn end(&self) {
        let left = {
            let mut state = self.state.lock();
            state.ended = true;
            std::mem::take(&mut state.tasks)
        };
        quietly(|| drop(left));
    }

    /// Puts what there is into `lot`, of which everything is done; waits until there is something. False at the end.
    pub(super) fn take(&self, lot: &mut Lot) -> bool {
        lot.trim();
        loop {
            let looked_up = self.look();
            let mut state = self.state.lock();
            while state.tasks.is_empty() {
                if state.closed {
                    return false;
                }
                if looked_up {
                    break;
                }
                state.asleep = true;
                state = self.more.wait(state);
            }
            state.asleep = false;
            // Who adds the next says so after he has had the lock, so that this is never lost; but it may come when
            // what he has added has been taken already.
            self.ready.0.store(state.closed, Ordering::Relaxed);
            if !state.tasks.is_empty() {
                state.tasks.take(lot);
                return true;
            }
        }
    }

    /// Looks for a while whether there is something, without the lock.
    fn look(&self) -> bool {
        let is_ready = || self.ready.0.load(Ordering::Acquire);
        if !CAN_SPIN || is_ready() {
            return is_ready();
        }
        let start = Instant::now();
        loop {
            for _ in 0..LOOKS {
                std::hint::spin_loop();
                if is_ready() {
                    return true;
                }
            }
            let spun = Instant::now().duration_since(start);
            if spun > SPIN {
                return false;
            }
        }
    }
}

impl std::fmt::Debug for Tasks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.state.lock();
        let Lot { usual, steps, .. } = &state.tasks;
        write!(f, "{} submissions, {} steps", usual.len(), steps.len())
    }
}
