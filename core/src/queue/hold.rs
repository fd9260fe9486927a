//! The hold: submissions that cannot go yet, and letting them go.

use std::collections::VecDeque;
use std::sync::Arc;

use smallvec::SmallVec;

use super::driving::Driving;
use super::entry::{Entry, Front, InRow, Job, Works, parts};
use super::graph_entries::GraphEntries;
use super::relay::Relayed;
use super::send::Handed;
use super::{SubmissionQueue, fail_all};
use crate::base::error::Failure;
use crate::base::run::{ForOthers, LettingGo, Wake, quietly};
use crate::base::stage::Stage;
use crate::base::sync::{MutexGuard, ThreadId, this_thread};
use crate::driver::enqueue::Enqueue;
use crate::driver::in_flight::InFlightBudget;
use crate::driver::keep::Keep;
use crate::held::{Holder, Lists, OwnedClaim, Parts, QueueEntry, RelayEntry};
use crate::port::Port;
use crate::timeline::point::KeptPoint;
use crate::timeline::state::{Interval, Registered, Shared, Standing};

pub(super) struct State<E: Enqueue> {
    /// The number of the last submission accepted.
    pub(super) last: u64,
    pub(super) driving: Driving,
    /// What is held, in order.
    pub(super) held: VecDeque<InRow<E>>,
    /// The number of the first.
    pub(super) first: u64,
    pub(super) front: Front<E>,
    /// The work of those whose closures are not small.
    pub(super) apart: Works<E>,
    /// The places of signals that the host will make for what is held, by the submissions' numbers.
    pub(super) relayed: VecDeque<(u64, RelayEntry)>,
    /// Empty, with the budget that it has had: for what a submission on its way into the graph waits for, and for what the first
    /// does that comes out.
    pub(super) scratch: Option<Box<Lists>>,
    pub(super) spare: Option<Box<Lists>>,
    /// Where the queue is registered for the submission at the front, while nobody drives it.
    pub(super) registered: Registered,
    /// What finished submissions will let go, in order.
    pub(super) kept: VecDeque<(u64, Keep)>,
    /// The budget that submissions in flight have taken.
    pub(super) taken: VecDeque<(u64, u64)>,
    /// Signals that the host makes for submissions, in order. Those that have come are forgotten once there are as many as
    /// `look_at_relays`.
    pub(super) relays: VecDeque<Relayed>,
    pub(super) look_at_relays: usize,
}

impl<E: Enqueue> Default for State<E> {
    fn default() -> Self {
        Self {
            last: 0,
            driving: Driving::default(),
            held: VecDeque::new(),
            first: 0,
            front: Front::default(),
            apart: Works::default(),
            relayed: VecDeque::new(),
            scratch: None,
            spare: None,
            registered: Registered::default(),
            kept: VecDeque::new(),
            taken: VecDeque::new(),
            relays: VecDeque::new(),
            look_at_relays: 0,
        }
    }
}

impl<E: Enqueue> State<E> {
    /// The budget that everything in flight has taken, which is given back without waiting for it.
    pub(super) fn take_all_units(&mut self) -> u64 {
        self.taken.drain(..).map(|(_, units)| units).sum()
    }

    /// Takes out what submissions up to `reached` kept, to be [let go](Finished::let_go) without the lock: a few objects at
    /// a time, as many as need no allocation. Goes where it stays, as it is large and mostly nothing.
    #[inline]
    pub(super) fn take_finished(&mut self, reached: u64, finished: &mut Option<Finished>) {
        let (taken, kept) = (self.taken.front(), self.kept.front());
        let any = taken.is_some_and(|&(number, _)| number <= reached)
            || kept.is_some_and(|&(number, _)| number <= reached);
        if any {
            self.take_some_finished(reached, finished.get_or_insert_default());
        }
    }

    /// Takes out the budget that submissions up to `reached` have taken.
    pub(super) fn take_finished_units(&mut self, reached: u64) -> u64 {
        let mut all = 0;
        while let Some(&(number, units)) = self.taken.front()
            && number <= reached
        {
            all += units;
            self.taken.pop_front();
        }
        all
    }

    #[inline(never)]
    fn take_some_finished(&mut self, reached: u64, finished: &mut Finished) {
        finished.units += self.take_finished_units(reached);
        if LettingGo::is_deep() {
            return;
        }
        let objects = &mut finished.objects;
        while objects.len() < objects.inline_size()
            && let Some((number, _)) = self.kept.front()
            && *number <= reached
        {
            objects.extend(self.kept.pop_front());
        }
    }
}

/// What finished submissions kept.
#[derive(Default)]
pub(super) struct Finished {
    units: u64,
    objects: SmallVec<[(u64, Keep); 4]>,
}

impl Finished {
    /// Gives the budget back, and drops the objects: the application's own, so with no lock held.
    #[inline(never)]
    pub(super) fn let_go(&mut self, budget: Option<&Arc<InFlightBudget>>) {
        if let Some(budget) = budget {
            budget.take_back(std::mem::take(&mut self.units));
        }
        let _letting_go = LettingGo::new();
        for kept in self.objects.drain(..) {
            quietly(|| drop(kept));
        }
    }

    /// The budget that they had taken, for who gives it back himself.
    pub(super) const fn take_in_flight(&mut self) -> u64 {
        std::mem::replace(&mut self.units, 0)
    }

    /// True if they kept nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// There may be more.
    pub(super) fn is_full(&self) -> bool {
        self.objects.len() == self.objects.inline_size()
    }
}

/// A point that a submission waits for, on the caller's stack.
#[derive(Clone, Copy)]
pub(super) struct Awaited<'s> {
    pub(super) of: &'s Arc<Shared>,
    pub(super) value: u64,
    /// Of the queue's device. None: the wait is for the host.
    pub(super) port: Option<&'s dyn Port>,
}

/// What a submission waits for, without what is reached; as many as most have, in place.
pub(super) type AllAwaited<'s> = SmallVec<[Awaited<'s>; 8]>;

impl Awaited<'_> {
    /// How far it has to have come before a submission can go.
    #[inline]
    pub(super) const fn needed(&self) -> Stage {
        match self.port {
            Some(_) => Stage::Pending,
            None => Stage::Reached,
        }
    }

    /// True if it has come so far, and that shows without a lock.
    #[inline]
    pub(super) fn has_plainly_come(&self) -> bool {
        self.of.has_plainly_come(self.needed(), self.value)
    }

    pub(super) fn keep(&self) -> KeptPoint {
        KeptPoint {
            of: Some(self.of.clone()),
            value: self.value,
        }
    }
}

/// A claim that a submission holds while it is on the caller's stack.
#[derive(Clone, Copy)]
pub(super) struct Taken<'s> {
    pub(super) of: &'s Arc<Shared>,
    pub(super) claim: Interval,
    /// Of the queue's device. None: the host makes the signal.
    pub(super) port: Option<&'s dyn Port>,
}

/// What a submission has claimed; as much as most do, in place.
pub(super) type AllTaken<'s> = SmallVec<[Taken<'s>; 8]>;

impl Taken<'_> {
    pub(super) fn keep(&self) -> OwnedClaim {
        (Some(self.of.clone()), self.claim)
    }
}

/// What a submission lacks, in the order of its waits; never empty.
pub(super) type Lacks = SmallVec<[(KeptPoint, Stage); 2]>;

/// Whether a submission can go.
pub(super) enum Verdict {
    Ready,
    /// It could, but the driver has no budget for it.
    Full,
    /// It lacks something. The queue registers for all of that: the failure of any one decides.
    Blocked(Lacks),
    /// It never can: a timeline that it waits for has failed.
    Skip(Failure),
}

impl<E: Enqueue> SubmissionQueue<E> {
    /// What a submission to this queue waits for.
    #[inline]
    pub(super) fn awaited<'s>(&self, of: &'s Arc<Shared>, value: u64) -> Awaited<'s> {
        let port = of.port_on(self.device);
        Awaited { of, value, port }
    }

    /// What a submission to this queue has claimed.
    #[inline]
    pub(super) fn taken<'s>(&self, of: &'s Arc<Shared>, claim: Interval) -> Taken<'s> {
        let port = of.port_on(self.device);
        Taken { of, claim, port }
    }

    /// Decides whether a submission can go. Asks no driver and wakes nobody.
    pub(super) fn judge(
        &self,
        number: u64,
        waits: &[Awaited<'_>],
        claims: &[Taken<'_>],
    ) -> Verdict {
        let mut lacks = Lacks::new();
        let mut block = |of: &Arc<Shared>, value, stage| {
            let of = Some(of.clone());
            lacks.push((KeptPoint { of, value }, stage));
        };
        for &Awaited { of, value, port } in waits {
            let native = port.is_some();
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
        for &Taken { of, claim, port } in claims {
            // A signal that the host will make waits for its predecessor then, not now.
            if port.is_none() {
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
        let budget = number.saturating_sub(E::MAX_IN_FLIGHT);
        match own.standing(budget) {
            Standing::Reached => {}
            // The queue itself is gone: there never will be budget.
            Standing::Failed(cause) => return Verdict::Skip(cause),
            _ => block(own, budget, Stage::Reached),
        }
        if !lacks.is_empty() {
            Verdict::Blocked(lacks)
        } else if self.is_full() {
            Verdict::Full
        } else {
            Verdict::Ready
        }
    }

    /// True if the budget that it shares with others is.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.budget.as_ref().is_some_and(|budget| budget.is_full())
    }

    /// True if the driver has budget for a submission, and that shows without any lock.
    #[inline]
    pub(super) fn has_budget(&self, number: u64) -> bool {
        self.own_shared().reached() >= number.saturating_sub(E::MAX_IN_FLIGHT) && !self.is_full()
    }

    /// True if a submission can go and that shows without any lock. Asks no driver and wakes nobody, as
    /// [`SubmissionQueue::judge`], which decides if this is false.
    fn is_plainly_ready(
        &self,
        number: u64,
        waits: Parts<'_, KeptPoint>,
        claims: Parts<'_, OwnedClaim>,
    ) -> bool {
        for wait in waits.into_iter().flatten() {
            let Some(of) = &wait.of else { continue };
            if !self.awaited(of, wait.value).has_plainly_come() {
                return false;
            }
        }
        for (of, claim) in claims.into_iter().flatten() {
            let Some(of) = of else { continue };
            // A signal that the host will make waits for its predecessor then, not now.
            if of.port_on(self.device).is_some()
                && !of.has_plainly_come(Stage::Pending, claim.above)
            {
                return false;
            }
        }
        self.has_budget(number)
    }

    /// What a held submission waits for, on the stack. Pushed: mostly it is one, and collecting costs more than that.
    fn all_awaited<'s>(&self, points: &'s [KeptPoint]) -> AllAwaited<'s> {
        let mut all = AllAwaited::new();
        for point in points {
            let of = point.of.as_ref();
            if let Some(of) = of.filter(|of| of.reached() < point.value) {
                all.push(self.awaited(of, point.value));
            }
        }
        all
    }

    /// What a held submission has claimed, on the stack.
    fn all_taken<'s>(&self, claims: &'s [OwnedClaim]) -> AllTaken<'s> {
        let mut all = AllTaken::new();
        for (of, claim) in claims {
            if let Some(of) = of {
                all.push(self.taken(of, *claim));
            }
        }
        all
    }

    /// Keeps a recorded submission at the front until the driver's queue is unlocked.
    pub(super) fn put_back(
        &self,
        number: u64,
        prepared: E::Prepared,
        keep: Keep,
        lists: Option<Box<Lists>>,
        entries: GraphEntries<'_>,
    ) {
        let job = Job::Prepared(Box::new((prepared, keep)));
        let entry = Entry {
            number,
            lists,
            job,
            entries,
        };
        self.state.lock().push_front(entry);
    }

    /// Lets held submissions go until one cannot. The caller has made this thread the driving one.
    pub(super) fn drive(self: &Arc<Self>, me: ThreadId) {
        self.drive_with(me, self.state.lock());
    }

    /// As [`SubmissionQueue::drive`], for a caller who has the lock.
    fn drive_with<'l>(self: &'l Arc<Self>, me: ThreadId, state: MutexGuard<'l, State<E>>) {
        let mut locked = Some(state);
        // What the last one of those let go leaves for the next that is held.
        let mut spare = None;
        loop {
            let mut state = locked.take().unwrap_or_else(|| self.state.lock());
            state.driving.take(me);
            if let Some(spare) = spare.take() {
                state.spare = Some(spare);
            }
            let Some(first) = state.first() else {
                state.driving.stop();
                return;
            };
            if let Some(entry) = self.pop_ready(&mut state, first) {
                drop(state);
                if !self.driver.ready() {
                    return self.put_off(entry);
                }
                if self.release(entry, &mut spare) && self.try_leave() {
                    return;
                }
                continue;
            }
            let verdict = if state.is_front_prepared() {
                Verdict::Ready
            } else {
                state.look_at_front(&self.slot);
                let (waits, claims) = parts(&state.front.lists);
                self.judge(first, &self.all_awaited(waits), &self.all_taken(claims))
            };
            if let Verdict::Blocked(lacks) = verdict {
                drop(state);
                if self.park(lacks) {
                    return;
                }
                continue;
            }
            if matches!(verdict, Verdict::Full) {
                drop(state);
                // Still driven by this thread, as above.
                let this: Arc<dyn Wake> = self.clone();
                let budget = self.budget.as_ref();
                let waits = budget.is_some_and(|budget| budget.wait_for(&this));
                if waits && self.state.lock().driving.try_stop() {
                    return;
                }
                continue;
            }
            let Some(entry) = state.pop_front(&self.slot) else {
                continue;
            };
            drop(state);
            // What is recorded already was asked for then.
            let to_record = !matches!(entry.job, Job::Prepared(_));
            if matches!(verdict, Verdict::Ready) && to_record && !self.driver.ready() {
                return self.put_off(entry);
            }
            let busy = match verdict {
                Verdict::Skip(cause) => {
                    self.skip(entry, &cause);
                    false
                }
                _ => self.release(entry, &mut spare),
            };
            if busy && self.try_leave() {
                return;
            }
        }
    }

    /// Takes the first out of the row and the graph if it can plainly go: what it waits for and has claimed comes out of
    /// the graph itself, so that nothing is copied. Until it is with the driver it is what a submission is that
    /// was never held: nobody's place, with claims.
    fn pop_ready<'l>(&'l self, state: &mut State<E>, first: u64) -> Option<Entry<'l, E>> {
        if !state.is_front_in_row() {
            return None;
        }
        let mut lists = state.spare.take().unwrap_or_default();
        let is_ready = |waits: Parts<'_, KeptPoint>, claims: Parts<'_, OwnedClaim>| {
            self.is_plainly_ready(first, waits, claims)
        };
        if !self.slot.leave_if(first, &mut lists, is_ready) {
            state.spare = Some(lists);
            return None;
        }
        let mut entry = state.pop_front(&self.slot)?;
        // It has left.
        if let Some(entry) = entry.entries.entry.take() {
            entry.stay();
        }
        entry.lists = Some(lists);
        Some(entry)
    }

    /// Enters a submission again that has left the graph, as it stays after all. It could go, so it closes no circle; but
    /// whoever asks must find it.
    fn enter_again(&self, number: u64, lists: &Option<Box<Lists>>) -> Option<QueueEntry<'_>> {
        let (waits, claims) = parts(lists);
        let mut entered = Lists::default();
        entered.waits.extend(waits.iter().cloned());
        entered.claims.extend(claims.iter().cloned());
        self.take_entry(number, &mut entered).ok()
    }

    /// Registers for what the first lacks, and stops driving. False if it has to be judged again. Still driven by this
    /// thread until then: who comes in between only leaves a note.
    pub(super) fn park(self: &Arc<Self>, lacks: Lacks) -> bool {
        let Some(registered) = self.register(lacks) else {
            return false;
        };
        let mut state = self.state.lock();
        let parks = state.driving.try_stop();
        if parks {
            state.registered = registered;
        } else {
            // Taken back without the lock.
            drop(state);
        }
        parks
    }

    /// Puts a submission back to the front while its driver takes none; the device's watcher tries again.
    pub(super) fn put_off<'l>(self: &'l Arc<Self>, mut entry: Entry<'l, E>) {
        if entry.entries.entry.is_none() {
            entry.entries.entry = self.enter_again(entry.number, &entry.lists);
        }
        {
            let mut state = self.state.lock();
            state.push_front(entry);
            state.driving.stop();
        }
        if let Some(device) = self.own_shared().watch() {
            device.watcher().retry(&**device, self.clone());
        }
    }

    /// Fails what a submission would have signalled, and leaves its number at the front: what is behind
    /// a closed gate is bounded for skipped submissions too.
    pub(super) fn skip(&self, entry: Entry<'_, E>, cause: &Failure) {
        let Entry {
            number,
            lists,
            job,
            mut entries,
        } = entry;
        // A pass that fails is of a queue that has failed, whose numbers go on no more.
        let is_work = !matches!(job, Job::Pass(_));
        if is_work {
            self.skipped.add(number, cause);
        }
        fail_all(parts(&lists).1, cause);
        if is_work {
            entries.keep_only_entry();
            let pass = Entry::pass(number, None, entries);
            self.state.lock().push_front(pass);
        }
        let apart = self.take_apart(&job);
        quietly(|| drop(apart));
        quietly(|| drop(job));
    }

    /// The work of a submission, if it stands apart.
    fn take_apart(&self, job: &Job<E>) -> Option<super::entry::LargeWork<E>> {
        match job {
            Job::Apart(at) => self.state.lock().apart.take(*at),
            _ => None,
        }
    }

    /// Registers the queue for all of `lacks`, or for none if one need not be waited for any more.
    fn register(self: &Arc<Self>, lacks: Lacks) -> Option<Registered> {
        let mut registered = Registered::default();
        for (point, stage) in lacks {
            if !registered.add(point.of?, point.value, stage, self.clone()) {
                return None;
            }
        }
        Some(registered)
    }

    /// Sends a held submission. True if the driver's queue is locked and it stays at the front; otherwise its lists
    /// go to `spare`.
    pub(super) fn release<'l>(
        self: &'l Arc<Self>,
        entry: Entry<'l, E>,
        spare: &mut Option<Box<Lists>>,
    ) -> bool {
        // Whoever releases it may have nothing to do with it.
        let _for_others = ForOthers::new();
        let mut work = self.take_apart(&entry.job);
        let Entry {
            number,
            lists,
            job,
            mut entries,
        } = entry;
        let (waits, claims) = parts(&lists);
        let taken = self.all_taken(claims);
        let waits = self.all_awaited(waits);
        let mut keep = Keep::default();
        let sent = match job {
            Job::Prepared(recorded) => {
                let (prepared, kept) = *recorded;
                keep = kept;
                let handed = self.hand_over_prepared(prepared);
                self.take_in(number, handed, &taken, &mut entries, &mut keep)
            }
            Job::Pass(keep) => {
                self.pass(
                    number,
                    keep.map_or_else(Keep::default, |keep| *keep),
                    entries,
                );
                return self.front_is_prepared();
            }
            Job::Tiny(_) | Job::Apart(_) => {
                if let Job::Tiny(tiny) = job {
                    work = Some(tiny.resize());
                }
                let work = move |recorder: &mut E::Recorder<'_>| {
                    work.as_mut().map_or(Ok(()), |work| work.record(recorder))
                };
                self.send(number, &waits, work, &taken, &mut entries, &mut keep)
            }
        };
        match sent {
            Handed::Taken => {}
            Handed::Busy(prepared) => {
                drop((taken, waits));
                if entries.entry.is_none() {
                    entries.entry = self.enter_again(number, &lists);
                }
                self.put_back(number, prepared, keep, lists, entries);
                return true;
            }
            Handed::Refused(error) => {
                // Nobody is left to take an error, so those who wait get it.
                let cause = error.into_cause();
                self.skipped.add(number, &cause);
                fail_all(claims, &cause);
                self.pass_over(number, keep, GraphEntries::default());
                return self.front_is_prepared();
            }
        }
        drop((taken, waits));
        // Let go of without the lock.
        *spare = lists.map(|mut lists| {
            lists.clear();
            lists
        });
        false
    }

    pub(super) fn front_is_prepared(&self) -> bool {
        self.state.lock().is_front_prepared()
    }
}

impl<E: Enqueue> Holder for SubmissionQueue<E> {
    /// Fails what a held submission would have signalled as soon as it can never run, although its turn
    /// to be skipped has not come. The one at the front is judged as a whole.
    fn reconsider(self: Arc<Self>, number: u64) {
        // Let go without the lock.
        let mut lists = Lists::default();
        let mut taken = Lists::default();
        let (cause, in_row, apart, relayed);
        {
            let mut state = self.state.lock();
            let first = state.first();
            let index = first.and_then(|first| number.checked_sub(first));
            let Some(entry) = index.and_then(|index| state.held.get(index as usize)) else {
                return;
            };
            if index == Some(0) {
                if entry.is_some() {
                    drop(state);
                    self.wake();
                }
                return;
            }
            self.slot.look(number, &mut lists);
            let waits = lists.waits.iter().find_map(|wait| {
                let of = wait.of.as_ref()?;
                of.hopeless(wait.value)
            });
            // A signal waits for the one before it, unless the host makes it.
            let order = || {
                let mut claims = lists.claims.iter();
                claims.find_map(|(of, claim)| {
                    let of = of.as_ref()?;
                    of.port_on(self.device)?;
                    of.hopeless(claim.above)
                })
            };
            let Some(found) = waits.or_else(order) else {
                return;
            };
            cause = found;
            in_row = state
                .held
                .get_mut(index.unwrap_or_default() as usize)
                .and_then(Option::take);
            let at = in_row.as_ref().and_then(|work| work.apart());
            apart = at.and_then(|at| state.apart.take(at));
            let from = state.relayed.partition_point(|&(other, _)| other < number);
            let upto = state.relayed.partition_point(|&(other, _)| other <= number);
            relayed = state.relayed.drain(from..upto).collect::<Vec<_>>();
            self.slot.reduce(number, &mut taken);
        }
        drop(relayed);
        if in_row.is_some() {
            self.skipped.add(number, &cause);
        }
        fail_all(&lists.claims, &cause);
        quietly(|| drop(apart));
        quietly(|| drop(in_row));
    }
}

impl<E: Enqueue> Wake for SubmissionQueue<E> {
    fn wake(self: Arc<Self>) {
        let me = this_thread();
        let mut state = self.state.lock();
        if state.driving.ask_to_look_again() {
            return;
        }
        state.driving.take(me);
        // Taken back at the end, and without the lock. What is left of them only asks the driving thread to look again until then.
        let _registered = std::mem::take(&mut state.registered);
        self.drive_with(me, state);
    }
}
