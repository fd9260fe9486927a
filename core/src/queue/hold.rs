//! The hold: submissions that cannot go to the driver yet, and their release.

use std::sync::Arc;

use super::held_list::HeldSubmission;
use super::judge::{Missing, Obstacle};
use super::send::{Outcome, Retry};
use super::state::State;
use super::submission::Submission;
use super::submission_queue::SubmissionQueue;
use super::turn::Turn;
use super::work::{Record, Work};
use crate::base::error::{Error, Failure, Result};
use crate::base::exiting::{DriverCalls, is_exiting};
use crate::base::run::{ForeignWorkScope, Wake, run_contained};
use crate::base::steps;
use crate::base::sync::{MutexGuard, Ordering, fence, this_thread};
use crate::driver::enqueue::Enqueue;
use crate::driver::keep::Keep;
use crate::held::{Edges, Holder};
use crate::timeline::point::Point;
use crate::timeline::state::Registered;

impl<E: Enqueue> SubmissionQueue<E> {
    /// Holds a submission behind all that the queue holds.
    ///
    /// # Errors
    /// [`Error::Circular`]. Nothing has changed then.
    #[inline(never)]
    pub(super) fn hold<'l>(
        self: &'l Arc<Self>,
        mut state: MutexGuard<'l, State<E>>,
        waits: &[Point<'_>],
        submission: &mut Submission<'_>,
        work: &mut dyn Record<E>,
    ) -> Result<(), Box<Error>> {
        let number = submission.number;
        let edges = submission.edges(waits);
        let entered = self.slot().enter(number, &edges);
        entered.map_err(|circle| self.circular(submission, circle))?;
        if let Err(circle) = self.enter_relays(&mut state, submission) {
            self.slot().leave(number);
            return Err(self.circular(submission, circle));
        }
        self.take_number(&mut state, number);
        let turn = match state.held.is_empty() {
            true => state.turns.begin(this_thread()),
            false => None,
        };
        let held = HeldSubmission {
            edges: Some(edges),
            work: Work::ToRecord(work.store()),
        };
        state.held.push_back(number, held);
        if self.note_held() {
            drop(state);
            self.guard_held();
            state = self.lock();
        }
        // A timeline may have failed before the graph had the submission. The fence pairs with the
        // one of the failing thread: one of the two sees the other.
        fence(Ordering::SeqCst);
        match turn {
            Some(turn) => self.release_held(turn, state),
            None => {
                drop(state);
                // If the submission is the first one, this asks the thread with the turn to check.
                self.clone().reconsider(number);
            }
        }
        Ok(())
    }

    /// Makes a submission that was to be sent a held one.
    #[cold]
    pub(super) fn hold_sent(
        &self,
        submission: &mut Submission<'_>,
        waits: &[Point<'_>],
        work: &mut dyn Record<E>,
        retry: Retry,
    ) -> HeldSubmission<E> {
        // A recorded submission waits only for its driver queue.
        let waits = if matches!(retry, Retry::Timer) {
            waits
        } else {
            &[]
        };
        let edges = submission.edges(waits);
        // The submission could go, so it closes no circle. It is in the graph only because a search
        // for blockers must find it.
        let _ = self.slot().enter(submission.number, &edges);
        HeldSubmission {
            edges: Some(edges),
            work: match retry {
                Retry::Timer => Work::ToRecord(work.store()),
                Retry::Unlock => Work::Recorded(Box::new(std::mem::take(&mut submission.keep))),
            },
        }
    }

    /// Releases held submissions until one cannot go, then ends the turn.
    ///
    /// The caller holds the queue's lock.
    pub(super) fn release_held<'l>(
        self: &'l Arc<Self>,
        mut turn: Turn<E>,
        mut state: MutexGuard<'l, State<E>>,
    ) {
        let calls = DriverCalls::begin();
        loop {
            if calls.is_none() || is_exiting() {
                state.turns.end(turn);
                return;
            }
            state.turns.begin_check();
            let Some((number, mut first)) = state.held.pop_front() else {
                self.held_guard().note_empty();
                state.turns.end(turn);
                return;
            };
            let obstacle = match first.work {
                Work::ToRecord(_) => self.judge(number, first.edges.as_deref()),
                // The driver knows what it waits for.
                Work::Recorded(_) => None,
            };
            let left = match obstacle {
                None => {
                    drop(state);
                    let mut submission = self.submission(number, first.edges.as_deref());
                    let outcome = self.send_held(turn, &mut submission, &mut first.work);
                    let keep = std::mem::take(&mut submission.keep);
                    drop(submission);
                    self.finish_held(outcome, number, first, keep)
                }
                Some(Obstacle::Skip(cause)) => {
                    drop(state);
                    self.skip(number, first, Keep::default(), &cause);
                    Some(turn)
                }
                Some(Obstacle::Blocked(missing)) => {
                    state.held.push_front(number, first);
                    drop(state);
                    self.park(missing, turn)
                }
                Some(Obstacle::Full) => {
                    state.held.push_front(number, first);
                    drop(state);
                    self.wait_for_budget(turn)
                }
            };
            let Some(again) = left else { return };
            turn = again;
            state = self.lock();
        }
    }

    /// The held submission `number` with its ports, as it is sent.
    fn submission<'s>(&self, number: u64, edges: Option<&'s Edges>) -> Submission<'s> {
        let mut submission = Submission::new();
        submission.number = number;
        submission.was_held = true;
        let Some(edges) = edges else {
            return submission;
        };
        for (of, value) in &edges.waits {
            let value = *value;
            if of.reached() >= value {
                continue;
            }
            submission.add_wait(of, of.port_on(self.device()), value);
        }
        // First the device's, as `Edges` has them.
        for (at, (of, claim)) in edges.claims.iter().enumerate() {
            let port = of.port_on(self.device());
            submission.add_signal(of, port, claim.upto);
            if port.is_some() {
                submission.note_claim(at, claim.above, self.domain());
            } else if let Some(signal) = submission.on_host().signals.last_mut() {
                signal.1 = *claim;
            }
        }
        submission
    }

    /// Sends a held submission that is ready and that the list does not have.
    #[inline(never)]
    fn send_held(
        self: &Arc<Self>,
        turn: Turn<E>,
        submission: &mut Submission<'_>,
        work: &mut Work<E>,
    ) -> Outcome<E> {
        // The releasing thread may be in a call that has nothing to do with this submission.
        let _foreign_work = ForeignWorkScope::new();
        match work {
            Work::ToRecord(work) => {
                submission.leave_out_failed();
                self.send(turn, submission, &mut **work)
            }
            Work::Recorded(keep) => {
                submission.keep = std::mem::take(keep);
                self.send_recorded(turn, submission)
            }
        }
    }

    /// Ends what [`SubmissionQueue::send_held`] has begun. `None` if the turn has ended.
    fn finish_held(
        self: &Arc<Self>,
        outcome: Outcome<E>,
        number: u64,
        mut held: HeldSubmission<E>,
        keep: Keep,
    ) -> Option<Turn<E>> {
        match outcome {
            Outcome::Pending(turn) => {
                // The work may be left, if the backend has not called it.
                run_contained(|| drop(held));
                turn
            }
            Outcome::NotYet(turn, retry) => {
                if let Retry::Unlock = retry {
                    let recorded = Work::Recorded(Box::new(keep));
                    let work = std::mem::replace(&mut held.work, recorded);
                    run_contained(|| drop(work));
                }
                self.put_back(turn, number, held, retry)
            }
            Outcome::Refused(turn, error) => {
                // No caller is left to take the error, so the waiters get it.
                self.skip(number, held, keep, &error.into_cause());
                Some(turn)
            }
            Outcome::Signalled(turn, error) => {
                self.end_signalled(number, held, keep, &error.into_cause());
                Some(turn)
            }
        }
    }

    /// Puts a submission back to the front until the driver can take it.
    ///
    /// `None` if the turn has ended.
    pub(super) fn put_back(
        self: &Arc<Self>,
        turn: Turn<E>,
        number: u64,
        held: HeldSubmission<E>,
        retry: Retry,
    ) -> Option<Turn<E>> {
        let mut state = self.hold_first(number, held);
        let left = match retry {
            Retry::Unlock => state.turns.try_end(turn),
            // Another try judges it again anyway.
            Retry::Timer => {
                state.turns.end(turn);
                None
            }
        };
        drop(state);
        if matches!(retry, Retry::Timer)
            && let Some(device) = self.own_shared().watch()
        {
            device.watcher().retry(&**device, self.clone());
        }
        left
    }

    /// Skips a submission that the list does not have: its signals fail, and its number stays at
    /// the front. So it counts for [`Enqueue::MAX_IN_FLIGHT`].
    ///
    /// If it is skipped already, the driver takes not even its number, and the queue fails.
    fn skip(&self, number: u64, held: HeldSubmission<E>, mut keep: Keep, cause: &Failure) {
        // The driver may still use the objects.
        self.keep(number, &mut keep);
        if held.edges.is_none() {
            self.slot().leave(number);
            self.own_shared().fail(cause.clone());
            return;
        }
        self.skipped().add(number, cause).tell();
        self.end_skipped(number, held, cause);
        drop(self.hold_first(number, HeldSubmission::skipped()));
    }

    /// Holds a submission before all others. Returns the lock.
    pub(super) fn hold_first(
        &self,
        number: u64,
        held: HeldSubmission<E>,
    ) -> MutexGuard<'_, State<E>> {
        let mut state = self.lock();
        state.held.push_front(number, held);
        if self.note_held() {
            drop(state);
            self.guard_held();
            state = self.lock();
        }
        state
    }

    /// Fails the signals of a skipped submission, and drops what it had.
    ///
    /// Others that signal the same timelines, too, still get its signals (E2).
    fn end_skipped(&self, number: u64, gone: HeldSubmission<E>, cause: &Failure) {
        if let Some(edges) = &gone.edges {
            for (of, claim) in &edges.claims {
                of.signal_in_place(*claim);
            }
            edges.fail(cause);
        }
        self.end_edges(number, gone);
    }

    /// Ends a held submission that has run, and whose end the driver has refused.
    ///
    /// Its number stays at the front, as in [`SubmissionQueue::skip`].
    #[cold]
    fn end_signalled(&self, number: u64, held: HeldSubmission<E>, mut keep: Keep, cause: &Failure) {
        self.keep(number, &mut keep);
        let claims = held.edges.iter().flat_map(|edges| &edges.claims);
        self.fail_signalled(claims.map(|(of, claim)| (of, *claim)), cause);
        self.end_edges(number, held);
        drop(self.hold_first(number, HeldSubmission::skipped()));
    }

    /// Drops what a submission had whose signals have failed.
    fn end_edges(&self, number: u64, gone: HeldSubmission<E>) {
        self.forget_relays(number);
        drop(self.slot().reduce(number));
        run_contained(|| drop(gone));
    }

    /// Judges the first submission again, on this thread or on the one that has the turn.
    fn check<'l>(self: &'l Arc<Self>, mut state: MutexGuard<'l, State<E>>) {
        if state.turns.request_check() {
            return;
        }
        let Some(turn) = state.turns.begin(this_thread()) else {
            return;
        };
        state.missing = 0;
        // Dropped at the end, without the lock. Until then these registrations only ask this thread
        // to check again.
        let _registered = std::mem::take(&mut state.registered);
        self.release_held(turn, state);
    }

    /// Registers for what the first submission lacks, and ends the turn. `None` if it has ended.
    ///
    /// This thread has the turn until it has registered. Until then other threads only ask it to
    /// check again.
    fn park(self: &Arc<Self>, missing: Missing, turn: Turn<E>) -> Option<Turn<E>> {
        let Some(registered) = self.register(missing) else {
            return Some(turn);
        };
        // If the turn goes on, the registrations are dropped without the lock.
        let mut state = self.lock();
        let left = state.turns.try_end(turn);
        if left.is_none() {
            state.missing = registered.len();
            state.registered = registered;
        }
        left
    }

    /// Waits for the budget that other queues share, and ends the turn. `None` if it has ended.
    ///
    /// This thread has the turn until then, as in [`SubmissionQueue::park`].
    fn wait_for_budget(self: &Arc<Self>, turn: Turn<E>) -> Option<Turn<E>> {
        let this: Arc<dyn Wake> = self.clone();
        match self.budget().is_some_and(|budget| budget.wait_for(&this)) {
            true => self.lock().turns.try_end(turn),
            false => Some(turn),
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
}

impl<E: Enqueue> Holder for SubmissionQueue<E> {
    /// Fails the signals of a held submission as soon as it can never run (E2).
    ///
    /// That may be before the submissions in front of it are released.
    ///
    /// The first submission is judged instead, on this thread or on the one that has the turn.
    fn reconsider(self: Arc<Self>, number: u64) {
        let (gone, cause, told);
        {
            let mut state = self.lock();
            let first = state.held.first();
            let is_first = first.is_some_and(|(first, held)| {
                first == number && matches!(held.work, Work::ToRecord(_))
            });
            if is_first && !state.turns.request_check() {
                return self.check(state);
            }
            let Some(held) = state.held.get_mut(number) else {
                return;
            };
            let (Work::ToRecord(_), Some(edges)) = (&held.work, &held.edges) else {
                return;
            };
            steps::count(edges.waits.len() + edges.claims.len());
            let mut waits = edges.waits.iter();
            let waits = waits.find_map(|(of, value)| of.unreachable_cause(*value));
            // A signal waits for its predecessor, unless the host makes it.
            let order = || {
                let mut claims = edges.claims.iter();
                claims.find_map(|(of, claim)| {
                    of.port_on(self.device())?;
                    of.unreachable_cause(claim.above)
                })
            };
            let lost = || self.loss().cloned();
            let Some(found) = waits.or_else(order).or_else(lost) else {
                return;
            };
            cause = found;
            gone = std::mem::replace(held, HeldSubmission::skipped());
            told = self.skipped().add(number, &cause);
        }
        told.tell();
        self.end_skipped(number, gone, &cause);
    }
}

impl<E: Enqueue> Wake for SubmissionQueue<E> {
    /// Judges the first submission again, unless it still lacks something.
    ///
    /// A submission with many waits is judged once and not once for each wait. If one of them ends
    /// before its value has come, the graph calls [`Holder::reconsider`] as well.
    fn wake(self: Arc<Self>) {
        let mut state = self.lock();
        state.missing = state.missing.saturating_sub(1);
        if state.missing == 0 {
            self.check(state);
        }
    }
}
