//! The path of submissions to a worker thread: two lists in turn, which keep a small capacity.
//!
//! The cost of this path is the cache lines that move between the threads. So a submission of the
//! simple form is one [`SimpleTask`], in one list whose head shares a cache line with the lock. Any
//! other submission is a few [`Step`]s, with its closures in other lists, because one type for all
//! would be as large as the largest. Each of them is moved once, from the submitting thread to the
//! worker's list.

use std::collections::VecDeque;
use std::ops::DerefMut;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use smallbox::smallbox;

use crate::backend::Batch;
use crate::base::error::{Error, Object, Result};
use crate::base::run::{panic_message, run_contained};
use crate::base::stored_closure::{self, Inline4, Inline16, Job, MAX_INLINE_4};
use crate::base::sync::{AtomicBool, CAN_SPIN, Condvar, Instant, Mutex, Ordering};
use crate::host::timing::Stamp;
use crate::host::worker::Worker;
use crate::timeline::point::{Completion, KeptPoint, NativePoint, Relayed};
use crate::timeline::recent_spins::RecentSpins;
use crate::timeline::state::Shared;

/// How long the worker spins for more work before it sleeps: about the cost of waking it.
pub(super) const SPIN: Duration = Duration::from_micros(10);

/// A list whose capacity has grown above this is freed when it is empty.
const MAX_KEPT_SIMPLE: usize = 256;
const MAX_KEPT_STEPS: usize = 512;
const MAX_KEPT_CLOSURES: usize = 128;

/// The capacity of a list from its first use on.
///
/// If lists grew step by step, a busy worker with more submissions than before would cause an
/// allocation in steady state.
const MIN_SIMPLE: usize = 32;
const MIN_CAPACITY: usize = 16;
const MIN_STEPS: usize = 64;

/// The number of polls per read of the clock.
const POLLS_PER_CLOCK_READ: u32 = 8;

/// A submission with at most one closure, which is small, and at most one timeline.
pub(super) struct SimpleTask {
    /// One reference for wait and signal. Counting it moves a cache line between the threads.
    of: Option<Arc<Shared>>,
    /// The pending value to wait for; 0 for none.
    wait: u64,
    /// `None` if the submission has no work.
    job: Option<Inline4<dyn Job>>,
    /// The value to signal after the work; 0 for none.
    signal: u64,
    number: u64,
}

impl SimpleTask {
    /// `None`, with the closures unchanged, if the submission has another form.
    #[inline]
    fn new(batch: &Batch<'_, Worker>, closures: &mut Closures) -> Option<Self> {
        let (of, wait, signal) = match (batch.waits, batch.signals) {
            ([], []) => (None, 0, 0),
            ([wait], []) => (Some(wait.of), wait.value, 0),
            ([], [signal]) => (Some(signal.of), 0, signal.value),
            ([wait], [signal]) if Arc::ptr_eq(wait.of, signal.of) => {
                (Some(wait.of), wait.value, signal.value)
            }
            _ => return None,
        };
        let is_simple = batch.order.is_empty()
            && batch.host_signals.is_empty()
            && closures.others.is_empty()
            && batch.times.is_none();
        is_simple.then(|| Self {
            of: of.cloned(),
            wait,
            job: closures.first.take(),
            signal,
            number: batch.end.value(),
        })
    }

    /// Waits, calls the closure and makes the signal. `own` is the queue's position.
    #[inline]
    pub(super) fn run(self, queue: &Object, own: &Shared) {
        let point = KeptPoint {
            of: self.of,
            value: self.wait,
        };
        // The signal is pending, so this wait ends in success or failure.
        let waited = point.point().wait(Duration::MAX);
        let done = match self.job {
            Some(job) => call(queue, waited, job),
            None => waited,
        };
        if let Some(of) = point.of.filter(|_| self.signal > 0) {
            finish_signal(&done, Completion::of(of, self.signal));
        }
        own.advance(self.number);
    }
}

/// Completes or fails a signal according to the submission's result.
pub(super) fn finish_signal(done: &Result<()>, signal: Completion) {
    match done {
        Ok(()) => signal.complete(),
        Err(cause) => signal.fail(cause.clone()),
    }
}

/// Calls a closure of the application if the submission has not failed, and drops it in any case.
pub(super) fn call(
    queue: &Object,
    done: Result<()>,
    mut job: impl DerefMut<Target = dyn Job>,
) -> Result<()> {
    let done = done.and_then(|()| match catch_unwind(AssertUnwindSafe(|| job.run())) {
        Ok(ran) => ran.map_err(|error| error.on(queue)),
        Err(payload) => Err(Error::work_panicked(queue, panic_message(payload))),
    });
    if done.is_err() {
        run_contained(|| drop(job));
    }
    done
}

/// Reserves room for at least `capacity` elements.
#[inline]
fn reserve<T>(list: &mut VecDeque<T>, capacity: usize) {
    if list.capacity() < capacity {
        list.reserve(capacity - list.len());
    }
}

/// A step of a submission that is not a [`SimpleTask`].
///
/// The steps of a submission are in sequence and end with [`Step::End`].
pub(super) enum Step {
    /// Wait for a point that is pending. If it fails, the submission fails.
    Wait(KeptPoint),
    /// Call the next small closure.
    Run,
    /// Call this many of the other closures.
    Call(usize),
    /// Complete a signal, or fail it.
    Signal(Completion),
    /// Complete or fail a signal of the timeline of the last wait, without a reference of its own.
    SignalWaited(u64),
    /// Fail a signal if the submission has failed. Otherwise the engine makes it.
    Relayed(Relayed),
    /// Report that the submission is finished.
    End(u64),
}

// A waiting submission takes one step for each of its actions and one for its end.
const _: () = assert!(size_of::<Step>() <= 24, "a step is three words");

/// The closures of a submission that is being recorded.
#[derive(Default)]
pub(super) struct Closures {
    /// The first closure, if it is small. Usually it is, and is the only one.
    first: Option<Inline4<dyn Job>>,
    others: VecDeque<Inline16<dyn Job>>,
}

impl Closures {
    #[inline]
    pub(super) fn push<J: FnOnce() -> Result<()> + Send + 'static>(&mut self, job: J) {
        if size_of::<Option<J>>() <= MAX_INLINE_4 && self.len() == 0 {
            self.first = Some(smallbox!(Some(job)));
            return;
        }
        if self.others.capacity() == 0 {
            self.others = stored_closure::take_list();
        }
        self.others.push_back(smallbox!(Some(job)));
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
            stored_closure::give_back_list(std::mem::take(&mut self.others));
        }
    }
}

/// A list of submissions, either queued or taken by the worker.
///
/// The field order matters: as long as all submissions are simple, each thread uses only one cache
/// line.
#[derive(Default)]
#[repr(C)]
pub(super) struct TaskList {
    /// True if there are submissions that are not simple.
    stepped: bool,
    /// Simple submissions.
    ///
    /// They come before all others; after one that is not simple, all are added as steps.
    simple: VecDeque<SimpleTask>,
    steps: VecDeque<Step>,
    /// Small closures, in the order in which the steps call them.
    small: VecDeque<Inline4<dyn Job>>,
    closures: VecDeque<Inline16<dyn Job>>,
}

impl TaskList {
    /// Adds a submission at the end and takes its closures out.
    #[inline]
    fn add(&mut self, batch: &Batch<'_, Worker>, closures: &mut Closures) {
        if !self.stepped
            && let Some(simple) = SimpleTask::new(batch, closures)
        {
            reserve(&mut self.simple, MIN_SIMPLE);
            self.simple.push_back(simple);
        } else {
            self.add_steps(batch, closures);
        }
    }

    #[inline(never)]
    fn add_steps(&mut self, batch: &Batch<'_, Worker>, closures: &mut Closures) {
        self.stepped = true;
        reserve(&mut self.steps, MIN_STEPS);
        reserve(&mut self.small, MIN_CAPACITY);
        let steps = &mut self.steps;
        for wait in batch.waits {
            steps.push_back(Step::Wait(wait.keep()));
        }
        if let Some(first) = closures.first.take() {
            self.small.push_back(first);
            steps.push_back(Step::Run);
        }
        if !closures.others.is_empty() {
            steps.push_back(Step::Call(closures.others.len()));
            reserve(&mut self.closures, MIN_CAPACITY);
            self.closures.append(&mut closures.others);
        }
        for wait in batch.order {
            steps.push_back(Step::Wait(wait.keep()));
        }
        if let Some(stamp) = batch.stamp::<Stamp>() {
            let write = move || {
                stamp.write();
                Ok(())
            };
            self.small.push_back(smallbox!(Some(write)));
            steps.push_back(Step::Run);
        }
        let waited = batch.order.last().or(batch.waits.last());
        for signal in batch.signals {
            let again = |wait: &NativePoint<'_>| Arc::ptr_eq(wait.of, signal.of);
            steps.push_back(if waited.is_some_and(again) {
                Step::SignalWaited(signal.value)
            } else {
                Step::Signal(Completion::of(signal.of.clone(), signal.value))
            });
        }
        for signal in batch.relayed() {
            steps.push_back(Step::Relayed(signal.clone()));
        }
        steps.push_back(Step::End(batch.end.value()));
    }

    /// Removes the next simple submission. They come before the steps of all others.
    #[inline]
    pub(super) fn next_simple(&mut self) -> Option<SimpleTask> {
        self.simple.pop_front()
    }

    #[inline]
    pub(super) fn next_step(&mut self) -> Option<Step> {
        self.steps.pop_front()
    }

    /// Removes the closure of the present [`Step::Run`].
    #[inline]
    pub(super) fn next_small_closure(&mut self) -> Option<Inline4<dyn Job>> {
        self.small.pop_front()
    }

    /// Removes the next closure of the present [`Step::Call`].
    #[inline]
    pub(super) fn next_closure(&mut self) -> Option<Inline16<dyn Job>> {
        self.closures.pop_front()
    }

    /// True if there is nothing in it.
    #[inline]
    fn is_empty(&self) -> bool {
        self.simple.is_empty() && !self.stepped
    }

    /// Swaps the contents with `other`, which is empty.
    fn take(&mut self, other: &mut Self) {
        std::mem::swap(&mut self.simple, &mut other.simple);
        if self.stepped {
            std::mem::swap(&mut self.stepped, &mut other.stepped);
            std::mem::swap(&mut self.steps, &mut other.steps);
            std::mem::swap(&mut self.small, &mut other.small);
            std::mem::swap(&mut self.closures, &mut other.closures);
        }
    }

    /// Resets the list after all of it has been done. Frees the capacity of a burst.
    fn trim(&mut self) {
        self.stepped = false;
        if self.simple.capacity() > MAX_KEPT_SIMPLE {
            self.simple = VecDeque::new();
        }
        if self.steps.capacity() > MAX_KEPT_STEPS {
            self.steps = VecDeque::new();
        }
        if self.small.capacity() > MAX_KEPT_CLOSURES {
            self.small = VecDeque::new();
        }
        if self.closures.capacity() > MAX_KEPT_CLOSURES {
            self.closures = VecDeque::new();
        }
    }
}

/// The lists, with the lock, the flag and the list of simple submissions in one cache line.
#[derive(Default)]
#[repr(C, align(128))]
pub(super) struct Tasks {
    /// True if there are tasks or the queue is gone. Written under the lock, and read without it.
    ready: AtomicBool,
    state: Mutex<State>,
    more: Condvar,
    /// The queue's position, from its first submission on.
    own: OnceLock<Arc<Shared>>,
}

#[derive(Default)]
#[repr(C)]
struct State {
    asleep: bool,
    closed: bool,
    tasks: TaskList,
}

impl Tasks {
    /// Hands a submission to the worker.
    #[inline]
    pub(super) fn push(&self, batch: &Batch<'_, Worker>, closures: &mut Closures) {
        self.own.get_or_init(|| batch.end.of.clone());
        let wakes = {
            let mut state = self.state.lock();
            state.tasks.add(batch, closures);
            // A worker that sees this may have to wait for the lock for some instructions.
            self.ready.store(true, Ordering::Release);
            std::mem::take(&mut state.asleep)
        };
        if wakes {
            self.more.notify_one();
        }
    }

    /// The queue's position. `None` before the first submission.
    pub(super) fn own(&self) -> Option<&Arc<Shared>> {
        self.own.get()
    }

    /// Makes the worker end once it has done what is queued.
    pub(super) fn close(&self) {
        {
            let mut state = self.state.lock();
            state.closed = true;
            self.ready.store(true, Ordering::Release);
        }
        self.more.notify_one();
    }

    /// Moves all queued submissions to `list`, once the worker has done what `list` held.
    ///
    /// Blocks until there are some. False at the end. `spins` belongs to the worker.
    pub(super) fn take(&self, list: &mut TaskList, spins: &RecentSpins) -> bool {
        list.trim();
        self.spin(spins);
        let mut state = self.state.lock();
        while state.tasks.is_empty() {
            if state.closed {
                return false;
            }
            state.asleep = true;
            state = self.more.wait(state);
        }
        state.asleep = false;
        self.ready.store(state.closed, Ordering::Relaxed);
        state.tasks.take(list);
        true
    }

    /// Spins for a while until there are tasks, unless that was in vain before. Takes no lock.
    fn spin(&self, spins: &RecentSpins) {
        let is_ready = || self.ready.load(Ordering::Acquire);
        if !CAN_SPIN || is_ready() || spins.should_park() {
            return;
        }
        let start = Instant::now();
        while Instant::now().duration_since(start) <= SPIN {
            for _ in 0..POLLS_PER_CLOCK_READ {
                std::hint::spin_loop();
                if is_ready() {
                    spins.helped();
                    return;
                }
            }
        }
        spins.failed();
    }
}

impl std::fmt::Debug for Tasks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.state.lock();
        let TaskList { simple, steps, .. } = &state.tasks;
        write!(f, "{} submissions, {} steps", simple.len(), steps.len())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::marker::PhantomData;

    use super::*;
    use crate::backend::Device as _;
    use crate::host::Device;

    #[test]
    fn a_spinning_worker_sees_tasks_and_the_end() {
        let timeline = Device::new().timeline("position").unwrap();
        let end = NativePoint::new(timeline.shared(), timeline.shared().home(), 1);
        let batch = Batch {
            waits: &[],
            order: &[],
            signals: &[],
            host_signals: &[],
            end,
            times: &None,
            is_bare: true,
            attached: None,
            signalled: Cell::new(false),
            of: PhantomData,
        };
        let tasks = Tasks::default();
        let (mut list, spins) = (TaskList::default(), RecentSpins::default());
        let is_ready = || tasks.ready.load(Ordering::Relaxed);
        assert!(!is_ready());
        for _ in 0..2 {
            tasks.push(&batch, &mut Closures::default());
            assert!(is_ready());
            assert!(tasks.take(&mut list, &spins));
            assert!(!is_ready());
            assert!(list.next_simple().is_some_and(|task| task.number == 1));
        }
        tasks.close();
        assert!(is_ready());
        assert!(!tasks.take(&mut list, &spins));
    }
}
