//! The queue type: its parts, and its methods for backends.

use std::any::Any;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::follow::{FollowerSlot, Traced};
use super::in_flight::Checks;
use super::loss::HeldGuard;
use super::skipped::Skipped;
use super::state::State;
use super::submitted::{Held, Submitted};
use super::work::{Given, Nothing, Write, refused};
use crate::base::error::{Error, Object, Result};
use crate::base::info::DeviceId;
use crate::base::process::DroppedByMaker;
use crate::base::sync::{AtomicBool, AtomicU64, Instant, Mutex, MutexGuard, Ordering};
use crate::base::timing::Timing;
use crate::driver::enqueue::{Enqueue, ToWrite};
use crate::driver::home::Home;
use crate::driver::in_flight::{InFlightBudget, Sharer};
use crate::fence::Fence;
use crate::fence::mark::NativeMark;
use crate::held::{QueueEntry, QueueOrigin};
use crate::port::Stamp;
use crate::port::attachment::Attachments;
use crate::timeline::Timeline;
use crate::timeline::point::{Point, Signal};
use crate::timeline::state::{Dependents, Shared};

/// The engine's part of a queue. A backend's queue type holds it in an [`Arc`] and forwards to it.
pub struct SubmissionQueue<E: Enqueue> {
    object: Object,
    pub(super) device: DeviceId,
    /// The queue as the graph of held submissions sees it.
    pub(super) origin: Arc<QueueOrigin>,
    pub(super) entry: DroppedByMaker<QueueEntry>,
    /// The queue's position: signalled once per submission, so its value is the number of finished
    /// ones.
    pub(super) own: Timeline,
    pub(super) driver: DroppedByMaker<Arc<E>>,
    /// The driver's order domain.
    pub(super) domain: u64,
    pub(super) budget: Option<Arc<InFlightBudget>>,
    pub(super) dependents: Arc<Dependents>,
    /// Guards what is held against the loss of the device.
    pub(super) held_guard: Arc<HeldGuard<E>>,
    /// A copy of the state's `last`, readable without the lock.
    pub(super) last: AtomicU64,
    pub(super) checks: Checks,
    /// True once the queue has written a time of its device's clock, so that it can.
    writes_times: AtomicBool,
    state: DroppedByMaker<Mutex<State<E>>>,
    pub(super) skipped: Skipped,
    pub(super) follower: FollowerSlot,
}

impl<E: Enqueue> SubmissionQueue<E> {
    /// Makes a queue, with a timeline of its device for its position.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the device makes a port for another device; same errors as
    /// [`Home::port`].
    pub(crate) fn new(object: Object, driver: E) -> Result<Arc<Self>> {
        let home = driver.device().port(0)?;
        let device = home.device();
        if !device.is_of::<E::Device>() {
            return Err(Error::unsupported(
                object,
                "be made",
                format!("its device makes a port of {device:?}, which is of another backend"),
            ));
        }
        let label = format!("{} (position)", object.label());
        let own = Timeline::new(&label, 0, |_| Ok(Attachments::from_iter([home])))?;
        let domain = driver.order_domain().unwrap_or_else(|| object.id());
        let queue = Arc::new_cyclic(|this: &Weak<Self>| {
            let position = own.shared().clone();
            let origin = QueueOrigin::new(object.clone(), device, this.clone(), position);
            Self {
                entry: DroppedByMaker::new(QueueEntry::take(origin.clone())),
                origin,
                skipped: Skipped::new(object.clone()),
                object,
                device,
                own,
                domain,
                budget: driver.in_flight_budget().cloned(),
                driver: DroppedByMaker::new(Arc::new(driver)),
                last: AtomicU64::new(0),
                dependents: Dependents::new(),
                held_guard: HeldGuard::new(this.clone()),
                checks: Checks::new(),
                writes_times: AtomicBool::new(false),
                state: DroppedByMaker::default(),
                follower: FollowerSlot::default(),
            }
        });
        crate::base::queue_names::add(&queue.object);
        queue.own_shared().belongs_to(&queue.object);
        if let Some(budget) = &queue.budget {
            let this: Arc<dyn Sharer> = queue.clone();
            budget.join(Arc::downgrade(&this));
        }
        Ok(queue)
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
        self.require_maker()?;
        let begun = Instant::now();
        let position = self.position();
        let ended = position.wait(timeout);
        let ended = ended.and_then(|()| self.wait_for_relays(position.value(), begun, timeout));
        self.give_back();
        if ended.is_ok() {
            self.drop_unused();
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
        // In a forked child, a thread of the parent may have held the lock.
        if !self.entry.maker().is_this() {
            return Held {
                count: 0,
                waiting_for: None,
            };
        }
        let (listed, has_turn, last, waiting_for) = {
            let state = self.state.lock();
            let has_turn = !state.turns.is_free();
            let first = state.registered.first_missing();
            (state.held.len(), has_turn, state.last, first)
        };
        let mut count = listed;
        // The thread with the turn takes the first submission out of the list before the driver has
        // it.
        // The driver may still refuse the submission, so it counts as held. A failed queue loses
        // its submissions. They never become pending, and are not counted here.
        if has_turn && !self.own_shared().is_failed() {
            let not_pending = last.saturating_sub(self.own_shared().pending());
            count = count.max(usize::try_from(not_pending).unwrap_or(usize::MAX));
        }
        Held {
            count,
            waiting_for: waiting_for.filter(|_| count > 0),
        }
    }

    /// See [`Queue::record`](crate::backend::Queue::record).
    ///
    /// # Errors
    /// Same errors as [`Queue::record`](crate::backend::Queue::record).
    pub fn record(self: &Arc<Self>, fence: &Fence) -> Result<()> {
        fence.require_recordable(self.device, &self.object)?;
        if !fence.is_timed() {
            let submitted = self.submit_work(&[], &mut Nothing, &[]);
            fence.record_at(submitted.map_err(|error| *error)?.end(), None);
            return Ok(());
        }
        let stamp = self.stamp_for(fence)?;
        let mut write = Write::new(&stamp, fence);
        let submitted = self.submit_work(&[], &mut write, &[]);
        let submitted = submitted.map_err(|error| *error)?;
        fence.record_at(submitted.end(), Some(stamp as Arc<dyn Stamp>));
        Ok(())
    }

    /// A stamp for `fence`: usually the one of an earlier record, else a new one of the driver.
    #[inline]
    fn stamp_for(&self, fence: &Fence) -> Result<Arc<E::Stamp>> {
        self.require_maker()?;
        let timing = fence.timing();
        if let Some(before) = fence.take_spare_stamp(self.own.at(0)) {
            let before: Arc<dyn Any + Send + Sync> = before;
            if let Ok(before) = before.downcast() {
                return self.driver.stamp_again(&self.object, timing, before);
            }
        }
        self.driver.stamp(&self.object, timing)
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
        self.require_maker()?;
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
        self.submit_given(waits, Given::new::<E>(work, None), signals)
    }

    /// See [`Queue::submit_timed`](crate::backend::Queue::submit_timed).
    ///
    /// # Errors
    /// Same errors as [`Queue::submit_timed`](crate::backend::Queue::submit_timed).
    pub(crate) fn submit_timed<'q, W>(
        self: &'q Arc<Self>,
        waits: &[Point<'_>],
        work: W,
        signals: &[Signal<'_>],
        times: [&Fence; 2],
    ) -> Result<Submitted<'q>>
    where
        W: for<'r, 'a> FnOnce(&'r mut E::Recorder<'a>) -> Result<()> + Send + 'static,
    {
        let stamps = match self.stamps_for(times) {
            Ok(stamps) => stamps,
            Err(error) => {
                let mut unused = Given::new::<E>(work, None);
                return Err(*refused::<E>(&mut unused, Box::new(error)));
            }
        };
        let [before, after] = stamps.clone();
        let work = move |recorder: &mut E::Recorder<'_>| {
            E::write_stamp(recorder, ToWrite::new(&before))?;
            work(recorder)?;
            E::write_stamp(recorder, ToWrite::new(&after))
        };
        let submitted = self.submit(waits, work, signals)?;
        for (fence, stamp) in times.into_iter().zip(stamps) {
            fence.record_at(submitted.end(), Some(stamp as Arc<dyn Stamp>));
        }
        Ok(submitted)
    }

    /// Stamps for fences that this queue can record with a time.
    fn stamps_for(&self, [one, other]: [&Fence; 2]) -> Result<[Arc<E::Stamp>; 2]> {
        for fence in [one, other] {
            fence.require_recordable(self.device, &self.object)?;
            if !fence.is_timed() {
                return Err(Error::TimingDisabled {
                    fence: fence.object().clone(),
                    asked: Timing::Interval,
                });
            }
        }
        Ok([self.stamp_for(one)?, self.stamp_for(other)?])
    }

    /// Same as [`SubmissionQueue::submit`], with an object for the backend's own
    /// [`Enqueue::record`].
    ///
    /// The backend finds it as [`Batch::attached`](crate::backend::Batch::attached), also if the
    /// submission was held. A backend uses it for a submission whose waits or signals it makes in
    /// another way than usual, such as by the nodes of a graph.
    ///
    /// # Errors
    /// Same errors as [`Queue::submit`](crate::backend::Queue::submit).
    pub fn submit_attached<'q, W>(
        self: &'q Arc<Self>,
        waits: &[Point<'_>],
        work: W,
        signals: &[Signal<'_>],
        attached: Arc<dyn Any + Send + Sync>,
    ) -> Result<Submitted<'q>>
    where
        W: for<'r, 'a> FnOnce(&'r mut E::Recorder<'a>) -> Result<()> + Send + 'static,
    {
        self.submit_given(waits, Given::new::<E>(work, Some(attached)), signals)
    }

    /// Submits `work`, which is dropped here if it is refused.
    #[inline]
    fn submit_given<'q, W>(
        self: &'q Arc<Self>,
        waits: &[Point<'_>],
        mut work: Given<W>,
        signals: &[Signal<'_>],
    ) -> Result<Submitted<'q>>
    where
        W: for<'r, 'a> FnOnce(&'r mut E::Recorder<'a>) -> Result<()> + Send + 'static,
    {
        let submitted = self.submit_work(waits, &mut work, signals);
        submitted.map_err(|error| *refused(&mut work, error))
    }

    /// Refuses a queue of the parent process. One load.
    ///
    /// # Errors
    /// [`Error::MadeBeforeFork`] in a forked child.
    #[inline]
    pub(super) fn require_maker(&self) -> Result<()> {
        self.entry.maker().require(&self.object)
    }

    /// Gives the next submission its number. Call it with the lock.
    #[inline]
    pub(super) fn take_number(&self, state: &mut State<E>, number: u64) {
        state.last = number;
        self.last.store(number, Ordering::Release);
    }

    #[inline]
    pub(super) fn submitted(&self, number: u64) -> Submitted<'_> {
        let of = self.own.at(number);
        let held = of.of.is_some_and(|own| own.pending() < number);
        Submitted::accepted(of, held, &self.skipped)
    }

    /// Checks that the driver can write times of its device's clock. Later calls are one load.
    ///
    /// # Errors
    /// [`Error::Unsupported`], or a driver error.
    pub(super) fn require_clock_times(&self) -> Result<()> {
        if !self.writes_times.load(Ordering::Relaxed) {
            self.driver.stamp(&self.object, Timing::Clock)?;
            self.writes_times.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// The timeline of the queue's position.
    #[inline]
    pub(super) fn own_shared(&self) -> &Arc<Shared> {
        self.own.shared()
    }

    #[inline]
    pub(super) fn lock(&self) -> MutexGuard<'_, State<E>> {
        self.state.lock()
    }
}

impl<E: Enqueue> Traced for SubmissionQueue<E> {
    fn follower(&self) -> &FollowerSlot {
        &self.follower
    }
}

impl<E: Enqueue> std::fmt::Debug for SubmissionQueue<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({} held)", self.object, self.held().count)
    }
}
