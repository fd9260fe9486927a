//! The path of a submission that may be held, refused or skipped.

use std::sync::Arc;

use super::driving::Drive;
use super::entry::{Entry, Job};
use super::graph_entries::GraphEntries;
use super::submission_queue::SubmissionQueue;
use super::submitted::Submitted;
use super::verdict::Verdict;
use super::waits_and_claims::{AllAwaited, AllTaken, Awaited, Taken, fill, withdraw_all};
use super::work::Work;
use crate::base::error::{Error, Result};
use crate::base::run::DeferWakes;
use crate::base::sync::{Ordering, fence, this_thread};
use crate::driver::enqueue::Enqueue;
use crate::held::{Holder as _, Lists};
use crate::timeline::point::{Point, Signal};
use crate::timeline::state::{Interval, Shared};

impl<E: Enqueue> SubmissionQueue<E> {
    /// The slow path. Same errors as [`SubmissionQueue::submit_work`].
    #[inline(never)]
    pub(super) fn submit_slow<'q>(
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
        self.refresh_before_lock(signals)?;
        if self.checks().keeps() {
            drop(self.drop_some_finished(self.lock()));
        }
        // Queues that this submission releases may submit to this queue, so they run after it is no
        // longer driven.
        let _deferred = DeferWakes::new();
        let mut state = self.lock();
        if state.driving.is_by(me) {
            return Err(Box::new(Error::Reentrant {
                queue: self.object().clone(),
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
                fill(&mut lists, waits, &claims);
            }
            let taken = self.take_entries(number, held.then_some(&mut *lists), &claims);
            // Empty unless the submission was refused. This frees nothing, because the caller has
            // all of these timelines.
            lists.clear();
            state.scratch = Some(lists);
            entries = taken.inspect_err(|_| withdraw_all(&claims))?;
        }
        self.take_number(&mut state, number);
        let budget = state
            .in_flight
            .take_finished_units(self.own_shared().reached());
        let drive = idle.then(|| state.driving.take(me)).flatten();
        let drive = match drive {
            Some(drive) if !held => {
                drop(state);
                self.return_budget(budget);
                return self.send_at_once(drive, number, work, waits, &claims, entries);
            }
            drive => drive,
        };
        state.held.push_back(number, work, entries);
        let is_unguarded = self.note_held();
        drop(state);
        self.return_budget(budget);
        if is_unguarded {
            self.guard_held();
        }
        // A timeline may have failed before the graph had the submission. The fence pairs with the
        // one of the failing thread: one of the two sees the other.
        fence(Ordering::SeqCst);
        if let Some(drive) = drive {
            let parked = match verdict {
                Verdict::Blocked(missing) if self.none_has_ended(waits, &claims) => {
                    self.park(missing, drive)
                }
                _ => Err(drive),
            };
            if let Err(drive) = parked {
                self.drive(drive);
            }
        } else {
            // If the submission is the first one, this asks the driving thread to check again.
            self.clone().reconsider(number);
        }
        Ok(self.submitted(number))
    }

    /// Sends a submission that need not be held.
    ///
    /// # Errors
    /// The reason if it is refused. Its claims are withdrawn then.
    fn send_at_once<'q>(
        self: &'q Arc<Self>,
        mut drive: Drive<E>,
        number: u64,
        work: &mut dyn Work<E>,
        waits: &[Awaited<'_>],
        claims: &[Taken<'_>],
        entries: GraphEntries<'q>,
    ) -> Result<Submitted<'q>, Box<Error>> {
        let Some(ready) = self.driver().ready() else {
            self.put_off_new(drive, number, work, waits, claims, entries);
            return Ok(self.submitted(number));
        };
        let record = |recorder: &mut E::Recorder<'_>| work.record(recorder);
        let sent = self.send_now(&mut drive, ready, number, waits, record, claims, entries);
        let left = match sent {
            Ok(true) => self.try_leave(drive),
            _ => Err(drive),
        };
        if let Err(drive) = left {
            self.drive(drive);
        }
        sent.map(|_| self.submitted(number))
    }

    /// Holds a submission that could go, until the driver accepts submissions again.
    #[cold]
    pub(super) fn put_off_new<'l>(
        self: &'l Arc<Self>,
        drive: Drive<E>,
        number: u64,
        work: &mut dyn Work<E>,
        waits: &[Awaited<'_>],
        claims: &[Taken<'_>],
        mut entries: GraphEntries<'l>,
    ) {
        let (mut lists, mut entered) = (Box::<Lists>::default(), Lists::default());
        fill(&mut lists, waits, claims);
        fill(&mut entered, waits, claims);
        // The submission could go, so it closes no circle. It is in the graph only because a search
        // for blockers must find it.
        entries.entry = self.take_entry(number, &mut entered).ok();
        let work = work.store(self.lock().held.out_of_line());
        let entry = Entry {
            number,
            lists: Some(lists),
            job: Job::from_inline(Some(work)),
            entries,
        };
        self.put_off(drive, entry);
    }

    /// True if no timeline of a submission has failed or lost its last handle.
    ///
    /// Then an earlier verdict can have missed only values that have come since. The registration
    /// of the queue notices these values.
    fn none_has_ended(&self, waits: &[Awaited<'_>], claims: &[Taken<'_>]) -> bool {
        !self.own_shared().is_troubled()
            && waits.iter().all(|wait| !wait.of.is_troubled())
            && claims.iter().all(|claim| !claim.of.is_troubled())
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
            of.require_maker()?;
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
    ///
    /// # Errors
    /// [`Error::MadeBeforeFork`] for a signal of the parent process.
    fn refresh_before_lock(&self, signals: &[Signal<'_>]) -> Result<()> {
        for signal in signals {
            signal.of.require_maker()?;
            signal.of.refresh_if_far(signal.value);
        }
        match self.budget() {
            Some(budget) if budget.is_full() => budget.give_back_finished(),
            _ => _ = self.check_finished_if_due(),
        }
        Ok(())
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
            // same timeline. The claim begins at the pending value. No wait for the timeline lies
            // above that value.
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
            timeline: signal.of.object().clone(),
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
