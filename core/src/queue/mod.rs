//! Queues: the submissions of one queue, in order, and the host-side hold on those that cannot go yet.
//!
//! A wait reaches the driver only once its signal is pending. A submission that cannot go yet, and all
//! that follow it on its queue, stay here, and whoever makes the missing signal pending lets them go,
//! on his thread, from the run-queue.

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
use crate::base::run::{PutOff, Wake, quietly};
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

/// What became of a submission.
#[derive(Debug, Clone, Copy)]
pub struct Submitted<'q> {
    end: Point<'q>,
    held: bool,
    /// `None` if it went to the driver at once.
    skipped: Option<&'q Skipped>,
}

impl<'q> Submitted<'q> {
    /// The queue's position behind the submission: reached once it, and everything before it on the
    /// queue, is finished or was skipped because of a failure. Signals that the host makes, on timelines without
    /// a port for the queue, come after it.
    ///
    /// So this point tells nothing about whether the submission ran: [`Submitted::wait_submitted`] does. One that was
    /// skipped leaves the timelines among its signals failed, with the cause. Whatever else its work would have
    /// signalled stays as it was: binary semaphores and `VkFence`s unsignalled, events unrecorded.
    pub const fn end(self) -> Point<'q> {
        self.end
    }

    /// Blocks until the driver has the submission, or the submission is known never to run.
    ///
    /// To be asked before anything that relies on its work alone: to present an image that it draws, or to wait for a
    /// binary semaphore that it signals. A submission that went to the driver at once costs a few loads here.
    ///
    /// # Errors
    /// [`Error::Skipped`] with the cause, as soon as that is known, if the submission did not run: what it waits for has
    /// failed, or its work or the driver has refused it when it was released. [`Error::TimedOut`]; [`Error::Failed`] if
    /// the queue has failed. [`Error::Unsupported`] if that cannot be told any more: a queue remembers the last 256
    /// failures that ended submissions of it, and keeps their errors until it forgets them or is dropped.
    pub fn wait_submitted(self, timeout: Duration) -> Result<()> {
        match self.skipped {
            Some(skipped) => skipped.wait(self.end, timeout),
            None => self.end.wait_pending(timeout),
        }
    }

    /// True if it waits on the host at present; it goes by itself.
    #[must_use]
    pub const fn is_held(self) -> bool {
        self.held
    }
}

/// The submissions of a queue that wait on the host.
#[derive(Debug, Clone, Default)]
pub struct Held {
    /// How many there are.
    pub count: usize,
    /// What the first of them waits for; `None` if it is only the driver queue's lock, or budget in the driver.
    pub waiting_for: Option<KeptPoint>,
}

/// A queue that nobody asks looks for what has finished after so many submissions.
const LOOK: u64 = 64;
/// With fewer in flight it does not look for objects that it need not keep any more.
const KEPT: u64 = 4;

/// The engine's half of a queue. A backend's queue type holds one in an [`Arc`] and forwards to it.
pub struct SubmissionQueue<E: Enqueue> {
    object: Object,
    device: DeviceId,
    /// What the graph of held submissions knows of it.
    origin: Arc<Origin>,
    slot: QueueSlot,
    /// Signalled once per submission; its value is the number of submissions finished.
    own: Timeline,
    driver: Arc<E>,
    /// What the driver says of itself, once.
    domain: u64,
    budget: Option<Arc<InFlightBudget>>,
    /// Copies of the state's `last` and of whether objects may be among its `kept`, to be read without its lock.
    last: AtomicU64,
    keeps: AtomicBool,
    /// The number of the submission after which it [looks](SubmissionQueue::look) for what has finished: no further beyond that than the
    /// driver has budget.
    look_at: AtomicU64,
    /// With so many in flight it looks for objects that it need not keep any more: twice what the last look left.
    crowd: AtomicU64,
    /// See [`Sharer::followed`].
    followed: AtomicBool,
    /// It has written times of its device's clock, and so can.
    writes_times: AtomicBool,
    state: Mutex<State<E>>,
    skipped: Skipped,
    follower: Follower,
}

impl<E: Enqueue> SubmissionQueue<E> {
    /// `own` is a fresh timeline at 0 of the queue's device.
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
                look_at: AtomicU64::new(0),
                crowd: AtomicU64::new(0),
                followed: AtomicBool::new(false),
                writes_times: AtomicBool::new(false),
                state: Mutex::new(State::default()),
                follower: Follower::default(),
            }
        });
        crate::base::names::add(&queue.object);
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

    /// The backend's half.
    #[must_use]
    pub fn driver(&self) -> &E {
        &self.driver
    }

    /// See [`Queue::idle`](crate::backend::Queue::idle).
    ///
    /// # Errors
    /// As there.
    pub fn idle(&self, timeout: Duration) -> Result<()> {
        let begun = Instant::now();
        let position = self.position();
        let ended = position.wait(timeout);
        let ended = ended.and_then(|()| self.wait_for_relays(position.value(), begun, timeout));
        self.let_go();
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
    /// As there.
    pub fn record(self: &Arc<Self>, fence: &Fence) -> Result<()> {
        fence.require_recordable(self.device, &self.object)?;
        if !fence.is_timed() {
            fence.mark(self.record_untimed()?.end, None);
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
        fence.mark(submitted.end, Some(stamp as Arc<dyn Stamp>));
        Ok(())
    }

    /// Mostly what the fence had before its last record: then no pool is asked.
    #[inline]
    fn stamp_for(&self, fence: &Fence) -> Result<Arc<E::Stamp>> {
        let timing = fence.timing();
        if let Some(before) = fence.take_spare(self.own.at(0)) {
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

    /// Records `fence` with something of the backend's own instead of a position: `make` is called if the
    /// fence may be recorded here at all. Not ordered with anything held.
    ///
    /// # Errors
    /// As for [`SubmissionQueue::record`], and what `make` returns. The fence is unchanged then.
    pub fn record_natively<M: NativeMark>(
        &self,
        fence: &Fence,
        make: impl FnOnce() -> Result<Arc<M>>,
    ) -> Result<Arc<M>> {
        fence.require_recordable(self.device, &self.object)?;
        let mark = make()?;
        fence.mark_natively(mark.clone());
        Ok(mark)
    }

    /// See [`Queue::submit`](crate::backend::Queue::submit).
    ///
    /// # Errors
    /// As there.
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

    /// The long way, and as [`SubmissionQueue::submit_work`] tells errors.
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
        let have_come = self.look_up(waits, &mut awaited)?;
        let waits = &awaited[..];
        self.bring_up_to_date(signals);
        self.let_go_of_finished();
        // What this submission releases may submit to this queue too: only once it is not driven here.
        let _put_off = PutOff::new();
        let mut state = self.state.lock();
        if state.driving.is_by(me) {
            return Err(Box::new(Error::Reentrant {
                queue: self.object.clone(),
            }));
        }
        // Claims are decided in the queue's order: under its lock.
        let mut claims = AllTaken::new();
        let is_plain = self.claim_all(waits, have_come, signals, &mut claims)?;
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
            // Empty already, unless it was refused; and the caller has all of these timelines.
            lists.clear();
            state.scratch = Some(lists);
            entries = taken.inspect_err(|_| withdraw_all(&claims))?;
        }
        self.take_number(&mut state, number);
        let budget = state.take_finished_units(self.own_shared().reached());
        if !held {
            state.driving.take(me);
            drop(state);
            self.take_back(budget);
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
        self.take_back(budget);
        // What it waits for or signals may have failed before the graph knew of it: look now, behind a barrier.
        fence(Ordering::SeqCst);
        if idle {
            let parks = match verdict {
                Verdict::Blocked(lacks) => self.are_well(waits, &claims) && self.park(lacks),
                _ => false,
            };
            if !parks {
                self.drive(me);
            }
        } else {
            // Also asks the driving thread to look again, if nothing is held before it.
            self.clone().reconsider(number);
        }
        Ok(self.submitted(number))
    }

    /// Gives the next submission its number, with the lock.
    #[inline]
    fn take_number(&self, state: &mut State<E>, number: u64) {
        state.last = number;
        self.last.store(number, Ordering::Release);
    }

    /// What earlier submissions kept that are known to have finished comes out, with the lock, to be let go without.
    #[inline]
    fn take_finished(&self, state: &mut State<E>, finished: &mut Option<Finished>) {
        // Otherwise nobody looks how far the queue is: its worker, perhaps, is just writing that.
        if !(state.taken.is_empty() && state.kept.is_empty()) {
            state.take_finished(self.own_shared().reached(), finished);
        }
        self.note_what_is_kept(state);
    }

    /// Gives so much budget back that finished submissions had taken.
    #[inline]
    fn take_back(&self, units: u64) {
        if let Some(budget) = &self.budget {
            budget.take_back(units);
        }
    }

    /// Lets a few objects go that earlier submissions kept, without asking whether more have finished. Before a submission is accepted: to drop
    /// them may take its time, and what comes next may stand still until the caller goes on.
    fn let_go_of_finished(&self) {
        if !self.keeps.load(Ordering::Relaxed) {
            return;
        }
        let mut finished = None;
        {
            let mut state = self.state.lock();
            self.take_finished(&mut state, &mut finished);
        }
        if let Some(finished) = &mut finished {
            finished.let_go(self.budget.as_ref());
        }
    }

    /// Stops driving. False if the thread has to look again: another thread has changed something meanwhile.
    #[inline]
    fn try_leave(&self) -> bool {
        self.state.lock().driving.try_stop()
    }

    /// Keeps a submission that was never held, and could go, until the driver takes some again.
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
        // It could go, so it closes no circle; but whoever asks must find it.
        entries.entry = self.take_entry(number, &mut entered).ok();
        let work = work.put_in_row(&mut self.state.lock());
        self.put_off(Entry {
            number,
            lists: Some(lists),
            job: Job::from_row(Some(work)),
            entries,
        });
    }

    /// True if no timeline that a submission has to do with has failed or lost its last handle: then what was
    /// judged before is true but for what has come since.
    fn are_well(&self, waits: &[Awaited<'_>], claims: &[Taken<'_>]) -> bool {
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

    /// Adds what is not reached yet to `awaited`. True if all of it has come as far as it has to before a submission can go,
    /// and that shows without a lock.
    #[inline]
    fn look_up<'p>(&self, waits: &[Point<'p>], awaited: &mut AllAwaited<'p>) -> Result<bool> {
        let mut have_come = true;
        for wait in waits {
            let Some(of) = wait.of.filter(|of| of.reached() < wait.value) else {
                continue;
            };
            let wait = self.awaited(of, wait.value);
            // What is pending was not too far away when it was claimed.
            have_come &= wait.has_plainly_come() || self.look_again(wait)?;
            awaited.push(wait);
        }
        Ok(have_come)
    }

    /// Asks the driver for a value that has not come yet, as far as that can tell anything.
    fn look_again(&self, wait: Awaited<'_>) -> Result<bool> {
        wait.of.check_wait(wait.value)?;
        wait.of.refresh_for(wait.needed(), wait.value);
        Ok(wait.has_plainly_come())
    }

    /// Everything else that may ask a driver, wake others or drop what is kept, before the lock is taken.
    fn bring_up_to_date(&self, signals: &[Signal<'_>]) {
        for signal in signals {
            signal.of.refresh_if_far(signal.value);
        }
        if self.budget.as_ref().is_some_and(|budget| budget.is_full()) {
            self.give_back();
        } else {
            self.look_if_due();
        }
    }

    /// Looks for what has finished if nobody has for long.
    #[inline]
    fn look_if_due(&self) {
        if self.last.load(Ordering::Relaxed) >= self.look_at.load(Ordering::Relaxed) {
            self.look();
        }
    }

    /// True if the driver has budget for the submission `number`, and there is no need to look for that.
    #[inline]
    fn is_plainly_within_bounds(&self, number: u64) -> bool {
        // No further than that from what is finished.
        number <= self.look_at.load(Ordering::Relaxed) && !self.is_full()
    }

    /// Looks now and then, so that never much is left to be given back at once; where objects are kept so often that not
    /// many more of them are than work in flight needs; and always where the driver has no budget otherwise. Decides, too, when that
    /// will be.
    #[cold]
    fn look(&self) {
        let own = self.own_shared();
        let last = self.last.load(Ordering::Relaxed);
        let keeps = self.keeps.load(Ordering::Relaxed);
        let crowd = |crowd: u64| if keeps { crowd.max(KEPT) } else { LOOK };
        let enough = crowd(self.crowd.load(Ordering::Relaxed)).min(E::MAX_IN_FLIGHT);
        let mut next = own.reached().saturating_add(enough);
        if next <= last {
            let reached = own.refresh();
            let left = 2 * last.saturating_sub(reached);
            self.crowd.store(left, Ordering::Relaxed);
            let from = if keeps { reached } else { last };
            let full = reached.saturating_add(E::MAX_IN_FLIGHT);
            next = from.saturating_add(crowd(left)).min(full);
        }
        self.look_at.store(next, Ordering::Relaxed);
    }

    /// Claims every signal of a submission, or none. `have_come`: all that it waits for is pending. True if so are the
    /// predecessors of all signals.
    #[inline]
    fn claim_all<'s>(
        &self,
        waits: &[Awaited<'_>],
        have_come: bool,
        signals: &'s [Signal<'_>],
        taken: &mut AllTaken<'s>,
    ) -> Result<bool> {
        let mut in_order = have_come;
        for (index, signal) in signals.iter().enumerate() {
            let of = signal.of;
            // Mostly nothing else of the timeline is claimed, and that is all that has to be looked at: so no earlier signal
            // of the list is of the same timeline, the claim begins where that is pending, and no wait for it lies above.
            let alone = have_come.then(|| of.claim_alone(signal.value));
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
    fn let_go(&self) {
        if self.keeps.load(Ordering::Relaxed) {
            self.give_back();
        }
    }

    #[inline]
    fn note_what_is_kept(&self, state: &State<E>) {
        if state.kept.is_empty() {
            self.keeps.store(false, Ordering::Relaxed);
        }
    }

    /// Something is kept since the submission `number`.
    fn note_that_some_is_kept(&self, number: u64) {
        if !self.keeps.load(Ordering::Relaxed) {
            self.keeps.store(true, Ordering::Relaxed);
            // Whoever looks meanwhile has had the queue's lock since, or puts it off by no more than that.
            let due = self.look_at.load(Ordering::Relaxed);
            self.look_at
                .store(due.min(number + KEPT), Ordering::Relaxed);
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
            // A queue that has failed gets no further: what it took is not waited for.
            let lost = if failed { state.take_all_units() } else { 0 };
            self.note_what_is_kept(&state);
            drop(state);
            if let Some(budget) = &self.budget {
                budget.take_back(lost);
            }
            let Some(finished) = &mut finished else {
                return;
            };
            let more = finished.is_full();
            finished.let_go(self.budget.as_ref());
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
        // Nothing is held: held submissions keep their queue. What the driver still runs keeps the
        // driver's half and everything kept, until it is finished.
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
            // The queue has failed, not its device: what the driver has of it may still run, and nobody will ever
            // tell when that has finished. Leaking what it uses is the only sound end.
            std::mem::forget(orphan);
            return;
        }
        // If it is finished, or the device is lost, the orphan is dropped here.
        let left = Left {
            _orphan: orphan,
            _taken: taken,
        };
        // What goes here is the application's, and nobody who drops a queue expects to wait for a device.
        quietly(|| {
            let _ = own.register(state.last, Stage::Reached, Arc::new(left));
        });
    }
}

impl<E: Enqueue> std::fmt::Debug for SubmissionQueue<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({} held)", self.object, self.held().count)
    }
}

/// What the driver may still use of a dropped queue.
struct Orphan<E: Enqueue> {
    _driver: Arc<E>,
    _kept: VecDeque<(u64, Keep)>,
}

/// What a dropped queue leaves behind until its work is finished.
struct Left<E: Enqueue> {
    _orphan: Orphan<E>,
    _taken: Option<TakenUnits>,
}

impl<E: Enqueue> Wake for Left<E> {
    fn wake(self: Arc<Self>) {}
}

/// Drops the work of a refused submission, if it was not called. What it captures is the
/// application's, and may panic.
#[cold]
#[inline(never)]
#[expect(clippy::boxed_local, reason = "it comes in one")]
fn refused<E: Enqueue>(work: &mut dyn Work<E>, error: Box<Error>) -> Error {
    quietly(|| work.discard());
    *error
}

/// True if a submission that waits for these can never run.
fn is_hopeless(waits: &[Awaited<'_>]) -> bool {
    let hopeless = |wait: &Awaited<'_>| wait.of.hopeless(wait.value).is_some();
    waits.iter().any(hopeless)
}

/// Claims a signal of a submission that has `earlier` signals, too. `None` if the submission can never run, nor the signal be
/// made: it will be skipped, as it is if the timeline fails a moment later.
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
        Err(Error::Failed { .. }) if is_hopeless(waits) => Ok(None),
        claim => claim.map(Some),
    }
}

/// Takes the claims of a refused submission back. The caller has handles of these timelines, so no waiter is cancelled.
/// Their bridges are told: by a wake, which a caller with the queue's lock [puts off](PutOff).
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

/// What a caught panic said. The payload is the application's own, and so may panic when it is dropped.
pub(crate) fn panic_message(payload: Box<dyn std::any::Any + Send>) -> String {
    let text = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned());
    let message = text
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a payload that is not text".into());
    quietly(|| drop(payload));
    message
}
