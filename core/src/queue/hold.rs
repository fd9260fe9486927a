//! The hold: submissions that cannot go to the driver yet, and their release.

use std::sync::Arc;

use super::held_list::HeldSubmission;
use super::judge::{Lack, Missing};
use super::send::{Outcome, Until};
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
        let entered = self.entry.enter(number, &edges);
        entered.map_err(|circle| self.circular(submission, circle))?;
        if let Err(circle) = self.enter_relays(&mut state, submission) {
            self.entry.leave(number);
            return Err(self.circular(submission, circle));
        }
        self.take_number(&mut state, number);
        let held = HeldSubmission {
            edges: Some(edges),
            work: Work::ToRecord(work.store()),
        };
        state.held.push_back(number, held);
        self.note_held();
        // A timeline may have failed before the graph had the submission. The fence pairs with the
        // one of the failing thread: one of the two sees the other.
        fence(Ordering::SeqCst);
        self.review(number, state);
        Ok(())
    }

    /// Makes a submission that was sent and cannot go yet a held one.
    #[cold]
    pub(super) fn hold_sent(
        &self,
        submission: &mut Submission<'_>,
        waits: &[Point<'_>],
        work: &mut dyn Record<E>,
        until: &Until,
    ) -> HeldSubmission<E> {
        let (waits, work) = match until {
            Until::EndOnly(_) => return HeldSubmission::skipped(),
            // It waits only for its driver queue.
            Until::Unlocked => {
                let keep = std::mem::take(&mut submission.keep);
                (&[][..], Work::Recorded(Box::new(keep)))
            }
            _ => (waits, Work::ToRecord(work.store())),
        };
        let edges = submission.edges(waits);
        // The submission could go, so it closes no circle. It is in the graph only because a search
        // for blockers must find it.
        let _ = self.entry.enter(submission.number, &edges);
        HeldSubmission {
            edges: Some(edges),
            work,
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
            let Some((number, first)) = state.held.pop_front() else {
                self.held_guard.note_empty();
                state.turns.end(turn);
                return;
            };
            let left = match self.judge(number, &first) {
                Ok(None) => {
                    drop(state);
                    self.send_held(turn, number, first)
                }
                Ok(Some(lack)) => {
                    state.held.push_front(number, first);
                    drop(state);
                    self.wait_for(lack, turn)
                }
                Err(cause) => {
                    drop(state);
                    self.skip(number, first, &cause);
                    Some(turn)
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
            submission.add_wait(of, of.port_on(self.device), value, true);
        }
        // First the device's, as `Edges` has them.
        for (at, (of, claim)) in edges.claims.iter().enumerate() {
            let port = of.port_on(self.device);
            submission.add_signal(of, port, *claim);
            if port.is_some() {
                submission.note_claim(at, claim.above, self.domain);
            }
        }
        submission
    }

    /// Sends a held submission that is ready and that the list does not have.
    ///
    /// `None` if the turn has ended.
    #[inline(never)]
    fn send_held(
        self: &Arc<Self>,
        mut turn: Turn<E>,
        number: u64,
        mut held: HeldSubmission<E>,
    ) -> Option<Turn<E>> {
        let mut submission = self.submission(number, held.edges.as_deref());
        let outcome = {
            // The releasing thread may be in a call that has nothing to do with this submission.
            let _foreign_work = ForeignWorkScope::new();
            let work: Option<&mut dyn Record<E>> = match &mut held.work {
                Work::ToRecord(work) => {
                    submission.leave_out_failed();
                    Some(&mut **work)
                }
                Work::Recorded(keep) => {
                    submission.keep = std::mem::take(keep);
                    None
                }
            };
            self.send(&mut turn, &mut submission, work)
        };
        match outcome {
            Outcome::Pending => {
                let left = self.end_turn(turn, &submission);
                drop(submission);
                // The work may be left, if the backend has not called it.
                run_contained(|| drop(held));
                left
            }
            Outcome::NotYet(until) => {
                let keep = std::mem::take(&mut submission.keep);
                drop(submission);
                match until {
                    Until::Unlocked => {
                        let recorded = Work::Recorded(Box::new(keep));
                        let work = std::mem::replace(&mut held.work, recorded);
                        run_contained(|| drop(work));
                    }
                    Until::EndOnly(_) => {
                        self.end_edges(number, held);
                        held = HeldSubmission::skipped();
                    }
                    _ => {}
                }
                self.hold_first(number, held);
                self.wait_until(until, turn)
            }
            Outcome::Refused(error) => {
                drop(submission);
                // No caller is left to take the error, so the waiters get it.
                self.skip(number, held, &error.into_cause());
                Some(turn)
            }
        }
    }

    /// Skips a submission that the list does not have: its signals fail, and its number stays at
    /// the front. So it counts for [`Enqueue::MAX_IN_FLIGHT`].
    ///
    /// If it is skipped already, the driver takes not even its number, and the queue fails.
    fn skip(&self, number: u64, held: HeldSubmission<E>, cause: &Failure) {
        if held.edges.is_none() {
            self.entry.leave(number);
            self.own_shared().fail(cause.clone());
            return;
        }
        self.skipped.add(number, cause).tell();
        self.end_skipped(number, held, cause);
        self.hold_first(number, HeldSubmission::skipped());
    }

    /// Holds a submission before all others.
    pub(super) fn hold_first(&self, number: u64, held: HeldSubmission<E>) {
        let mut state = self.lock();
        state.held.push_front(number, held);
        self.note_held();
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

    /// Drops what a submission had whose signals have failed.
    fn end_edges(&self, number: u64, gone: HeldSubmission<E>) {
        self.forget_relays(number);
        drop(self.entry.reduce(number));
        run_contained(|| drop(gone));
    }

    /// Judges the first submission again.
    fn check<'l>(self: &'l Arc<Self>, turn: Turn<E>, mut state: MutexGuard<'l, State<E>>) {
        state.missing = 0;
        // Dropped at the end, without the lock. Until then these registrations only ask this thread
        // to check again.
        let _registered = std::mem::take(&mut state.registered);
        self.release_held(turn, state);
    }

    /// Looks again at a held submission, which may never come to run any more.
    ///
    /// The first one is judged, on this thread or on the one that has the turn. The signals of any
    /// other fail as soon as it can never run (E2). That may be before the submissions in front of
    /// it are released.
    fn review<'l>(self: &'l Arc<Self>, number: u64, mut state: MutexGuard<'l, State<E>>) {
        let is_first = state
            .held
            .first()
            .is_some_and(|(first, held)| first == number && matches!(held.work, Work::ToRecord(_)));
        if is_first && let Some(turn) = state.turns.begin(this_thread()) {
            return self.check(turn, state);
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
                of.port_on(self.device)?;
                of.unreachable_cause(claim.above)
            })
        };
        let lost = || self.loss().cloned();
        let Some(cause) = waits.or_else(order).or_else(lost) else {
            return;
        };
        let gone = std::mem::replace(held, HeldSubmission::skipped());
        let told = self.skipped.add(number, &cause);
        drop(state);
        told.tell();
        self.end_skipped(number, gone, &cause);
    }

    /// Ends the turn until the first submission lacks nothing. `None` if it has ended.
    ///
    /// This thread has the turn until the queue is registered for that. Until then other threads
    /// only ask it to check again.
    fn wait_for(self: &Arc<Self>, lack: Lack, turn: Turn<E>) -> Option<Turn<E>> {
        match lack {
            Lack::Points(missing) => {
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
            Lack::Budget => {
                let this: Arc<dyn Wake> = self.clone();
                let budget = self.budget.as_ref();
                match budget.is_some_and(|budget| budget.wait_for(&this)) {
                    true => self.lock().turns.try_end(turn),
                    false => Some(turn),
                }
            }
        }
    }

    /// Ends the turn until the driver takes the first submission. `None` if it has ended.
    pub(super) fn wait_until(self: &Arc<Self>, until: Until, turn: Turn<E>) -> Option<Turn<E>> {
        match until {
            Until::Lent => {
                // The next try judges it again anyway.
                self.lock().turns.end(turn);
                if let Some(device) = self.own_shared().watch() {
                    device.watcher().retry(&**device, self.clone());
                }
                None
            }
            Until::Unlocked => self.lock().turns.try_end(turn),
            Until::EndOnly(_) => Some(turn),
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
    fn reconsider(self: Arc<Self>, number: u64) {
        self.review(number, self.lock());
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
        if state.missing == 0
            && let Some(turn) = state.turns.begin(this_thread())
        {
            self.check(turn, state);
        }
    }
}
