//! Recording a submission and handing it to the driver.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use smallvec::SmallVec;

use super::entry::{Entry, kept};
use super::fast_path::own_point;
use super::graph_entries::GraphEntries;
use super::hold::{Awaited, State, Taken};
use super::relay::Relay;
use super::{SubmissionQueue, panic_message, withdraw_all};
use crate::base::error::{Error, Failure, Result};
use crate::base::run::{Wake, wake_all};
use crate::driver::enqueue::{Batch, Enqueue, Flush, Waker, Written};
use crate::driver::keep::Keep;
use crate::held::Lists;
use crate::timeline::point::{Completion, NativePoint};
use crate::timeline::state::Shared;

/// What a driver did with a submission. Small, so that it is not moved about: errors are few.
pub(super) enum Handed<E: Enqueue> {
    Taken,
    /// Its queue is locked.
    Busy(E::Prepared),
    Refused(Box<Error>),
}

/// What the driver signals of what was claimed, and to which value.
#[inline]
pub(super) fn signalled<'a>(
    claims: &'a [Taken<'_>],
) -> impl Iterator<Item = (&'a Arc<Shared>, u64)> + Clone {
    let here = claims.iter().filter(|claim| claim.port.is_some());
    here.map(|claim| (claim.of, claim.claim.upto))
}

/// Waits of a submission that may be let go by the death of another process, each with what is signalled then.
fn dependents<'a, 's>(
    waits: &'a [Awaited<'s>],
    claims: &'a [Taken<'s>],
) -> impl Iterator<Item = (&'a Awaited<'s>, &'a Taken<'s>)> {
    let natively = |wait: &&Awaited<'_>| {
        wait.port.is_some() && wait.of.depends_on_others() && wait.of.reached() < wait.value
    };
    let waits = waits.iter().filter(natively);
    waits.flat_map(move |wait| claims.iter().map(move |claim| (wait, claim)))
}

/// Notes what depends on others, before the driver has it. Why it comes to nothing, if that is known already.
#[cold]
fn note_dependents(waits: &[Awaited<'_>], claims: &[Taken<'_>]) -> Option<Failure> {
    for wait in waits.iter().filter(|wait| wait.port.is_some()) {
        wait.of.watch_over(wait.value);
    }
    let noted = dependents(waits, claims).map(|(wait, claim)| {
        wait.of
            .note_dependent(wait.value, claim.of, claim.claim.upto)
    });
    noted.filter_map(Result::err).last()
}

#[cold]
fn forget_dependents(waits: &[Awaited<'_>], claims: &[Taken<'_>]) {
    for (wait, claim) in dependents(waits, claims) {
        wait.of.forget_dependent(claim.of, claim.claim.upto);
    }
}

impl<E: Enqueue> SubmissionQueue<E> {
    /// Sends a submission that was never held. False if it is held now, because the driver's queue is locked.
    ///
    /// # Errors
    /// If it is refused, with its claims withdrawn.
    pub(super) fn send_now<'l, W>(
        self: &'l Arc<Self>,
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
        match self.send(number, waits, work, claims, &mut entries, &mut keep) {
            Handed::Taken => Ok(true),
            handed => {
                self.not_taken(number, handed, claims, entries, keep)?;
                Ok(false)
            }
        }
    }

    /// What becomes of a submission that was never held and that the driver has not taken: it is held now, or it is refused.
    ///
    /// # Errors
    /// If it is refused, with its claims withdrawn.
    #[cold]
    pub(super) fn not_taken<'l>(
        self: &'l Arc<Self>,
        number: u64,
        handed: Handed<E>,
        claims: &[Taken<'_>],
        mut entries: GraphEntries<'l>,
        keep: Keep,
    ) -> Result<(), Box<Error>> {
        match handed {
            Handed::Taken => {}
            Handed::Busy(prepared) => {
                // If only by a lock: whoever asks must find it. It waits for nobody in the graph, so it closes no circle.
                let (mut lists, mut entered) = (Box::<Lists>::default(), Lists::default());
                State::<E>::fill(&mut lists, &[], claims);
                State::<E>::fill(&mut entered, &[], claims);
                entries.entry = self.take_entry(number, &mut entered).ok();
                self.put_back(number, prepared, keep, Some(lists), entries);
            }
            Handed::Refused(error) => {
                withdraw_all(claims);
                self.pass_over(number, keep, GraphEntries::default());
                return Err(error);
            }
        }
        Ok(())
    }

    /// Records a submission and hands it to the driver. What is kept, also by a part of it, goes to `keep`.
    pub(super) fn send<W>(
        self: &Arc<Self>,
        number: u64,
        waits: &[Awaited<'_>],
        work: W,
        claims: &[Taken<'_>],
        entries: &mut GraphEntries<'_>,
        keep: &mut Keep,
    ) -> Handed<E>
    where
        W: for<'r, 'a> FnOnce(&'r mut E::Recorder<'a>) -> Result<(), Box<Error>>,
    {
        // One list for what mostly is short. Pushed, since collecting costs as much as the rest of the call.
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
            // Waited for before the work already.
            let waited = |wait: &Awaited<'_>| wait.value >= value && Arc::ptr_eq(wait.of, of);
            let Some(port) = port else {
                relayed.push(Completion::new(of, claim.upto));
                continue;
            };
            if of.reached() < value && !of.is_from(value, self.domain) && !waits.iter().any(waited)
            {
                natives.push(NativePoint { of, port, value });
            }
        }
        let between = natives.len();
        // Before the signals are listed: who has failed by then is not.
        let (stamp, mut lacks) = match self.stamp_signals(claims) {
            Ok(stamp) => (stamp, None),
            // The driver is asked for the record all the same: what has said that it is ready for one gets one.
            Err(error) => (None, Some(error)),
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
        let own = self.own_shared();
        let batch = Batch {
            waits: &natives[..before],
            order: &natives[before..between],
            signals: &natives[between..],
            relayed: &relayed,
            end: own_point(own, number),
            times: Written(stamp.as_ref()),
            is_bare: false,
        };
        let work = |recorder: &mut E::Recorder<'_>| match lacks.take() {
            Some(error) => Err(error),
            None => work(recorder),
        };
        let depends = waits.iter().any(|wait| wait.of.depends_on_others());
        let lost = depends.then(|| note_dependents(waits, claims)).flatten();
        if !relayed.is_empty() {
            self.note_relays(number, claims);
        }
        let handed = self.hand_over(&batch, work, keep);
        if matches!(handed, Handed::Refused(_)) {
            if !relayed.is_empty() {
                self.forget_relays(number);
            }
            if stamp.is_some() {
                self.expect_no_times(claims);
            }
            if depends {
                forget_dependents(waits, claims);
            }
        }
        let handed = self.take_in(number, handed, claims, entries, keep);
        if let (Some(cause), Handed::Taken | Handed::Busy(_)) = (lost, &handed) {
            claims.iter().for_each(|claim| claim.of.fail(cause.clone()));
        }
        handed
    }

    /// Records a submission and hands it to the driver.
    #[inline]
    pub(super) fn hand_over<W>(
        self: &Arc<Self>,
        batch: &Batch<'_>,
        work: W,
        keep: &mut Keep,
    ) -> Handed<E>
    where
        W: for<'r, 'a> FnOnce(&'r mut E::Recorder<'a>) -> Result<(), Box<Error>>,
    {
        // Around the work, so that the backend can undo what it had begun; and around all of it, since what
        // is dropped in there, the work's own captures among it, is the application's and may panic too.
        self.guarded(|| {
            let work = |recorder: &mut E::Recorder<'_>| match catch_unwind(AssertUnwindSafe(|| {
                work(recorder)
            })) {
                Ok(Ok(())) => Ok(()),
                Ok(Err(error)) => Err(*error),
                Err(payload) => Err(self.panicked(payload)),
            };
            match self.driver.record(batch, keep, work) {
                Ok(prepared) => self.hand_prepared(prepared),
                Err(error) => Handed::Refused(self.told(error)),
            }
        })
    }

    /// Hands a submission that was recorded before to the driver.
    pub(super) fn hand_over_prepared(self: &Arc<Self>, prepared: E::Prepared) -> Handed<E> {
        self.guarded(|| self.hand_prepared(prepared))
    }

    /// May panic: a driver that refuses a submission drops what was prepared, on the host closures of the application.
    #[inline]
    fn hand_prepared(self: &Arc<Self>, prepared: E::Prepared) -> Handed<E> {
        let waker = || Waker(self.clone() as Arc<dyn Wake>);
        match self.driver.flush(prepared, &waker) {
            Flush::Done => Handed::Taken,
            Flush::Busy(prepared) => Handed::Busy(prepared),
            Flush::Refused(error) => Handed::Refused(Box::new(error)),
        }
    }

    /// Runs what may panic for the application's sake: that is a refusal then.
    #[inline]
    fn guarded(&self, action: impl FnOnce() -> Handed<E>) -> Handed<E> {
        let handed = catch_unwind(AssertUnwindSafe(action));
        handed.unwrap_or_else(|payload| Handed::Refused(self.told(self.panicked(payload))))
    }

    #[cold]
    fn panicked(&self, payload: Box<dyn Any + Send>) -> Error {
        Error::WorkPanicked {
            queue: self.object.clone(),
            message: panic_message(payload),
        }
    }

    #[cold]
    fn told(&self, error: Error) -> Box<Error> {
        Box::new(error.on(&self.object))
    }

    /// Lets the timelines know of a submission that the driver has taken.
    #[inline]
    pub(super) fn take_in(
        self: &Arc<Self>,
        number: u64,
        handed: Handed<E>,
        claims: &[Taken<'_>],
        entries: &mut GraphEntries<'_>,
        keep: &mut Keep,
    ) -> Handed<E> {
        if !matches!(handed, Handed::Taken) {
            return handed;
        }
        let units = self.keep(number, keep);
        // Who waits for it waits for the driver from now on, or for the signals that the host has yet to make.
        drop(entries.entry.take());
        self.promote(number, units, signalled(claims));
        let mut entries = std::mem::take(&mut entries.relayed).into_iter();
        for Taken { of, claim, .. } in claims.iter().filter(|claim| claim.port.is_none()) {
            let relay = Relay {
                own: self.own_shared().clone(),
                number,
                of: Arc::clone(of),
                claim: *claim,
                _entry: entries.next(),
            };
            wake_all([Arc::new(relay) as Arc<dyn Wake>]);
        }
        Handed::Taken
    }

    /// Keeps what a submission uses that the driver has taken, until it has finished. Tells what it takes of the budget.
    #[inline]
    pub(super) fn keep(&self, number: u64, keep: &mut Keep) -> u64 {
        if keep.is_nothing() {
            return 0;
        }
        let units = if self.budget.is_some() {
            keep.units()
        } else {
            0
        };
        let objects = !keep.is_empty();
        let mut state = self.state.lock();
        if units > 0 {
            state.taken.push_back((number, units));
        }
        if objects {
            state.kept.push_back((number, std::mem::take(keep)));
        }
        drop(state);
        // InFlightBudget alone is looked at when there is none left.
        if objects {
            self.note_that_some_is_kept(number);
        }
        units
    }

    /// Notes that the signals of submission `number` are with the driver, then that its position is,
    /// and that it takes `units` of the budget. Then wakes who waited for that: a woken thread finds all
    /// of them pending, and a thread that sees the position pending finds the signals pending.
    #[inline]
    pub(super) fn promote<'a>(
        &self,
        number: u64,
        units: u64,
        signals: impl Iterator<Item = (&'a Arc<Shared>, u64)> + Clone,
    ) {
        let own = self.own_shared();
        for (of, value) in signals.clone() {
            if of.tells_ahead() {
                own.owe(number, of, value);
            }
            of.promote(value, self.domain, Some(&self.object));
        }
        own.raise_pending(number);
        // Pending first: a submission that finds no budget then finds what to wait for.
        if let Some(budget) = self.budget.as_ref().filter(|_| units > 0) {
            budget.count(units);
        }
        signals.for_each(|(of, _)| of.wake_promoted());
        own.wake_promoted();
    }

    /// Gives a refused or skipped submission's number to the driver, with no work, so that the queue's
    /// position goes on and what the driver may already use of it is kept until then. Stays at the front if
    /// the driver takes none now: the caller drives on, and so finds it.
    pub(super) fn pass_over(self: &Arc<Self>, number: u64, keep: Keep, entries: GraphEntries<'_>) {
        if !self.driver.ready() {
            let pass = Entry::pass(number, kept(keep), entries);
            self.state.lock().push_front(pass);
            return;
        }
        self.pass(number, keep, entries);
    }

    /// As [`SubmissionQueue::pass_over`], for a driver that has just said that it is ready.
    pub(super) fn pass(
        self: &Arc<Self>,
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
            end: own_point(own, number),
            times: Written(None),
            is_bare: true,
        };
        let handed = match self.driver.record(&batch, &mut kept, |_| Ok(())) {
            Ok(prepared) => self.hand_over_prepared(prepared),
            Err(error) => Handed::Refused(Box::new(error)),
        };
        match self.take_in(number, handed, &[], &mut entries, &mut kept) {
            Handed::Taken => {}
            Handed::Busy(prepared) => {
                self.put_back(number, prepared, kept, None, entries);
            }
            // Not even that: the queue itself is gone. The driver may still use what was kept, so that stays
            // for as long as the queue.
            Handed::Refused(error) => {
                self.state.lock().kept.push_back((number, kept));
                own.fail(error.into_cause());
            }
        }
    }
}
