//! Recording a submission and handing it to the driver.

use std::any::Any;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use smallvec::SmallVec;

use super::driving::Drive;
use super::entry::{Entry, kept};
use super::graph_entries::GraphEntries;
use super::relay::Relay;
use super::state::State;
use super::submission_queue::SubmissionQueue;
use super::waits_and_claims::{Awaited, Taken, fill, signalled, withdraw_all};
use crate::base::error::{Error, Failure, Result};
use crate::base::run::{Wake, panic_message, wake_all};
use crate::driver::enqueue::{Batch, Enqueue, Flush, Waker, Written};
use crate::driver::keep::Keep;
use crate::held::Lists;
use crate::timeline::point::{NativePoint, Relayed};
use crate::timeline::state::{Interval, Shared};

/// The answer of a driver to a submission. Errors are boxed, because they are rare and large.
pub(super) enum Handed {
    Taken,
    /// The driver's queue is locked.
    Busy,
    Refused(Box<Error>),
}

/// A submission that [`SubmissionQueue::note_dependent`] has noted.
pub(super) struct Noted {
    /// The cause, if a timeline that it waits for was lost by then.
    lost: Option<Failure>,
}

impl<E: Enqueue> SubmissionQueue<E> {
    /// Sends a submission that was never held.
    ///
    /// False if it is held now, because the driver's queue is locked.
    ///
    /// # Errors
    /// The reason if it is refused. Its claims are withdrawn then.
    #[expect(clippy::too_many_arguments, reason = "the parts of one submission")]
    pub(super) fn send_now<'l, W>(
        self: &'l Arc<Self>,
        drive: &mut Drive<E>,
        ready: E::Ready<'_>,
        number: u64,
        waits: &[Awaited<'_>],
        work: W,
        claims: &[Taken<'_>],
        mut entries: GraphEntries<'l>,
    ) -> Result<bool, Box<Error>>
    where
        W: for<'r, 'a> FnOnce(&'r mut E::Recorder<'a>) -> Result<(), Box<Error>>,
    {
        let mut keep = Keep::default();
        match self.send(
            drive,
            ready,
            number,
            waits,
            work,
            claims,
            &mut entries,
            &mut keep,
        ) {
            Handed::Taken => Ok(true),
            handed => {
                self.not_taken(drive, number, handed, claims, entries, keep)?;
                Ok(false)
            }
        }
    }

    /// Holds a submission that the driver's lock kept out, or rejects one that the driver has
    /// refused.
    ///
    /// # Errors
    /// The reason if it is refused. Its claims are withdrawn then.
    #[cold]
    pub(super) fn not_taken<'l>(
        self: &'l Arc<Self>,
        drive: &mut Drive<E>,
        number: u64,
        handed: Handed,
        claims: &[Taken<'_>],
        mut entries: GraphEntries<'l>,
        keep: Keep,
    ) -> Result<(), Box<Error>> {
        match handed {
            Handed::Taken => {}
            Handed::Busy => {
                // The submission waits for no node, so it closes no circle. It is in the graph only
                // because a search for blockers must find it.
                let (mut lists, mut entered) = (Box::<Lists>::default(), Lists::default());
                fill(&mut lists, &[], claims);
                fill(&mut entered, &[], claims);
                entries.entry = self.take_entry(number, &mut entered).ok();
                self.put_back(number, keep, Some(lists), entries);
            }
            Handed::Refused(error) => {
                withdraw_all(claims);
                self.pass_over(drive, number, keep, GraphEntries::default());
                return Err(error);
            }
        }
        Ok(())
    }

    /// Records a submission and hands it to the driver.
    ///
    /// The objects that the submission keeps go to `keep`, even if the submission is refused.
    #[expect(clippy::too_many_arguments, reason = "the parts of one submission")]
    pub(super) fn send<W>(
        self: &Arc<Self>,
        drive: &mut Drive<E>,
        ready: E::Ready<'_>,
        number: u64,
        waits: &[Awaited<'_>],
        work: W,
        claims: &[Taken<'_>],
        entries: &mut GraphEntries<'_>,
        keep: &mut Keep,
    ) -> Handed
    where
        W: for<'r, 'a> FnOnce(&'r mut E::Recorder<'a>) -> Result<(), Box<Error>>,
    {
        // One list, which is usually short. A loop, because collecting costs as much as the rest of
        // the call.
        let mut natives: SmallVec<[NativePoint<'_>; 16]> = SmallVec::new();
        for &Awaited { of, value, port } in waits {
            if let Some(port) = port {
                natives.push(NativePoint { of, port, value });
            }
        }
        let before = natives.len();
        let mut relayed = Vec::new();
        for &Taken { of, claim, port } in claims {
            let value = claim.above;
            // The submission waits for the predecessor itself, before its work.
            let waited = |wait: &Awaited<'_>| wait.value >= value && Arc::ptr_eq(wait.of, of);
            let Some(port) = port else {
                relayed.push(Relayed::of(of.clone(), claim.upto));
                continue;
            };
            if of.reached() < value
                && !of.is_from(value, self.domain())
                && !waits.iter().any(waited)
            {
                natives.push(NativePoint { of, port, value });
            }
        }
        let between = natives.len();
        // Before the signals are listed, because a timeline that has failed by then is not among
        // them.
        let stamp = match self.stamp_signals(claims) {
            Ok(stamp) => stamp,
            Err(error) => {
                return self.guarded(move || {
                    drop(work);
                    Handed::Refused(self.error_on_queue(*error))
                });
            }
        };
        if let Some(stamp) = &stamp {
            self.expect_times(claims, stamp);
        }
        for &Taken { of, claim, port } in claims {
            if let Some(port) = port.filter(|_| !of.is_failed()) {
                let value = claim.upto;
                natives.push(NativePoint { of, port, value });
            }
        }
        let batch = Batch {
            waits: &natives[..before],
            order: &natives[before..between],
            signals: &natives[between..],
            relayed: &relayed,
            end: self.end_point(number),
            times: Written(stamp.as_ref()),
            is_bare: false,
            of: PhantomData,
        };
        for native in &natives[before..between] {
            if native.of.depends_on_others() {
                // A lost device is noticed only as long as the timeline exists.
                keep.push(native.of.clone());
            }
        }
        let all_claims = claims.iter().map(|claim| (claim.of, claim.claim));
        let noted = self.note_dependent(number, &natives[..before], all_claims.clone());
        if !relayed.is_empty() {
            self.note_relays(number, claims);
        }
        let handed = self.hand_over(drive.backend(), ready, &batch, work, keep);
        if matches!(handed, Handed::Refused(_)) {
            if !relayed.is_empty() {
                self.forget_relays(number);
            }
            if stamp.is_some() {
                self.forget_times(claims);
            }
        }
        if let Some(noted) = noted {
            self.settle_dependent(noted, all_claims, &handed);
        }
        self.complete(number, handed, claims, entries, keep)
    }

    /// Notes a submission that waits natively for other devices or processes (E3).
    ///
    /// Call it before the driver has the submission, and [`SubmissionQueue::settle_dependent`]
    /// after that. `None` if the submission has no such wait.
    #[inline]
    pub(super) fn note_dependent<'a>(
        &self,
        number: u64,
        waits: &[NativePoint<'_>],
        claims: impl Iterator<Item = (&'a Arc<Shared>, Interval)>,
    ) -> Option<Noted> {
        if !waits.iter().any(|wait| wait.of.depends_on_others()) {
            return None;
        }
        for wait in waits {
            wait.of.watch_for_driver(wait.value);
        }
        self.dependents().add(number, waits, claims);
        self.checks().note_kept(number);
        // After that, so that a loss finds the submission, or this finds the loss.
        let mut waits = waits.iter();
        let lost = waits.find_map(|wait| wait.of.lost_before(wait.value));
        Some(Noted {
            lost: lost.cloned(),
        })
    }

    /// Fails the signals of a noted submission whose wait was lost, and forgets a refused one.
    ///
    /// Call it before the signals become pending, so that they do not show as reached.
    #[inline]
    pub(super) fn settle_dependent<'a>(
        &self,
        noted: Noted,
        claims: impl Iterator<Item = (&'a Arc<Shared>, Interval)>,
        handed: &Handed,
    ) {
        match (handed, noted.lost) {
            (Handed::Refused(_), _) => self.dependents().forget_last_signals(),
            (_, Some(cause)) => claims.for_each(|(of, _)| of.fail_late(&cause)),
            (_, None) => {}
        }
    }

    /// Records a submission and hands it to the driver.
    #[inline]
    pub(super) fn hand_over<W>(
        self: &Arc<Self>,
        backend: &mut E::State,
        ready: E::Ready<'_>,
        batch: &Batch<'_, E>,
        work: W,
        keep: &mut Keep,
    ) -> Handed
    where
        W: for<'r, 'a> FnOnce(&'r mut E::Recorder<'a>) -> Result<(), Box<Error>>,
    {
        // The inner guard lets the backend undo what it has begun. The outer one covers the drops
        // of the application's objects, such as the captures of the work, which may panic, too.
        self.guarded(|| {
            let work = |recorder: &mut E::Recorder<'_>| match catch_unwind(AssertUnwindSafe(|| {
                work(recorder)
            })) {
                Ok(Ok(())) => Ok(()),
                Ok(Err(error)) => Err(*error),
                Err(payload) => Err(self.panicked(payload)),
            };
            match self.driver().record(ready, backend, batch, keep, work) {
                Ok(()) => self.flush(backend),
                Err(error) => Handed::Refused(self.error_on_queue(error)),
            }
        })
    }

    /// Hands a recorded submission to the driver.
    pub(super) fn hand_over_recorded(self: &Arc<Self>, backend: &mut E::State) -> Handed {
        self.guarded(|| self.flush(backend))
    }

    /// May panic: a refused submission drops host closures of the application.
    #[inline]
    fn flush(self: &Arc<Self>, backend: &mut E::State) -> Handed {
        let waker = || Waker(self.clone() as Arc<dyn Wake>);
        match self.driver().flush(backend, &waker) {
            Flush::Done => Handed::Taken,
            Flush::Busy => Handed::Busy,
            Flush::Refused(error) => Handed::Refused(Box::new(error)),
        }
    }

    /// Runs code of the application that may panic. A panic becomes a refusal.
    #[inline]
    fn guarded(&self, action: impl FnOnce() -> Handed) -> Handed {
        let handed = catch_unwind(AssertUnwindSafe(action));
        handed
            .unwrap_or_else(|payload| Handed::Refused(self.error_on_queue(self.panicked(payload))))
    }

    #[cold]
    fn panicked(&self, payload: Box<dyn Any + Send>) -> Error {
        Error::WorkPanicked {
            queue: self.object().clone(),
            message: panic_message(payload),
        }
    }

    #[cold]
    fn error_on_queue(&self, error: Error) -> Box<Error> {
        Box::new(error.on(self.object()))
    }

    /// Promotes the claims of a submission that the driver has taken, and starts its relays.
    #[inline]
    pub(super) fn complete(
        self: &Arc<Self>,
        number: u64,
        handed: Handed,
        claims: &[Taken<'_>],
        entries: &mut GraphEntries<'_>,
        keep: &mut Keep,
    ) -> Handed {
        if !matches!(handed, Handed::Taken) {
            return handed;
        }
        let units = self.keep(number, keep);
        // From now on others wait for the driver or for the host signals, and not for this
        // submission.
        drop(entries.entry.take());
        self.promote(number, signalled(claims));
        self.take_budget(number, units);
        self.wake_promoted(signalled(claims));
        let mut entries = std::mem::take(&mut entries.relayed).into_iter();
        for claim in claims.iter().filter(|claim| claim.port.is_none()) {
            let relay = Relay::new(self.own_shared(), number, claim, entries.next());
            wake_all([relay as Arc<dyn Wake>]);
        }
        Handed::Taken
    }

    /// Keeps the objects of a submission until it has finished. Returns the budget that it takes.
    ///
    /// Call it before the submission's position is pending. So a thread that waits for the position
    /// finds the objects.
    #[inline]
    pub(super) fn keep(&self, number: u64, keep: &mut Keep) -> u64 {
        let units = self.budget().map_or(0, |_| keep.units());
        if !keep.is_empty() {
            let kept = std::mem::take(keep);
            self.lock().in_flight.add_kept(number, kept);
            self.checks().note_kept(number);
        }
        units
    }

    /// Notes and counts the budget that submission `number` takes.
    ///
    /// Call it after the submission's position is pending. So a submission that finds the budget
    /// used up finds a position to wait for.
    fn take_budget(&self, number: u64, units: u64) {
        if units > 0 {
            self.note_budget(&mut self.lock(), number, units);
        }
    }

    /// Same as `take_budget`, and stops driving under the same lock.
    ///
    /// # Errors
    /// Same errors as [`SubmissionQueue::try_leave`].
    #[inline]
    pub(super) fn take_budget_and_leave(
        &self,
        drive: Drive<E>,
        number: u64,
        units: u64,
    ) -> Result<(), Drive<E>> {
        let mut state = self.lock();
        if units > 0 {
            self.note_budget(&mut state, number, units);
        }
        state.driving.try_stop(drive)
    }

    /// Notes and counts `units` of the budget.
    ///
    /// While this thread drives, so that one submission of a queue at a time is not counted. With
    /// the lock, so that no units are given back before they are counted.
    fn note_budget(&self, state: &mut State<E>, number: u64, units: u64) {
        state.in_flight.add_units(number, units);
        if let Some(budget) = self.budget() {
            budget.count(units);
        }
    }

    /// Promotes the signals of submission `number`, then its position.
    ///
    /// In this order, so that a thread that sees the position pending finds all signals pending.
    /// Call [`SubmissionQueue::wake_promoted`] after that.
    #[inline]
    pub(super) fn promote<'a>(
        &self,
        number: u64,
        signals: impl Iterator<Item = (&'a Arc<Shared>, Interval)>,
    ) {
        let own = self.own_shared();
        for (of, claim) in signals {
            if of.publishes_ahead() {
                own.note_unpublished(number, of, claim.upto);
            }
            of.note_owed(claim, Some(self.device()));
            of.promote(claim.upto, self.domain(), Some(self.object()));
        }
        own.raise_pending(number);
    }

    /// Wakes the waiters for the promoted signals and for the position.
    ///
    /// Call it after the budget is counted, because queues that share it may submit in this call.
    #[inline]
    pub(super) fn wake_promoted<'a>(
        &self,
        signals: impl Iterator<Item = (&'a Arc<Shared>, Interval)>,
    ) {
        signals.for_each(|(of, _)| of.wake_promoted());
        self.own_shared().wake_promoted();
    }

    /// Gives the number of a refused or skipped submission to the driver, without work.
    ///
    /// So the queue's position advances, and `keep` lives until the driver is done with it. If the
    /// driver is not ready, the number stays at the front, and the caller must drive the queue.
    pub(super) fn pass_over(
        self: &Arc<Self>,
        drive: &mut Drive<E>,
        number: u64,
        keep: Keep,
        entries: GraphEntries<'_>,
    ) {
        let Some(ready) = self.driver().ready() else {
            let pass = Entry::pass(number, kept(keep), entries);
            self.lock().held.push_front(pass);
            return;
        };
        self.pass(drive, ready, number, keep, entries);
    }

    /// Same as [`SubmissionQueue::pass_over`], for a driver that is ready.
    pub(super) fn pass(
        self: &Arc<Self>,
        drive: &mut Drive<E>,
        ready: E::Ready<'_>,
        number: u64,
        mut kept: Keep,
        mut entries: GraphEntries<'_>,
    ) {
        let own = self.own_shared();
        let batch = Batch {
            waits: &[],
            order: &[],
            signals: &[],
            relayed: &[],
            end: self.end_point(number),
            times: Written(None),
            is_bare: true,
            of: PhantomData,
        };
        let handed = self.hand_over(drive.backend(), ready, &batch, |_| Ok(()), &mut kept);
        match self.complete(number, handed, &[], &mut entries, &mut kept) {
            Handed::Taken => {}
            Handed::Busy => {
                self.put_back(number, kept, None, entries);
            }
            // The queue itself has failed. The driver may still use the kept objects, so they live
            // as long as the queue.
            Handed::Refused(error) => {
                self.lock().in_flight.add_kept(number, kept);
                own.fail(error.into_cause());
            }
        }
    }
}
