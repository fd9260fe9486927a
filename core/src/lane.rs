//! Lanes: the submissions of one queue, in order, and the host-side hold on those that cannot go yet.
//!
//! A wait reaches the driver only once its signal is pending. A submission that cannot go yet, and all
//! that follow it on its queue, stay here, and whoever makes the missing signal pending lets them go,
//! on his thread, from the run-queue.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::ThreadId;
use std::time::Duration;

use smallvec::SmallVec;

use crate::backend::{Batch, Enqueue, Flush, Keep, KeptPoints, Stamp, Waker};
use crate::claim::Interval;
use crate::error::{Error, Failure, Object, Result};
use crate::fence::Fence;
use crate::info::DeviceId;
use crate::run::{PutOff, Wake, quietly, wake_all};
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering};
use crate::timeline::{
    Completion, KeptPoint, NativePoint, Point, Shared, Signal, Stage, Standing, Ticket, Timeline,
};

/// What became of a submission.
#[derive(Debug, Clone, Copy)]
pub struct Submitted<'q> {
    end: Point<'q>,
    held: bool,
}

impl<'q> Submitted<'q> {
    /// The queue's position behind the submission: reached once it, and everything before it on the
    /// queue, is finished or was skipped because of a failure.
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
    /// What the first of them waits for; `None` if it is only the driver queue's lock.
    pub waiting_for: Option<KeptPoint>,
}

/// The engine's half of a queue. A backend's queue type holds one in an [`Arc`] and forwards to it.
pub struct Lane<E: Enqueue> {
    object: Object,
    device: DeviceId,
    /// Signalled once per submission; its value is the number of submissions finished.
    own: Timeline,
    driver: Arc<E>,
    /// Copies of the state's `last` and whether it has `kept`, to be read without its lock.
    last: AtomicU64,
    keeps: AtomicBool,
    state: Mutex<State<E>>,
}

struct State<E: Enqueue> {
    /// The number of the last submission accepted.
    last: u64,
    held: VecDeque<Entry<E>>,
    /// What the held submission at the front was found to wait for first.
    waiting_for: Option<KeptPoint>,
    /// Where the lane is registered for the submission at the front, while nobody drives it.
    registered: Registered,
    /// The thread that is handing submissions to the driver.
    driving: Option<ThreadId>,
    /// Somebody woke the lane while it was being driven.
    again: bool,
    /// What finished submissions will let go, in order.
    kept: VecDeque<(u64, Keep)>,
}

impl<E: Enqueue> Default for State<E> {
    fn default() -> Self {
        Self {
            last: 0,
            held: VecDeque::new(),
            waiting_for: None,
            registered: Registered::default(),
            driving: None,
            again: false,
            kept: VecDeque::new(),
        }
    }
}

impl<E: Enqueue> State<E> {
    /// Takes out what submissions up to `reached` kept, to be dropped without the lock.
    fn take_finished(&mut self, reached: u64) -> SmallVec<[(u64, Keep); 4]> {
        let finished = self.kept.partition_point(|(number, _)| *number <= reached);
        self.kept.drain(..finished).collect()
    }
}

struct Entry<E: Enqueue> {
    number: u64,
    waits: KeptPoints,
    claims: SmallVec<[(Arc<Shared>, Interval); 4]>,
    job: Job<E>,
}

type BoxedWork<E> =
    Box<dyn for<'r, 'a> FnOnce(&'r mut <E as Enqueue>::Recorder<'a>) -> Result<()> + Send>;

enum Job<E: Enqueue> {
    /// Not recorded yet.
    Work(BoxedWork<E>),
    /// Recorded; the driver's queue was locked.
    Prepared(E::Prepared, Keep),
    /// Skipped; its number goes to the driver once there is room.
    Pass,
}

/// A claim that a submission holds while it is on the caller's stack.
type Taken<'s> = (&'s Arc<Shared>, Interval);

/// Registrations of a lane, to be taken back before it registers again.
#[derive(Default)]
struct Registered(SmallVec<[(Arc<Shared>, Ticket); 2]>);

impl Drop for Registered {
    /// Takes timelines' locks, so never under the lane's own.
    fn drop(&mut self) {
        for (of, ticket) in self.0.drain(..) {
            of.unregister(ticket);
        }
    }
}

/// What a submission lacks, in the order of its waits; never empty.
type Lacks = SmallVec<[(KeptPoint, Stage); 2]>;

/// Whether a submission can go.
enum Verdict {
    Ready,
    /// The lane registers for all of them: the failure of any one decides.
    Blocked(Lacks),
    /// It never can: a timeline that it waits for has failed.
    Skip(Failure),
}

/// What became of an attempt to hand a submission to the driver.
enum Sent<E: Enqueue> {
    Done,
    Busy(E::Prepared, Keep),
    Refused(Error, Keep),
}

impl<E: Enqueue> Lane<E> {
    /// The lane of one queue. `own` is a fresh timeline at 0 of the queue's device.
    #[must_use]
    pub fn new(object: Object, device: DeviceId, own: Timeline, driver: E) -> Arc<Self> {
        Arc::new(Self {
            object,
            device,
            own,
            driver: Arc::new(driver),
            last: AtomicU64::new(0),
            keeps: AtomicBool::new(false),
            state: Mutex::new(State::default()),
        })
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
        ended
    }

    /// See [`Queue::position`](crate::backend::Queue::position).
    pub fn position(&self) -> Point<'_> {
        self.own.at(self.state.lock().last)
    }

    /// See [`Queue::held`](crate::backend::Queue::held).
    #[must_use]
    pub fn held(&self) -> Held {
        let state = self.state.lock();
        let count = state.held.len();
        Held {
            count,
            waiting_for: state.waiting_for.clone().filter(|_| count > 0),
        }
    }

    /// See [`Queue::record`](crate::backend::Queue::record).
    ///
    /// # Errors
    /// As there.
    pub fn record(self: &Arc<Self>, fence: &Fence) -> Result<()> {
        fence.require_device(self.device, &self.object)?;
        if !fence.is_timed() {
            let position = self.submit(&[], |_| Ok(()), &[])?.end.keep();
            fence.mark(position, None);
            return Ok(());
        }
        let stamp = self.driver.stamp()?;
        let written = stamp.clone();
        let position = self
            .submit(&[], move |recorder| E::write_stamp(recorder, &written), &[])?
            .end
            .keep();
        fence.mark(position, Some(stamp as Arc<dyn Stamp>));
        Ok(())
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
        self.bring_up_to_date(waits, signals)?;
        // What this submission releases may submit to this queue too: only once it is not driven here.
        let _put_off = PutOff::new();
        let me = std::thread::current().id();
        let mut state = self.state.lock();
        if state.driving == Some(me) {
            return Err(Error::Reentrant {
                queue: self.object.clone(),
            });
        }
        // Claims are decided in the queue's order: under its lock.
        let claims = claim_all(waits, signals)?;
        let number = state.last + 1;
        let idle = state.held.is_empty() && state.driving.is_none();
        let verdict = if idle {
            self.judge(number, waits.iter().copied(), claims.iter().copied())
        } else {
            Verdict::Ready
        };
        state.last = number;
        self.last.store(number, Ordering::Relaxed);
        let finished = state.take_finished(self.own_shared().reached());
        self.keeps.store(!state.kept.is_empty(), Ordering::Relaxed);
        if idle && matches!(verdict, Verdict::Ready) {
            state.driving = Some(me);
            drop(state);
            quietly(|| drop(finished));
            let refused = self.send_now(number, waits, work, &claims).err();
            self.drive();
            return refused.map_or_else(|| Ok(self.submitted(number)), Err);
        }
        state.held.push_back(Entry {
            number,
            waits: waits
                .iter()
                .filter(|p| p.of.is_some())
                .map(|p| p.keep())
                .collect(),
            claims: claims
                .iter()
                .map(|&(of, claim)| (of.clone(), claim))
                .collect(),
            job: Job::Work(Box::new(work)),
        });
        if idle {
            state.driving = Some(me);
        }
        drop(state);
        quietly(|| drop(finished));
        if idle {
            self.drive();
        }
        Ok(self.submitted(number))
    }

    fn submitted(&self, number: u64) -> Submitted<'_> {
        let of = self.own.at(number);
        Submitted {
            end: of,
            held: of.of.is_some_and(|own| own.pending() < number),
        }
    }

    /// Everything that may ask a driver, wake others or drop what is kept, before the lock is taken.
    fn bring_up_to_date(&self, waits: &[Point<'_>], signals: &[Signal<'_>]) -> Result<()> {
        for wait in waits {
            if let Some(of) = wait.of {
                of.check_wait(wait.value)?;
                if of.port_on(self.device).is_none() {
                    of.refresh_to(wait.value);
                }
            }
        }
        for signal in signals {
            signal.of.refresh_if_far(signal.value);
        }
        let own = self.own_shared();
        let crowded = self
            .last
            .load(Ordering::Relaxed)
            .saturating_sub(own.reached())
            >= E::MAX_IN_FLIGHT;
        if crowded || self.keeps.load(Ordering::Relaxed) {
            own.refresh();
        }
        Ok(())
    }

    /// Drops what finished submissions kept.
    fn let_go(&self) {
        if self.keeps.load(Ordering::Relaxed) {
            let reached = self.own_shared().refresh();
            let mut state = self.state.lock();
            let finished = state.take_finished(reached);
            self.keeps.store(!state.kept.is_empty(), Ordering::Relaxed);
            drop(state);
            quietly(|| drop(finished));
        }
    }

    fn own_shared(&self) -> &Arc<Shared> {
        self.own.shared()
    }

    /// Decides whether a submission can go. Asks no driver and wakes nobody.
    fn judge<'s>(
        &self,
        number: u64,
        waits: impl Iterator<Item = Point<'s>>,
        claims: impl Iterator<Item = Taken<'s>>,
    ) -> Verdict {
        let mut lacks = Lacks::new();
        let mut block = |of: &Arc<Shared>, value, stage| {
            let of = Some(of.clone());
            lacks.push((KeptPoint { of, value }, stage));
        };
        for Point { of, value } in waits {
            let Some(of) = of else { continue };
            let native = of.port_on(self.device).is_some();
            match of.standing(value) {
                Standing::Reached => {}
                Standing::Pending if native => {}
                Standing::Pending => block(of, value, Stage::Reached),
                Standing::Open if native => block(of, value, Stage::Pending),
                Standing::Open => block(of, value, Stage::Reached),
                Standing::Failed(cause) => return Verdict::Skip(cause),
                Standing::Cancelled => return Verdict::Skip(of.cancelled(value).into_cause()),
            }
        }
        for (of, claim) in claims {
            // A signal that the host will make waits for its predecessor then, not now.
            if of.port_on(self.device).is_none() {
                continue;
            }
            match of.standing(claim.above) {
                Standing::Reached | Standing::Pending => {}
                Standing::Failed(cause) => return Verdict::Skip(cause),
                // Nobody may have claimed it yet, or its claim was withdrawn: both can still come.
                Standing::Open => block(of, claim.above, Stage::Pending),
                Standing::Cancelled => {
                    return Verdict::Skip(of.cancelled(claim.above).into_cause());
                }
            }
        }
        let own = self.own_shared();
        let room = number.saturating_sub(E::MAX_IN_FLIGHT);
        match own.standing(room) {
            Standing::Reached => {}
            // The queue itself is gone: there never will be room.
            Standing::Failed(cause) => return Verdict::Skip(cause),
            _ => block(own, room, Stage::Reached),
        }
        if lacks.is_empty() {
            Verdict::Ready
        } else {
            Verdict::Blocked(lacks)
        }
    }

    /// Sends a submission that was never held.
    ///
    /// # Errors
    /// If it is refused, with its claims withdrawn.
    fn send_now<W>(
        self: &Arc<Self>,
        number: u64,
        waits: &[Point<'_>],
        work: W,
        claims: &[Taken<'_>],
    ) -> Result<()>
    where
        W: for<'r, 'a> FnOnce(&'r mut E::Recorder<'a>) -> Result<()>,
    {
        match self.send(number, waits, work, claims) {
            Sent::Done => Ok(()),
            Sent::Busy(prepared, keep) => {
                self.put_back(number, prepared, keep, owned(claims));
                Ok(())
            }
            Sent::Refused(error, keep) => {
                for (of, claim) in claims {
                    of.withdraw(*claim);
                }
                self.pass_over(number, keep);
                Err(error)
            }
        }
    }

    /// Records a submission and hands it to the driver.
    fn send<W>(
        self: &Arc<Self>,
        number: u64,
        waits: &[Point<'_>],
        work: W,
        claims: &[Taken<'_>],
    ) -> Sent<E>
    where
        W: for<'r, 'a> FnOnce(&'r mut E::Recorder<'a>) -> Result<()>,
    {
        type Natives<'n> = SmallVec<[NativePoint<'n>; 4]>;
        let native = |of, value| native(of, self.device, value);
        let batch_waits: Natives<'_> = waits
            .iter()
            .filter_map(|wait| native(wait.of.filter(|of| of.reached() < wait.value)?, wait.value))
            .collect();
        let domain = self.driver.order_domain();
        let order: Natives<'_> = claims
            .iter()
            .filter(|(of, claim)| of.reached() < claim.above && of.domain_of(claim.above) != domain)
            // Waited for before the work already.
            .filter(|(of, claim)| {
                !waits.iter().any(|wait| {
                    wait.value >= claim.above && wait.of.is_some_and(|other| Arc::ptr_eq(other, of))
                })
            })
            .filter_map(|(of, claim)| native(of, claim.above))
            .collect();
        let signals: Natives<'_> = claims
            .iter()
            .filter(|(of, _)| of.failure().is_none())
            .filter_map(|(of, claim)| native(of, claim.upto))
            .collect();
        let relayed: SmallVec<[Completion; 2]> = claims
            .iter()
            .filter(|(of, _)| of.port_on(self.device).is_none())
            .map(|(of, claim)| Completion::new(of, claim.upto))
            .collect();
        let own = self.own_shared();
        let end = NativePoint {
            of: own,
            port: own.home(),
            value: number,
        };
        let batch = Batch {
            waits: &batch_waits,
            order: &order,
            signals: &signals,
            relayed: &relayed,
            end,
        };

        let mut keep = Keep::default();
        let recorded = self.driver.record(&batch, &mut keep, |recorder| {
            catch_unwind(AssertUnwindSafe(|| work(recorder))).unwrap_or_else(|payload| {
                Err(Error::WorkPanicked {
                    queue: self.object.clone(),
                    message: panic_message(&*payload),
                })
            })
        });
        match recorded {
            Ok(prepared) => self.flush(number, prepared, keep, claims),
            Err(error) => Sent::Refused(error, keep),
        }
    }

    /// Hands a recorded submission to the driver, and lets the timelines know.
    fn flush(
        self: &Arc<Self>,
        number: u64,
        prepared: E::Prepared,
        keep: Keep,
        claims: &[Taken<'_>],
    ) -> Sent<E> {
        let waker = || Waker(self.clone() as Arc<dyn Wake>);
        match self.driver.flush(prepared, &waker) {
            Flush::Done => {}
            Flush::Busy(prepared) => return Sent::Busy(prepared, keep),
            Flush::Refused(error) => return Sent::Refused(error, keep),
        }
        if !keep.is_empty() {
            self.state.lock().kept.push_back((number, keep));
            self.keeps.store(true, Ordering::Relaxed);
        }
        let domain = self.driver.order_domain();
        let own = self.own_shared();
        own.promote(
            Interval {
                above: number - 1,
                upto: number,
            },
            domain,
        );
        for &(of, claim) in claims {
            if of.port_on(self.device).is_some() {
                of.promote(claim, domain);
            } else {
                let relay = Relay {
                    own: own.clone(),
                    number,
                    of: of.clone(),
                    claim,
                };
                wake_all([Arc::new(relay) as Arc<dyn Wake>]);
            }
        }
        Sent::Done
    }

    /// Keeps a recorded submission at the front until the driver's queue is unlocked.
    fn put_back(
        &self,
        number: u64,
        prepared: E::Prepared,
        keep: Keep,
        claims: SmallVec<[(Arc<Shared>, Interval); 4]>,
    ) {
        let job = Job::Prepared(prepared, keep);
        let entry = Entry {
            number,
            waits: KeptPoints::new(),
            claims,
            job,
        };
        self.state.lock().held.push_front(entry);
    }

    /// Gives a refused or skipped submission's number to the driver, with no work, so that the queue's
    /// position goes on and what the driver may already use of it is kept until then.
    fn pass_over(self: &Arc<Self>, number: u64, mut kept: Keep) {
        let own = self.own_shared();
        let end = NativePoint {
            of: own,
            port: own.home(),
            value: number,
        };
        let batch = Batch {
            waits: &[],
            order: &[],
            signals: &[],
            relayed: &[],
            end,
        };
        let sent = match self.driver.record(&batch, &mut kept, |_| Ok(())) {
            Ok(prepared) => self.flush(number, prepared, kept, &[]),
            Err(error) => Sent::Refused(error, kept),
        };
        match sent {
            Sent::Done => {}
            Sent::Busy(prepared, keep) => self.put_back(number, prepared, keep, SmallVec::new()),
            // Not even that: the queue itself is gone.
            Sent::Refused(error, keep) => {
                own.fail(error.into_cause());
                drop(keep);
            }
        }
    }

    /// Lets held submissions go until one cannot. The caller has made this thread the driving one.
    fn drive(self: &Arc<Self>) {
        loop {
            // Dropped after the lock.
            let _before;
            let mut state = self.state.lock();
            state.again = false;
            _before = state.waiting_for.take();
            let Some(front) = state.held.front() else {
                state.driving = None;
                return;
            };
            let verdict = match front.job {
                Job::Prepared(..) => Verdict::Ready,
                Job::Work(_) | Job::Pass => self.judge(
                    front.number,
                    front.waits.iter().map(KeptPoint::point),
                    front.claims.iter().map(|(of, claim)| (of, *claim)),
                ),
            };
            if let Verdict::Blocked(lacks) = verdict {
                state.waiting_for = lacks.first().map(|(point, _)| point.clone());
                drop(state);
                // Still driven by this thread: who comes in between only leaves a note.
                if let Some(registered) = self.register(&lacks) {
                    let mut state = self.state.lock();
                    if !state.again {
                        state.driving = None;
                        state.registered = registered;
                        return;
                    }
                    drop(state);
                }
                continue;
            }
            let Some(entry) = state.held.pop_front() else {
                continue;
            };
            drop(state);
            let busy = match verdict {
                Verdict::Skip(cause) => {
                    self.skip(entry, &cause);
                    false
                }
                _ => self.release(entry),
            };
            if busy {
                let mut state = self.state.lock();
                // Unlocked again since: whoever did so found this lane being driven.
                if !state.again {
                    state.driving = None;
                    return;
                }
            }
        }
    }

    /// Fails what a submission would have signalled, and leaves its number at the front: what is behind
    /// a closed gate is bounded for skipped submissions too.
    fn skip(&self, entry: Entry<E>, cause: &Failure) {
        let Entry {
            number,
            claims,
            job,
            ..
        } = entry;
        fail_all(&claims, cause);
        // A number that cannot pass either is one of a queue that has failed: nobody counts on.
        if !matches!(job, Job::Pass) {
            let pass = Entry {
                number,
                waits: KeptPoints::new(),
                claims: SmallVec::new(),
                job: Job::Pass,
            };
            self.state.lock().held.push_front(pass);
        }
        quietly(|| drop(job));
    }

    /// Registers the lane for all of `lacks`, or for none if one need not be waited for any more.
    fn register(self: &Arc<Self>, lacks: &Lacks) -> Option<Registered> {
        let mut registered = Registered::default();
        for (point, stage) in lacks {
            let of = point.of.as_ref()?;
            let ticket = of.register(point.value, *stage, self.clone() as Arc<dyn Wake>)?;
            registered.0.push((of.clone(), ticket));
        }
        Some(registered)
    }

    /// Sends a held submission. True if the driver's queue is locked and it stays at the front.
    fn release(self: &Arc<Self>, entry: Entry<E>) -> bool {
        let Entry {
            number,
            waits,
            claims,
            job,
        } = entry;
        let taken: SmallVec<[Taken<'_>; 4]> = claims.iter().map(|(of, c)| (of, *c)).collect();
        let sent = match job {
            Job::Work(work) => {
                let waits: SmallVec<[Point<'_>; 4]> = waits.iter().map(KeptPoint::point).collect();
                self.send(number, &waits, work, &taken)
            }
            Job::Prepared(prepared, keep) => self.flush(number, prepared, keep, &taken),
            Job::Pass => {
                self.pass_over(number, Keep::default());
                return self.front_is_prepared();
            }
        };
        match sent {
            Sent::Done => false,
            Sent::Busy(prepared, keep) => {
                self.put_back(number, prepared, keep, owned(&taken));
                true
            }
            Sent::Refused(error, keep) => {
                // Nobody is left to take an error, so those who wait get it.
                fail_all(&claims, &error.into_cause());
                self.pass_over(number, keep);
                self.front_is_prepared()
            }
        }
    }

    fn front_is_prepared(&self) -> bool {
        let state = self.state.lock();
        state
            .held
            .front()
            .is_some_and(|entry| matches!(entry.job, Job::Prepared(..)))
    }
}

impl<E: Enqueue> Wake for Lane<E> {
    fn wake(self: Arc<Self>) {
        let me = std::thread::current().id();
        let registered = {
            let mut state = self.state.lock();
            if state.driving.is_some() {
                state.again = true;
                return;
            }
            state.driving = Some(me);
            std::mem::take(&mut state.registered)
        };
        drop(registered);
        self.drive();
    }
}

impl<E: Enqueue> Drop for Lane<E> {
    fn drop(&mut self) {
        // Nothing is held: held submissions keep their lane. What the driver still runs keeps the
        // driver's half and everything kept, until it is finished.
        let own = self.own.shared();
        own.refresh();
        let state = std::mem::take(&mut *self.state.lock());
        let orphan = Orphan {
            _driver: self.driver.clone(),
            _kept: state.kept,
        };
        // If it is finished, or the device is lost, the orphan is dropped here.
        let _ = own.register(state.last, Stage::Reached, Arc::new(orphan));
    }
}

impl<E: Enqueue> std::fmt::Debug for Lane<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({} held)", self.object, self.held().count)
    }
}

/// What a dropped queue leaves behind until its work is finished.
struct Orphan<E: Enqueue> {
    _driver: Arc<E>,
    _kept: VecDeque<(u64, Keep)>,
}

impl<E: Enqueue> Wake for Orphan<E> {
    fn wake(self: Arc<Self>) {}
}

/// Makes a signal from the host once a queue that has no port for it has done its work.
struct Relay {
    own: Arc<Shared>,
    number: u64,
    of: Arc<Shared>,
    claim: Interval,
}

impl Wake for Relay {
    fn wake(self: Arc<Self>) {
        loop {
            // First the work, then the predecessor; each wait ends in another call of this.
            let (of, value) = match self.own.standing(self.number) {
                Standing::Reached => match self.of.standing(self.claim.above) {
                    Standing::Reached => return self.of.signal_claimed(self.claim.upto),
                    Standing::Failed(_) => return,
                    // The predecessor never comes, so neither does this one.
                    Standing::Cancelled => return self.of.withdraw(self.claim),
                    Standing::Pending | Standing::Open => (&self.of, self.claim.above),
                },
                Standing::Failed(cause) => return self.of.fail(cause),
                Standing::Cancelled => return self.of.withdraw(self.claim),
                Standing::Pending | Standing::Open => (&self.own, self.number),
            };
            if of.register(value, Stage::Reached, self.clone()).is_some() {
                return;
            }
        }
    }
}

/// Claims every signal of a submission, or none.
fn claim_all<'s>(
    waits: &[Point<'_>],
    signals: &'s [Signal<'_>],
) -> Result<SmallVec<[Taken<'s>; 4]>> {
    let mut taken: SmallVec<[Taken<'s>; 4]> = SmallVec::new();
    for (index, signal) in signals.iter().enumerate() {
        let same = |of: &Arc<Shared>| Arc::ptr_eq(of, signal.of);
        let own_wait = waits
            .iter()
            .filter(|wait| wait.of.is_some_and(same))
            .map(|wait| wait.value)
            .max();
        let claim = if signals[..index].iter().any(|earlier| same(earlier.of)) {
            Err(Error::DuplicateSignal {
                timeline: signal.of.object.clone(),
                asked: signal.value,
            })
        } else {
            signal.of.claim(signal.value, own_wait.unwrap_or(0))
        };
        match claim {
            Ok(claim) => taken.push((signal.of, claim)),
            Err(error) => {
                // The caller holds these timelines, so withdrawing wakes nobody.
                for (of, claim) in taken {
                    of.withdraw(claim);
                }
                return Err(error);
            }
        }
    }
    Ok(taken)
}

fn native<'n>(of: &'n Arc<Shared>, device: DeviceId, value: u64) -> Option<NativePoint<'n>> {
    of.port_on(device)
        .map(|port| NativePoint { of, port, value })
}

fn owned(claims: &[Taken<'_>]) -> SmallVec<[(Arc<Shared>, Interval); 4]> {
    claims
        .iter()
        .map(|&(of, claim)| (of.clone(), claim))
        .collect()
}

fn fail_all(claims: &[(Arc<Shared>, Interval)], cause: &Failure) {
    for (of, _) in claims {
        of.fail(cause.clone());
    }
}

/// What a caught panic said.
pub(crate) fn panic_message(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a payload that is not text".into())
}
