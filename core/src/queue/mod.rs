//! Submission queues: the submissions of one queue, in order, and the hold on those that cannot go
//! yet.
//!
//! A wait goes to the driver only once its signal is pending (Q2). A submission that cannot go yet
//! is held, with all that follow it on its queue. The thread that makes the missing signal pending
//! releases them from its run queue.

mod driving;
mod entry;
mod fast_path;
mod follow;
mod graph_entries;
mod hold;
mod relay;
mod send;
mod skipped;
mod times;
mod traced;

use std::any::Any;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::base::error::{Error, Failure, Object, Result};
use crate::base::info::DeviceId;
use crate::base::run::{DeferWakes, Wake, run_contained};
use crate::base::stage::Stage;
use crate::base::sync::{AtomicBool, AtomicU64, Instant, Mutex, Ordering, fence, this_thread};
use crate::driver::enqueue::Enqueue;
use crate::driver::in_flight::{InFlightBudget, Sharer, Taken as TakenUnits};
use crate::driver::keep::Keep;
use crate::fence::Fence;
use crate::fence::mark::NativeMark;
use crate::held::{Holder as _, Lists, Origin, OwnedClaim, QueueSlot};
use crate::port::Stamp;
use crate::timeline::Timeline;
use crate::timeline::point::{KeptPoint, Point, Signal};
use crate::timeline::state::{Interval, Shared};
use entry::{Entry, Job, Work, Write};
use follow::Follower;
pub use follow::Traceable;
pub(crate) use follow::{Follow, FollowSubmission};
use graph_entries::GraphEntries;
use hold::{AllAwaited, AllTaken, Awaited, Finished, State, Taken, Verdict};
use skipped::Skipped;

/// The result of a submission.
#[derive(Debug, Clone, Copy)]
pub struct Submitted<'q> {
    end: Point<'q>,
    held: bool,
    /// `None` if the driver got it during the call.
    skipped: Option<&'q Skipped>,
}

impl<'q> Submitted<'q> {
    /// The queue's position after the submission.
    ///
    /// It is reached once the submission and everything before it on the queue is finished or was
    /// skipped. Host signals on timelines without a port for the queue come after it (Q3).
    ///
    /// So this point does not say whether the submission ran; [`Submitted::wait_submitted`] does. A
    /// skipped submission fails the timelines of its signals. Its binary semaphores and `VkFence`s
    /// stay unsignalled and its events unrecorded.
    pub const fn end(self) -> Point<'q> {
        self.end
    }

    /// Blocks until the driver has the submission, or the submission is known never to run.
    ///
    /// Call it before anything that relies on the submission's work alone. Examples are presenting
    /// an image that it draws, and waiting for a binary semaphore that it signals. It costs a few
    /// loads if the driver got the submission at once.
    ///
    /// # Errors
    /// - [`Error::Skipped`] with the cause if the submission did not run: a wait has failed, or its
    ///   work or the driver refused it at its release.
    /// - [`Error::TimedOut`].
    /// - [`Error::Failed`] if the queue has failed.
    /// - [`Error::Unsupported`] if the queue has forgotten what became of it. A queue remembers the
    ///   last 256 failures that ended submissions, with their errors.
    pub fn wait_submitted(self, timeout: Duration) -> Result<()> {
        match self.skipped {
            Some(skipped) => skipped.wait(self.end, timeout),
            None => self.end.wait_pending(timeout),
        }
    }

    /// True if the submission was held when the call returned. It is released by itself.
    #[must_use]
    pub const fn is_held(self) -> bool {
        self.held
    }
}

/// The held submissions of a queue.
#[derive(Debug, Clone, Default)]
pub struct Held {
    /// The number of held submissions.
    pub count: usize,
    /// A point that the first one waits for.
    ///
    /// `None` if it waits only for the driver queue's lock or for room in the driver.
    pub waiting_for: Option<KeptPoint>,
}

/// The number of submissions after which an otherwise unqueried queue checks what has finished.
const CHECK_INTERVAL: u64 = 64;
/// With fewer submissions in flight the queue does not check for objects to drop.
const KEPT_INTERVAL: u64 = 4;

/// The engine's part of a queue. A backend's queue type holds it in an [`Arc`] and forwards to it.
pub struct SubmissionQueue<E: Enqueue> {
    object: Object,
    device: DeviceId,
    /// The queue as the graph of held submissions sees it.
    origin: Arc<Origin>,
    slot: QueueSlot,
    /// The queue's position: signalled once per submission, so its value is the number of finished
    /// ones.
    own: Timeline,
    driver: Arc<E>,
    /// The driver's order domain.
    domain: u64,
    budget: Option<Arc<InFlightBudget>>,
    /// Copies of the state's `last` and of whether `kept` may have objects, readable without the
    /// lock.
    last: AtomicU64,
    keeps: AtomicBool,
    /// The number of the submission after which the queue checks what has finished.
    ///
    /// It is never further ahead than the driver has room.
    check_at: AtomicU64,
    /// The number in flight at which objects to drop are looked for: twice what the last check
    /// left.
    check_in_flight: AtomicU64,
    /// See [`Sharer::followed`].
    followed: AtomicBool,
    /// True once the queue has written a time of its device's clock, so that it can.
    writes_times: AtomicBool,
    state: Mutex<State<E>>,
    skipped: Skipped,
    follower: Follower,
}

impl<E: Enqueue> SubmissionQueue<E> {
    /// Makes a queue. `own` is a new timeline of the queue's device at 0, to be its position.
    #[must_use]
    pub fn new(object: Object, device: DeviceId, own: Timeline, driver: E) -> Arc<Self> {
        let domain = driver.order_domain().unwrap_or_else(|| object.id());
        let queue = Arc::new_cyclic(|this: &Weak<Self>| {
            let origin = Arc::new(Origin {
                queue: object.clone(),
                device,
                holder: this.clone(),
                own: own.shared().clone(),
            });
            Self {
                slot: QueueSlot::take(origin.clone()),
                origin,
                skipped: Skipped::new(object.clone()),
                object,
                device,
                own,
                domain,
                budget: driver.in_flight_budget().cloned(),
                driver: Arc::new(driver),
                last: AtomicU64::new(0),
                keeps: AtomicBool::new(false),
                check_at: AtomicU64::new(0),
                check_in_flight: AtomicU64::new(0),
                followed: AtomicBool::new(false),
                writes_times: AtomicBool::new(false),
                state: Mutex::new(State::default()),
                follower: Follower::default(),
            }
        });
        crate::base::queue_names::add(&queue.object);
        queue.own_shared().belongs_to(&queue.object);
        if let Some(budget) = &queue.budget {
            let this: Arc<dyn Sharer> = queue.clone();
            budget.join(Arc::downgrade(&this));
        }
        queue
    }

    /// The queue's name.
    #[must_use]
    pub const fn object(&self) -> &Object {
        &self.object
    }

    /// The backend's part.
    #[must_use]
    pub fn driver(&self) -> &E {
        &self.driver
    }

    /// See [`Queue::idle`](crate::backend::Queue::idle).
    ///
    /// # Errors
    /// Same errors as [`Queue::idle`](crate::backend::Queue::idle).
    pub fn idle(&self, timeout: Duration) -> Result<()> {
        let begun = Instant::now();
        let position = self.position();
        let ended = position.wait(timeout);
        let ended = ended.and_then(|()| self.wait_for_relays(position.value(), begun, timeout));
        self.drop_finished();
        if ended.is_ok() {
            self.driver.rest(self.own_shared().reached());
        }
        ended
    }

    /// See [`Queue::position`](crate::backend::Queue::position).
    pub fn position(&self) -> Point<'_> {
        self.own.at(self.last.load(Ordering::Acquire))
    }

    /// See [`Queue::held`](crate::backend::Queue::held).
    #[must_use]
    pub fn held(&self) -> Held {
        let state = self.state.lock();
        let count = state.held.len();
        Held {
            count,
            waiting_for: state.registered.first().filter(|_| count > 0),
        }
    }

    /// See [`Queue::record`](crate::backend::Queue::record).
    ///
    /// # Errors
    /// Same errors as [`Queue::record`](crate::backend::Queue::record).
    pub fn record(self: &Arc<Self>, fence: &Fence) -> Result<()> {
        fence.require_recordable(self.device, &self.object)?;
        if !fence.is_timed() {
            fence.record_at(self.record_untimed()?.end, None);
            return Ok(());
        }
        let stamp = self.stamp_for(fence)?;
        let mut write = Write {
            stamp: &stamp,
            fence,
        };
        let submitted = if self.follower.is_set() {
            self.submit_traced(&[], Box::new(write.kept()), &[])?
        } else {
            let submitted = self.submit_work(&[], &mut write, &[], true);
            submitted.map_err(|error| *error)?
        };
        fence.record_at(submitted.end, Some(stamp as Arc<dyn Stamp>));
        Ok(())
    }

    /// A stamp for `fence`: usually the one of an earlier record, else a new one of the driver.
    #[inline]
    fn stamp_for(&self, fence: &Fence) -> Result<Arc<E::Stamp>> {
        let timing = fence.timing();
        if let Some(before) = fence.take_spare_stamp(self.own.at(0)) {
            let before: Arc<dyn Any + Send + Sync> = before;
            if let Ok(before) = before.downcast() {
                return self.driver.stamp_again(&self.object, timing, before);
            }
        }
        self.driver.stamp(&self.object, timing)
    }

    #[inline]
    fn record_untimed(self: &Arc<Self>) -> Result<Submitted<'_>> {
        let nothing = |_: &mut E::Recorder<'_>| Ok(());
        if self.follower.is_set() {
            return self.submit_traced(&[], Box::new(nothing), &[]);
        }
        self.submit_work(&[], &mut Some(nothing), &[], true)
            .map_err(|error| *error)
    }

    /// Records `fence` with a mark of the backend instead of a position.
    ///
    /// `make` is called if the fence may be recorded here. The record is not ordered with held
    /// submissions.
    ///
    /// # Errors
    /// Same errors as [`SubmissionQueue::record`], and any error of `make`. The fence is unchanged
    /// then.
    pub fn record_natively<M: NativeMark>(
        &self,
        fence: &Fence,
        make: impl FnOnce() -> Result<Arc<M>>,
    ) -> Result<Arc<M>> {
        fence.require_recordable(self.device, &self.object)?;
        let mark = make()?;
        fence.record_native(mark.clone());
        Ok(mark)
    }

    /// See [`Queue::submit`](crate::backend::Queue::submit).
    ///
    /// # Errors
    /// Same errors as [`Queue::submit`](crate::backend::Queue::submit).
    pub fn submit<'q, W>(
        self: &'q Arc<Self>,
        waits: &[Point<'_>],
        work: W,
        signals: &[Signal<'_>],
    ) -> Result<Submitted<'q>>
    where
        W: for<'r, 'a> FnOnce(&'r mut E::Recorder<'a>) -> Result<()> + Send + 'static,
    {
        if self.follower.is_set() {
            return self.submit_traced(waits, Box::new(work), signals);
        }
        self.submit_untraced(waits, work, signals)
    }

    #[inline]
    fn submit_untraced<'q, W>(
        self: &'q Arc<Self>,
        waits: &[Point<'_>],
        work: W,
        signals: &[Signal<'_>],
    ) -> Result<Submitted<'q>>
    where
        W: for<'r, 'a> FnOnce(&'r mut E::Recorder<'a>) -> Result<()> + Send + 'static,
    {
        let mut work = Some(work);
        let submitted = self.submit_work(waits, &mut work, signals, false);
        submitted.map_err(|error| refused(&mut work, error))
    }

    /// The slow path. Same errors as [`SubmissionQueue::submit_work`].
    #[inline(never)]
    fn submit_slow<'q>(
        self: &'q Arc<Self>,
        waits: &[Point<'_>],
        work: &mut dyn Work<E>,
        signals: &[Signal<'_>],
    ) -> Result<Submitted<'q>, Box<Error>> {
        let me = this_thread();
        self.require_times(signals)?;
        let mut awaited = AllAwaited::new();
        let is_ready = self.resolve_waits(waits, &mut awaited)?;
        let waits = &awaited[..];
        self.refresh_before_lock(signals);
        self.drop_some_finished();
        // Queues that this submission releases may submit to this queue, so they run after it is no
        // longer driven.
        let _deferred = DeferWakes::new();
        let mut state = self.state.lock();
        if state.driving.is_by(me) {
            return Err(Box::new(Error::Reentrant {
                queue: self.object.clone(),
            }));
        }
        // Claims are decided in the queue's order, so under its lock.
        let mut claims = AllTaken::new();
        let is_plain = self.claim_all(waits, is_ready, signals, &mut claims)?;
        let number = state.last + 1;
        let idle = state.held.is_empty() && state.driving.is_free();
        let verdict = if !idle || (is_plain && self.has_budget(number)) {
            Verdict::Ready
        } else {
            self.judge(number, waits, &claims)
        };
        let held = !(idle && matches!(verdict, Verdict::Ready));
        let mut entries = GraphEntries::default();
        if held || claims.iter().any(|claim| claim.port.is_none()) {
            let mut lists = state.scratch.take().unwrap_or_default();
            if held {
                State::<E>::fill(&mut lists, waits, &claims);
            }
            let taken = self.take_entries(number, held.then_some(&mut *lists), &claims);
            // Empty unless it was refused. Nothing is freed here, because the caller has all of
            // these timelines.
            lists.clear();
            state.scratch = Some(lists);
            entries = taken.inspect_err(|_| withdraw_all(&claims))?;
        }
        self.take_number(&mut state, number);
        let budget = state.take_finished_units(self.own_shared().reached());
        if !held {
            state.driving.take(me);
            drop(state);
            self.return_budget(budget);
            if !self.driver.ready() {
                self.put_off_new(number, work, waits, &claims, entries);
                return Ok(self.submitted(number));
            }
            let record = |recorder: &mut E::Recorder<'_>| work.record(recorder);
            let sent = self.send_now(number, waits, record, &claims, entries);
            if !(matches!(sent, Ok(true)) && self.try_leave()) {
                self.drive(me);
            }
            return sent.map(|_| self.submitted(number));
        }
        state.push_back(number, work, entries);
        if idle {
            state.driving.take(me);
        }
        drop(state);
        self.return_budget(budget);
        // A timeline may have failed before the graph had the submission. The fence pairs with the
        // one of the failing thread: one of the two sees the other.
        fence(Ordering::SeqCst);
        if idle {
            let parks = match verdict {
                Verdict::Blocked(missing) => {
                    self.none_has_ended(waits, &claims) && self.park(missing)
                }
                _ => false,
            };
            if !parks {
                self.drive(me);
            }
        } else {
            // If the submission is the first one, this asks the driving thread to check again.
            self.clone().reconsider(number);
        }
        Ok(self.submitted(number))
    }

    /// Gives the next submission its number. Call it with the lock.
    #[inline]
    fn take_number(&self, state: &mut State<E>, number: u64) {
        state.last = number;
        self.last.store(number, Ordering::Release);
    }

    /// Takes out what submissions that are known to be finished kept. Call it with the lock.
    #[inline]
    fn take_finished(&self, state: &mut State<E>, finished: &mut Option<Finished>) {
        // The check avoids a read of the position, which a host worker may be writing.
        if !(state.taken.is_empty() && state.kept.is_empty()) {
            state.take_finished(self.own_shared().reached(), finished);
        }
        self.update_keeps(state);
    }

    /// Returns `units` of the budget.
    #[inline]
    fn return_budget(&self, units: u64) {
        if let Some(budget) = &self.budget {
            budget.take_back(units);
        }
    }

    /// Drops a few objects of submissions that are known to be finished.
    ///
    /// Called before a submission is accepted. The drops may take long, and later work of the queue
    /// may stand still until the caller goes on.
    fn drop_some_finished(&self) {
        if !self.keeps.load(Ordering::Relaxed) {
            return;
        }
        let mut finished = None;
        {
            let mut state = self.state.lock();
            self.take_finished(&mut state, &mut finished);
        }
        if let Some(finished) = &mut finished {
            finished.drop_all(self.budget.as_ref());
        }
    }

    /// Stops driving. False if the thread must check again, because another thread has made a
    /// change.
    #[inline]
    fn try_leave(&self) -> bool {
        self.state.lock().driving.try_stop()
    }

    /// Holds a submission that could go, until the driver accepts submissions again.
    #[cold]
    fn put_off_new<'l>(
        self: &'l Arc<Self>,
        number: u64,
        work: &mut dyn Work<E>,
        waits: &[Awaited<'_>],
        claims: &[Taken<'_>],
        mut entries: GraphEntries<'l>,
    ) {
        let (mut lists, mut entered) = (Box::<Lists>::default(), Lists::default());
        State::<E>::fill(&mut lists, waits, claims);
        State::<E>::fill(&mut entered, waits, claims);
        // It could go, so it closes no circle. It is entered because a search for blockers must
        // find it.
        entries.entry = self.take_entry(number, &mut entered).ok();
        let work = work.store(&mut self.state.lock());
        self.put_off(Entry {
            number,
            lists: Some(lists),
            job: Job::from_inline(Some(work)),
            entries,
        });
    }

    /// True if no timeline of a submission has failed or lost its last handle.
    ///
    /// An earlier verdict then misses only what has come since.
    fn none_has_ended(&self, waits: &[Awaited<'_>], claims: &[Taken<'_>]) -> bool {
        !self.own_shared().is_troubled()
            && waits.iter().all(|wait| !wait.of.is_troubled())
            && claims.iter().all(|claim| !claim.of.is_troubled())
    }

    #[inline]
    fn submitted(&self, number: u64) -> Submitted<'_> {
        let of = self.own.at(number);
        Submitted {
            end: of,
            held: of.of.is_some_and(|own| own.pending() < number),
            skipped: Some(&self.skipped),
        }
    }

    /// Adds the waits that are not reached to `awaited`.
    ///
    /// True if all of them are known to let the submission go.
    #[inline]
    fn resolve_waits<'p>(&self, waits: &[Point<'p>], awaited: &mut AllAwaited<'p>) -> Result<bool> {
        let mut is_ready = true;
        for wait in waits {
            let Some(of) = wait.of.filter(|of| of.reached() < wait.value) else {
                continue;
            };
            let wait = self.awaited(of, wait.value);
            // A pending value was in the legal range when it was claimed.
            is_ready &= wait.has_plainly_come() || self.refresh_wait(wait)?;
            awaited.push(wait);
        }
        Ok(is_ready)
    }

    /// Checks the range of a wait and polls the driver for it.
    fn refresh_wait(&self, wait: Awaited<'_>) -> Result<bool> {
        wait.of.check_wait(wait.value)?;
        wait.of.refresh_for(wait.needed(), wait.value);
        Ok(wait.has_plainly_come())
    }

    /// Everything that may poll a driver, wake others or drop objects, before the lock is taken.
    fn refresh_before_lock(&self, signals: &[Signal<'_>]) {
        for signal in signals {
            signal.of.refresh_if_far(signal.value);
        }
        if self.budget.as_ref().is_some_and(|budget| budget.is_full()) {
            self.give_back();
        } else {
            self.check_finished_if_due();
        }
    }

    /// Checks what has finished, if no check was made for long.
    #[inline]
    fn check_finished_if_due(&self) {
        if self.last.load(Ordering::Relaxed) >= self.check_at.load(Ordering::Relaxed) {
            self.check_finished();
        }
    }

    /// True if the driver is known to have room for submission `number` and no check is due.
    #[inline]
    fn is_plainly_within_bounds(&self, number: u64) -> bool {
        // `check_at` is never further than that from the finished submissions.
        number <= self.check_at.load(Ordering::Relaxed) && !self.is_full()
    }

    /// Checks what has finished, and decides when to check again.
    ///
    /// | case | next check |
    /// |---|---|
    /// | no objects are kept | after [`CHECK_INTERVAL`] submissions |
    /// | objects are kept | when twice as many submissions are in flight as this check left |
    /// | both | at the latest before the driver has no room |
    #[cold]
    fn check_finished(&self) {
        let own = self.own_shared();
        let last = self.last.load(Ordering::Relaxed);
        let keeps = self.keeps.load(Ordering::Relaxed);
        let interval = |in_flight: u64| {
            if keeps {
                in_flight.max(KEPT_INTERVAL)
            } else {
                CHECK_INTERVAL
            }
        };
        let enough = interval(self.check_in_flight.load(Ordering::Relaxed)).min(E::MAX_IN_FLIGHT);
        let mut next = own.reached().saturating_add(enough);
        if next <= last {
            let reached = own.refresh();
            let left = 2 * last.saturating_sub(reached);
            self.check_in_flight.store(left, Ordering::Relaxed);
            let from = if keeps { reached } else { last };
            let full = reached.saturating_add(E::MAX_IN_FLIGHT);
            next = from.saturating_add(interval(left)).min(full);
        }
        self.check_at.store(next, Ordering::Relaxed);
    }

    /// Claims every signal of a submission, or none. True if the predecessors of all signals are
    /// pending.
    ///
    /// `is_ready` is true if all of its waits are pending. If it is false, so is the result.
    #[inline]
    fn claim_all<'s>(
        &self,
        waits: &[Awaited<'_>],
        is_ready: bool,
        signals: &'s [Signal<'_>],
        taken: &mut AllTaken<'s>,
    ) -> Result<bool> {
        let mut in_order = is_ready;
        for (index, signal) in signals.iter().enumerate() {
            let of = signal.of;
            // Usually the timeline has no other claim. Then no earlier signal of the list is of the
            // same timeline, the claim begins at the pending value, and no wait for the timeline
            // lies above that.
            let alone = is_ready.then(|| of.claim_alone(signal.value));
            let claim = match alone.flatten() {
                Some(claim) => Ok(Some(claim)),
                None => {
                    in_order = false;
                    claim_slow(waits, &signals[..index], *signal)
                }
            };
            match claim {
                Ok(Some(claim)) => taken.push(self.taken(of, claim)),
                Ok(None) => {}
                Err(error) => {
                    withdraw_all(taken);
                    return Err(error);
                }
            }
        }
        Ok(in_order)
    }

    /// Drops what finished submissions kept.
    fn drop_finished(&self) {
        if self.keeps.load(Ordering::Relaxed) {
            self.give_back();
        }
    }

    #[inline]
    fn update_keeps(&self, state: &State<E>) {
        if state.kept.is_empty() {
            self.keeps.store(false, Ordering::Relaxed);
        }
    }

    /// Notes that objects are kept since submission `number`.
    fn note_kept(&self, number: u64) {
        if !self.keeps.load(Ordering::Relaxed) {
            self.keeps.store(true, Ordering::Relaxed);
            // A concurrent check either had the queue's lock after this change, or delays the next
            // check only by as much.
            let due = self.check_at.load(Ordering::Relaxed);
            self.check_at
                .store(due.min(number + KEPT_INTERVAL), Ordering::Relaxed);
        }
    }

    #[inline]
    fn own_shared(&self) -> &Arc<Shared> {
        self.own.shared()
    }
}

impl<E: Enqueue> Sharer for SubmissionQueue<E> {
    fn progress(&self) -> &Arc<Shared> {
        self.own_shared()
    }

    fn give_back(&self) {
        let own = self.own_shared();
        let reached = own.refresh();
        let failed = own.failure().is_some();
        loop {
            let mut state = self.state.lock();
            let mut finished = None;
            state.take_finished(reached, &mut finished);
            // The work of a failed queue never counts as finished, so its budget is returned now.
            let lost = if failed { state.take_all_units() } else { 0 };
            self.update_keeps(&state);
            drop(state);
            if let Some(budget) = &self.budget {
                budget.take_back(lost);
            }
            let Some(finished) = &mut finished else {
                return;
            };
            let more = finished.is_full();
            finished.drop_all(self.budget.as_ref());
            if !more {
                return;
            }
        }
    }

    fn followed(&self) -> &AtomicBool {
        &self.followed
    }
}

impl<E: Enqueue> Drop for SubmissionQueue<E> {
    fn drop(&mut self) {
        // No submission is held, because held ones keep their queue. What the driver still runs
        // keeps the driver's part and all objects until it is finished.
        let own = self.own.shared();
        own.refresh();
        let mut state = std::mem::take(&mut *self.state.lock());
        let units = state.take_all_units();
        let budget = self.budget.clone();
        let taken = budget.map(|budget| TakenUnits { budget, units });
        let orphan = Orphan {
            _driver: self.driver.clone(),
            _kept: state.kept,
        };
        let failed = own.failure();
        if failed.is_some_and(|cause| !matches!(*cause, Error::DeviceLost { .. })) {
            // The queue has failed and its device has not, so work of it may still run and its end
            // cannot be observed. Leaking what the work uses is the only sound choice.
            std::mem::forget(orphan);
            return;
        }
        // If the work is finished or the device is lost, this drops the objects now.
        let leftover = Leftover {
            _orphan: orphan,
            _taken: taken,
        };
        // The objects are the application's, and dropping a queue must not wait for a device.
        run_contained(|| {
            let _ = own.register(state.last, Stage::Reached, Arc::new(leftover));
        });
    }
}

impl<E: Enqueue> std::fmt::Debug for SubmissionQueue<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({} held)", self.object, self.held().count)
    }
}

/// The objects of a dropped queue that its driver may still use.
struct Orphan<E: Enqueue> {
    _driver: Arc<E>,
    _kept: VecDeque<(u64, Keep)>,
}

/// Keeps the objects and the budget of a dropped queue until its work is finished.
struct Leftover<E: Enqueue> {
    _orphan: Orphan<E>,
    _taken: Option<TakenUnits>,
}

impl<E: Enqueue> Wake for Leftover<E> {
    fn wake(self: Arc<Self>) {}
}

/// Drops the work of a refused submission if it was not called.
///
/// Its captures are the application's and may panic.
#[cold]
#[inline(never)]
#[expect(clippy::boxed_local, reason = "the caller has it in a box")]
fn refused<E: Enqueue>(work: &mut dyn Work<E>, error: Box<Error>) -> Error {
    run_contained(|| work.discard());
    *error
}

/// True if a submission with these waits can never run.
fn can_never_run(waits: &[Awaited<'_>]) -> bool {
    let is_unreachable = |wait: &Awaited<'_>| wait.of.unreachable_cause(wait.value).is_some();
    waits.iter().any(is_unreachable)
}

/// Claims a signal of a submission with `earlier` signals.
///
/// `None` if the timeline has failed and the submission can never run. It is then skipped, as if
/// the timeline had failed after the claim.
fn claim_slow(
    waits: &[Awaited<'_>],
    earlier: &[Signal<'_>],
    signal: Signal<'_>,
) -> Result<Option<Interval>> {
    let same = |of: &Arc<Shared>| Arc::ptr_eq(of, signal.of);
    if earlier.iter().any(|earlier| same(earlier.of)) {
        return Err(Error::DuplicateSignal {
            timeline: signal.of.object.clone(),
            asked: signal.value,
        });
    }
    let own_waits = waits.iter().filter(|wait| same(wait.of));
    let own_wait = own_waits.map(|wait| wait.value).max().unwrap_or(0);
    match signal.of.claim(signal.value, own_wait) {
        Err(Error::Failed { .. }) if can_never_run(waits) => Ok(None),
        claim => claim.map(Some),
    }
}

/// Withdraws the claims of a refused submission.
///
/// The caller has handles of these timelines, so no wait is cancelled.
///
/// Wakes bridges. A caller with the queue's lock [delays](DeferWakes) that.
fn withdraw_all(claims: &[Taken<'_>]) {
    for Taken { of, claim, .. } in claims {
        of.withdraw(*claim);
    }
}

fn fail_all(claims: &[OwnedClaim], cause: &Failure) {
    for of in claims.iter().filter_map(|(of, _)| of.as_ref()) {
        of.fail(cause.clone());
    }
}

/// The message of a caught panic. The payload is the application's, so its drop may panic, too.
pub(crate) fn panic_message(payload: Box<dyn std::any::Any + Send>) -> String {
    let text = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned());
    let message = text
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a payload that is not text".into());
    run_contained(|| drop(payload));
    message
}
