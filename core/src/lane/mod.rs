//! Lanes: the submissions of one queue, in order, and the host-side hold on those that cannot go yet.
//!
//! A wait reaches the driver only once its signal is pending. A submission that cannot go yet, and all
//! that follow it on its queue, stay here, and whoever makes the missing signal pending lets them go,
//! on his thread, from the run-queue.

mod aside;
mod driving;
mod entry;
mod hold;
mod places;
mod relay;
mod send;
mod traced;

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use smallvec::SmallVec;

use crate::backend::{Enqueue, Keep, NativeMark, Stamp};
use crate::error::{Error, Failure, Object, Result};
use crate::fence::Fence;
use crate::graph::{Holder as _, Lists, Origin, OwnedClaim, Seat};
use crate::info::DeviceId;
use crate::point::{KeptPoint, Point, Signal};
use crate::room::{Room, Sharer, Taken as TakenRoom};
use crate::run::{PutOff, Wake, quietly};
use crate::state::Shared;
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering, behind_a_change, fence, this_thread};
use crate::timeline::Timeline;
use crate::trace::Followed;
use crate::waiters::Stage;
use aside::Aside;
use driving::Driving;
use entry::{Entry, Job};
use hold::{Awaited, Finished, Lacks, State, Taken, Verdict};
use places::Places;
use send::Went;

/// What became of a submission.
#[derive(Debug, Clone, Copy)]
pub struct Submitted<'q> {
    end: Point<'q>,
    held: bool,
}

impl<'q> Submitted<'q> {
    /// The queue's position behind the submission: reached once it, and everything before it on the
    /// queue, is finished or was skipped because of a failure. Signals that the host makes, on timelines without
    /// a port for the queue, come after it.
    pub const fn end(self) -> Point<'q> {
        self.end
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
    /// What the first of them waits for; `None` if it is only the driver queue's lock, or room in the driver.
    pub waiting_for: Option<KeptPoint>,
}

/// A queue that nobody asks looks for what has finished after so many submissions.
const LOOK: u64 = 64;
/// With fewer in flight it does not look for objects that it need not keep any more.
const KEPT: u64 = 4;

/// The engine's half of a queue. A backend's queue type holds one in an [`Arc`] and forwards to it.
pub struct Lane<E: Enqueue> {
    object: Object,
    device: DeviceId,
    /// What the graph of held submissions knows of it.
    origin: Arc<Origin>,
    seat: Seat,
    /// Signalled once per submission; its value is the number of submissions finished.
    own: Timeline,
    driver: Arc<E>,
    /// What the driver says of itself, once.
    domain: u64,
    room: Option<Arc<Room>>,
    /// Copies of the state's `last` and of whether objects may be among its `kept`, to be read without its lock.
    last: AtomicU64,
    keeps: AtomicBool,
    /// With so many in flight it looks for objects that it need not keep any more: twice what the last look left.
    look_at: AtomicU64,
    /// See [`Sharer::followed`].
    followed: AtomicBool,
    driving: Driving,
    aside: Aside,
    state: Mutex<State<E>>,
    followed_by: Followed,
}

impl<E: Enqueue> Lane<E> {
    /// The lane of one queue. `own` is a fresh timeline at 0 of the queue's device.
    #[must_use]
    pub fn new(object: Object, device: DeviceId, own: Timeline, driver: E) -> Arc<Self> {
        let lane = Arc::new_cyclic(|this: &Weak<Self>| {
            let origin = Arc::new(Origin {
                queue: object.clone(),
                device,
                holder: this.clone(),
                own: own.shared().clone(),
            });
            Self {
                seat: Seat::take(origin.clone()),
                origin,
                object,
                device,
                own,
                domain: driver.order_domain(),
                room: driver.room().cloned(),
                driver: Arc::new(driver),
                last: AtomicU64::new(0),
                keeps: AtomicBool::new(false),
                look_at: AtomicU64::new(0),
                followed: AtomicBool::new(false),
                driving: Driving::new(),
                aside: Aside::new(),
                state: Mutex::new(State::default()),
                followed_by: Followed::default(),
            }
        });
        crate::names::add(&lane.object);
        lane.own_shared().belongs_to(&lane.object);
        if let Some(room) = &lane.room {
            let this: Arc<dyn Sharer> = lane.clone();
            room.join(Arc::downgrade(&this));
        }
        lane
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
        let ended = self.position().wait(timeout);
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
            let position = self.submit(&[], |_| Ok(()), &[])?.end;
            fence.mark(position, None);
            return Ok(());
        }
        let stamp = self.driver.stamp(fence.timing())?;
        let (written, told) = (stamp.clone(), fence.clone());
        // If the record is held, nobody is left to take an error but who asks the fence for its time.
        let write = move |recorder: &mut E::Recorder<'_>| {
            let result = E::write_stamp(recorder, &written);
            if let Err(error) = &result {
                told.lose(written, error.clone());
            }
            result
        };
        let position = self.submit(&[], write, &[])?.end;
        fence.mark(position, Some(stamp as Arc<dyn Stamp>));
        Ok(())
    }

    /// Records `fence` with something of the backend's own instead of a position: `make` is called if the
    /// fence may be recorded here at all. Not ordered with anything held.
    ///
    /// # Errors
    /// As for [`Lane::record`], and what `make` returns. The fence is unchanged then.
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
        if self.followed_by.is_taken() {
            return self.submit_traced(waits, work, signals);
        }
        self.submit_untraced(waits, work, signals)
    }

    fn submit_untraced<'q, W>(
        self: &'q Arc<Self>,
        waits: &[Point<'_>],
        work: W,
        signals: &[Signal<'_>],
    ) -> Result<Submitted<'q>>
    where
        W: for<'r, 'a> FnOnce(&'r mut E::Recorder<'a>) -> Result<()> + Send + 'static,
    {
        let mut awaited: SmallVec<[Awaited<'_>; 4]> = SmallVec::new();
        for wait in waits {
            if let Some(of) = wait.of {
                awaited.push(self.awaited(of, wait.value));
            }
        }
        let waits = &awaited[..];
        self.bring_up_to_date(waits, signals)?;
        // What this submission releases may submit to this queue too: only once it is not driven here.
        let _put_off = PutOff::new();
        let me = this_thread();
        let mut state = self.state.lock();
        if self.driving.is_by(me) {
            return Err(Error::Reentrant {
                queue: self.object.clone(),
            });
        }
        // Claims are decided in the queue's order: under its lock.
        let mut claims: SmallVec<[Taken<'_>; 4]> = SmallVec::new();
        self.claim_all(waits, signals, &mut claims)?;
        let number = state.last + 1;
        let idle = state.held.is_empty() && self.driving.is_free();
        let mut lacks = Lacks::new();
        let verdict = if idle {
            self.judge(number, waits, &claims, &mut lacks)
        } else {
            Verdict::Ready
        };
        let held = !(idle && matches!(verdict, Verdict::Ready));
        let mut places = Places::default();
        if held || claims.iter().any(|claim| claim.port.is_none()) {
            let mut lists = state.scratch.take().unwrap_or_default();
            if held {
                State::<E>::fill(&mut lists, waits, &claims);
            }
            let taken = self.take_places(number, held.then_some(&mut *lists), &claims);
            // Empty already, unless it was refused; and the caller has all of these timelines.
            lists.clear();
            state.scratch = Some(lists);
            places = taken.inspect_err(|_| withdraw_all(&claims))?;
        }
        state.last = number;
        self.last.store(number, Ordering::Release);
        let mut finished = Finished::default();
        state.take_up(&self.aside);
        state.take_finished(self.own_shared().reached(), &mut finished);
        self.note_what_is_kept(&state);
        if !held {
            self.driving.take(me);
            drop(state);
            finished.let_go(self.room.as_ref());
            if !self.driver.ready() {
                let (mut lists, mut entered) = (Box::<Lists>::default(), Lists::default());
                State::<E>::fill(&mut lists, waits, &claims);
                State::<E>::fill(&mut entered, waits, &claims);
                // It could go, so it closes no circle; but whoever asks must find it.
                places.turn = self.take_turn(number, &mut entered).ok();
                let work = self.state.lock().in_row(work);
                self.put_off(Entry {
                    number,
                    lists: Some(lists),
                    job: Job::from_row(Some(work)),
                    places,
                });
                return Ok(self.submitted(number));
            }
            let sent = self.send_now(number, waits, work, &claims, places);
            let mut driven = false;
            if let Ok(Went::Straight(promoted)) = sent {
                driven = self.driving.give_up_unless_noted(me);
                // Mostly nothing but that stands between what was promoted and the look who waits for it.
                if driven {
                    behind_a_change();
                } else {
                    fence(Ordering::SeqCst);
                }
                self.look_behind(&claims, promoted);
            }
            if !driven {
                self.drive(me);
            }
            return sent.map(|_| self.submitted(number));
        }
        state.push_back(number, work, places);
        if idle {
            self.driving.take(me);
        }
        drop(state);
        // What it waits for or signals may have failed before the graph knew of it: look now. The lock's word has just
        // been changed.
        behind_a_change();
        if idle {
            let blocked = matches!(verdict, Verdict::Blocked);
            if !(blocked && self.are_well(waits, &claims) && self.park(lacks)) {
                self.drive(me);
            }
        } else {
            // Also leaves a note with whoever drives, if nothing is held before it.
            self.clone().reconsider(number);
        }
        // Last: it may run what the application does in drops, and the lane must not wait for that.
        finished.let_go(self.room.as_ref());
        Ok(self.submitted(number))
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
        }
    }

    /// Everything that may ask a driver, wake others or drop what is kept, before the lock is taken.
    #[inline]
    fn bring_up_to_date(&self, waits: &[Awaited<'_>], signals: &[Signal<'_>]) -> Result<()> {
        for &Awaited { of, value, port } in waits {
            of.check_wait(value)?;
            let needed = match port {
                Some(_) => Stage::Pending,
                None => Stage::Reached,
            };
            of.refresh_for(needed, value);
        }
        for signal in signals {
            signal.of.refresh_if_far(signal.value);
        }
        let own = self.own_shared();
        let last = self.last.load(Ordering::Relaxed);
        let ahead = last.saturating_sub(own.reached());
        // Now and then, so that never much is left to be given back at once; and where objects are kept, so often that not
        // many more of them are than work in flight needs.
        let due = (ahead >= LOOK && last.is_multiple_of(LOOK))
            || (ahead >= self.look_at.load(Ordering::Relaxed).max(KEPT)
                && self.keeps.load(Ordering::Relaxed));
        if self.room.as_ref().is_some_and(|room| room.is_full()) {
            self.give_back();
        } else if due || ahead >= E::MAX_IN_FLIGHT {
            let left = last.saturating_sub(own.refresh());
            self.look_at.store(2 * left, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Claims every signal of a submission, or none.
    #[inline]
    fn claim_all<'s>(
        &self,
        waits: &[Awaited<'_>],
        signals: &'s [Signal<'_>],
        taken: &mut SmallVec<[Taken<'s>; 4]>,
    ) -> Result<()> {
        for (index, signal) in signals.iter().enumerate() {
            let same = |of: &Arc<Shared>| Arc::ptr_eq(of, signal.of);
            let mut own_wait = 0;
            for wait in waits.iter().filter(|wait| same(wait.of)) {
                own_wait = wait.value.max(own_wait);
            }
            let claim = if signals[..index].iter().any(|earlier| same(earlier.of)) {
                Err(Error::DuplicateSignal {
                    timeline: signal.of.object.clone(),
                    asked: signal.value,
                })
            } else {
                signal.of.claim(signal.value, own_wait)
            };
            match claim {
                Ok(claim) => taken.push(self.taken(signal.of, claim)),
                // It will be skipped, as it is if the timeline fails a moment later.
                Err(Error::Failed { .. }) if is_hopeless(waits) => {}
                Err(error) => {
                    withdraw_all(taken);
                    return Err(error);
                }
            }
        }
        Ok(())
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

    #[inline]
    fn own_shared(&self) -> &Arc<Shared> {
        self.own.shared()
    }
}

impl<E: Enqueue> Sharer for Lane<E> {
    fn progress(&self) -> &Arc<Shared> {
        self.own_shared()
    }

    fn give_back(&self) {
        let own = self.own_shared();
        let reached = own.refresh();
        let failed = own.failure().is_some();
        loop {
            let mut finished = Finished::default();
            let mut state = self.state.lock();
            state.take_up(&self.aside);
            state.take_finished(reached, &mut finished);
            if failed {
                // A queue that has failed gets no further: what it took is not waited for.
                finished.units += state.take_all_room();
            }
            self.note_what_is_kept(&state);
            drop(state);
            let more = finished.is_full();
            finished.let_go(self.room.as_ref());
            if !more {
                return;
            }
        }
    }

    fn followed(&self) -> &AtomicBool {
        &self.followed
    }
}

impl<E: Enqueue> Drop for Lane<E> {
    fn drop(&mut self) {
        // Nothing is held: held submissions keep their lane. What the driver still runs keeps the
        // driver's half and everything kept, until it is finished.
        let own = self.own.shared();
        own.refresh();
        let mut state = std::mem::take(&mut *self.state.lock());
        state.take_up(&self.aside);
        let units = state.take_all_room();
        let room = self.room.clone();
        let taken = room.map(|room| TakenRoom { room, units });
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
        let _ = own.register(state.last, Stage::Reached, Arc::new(left));
    }
}

impl<E: Enqueue> std::fmt::Debug for Lane<E> {
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
    _taken: Option<TakenRoom>,
}

impl<E: Enqueue> Wake for Left<E> {
    fn wake(self: Arc<Self>) {}
}

/// True if a submission that waits for these can never run.
fn is_hopeless(waits: &[Awaited<'_>]) -> bool {
    let hopeless = |wait: &Awaited<'_>| wait.of.hopeless(wait.value).is_some();
    waits.iter().any(hopeless)
}

/// Takes the claims of a refused submission back. The caller holds these timelines, so this wakes nobody.
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
