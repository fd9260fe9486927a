//! The hold: submissions that cannot go to the driver yet, and their release.

use std::collections::VecDeque;
use std::sync::Arc;

use smallvec::SmallVec;

use super::driving::Driving;
use super::entry::{Entry, Front, InlineWork, Job, Works, parts};
use super::graph_entries::GraphEntries;
use super::relay::OutstandingRelay;
use super::send::Handed;
use super::{SubmissionQueue, fail_all};
use crate::base::error::Failure;
use crate::base::run::{DropScope, ForeignWorkScope, Wake, run_contained};
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
    /// The number of the last accepted submission.
    pub(super) last: u64,
    pub(super) driving: Driving,
    /// The held submissions, in order.
    pub(super) held: VecDeque<InlineWork<E>>,
    /// The number of the first held submission.
    pub(super) first: u64,
    pub(super) front: Front<E>,
    /// The work of held submissions whose closures are not small.
    pub(super) out_of_line: Works<E>,
    /// The graph entries of host signals for held submissions, by submission number.
    pub(super) relayed: VecDeque<(u64, RelayEntry)>,
    /// Empty lists with capacity.
    ///
    /// `scratch` is for a submission that enters the graph, `spare` for one that leaves it.
    pub(super) scratch: Option<Box<Lists>>,
    pub(super) spare: Option<Box<Lists>>,
    /// The registrations for what the first held submission lacks, while no thread drives.
    pub(super) registered: Registered,
    /// The objects that submitted work keeps, in order.
    pub(super) kept: VecDeque<(u64, Keep)>,
    /// The budget that submissions in flight have taken.
    pub(super) taken: VecDeque<(u64, u64)>,
    /// The host signals for submissions, in order.
    ///
    /// Settled ones are removed when there are `prune_relays_at`.
    pub(super) relays: VecDeque<OutstandingRelay>,
    pub(super) prune_relays_at: usize,
}

impl<E: Enqueue> Default for State<E> {
    fn default() -> Self {
        Self {
            last: 0,
            driving: Driving::default(),
            held: VecDeque::new(),
            first: 0,
            front: Front::default(),
            out_of_line: Works::default(),
            relayed: VecDeque::new(),
            scratch: None,
            spare: None,
            registered: Registered::default(),
            kept: VecDeque::new(),
            taken: VecDeque::new(),
            relays: VecDeque::new(),
            prune_relays_at: 0,
        }
    }
}

impl<E: Enqueue> State<E> {
    /// Takes the budget of all submissions, finished or not.
    pub(super) fn take_all_units(&mut self) -> u64 {
        self.taken.drain(..).map(|(_, units)| units).sum()
    }

    /// Takes out what submissions up to `reached` kept, for [`Finished::drop_all`] without the
    /// lock.
    ///
    /// Takes a few objects at a time, so that it does not allocate. `finished` is an out parameter
    /// because it is large and usually stays empty.
    #[inline]
    pub(super) fn take_finished(&mut self, reached: u64, finished: &mut Option<Finished>) {
        let (taken, kept) = (self.taken.front(), self.kept.front());
        let any = taken.is_some_and(|&(number, _)| number <= reached)
            || kept.is_some_and(|&(number, _)| number <= reached);
        if any {
            self.take_some_finished(reached, finished.get_or_insert_default());
        }
    }

    /// Takes the budget of submissions up to `reached`.
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
        if DropScope::is_too_deep() {
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

/// The budget and the objects of finished submissions.
#[derive(Default)]
pub(super) struct Finished {
    units: u64,
    objects: SmallVec<[(u64, Keep); 4]>,
}

impl Finished {
    /// Returns the budget and drops the objects. These are the application's, so no lock may be
    /// held.
    #[inline(never)]
    pub(super) fn drop_all(&mut self, budget: Option<&Arc<InFlightBudget>>) {
        if let Some(budget) = budget {
            budget.take_back(std::mem::take(&mut self.units));
        }
        let _letting_go = DropScope::new();
        for kept in self.objects.drain(..) {
            run_contained(|| drop(kept));
        }
    }

    /// Takes the budget, for a caller that returns it.
    pub(super) const fn take_in_flight(&mut self) -> u64 {
        std::mem::replace(&mut self.units, 0)
    }

    /// True if there are no objects.
    pub(super) fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// True if more objects may be left.
    pub(super) fn is_full(&self) -> bool {
        self.objects.len() == self.objects.inline_size()
    }
}

/// A point that a submission waits for.
#[derive(Clone, Copy)]
pub(super) struct Awaited<'s> {
    pub(super) of: &'s Arc<Shared>,
    pub(super) value: u64,
    /// The port on the queue's device. `None`: the wait is made on the host.
    pub(super) port: Option<&'s dyn Port>,
}

/// The waits of a submission that are not reached.
pub(super) type AllAwaited<'s> = SmallVec<[Awaited<'s>; 8]>;

impl Awaited<'_> {
    /// The stage that the value must have come to before the submission can go.
    #[inline]
    pub(super) const fn needed(&self) -> Stage {
        match self.port {
            Some(_) => Stage::Pending,
            None => Stage::Reached,
        }
    }

    /// True if the value is known to have come to that stage. Takes no lock.
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

/// A claim of a submission.
#[derive(Clone, Copy)]
pub(super) struct Taken<'s> {
    pub(super) of: &'s Arc<Shared>,
    pub(super) claim: Interval,
    /// The port on the queue's device. `None`: the host makes the signal.
    pub(super) port: Option<&'s dyn Port>,
}

/// The claims of a submission.
pub(super) type AllTaken<'s> = SmallVec<[Taken<'s>; 8]>;

impl Taken<'_> {
    pub(super) fn keep(&self) -> OwnedClaim {
        (Some(self.of.clone()), self.claim)
    }
}

/// What a submission lacks, in the order of its waits. Never empty in a verdict.
pub(super) type Missing = SmallVec<[(KeptPoint, Stage); 2]>;

/// Whether a submission can go to the driver.
pub(super) enum Verdict {
    Ready,
    /// It could, but the shared budget is used up.
    Full,
    /// It lacks something. The queue registers for all of it, because the failure of any one
    /// decides.
    Blocked(Missing),
    /// It never can, because a timeline that it waits for has failed.
    Skip(Failure),
}

impl<E: Enqueue> SubmissionQueue<E> {
    /// A wait of a submission to this queue.
    #[inline]
    pub(super) fn awaited<'s>(&self, of: &'s Arc<Shared>, value: u64) -> Awaited<'s> {
        let port = of.port_on(self.device);
        Awaited { of, value, port }
    }

    /// A claim of a submission to this queue.
    #[inline]
    pub(super) fn taken<'s>(&self, of: &'s Arc<Shared>, claim: Interval) -> Taken<'s> {
        let port = of.port_on(self.device);
        Taken { of, claim, port }
    }

    /// Decides whether a submission can go to the driver. Makes no driver call and wakes nothing.
    pub(super) fn judge(
        &self,
        number: u64,
        waits: &[Awaited<'_>],
        claims: &[Taken<'_>],
    ) -> Verdict {
        let mut missing = Missing::new();
        let mut block = |of: &Arc<Shared>, value, stage| {
            let of = Some(of.clone());
            missing.push((KeptPoint { of, value }, stage));
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
            // A host signal waits for its predecessor later.
            if port.is_none() {
                continue;
            }
            match of.standing(claim.above) {
                Standing::Reached | Standing::Pending => {}
                Standing::Failed(cause) => return Verdict::Skip(cause),
                // It may not be claimed yet, or its claim was withdrawn. Both can still come.
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
            // The queue itself has failed, so there will never be room.
            Standing::Failed(cause) => return Verdict::Skip(cause),
            _ => block(own, budget, Stage::Reached),
        }
        if !missing.is_empty() {
            Verdict::Blocked(missing)
        } else if self.is_full() {
            Verdict::Full
        } else {
            Verdict::Ready
        }
    }

    /// True if the budget shared with other queues is used up.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.budget.as_ref().is_some_and(|budget| budget.is_full())
    }

    /// True if the driver is known to have room for a submission. Takes no lock.
    #[inline]
    pub(super) fn has_budget(&self, number: u64) -> bool {
        self.own_shared().reached() >= number.saturating_sub(E::MAX_IN_FLIGHT) && !self.is_full()
    }

    /// True if a submission is known to be able to go. Takes no lock.
    ///
    /// Makes no driver call and wakes nothing. If it is false, [`SubmissionQueue::judge`] decides.
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
            // A host signal waits for its predecessor later.
            if of.port_on(self.device).is_some()
                && !of.has_plainly_come(Stage::Pending, claim.above)
            {
                return false;
            }
        }
        self.has_budget(number)
    }

    /// The waits of a held submission. A loop, because collecting usually costs more than the one
    /// element.
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

    /// The claims of a held submission.
    fn all_taken<'s>(&self, claims: &'s [OwnedClaim]) -> AllTaken<'s> {
        let mut all = AllTaken::new();
        for (of, claim) in claims {
            if let Some(of) = of {
                all.push(self.taken(of, *claim));
            }
        }
        all
    }

    /// Puts a recorded submission back to the front until the driver's queue is unlocked.
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

    /// Releases held submissions until one cannot go. The calling thread must be the driving one.
    pub(super) fn drive(self: &Arc<Self>, me: ThreadId) {
        self.drive_with(me, self.state.lock());
    }

    /// As [`SubmissionQueue::drive`], for a caller that holds the lock.
    fn drive_with<'l>(self: &'l Arc<Self>, me: ThreadId, state: MutexGuard<'l, State<E>>) {
        let mut locked = Some(state);
        // The lists of the last released submission, to be reused.
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
                state.copy_front_lists(&self.slot);
                let (waits, claims) = parts(&state.front.lists);
                self.judge(first, &self.all_awaited(waits), &self.all_taken(claims))
            };
            if let Verdict::Blocked(missing) = verdict {
                drop(state);
                if self.park(missing) {
                    return;
                }
                continue;
            }
            if matches!(verdict, Verdict::Full) {
                drop(state);
                // This thread still drives, see `park`.
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
            // For a recorded submission `ready` was called before it was recorded.
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

    /// Removes the first submission from the list and from the graph if it is known to be able to
    /// go.
    ///
    /// Its waits and claims are moved out of the graph and not copied. Until the driver has it, it
    /// is like a submission that was never held: without a graph entry, but with claims.
    fn pop_ready<'l>(&'l self, state: &mut State<E>, first: u64) -> Option<Entry<'l, E>> {
        if !state.is_front_untouched() {
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
        // `leave_if` has removed the entry already.
        if let Some(entry) = entry.entries.entry.take() {
            entry.stay();
        }
        entry.lists = Some(lists);
        Some(entry)
    }

    /// Enters a submission into the graph again, because it stays held after all.
    ///
    /// It could go, so it closes no circle. It is entered because a search for blockers must find
    /// it.
    fn enter_again(&self, number: u64, lists: &Option<Box<Lists>>) -> Option<QueueEntry<'_>> {
        let (waits, claims) = parts(lists);
        let mut entered = Lists::default();
        entered.waits.extend(waits.iter().cloned());
        entered.claims.extend(claims.iter().cloned());
        self.take_entry(number, &mut entered).ok()
    }

    /// Registers for what the first submission lacks, and stops driving.
    ///
    /// False if it must be judged again.
    ///
    /// This thread drives until it has registered. Until then other threads only ask it to check
    /// again.
    pub(super) fn park(self: &Arc<Self>, missing: Missing) -> bool {
        let Some(registered) = self.register(missing) else {
            return false;
        };
        let mut state = self.state.lock();
        let parks = state.driving.try_stop();
        if parks {
            state.registered = registered;
        } else {
            // The registrations are dropped without the lock.
            drop(state);
        }
        parks
    }

    /// Puts a submission back to the front while the driver accepts none.
    ///
    /// The device's watching thread retries.
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

    /// Fails the signals of a submission, and leaves its number at the front.
    ///
    /// So a skipped submission counts for the bound on what is behind a closed gate.
    pub(super) fn skip(&self, entry: Entry<'_, E>, cause: &Failure) {
        let Entry {
            number,
            lists,
            job,
            mut entries,
        } = entry;
        // If a pass fails, the whole queue has failed, and its position does not advance any more.
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
        let out_of_line = self.take_out_of_line(&job);
        run_contained(|| drop(out_of_line));
        run_contained(|| drop(job));
    }

    /// The work of a submission, if it is stored out of line.
    fn take_out_of_line(&self, job: &Job<E>) -> Option<super::entry::LargeWork<E>> {
        match job {
            Job::OutOfLine(at) => self.state.lock().out_of_line.take(*at),
            _ => None,
        }
    }

    /// Registers the queue for all of `missing`, or for none if one of them is settled.
    fn register(self: &Arc<Self>, missing: Missing) -> Option<Registered> {
        let mut registered = Registered::default();
        for (point, stage) in missing {
            if !registered.add(point.of?, point.value, stage, self.clone()) {
                return None;
            }
        }
        Some(registered)
    }

    /// Sends a held submission.
    ///
    /// True if the driver's queue is locked, so that the submission stays at the front.
    ///
    /// Otherwise its cleared lists go to `spare`.
    pub(super) fn release<'l>(
        self: &'l Arc<Self>,
        entry: Entry<'l, E>,
        spare: &mut Option<Box<Lists>>,
    ) -> bool {
        // The releasing thread may be in a call that has nothing to do with this submission.
        let _foreign_work = ForeignWorkScope::new();
        let mut work = self.take_out_of_line(&entry.job);
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
                self.complete(number, handed, &taken, &mut entries, &mut keep)
            }
            Job::Pass(keep) => {
                self.pass(
                    number,
                    keep.map_or_else(Keep::default, |keep| *keep),
                    entries,
                );
                return self.front_is_prepared();
            }
            Job::Tiny(_) | Job::OutOfLine(_) => {
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
                // No caller is left to take the error, so the waiters get it.
                let cause = error.into_cause();
                self.skipped.add(number, &cause);
                fail_all(claims, &cause);
                self.pass_over(number, keep, GraphEntries::default());
                return self.front_is_prepared();
            }
        }
        drop((taken, waits));
        // The timelines are dropped without the lock.
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
    /// Fails the signals of a held submission as soon as it can never run (E2).
    ///
    /// That may be before the submissions in front of it are released.
    ///
    /// The first submission is left to the driving thread.
    fn reconsider(self: Arc<Self>, number: u64) {
        // Dropped without the lock.
        let mut lists = Lists::default();
        let mut taken = Lists::default();
        let (cause, inline, out_of_line, relayed);
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
            self.slot.copy_lists(number, &mut lists);
            let waits = lists.waits.iter().find_map(|wait| {
                let of = wait.of.as_ref()?;
                of.unreachable_cause(wait.value)
            });
            // A signal waits for its predecessor, unless the host makes it.
            let order = || {
                let mut claims = lists.claims.iter();
                claims.find_map(|(of, claim)| {
                    let of = of.as_ref()?;
                    of.port_on(self.device)?;
                    of.unreachable_cause(claim.above)
                })
            };
            let Some(found) = waits.or_else(order) else {
                return;
            };
            cause = found;
            inline = state
                .held
                .get_mut(index.unwrap_or_default() as usize)
                .and_then(Option::take);
            let at = inline.as_ref().and_then(|work| work.out_of_line());
            out_of_line = at.and_then(|at| state.out_of_line.take(at));
            let from = state.relayed.partition_point(|&(other, _)| other < number);
            let upto = state.relayed.partition_point(|&(other, _)| other <= number);
            relayed = state.relayed.drain(from..upto).collect::<Vec<_>>();
            self.slot.reduce(number, &mut taken);
        }
        drop(relayed);
        if inline.is_some() {
            self.skipped.add(number, &cause);
        }
        fail_all(&lists.claims, &cause);
        run_contained(|| drop(out_of_line));
        run_contained(|| drop(inline));
    }
}

impl<E: Enqueue> Wake for SubmissionQueue<E> {
    fn wake(self: Arc<Self>) {
        let me = this_thread();
        let mut state = self.state.lock();
        if state.driving.request_check() {
            return;
        }
        state.driving.take(me);
        // Dropped at the end, without the lock. Until then these registrations only ask this thread
        // to check again.
        let _registered = std::mem::take(&mut state.registered);
        self.drive_with(me, state);
    }
}
