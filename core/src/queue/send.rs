//! Sending: a submission is recorded, handed to the driver and promoted.
//!
//! The steps of [`SubmissionQueue::send`] are in this order:
//!
//! 1. `note`: the submission is listed for a loss of another device that it waits for, and for
//!    readers of times. The driver may finish it before the next step.
//! 2. `record_and_flush`: the driver records the submission and takes it.
//! 3. `send`: if a wait was lost meanwhile, the signals fail before they can show as reached.
//! 4. `promote`: the queue keeps what the submission needs, before its position is pending. So a
//!    thread that waits for the position finds it.
//! 5. `promote`: a held submission leaves the graph of held submissions.
//! 6. `promote`: the signals become pending, then the position. So a thread that sees the position
//!    pending finds all signals pending.
//!
//! [`SubmissionQueue::end_turn`] has the others:
//!
//! 7. The budget is counted, after the position is pending. So a submission that finds the budget
//!    used up finds a position to wait for. Then the turn ends.
//! 8. Waiters are woken, and the host's signals wait for the submission. Queues that are released
//!    now may share the budget.

use std::any::Any;
use std::cell::Cell;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::submission::Submission;
use super::submission_queue::SubmissionQueue;
use super::turn::Turn;
use super::work::Record;
use crate::base::error::{Error, Failure};
use crate::base::run::{Wake, panic_message};
use crate::driver::enqueue::{Batch, Enqueue, Flush, Waker};
use crate::driver::keep::Keep;
use crate::timeline::point::NativePoint;
use crate::timeline::state::Owing;

/// What has become of a submission that was sent.
///
/// Errors are boxed, because they are rare and large.
pub(super) enum Outcome {
    /// The driver has it.
    Pending,
    /// It is held, as the first of its queue.
    NotYet(Until),
    /// It will not run.
    Refused(Box<Error>),
}

/// What a submission that the driver did not take waits for, as the first of its queue.
pub(super) enum Until {
    /// The application does not use the driver queue. Nothing is recorded.
    ///
    /// The device's watching thread tries again after some time.
    Lent,
    /// Another thread unlocks the driver queue, and tries again. The submission is recorded.
    Unlocked,
    /// Nothing: only its end is left, and goes next.
    ///
    /// The driver has signals of it, and has refused what comes after them with this error (Q5).
    EndOnly(Box<Error>),
}

impl<E: Enqueue> SubmissionQueue<E> {
    /// Records a submission that is ready, and hands it to the driver.
    ///
    /// Without `work`, an earlier call has recorded the submission, and the driver queue was
    /// locked. After [`Outcome::Pending`], the caller calls [`SubmissionQueue::end_turn`].
    #[inline(never)]
    pub(super) fn send(
        self: &Arc<Self>,
        turn: &mut Turn<E>,
        submission: &mut Submission<'_>,
        work: Option<&mut dyn Record<E>>,
    ) -> Outcome {
        let backend = turn.backend();
        // Code of a backend and of the application may panic. So may the drops of what it has, such
        // as the captures of the work.
        let sent = catch_unwind(AssertUnwindSafe(|| match work {
            Some(work) => self.record_and_flush(backend, submission, work),
            // Others may have broken their promises since the driver queue was locked. After a
            // refusal, the backend drops this recording when it records the next submission.
            None => match check_promises(submission) {
                Ok(()) => self.flush(backend),
                Err(error) => Outcome::Refused(error),
            },
        }));
        let outcome = sent.unwrap_or_else(|payload| {
            Outcome::Refused(self.error_on_queue(self.panicked(payload)))
        });
        if let Some(cause) = &submission.lost
            && matches!(outcome, Outcome::Pending | Outcome::NotYet(Until::Unlocked))
        {
            submission.claims().for_each(|(of, _)| of.fail_late(cause));
        }
        match &outcome {
            Outcome::Pending => self.promote(submission),
            Outcome::NotYet(Until::EndOnly(error)) => {
                self.forget(submission);
                self.fail_signalled(submission, error);
            }
            Outcome::NotYet(_) => {}
            Outcome::Refused(_) => {
                self.forget(submission);
                for signal in &submission.signals {
                    signal.of.forget_sent(signal.claim());
                }
            }
        }
        outcome
    }

    /// Notes a submission before the driver has it.
    ///
    /// # Errors
    /// The driver makes no stamp, or others have signalled a value that this submission claims.
    #[inline(never)]
    fn note(&self, submission: &mut Submission<'_>) -> Result<(), Box<Error>> {
        submission.stamp = self.note_times(submission)?;
        submission.lost = self.note_dependent(submission);
        check_promises(submission)
    }

    /// Notes a submission that waits natively for other devices or processes (E3).
    ///
    /// Returns the cause if one of them is lost already.
    fn note_dependent(&self, submission: &Submission<'_>) -> Option<Failure> {
        let waits = submission.waits();
        if !waits.iter().any(|wait| wait.of.depends_on_others()) {
            return None;
        }
        for wait in waits {
            wait.of.watch_for_driver(wait.value);
        }
        let number = submission.number;
        self.dependents.add(number, waits, submission.claims());
        self.checks.note_kept(number);
        // After that, so that a loss finds the submission, or this finds the loss.
        let lost = waits
            .iter()
            .find_map(|wait| wait.of.lost_before(wait.value));
        lost.cloned()
    }

    /// Records a submission and hands it to the driver.
    #[inline(always)]
    fn record_and_flush(
        self: &Arc<Self>,
        backend: &mut E::State,
        submission: &mut Submission<'_>,
        work: &mut dyn Record<E>,
    ) -> Outcome {
        let Some(ready) = self.driver().ready() else {
            return Outcome::NotYet(Until::Lent);
        };
        if submission.must_be_noted
            && let Err(error) = self.note(submission)
        {
            return Outcome::Refused(error);
        }
        let (is_bare, attached) = (work.is_bare(), work.attached().cloned());
        let Submission {
            all_waits,
            signals,
            host,
            keep,
            ..
        } = submission;
        let (waits, order) = all_waits.split_at(submission.waits_before);
        let own = self.own_shared();
        let batch = Batch {
            waits,
            order,
            signals,
            host_signals: host.as_ref().map_or(&[], |host| &host.signals),
            end: NativePoint::new(own, own.home(), submission.number),
            times: &submission.stamp,
            is_bare,
            attached: attached.as_ref(),
            signalled: Cell::new(false),
            of: PhantomData,
        };
        // This guard lets the backend undo what it has begun.
        let work = |recorder: &mut E::Recorder<'_>| match catch_unwind(AssertUnwindSafe(|| {
            work.record(recorder)
        })) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(*error),
            Err(payload) => Err(self.panicked(payload)),
        };
        match self.driver().record(ready, backend, &batch, keep, work) {
            Ok(()) => self.flush(backend),
            Err(error) if batch.signalled.get() => {
                Outcome::NotYet(Until::EndOnly(self.error_on_queue(error)))
            }
            Err(error) => Outcome::Refused(self.error_on_queue(error)),
        }
    }

    /// Hands the recorded submission to the driver.
    #[inline(always)]
    fn flush(self: &Arc<Self>, backend: &mut E::State) -> Outcome {
        let waker = || Waker(self.clone() as Arc<dyn Wake>);
        match self.driver().flush(backend, &waker) {
            Flush::Done => Outcome::Pending,
            Flush::Busy => Outcome::NotYet(Until::Unlocked),
            Flush::Refused(error) => Outcome::Refused(Box::new(error)),
        }
    }

    #[cold]
    fn panicked(&self, payload: Box<dyn Any + Send>) -> Error {
        Error::work_panicked(self.object(), panic_message(payload))
    }

    #[cold]
    fn error_on_queue(&self, error: Error) -> Box<Error> {
        Box::new(error.on(self.object()))
    }

    /// Forgets what was noted for a submission that will not run, or of which only the end is left.
    ///
    /// Keeps the objects that the driver may still use.
    #[cold]
    fn forget(&self, submission: &mut Submission<'_>) {
        self.dependents.forget_signals(submission.number);
        self.forget_relays(submission.number);
        self.forget_times(submission);
        self.keep_until_finished(submission.number, &mut submission.keep);
    }

    /// Fails the signals of a submission, because the driver has some of them and not its end (Q5).
    ///
    /// Those that the host was to make are still made for others (E2).
    #[cold]
    fn fail_signalled(&self, submission: &Submission<'_>, error: &Error) {
        let cause = error.clone().into_cause();
        for (of, claim) in submission.claims() {
            if of.port_on(self.device).is_none() {
                of.signal_in_place(claim);
            }
            of.fail(cause.clone());
        }
    }

    /// Keeps the objects of a submission until it has finished.
    #[inline(always)]
    fn keep_until_finished(&self, number: u64, keep: &mut Keep) {
        if !keep.is_empty() {
            let objects = keep.take_objects();
            self.lock().in_flight.add_kept(number, objects);
            self.checks.note_kept(number);
        }
    }

    /// Promotes a submission that the driver has: its signals, then its position.
    #[inline(always)]
    fn promote(&self, submission: &mut Submission<'_>) {
        let number = submission.number;
        self.keep_until_finished(number, &mut submission.keep);
        if submission.was_held {
            // From now on others wait for the driver, and not for this submission.
            self.entry.leave(number);
        }
        let own = self.own_shared();
        for signal in &submission.signals {
            let (of, claim) = (signal.of, signal.claim());
            if of.publishes_ahead() {
                own.note_unpublished(number, of, claim.upto);
            }
            of.note_owed(claim, Owing::Device(self.device));
            of.promote(claim.upto, self.domain, Some(self.object()));
        }
        own.raise_pending(number);
    }

    /// Ends the turn after a submission that is pending now, unless others are held. Then it wakes
    /// those that wait for its signals.
    ///
    /// The budget is counted before the turn ends, so at most one submission of each queue is
    /// pending and not counted yet. The lock is held, so no units are given back before they are
    /// counted.
    #[inline(always)]
    pub(super) fn end_turn(&self, turn: Turn<E>, submission: &Submission<'_>) -> Option<Turn<E>> {
        let units = submission.keep.units();
        let left = {
            let mut state = self.lock();
            if units > 0
                && let Some(budget) = self.budget.as_ref()
            {
                state.in_flight.add_units(submission.number, units);
                budget.count(units);
            }
            if state.held.is_empty() {
                self.held_guard.note_empty();
                state.turns.try_end(turn)
            } else {
                Some(turn)
            }
        };
        for signal in &submission.signals {
            signal.of.wake_promoted();
        }
        self.own_shared().wake_promoted();
        if !submission.host_signals().is_empty() {
            self.start_relays(submission);
        }
        left
    }
}

/// Checks that others have signalled no value that this submission claims.
///
/// # Errors
/// [`Error::Corrupted`], which has failed the timeline.
fn check_promises(submission: &Submission<'_>) -> Result<(), Box<Error>> {
    let mut signals = submission.signals.iter();
    signals.try_for_each(|signal| signal.of.check_before_signal(signal.claim()))
}
