//! Sending: a submission is recorded, handed to the driver and promoted.
//!
//! The steps are in this order:
//!
//! 1. `note`: the submission is listed for a loss of another device that it waits for, and for
//!    readers of times. The driver may finish it before the next step.
//! 2. `hand_over`: the driver records the submission and takes it.
//! 3. `keep`: the queue keeps what the submission needs, before its position is pending. So a
//!    thread that waits for the position finds it.
//! 4. A held submission leaves the graph of held submissions.
//! 5. `fail_late`: if a wait was lost meanwhile, the signals fail before they can show as reached.
//! 6. `promote`: the signals become pending, then the position. So a thread that sees the position
//!    pending finds all signals pending.
//! 7. `end_turn`: the budget is counted, after the position is pending. So a submission that finds
//!    the budget used up finds a position to wait for. Then the turn ends.
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
use crate::driver::enqueue::{Batch, Enqueue, Flush, Waker, Written};
use crate::driver::keep::Keep;
use crate::port::Stamp;
use crate::timeline::point::NativePoint;
use crate::timeline::state::{Interval, Owing, Shared};

/// What has become of a submission that was sent.
pub(super) enum Outcome<E: Enqueue> {
    /// The driver has it. `None` if this thread has ended its turn.
    Pending(Option<Turn<E>>),
    /// It stays held until the driver queue can take it.
    NotYet(Turn<E>, Retry),
    /// It will not run. The driver may still use the objects that it keeps.
    Refused(Turn<E>, Box<Error>),
    /// The driver has work and signals of it, and has refused what comes after them.
    Signalled(Turn<E>, Box<Error>),
}

/// Why the driver queue cannot take a submission now.
#[derive(Clone, Copy)]
pub(super) enum Retry {
    /// The application uses the driver queue. Nothing is recorded.
    ///
    /// The device's watching thread tries again after some time.
    Timer,
    /// Another thread has locked the driver queue. The submission is recorded.
    ///
    /// The thread that unlocks the driver queue tries again.
    Unlock,
}

/// The answer of a driver to a submission. Errors are boxed, because they are rare and large.
enum Handed {
    Taken,
    NotReady,
    /// The driver's queue is locked.
    Busy,
    Refused(Box<Error>),
    /// An error after the driver had a signal.
    Signalled(Box<Error>),
}

/// What was noted for a submission before the driver had it.
#[derive(Default)]
struct Noted {
    /// The stamp for the time of its signals, if one of them needs it.
    stamp: Option<Arc<dyn Stamp>>,
    /// The cause, if a timeline that it waits for was lost by then.
    lost: Option<Failure>,
}

impl<E: Enqueue> SubmissionQueue<E> {
    /// Records a submission that is ready, and hands it to the driver.
    ///
    /// If the driver takes it, its `keep` is empty after that.
    #[inline(never)]
    pub(super) fn send(
        self: &Arc<Self>,
        mut turn: Turn<E>,
        submission: &mut Submission<'_>,
        work: &mut dyn Record<E>,
    ) -> Outcome<E> {
        let mut noted = Noted::default();
        let handed = self.guarded(|| {
            let Some(ready) = self.driver().ready() else {
                return Handed::NotReady;
            };
            if submission.must_be_noted
                && let Err(error) = self.note(submission, &mut noted)
            {
                return Handed::Refused(error);
            }
            self.hand_over(ready, turn.backend(), submission, &noted, work)
        });
        if let Some(cause) = &noted.lost {
            self.fail_late(submission, &handed, cause);
        }
        self.conclude(turn, submission, handed)
    }

    /// Hands a submission to the driver that was recorded while the driver queue was locked.
    pub(super) fn send_recorded(
        self: &Arc<Self>,
        mut turn: Turn<E>,
        submission: &mut Submission<'_>,
    ) -> Outcome<E> {
        let handed = self.guarded(|| {
            // Others may have broken their promises since the driver queue was locked. The next
            // record removes this one.
            if submission.must_be_noted
                && let Err(error) = check_promises(submission)
            {
                return Handed::Refused(error);
            }
            self.flush(turn.backend())
        });
        self.conclude(turn, submission, handed)
    }

    /// Notes a submission before the driver has it.
    ///
    /// # Errors
    /// The driver makes no stamp, or others have signalled a value that this submission claims.
    #[inline(never)]
    fn note(&self, submission: &Submission<'_>, noted: &mut Noted) -> Result<(), Box<Error>> {
        noted.stamp = self.note_times(submission)?;
        noted.lost = self.note_dependent(submission);
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
        self.dependents().add(number, waits, submission.claims());
        self.checks().note_kept(number);
        // After that, so that a loss finds the submission, or this finds the loss.
        let lost = waits
            .iter()
            .find_map(|wait| wait.of.lost_before(wait.value));
        lost.cloned()
    }

    /// Fails the signals of a submission whose wait was lost before the driver had it.
    ///
    /// Before they become pending, so that they do not show as reached.
    #[cold]
    fn fail_late(&self, submission: &Submission<'_>, handed: &Handed, cause: &Failure) {
        if matches!(handed, Handed::Taken | Handed::Busy) {
            submission.claims().for_each(|(of, _)| of.fail_late(cause));
        }
    }

    /// Records a submission and hands it to the driver.
    #[inline(always)]
    fn hand_over(
        self: &Arc<Self>,
        ready: E::Ready<'_>,
        backend: &mut E::State,
        submission: &mut Submission<'_>,
        noted: &Noted,
        work: &mut dyn Record<E>,
    ) -> Handed {
        let (is_bare, attached) = (work.is_bare(), work.attached().cloned());
        let Submission {
            all_waits,
            signals,
            host,
            keep,
            ..
        } = submission;
        let (waits, order) = all_waits.split_at(submission.waits_before);
        let batch = Batch {
            waits,
            order,
            signals,
            host_signals: host.as_ref().map_or(&[], |host| &host.signals),
            end: self.end_point(submission.number),
            times: Written(noted.stamp.as_ref()),
            is_bare,
            attached: attached.as_ref(),
            signalled: Cell::new(false),
            of: PhantomData,
        };
        // The guard here lets the backend undo what it has begun. The outer one covers the backend
        // and the drops of the application's objects, such as the captures of the work.
        let work = |recorder: &mut E::Recorder<'_>| match catch_unwind(AssertUnwindSafe(|| {
            work.record(recorder)
        })) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(*error),
            Err(payload) => Err(self.panicked(payload)),
        };
        match self.driver().record(ready, backend, &batch, keep, work) {
            Ok(()) => self.flush(backend),
            Err(error) if batch.signalled.get() => Handed::Signalled(self.error_on_queue(error)),
            Err(error) => Handed::Refused(self.error_on_queue(error)),
        }
    }

    /// May panic: a refused submission drops host closures of the application.
    #[inline(always)]
    fn flush(self: &Arc<Self>, backend: &mut E::State) -> Handed {
        let waker = || Waker(self.clone() as Arc<dyn Wake>);
        match self.driver().flush(backend, &waker) {
            Flush::Done => Handed::Taken,
            Flush::Busy => Handed::Busy,
            Flush::Refused(error) => Handed::Refused(Box::new(error)),
        }
    }

    /// Runs code of a backend and of the application, which may panic. A panic becomes a refusal.
    #[inline(always)]
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

    /// The steps after the driver has answered.
    #[inline(always)]
    fn conclude(
        self: &Arc<Self>,
        turn: Turn<E>,
        submission: &mut Submission<'_>,
        handed: Handed,
    ) -> Outcome<E> {
        match handed {
            Handed::Taken => {}
            Handed::NotReady => return Outcome::NotYet(turn, Retry::Timer),
            Handed::Busy => return Outcome::NotYet(turn, Retry::Unlock),
            Handed::Refused(error) => {
                self.forget(submission);
                for signal in &submission.signals {
                    signal.of.forget_sent(signal.claim());
                }
                return Outcome::Refused(turn, error);
            }
            Handed::Signalled(error) => {
                self.forget(submission);
                return Outcome::Signalled(turn, error);
            }
        }
        let number = submission.number;
        let units = submission.keep.units();
        self.keep(number, &mut submission.keep);
        if submission.was_held {
            // From now on others wait for the driver, and not for this submission.
            self.slot().leave(number);
        }
        let signals = &*submission.signals;
        self.promote(number, signals);
        let turn = self.end_turn(turn, number, units);
        for signal in signals {
            signal.of.wake_promoted();
        }
        self.own_shared().wake_promoted();
        if !submission.host_signals().is_empty() {
            self.start_relays(submission);
        }
        Outcome::Pending(turn)
    }

    /// Forgets what was noted for a submission that the driver has refused.
    #[cold]
    fn forget(&self, submission: &Submission<'_>) {
        self.dependents().forget_signals(submission.number);
        self.forget_relays(submission.number);
        self.forget_times(submission);
    }

    /// Fails the signals of a submission, because the driver has some of them and not its end (Q5).
    ///
    /// Those that the host was to make are still made for others (E2).
    #[cold]
    pub(super) fn fail_signalled<'s>(
        &self,
        claims: impl Iterator<Item = (&'s Arc<Shared>, Interval)>,
        cause: &Failure,
    ) {
        for (of, claim) in claims {
            if of.port_on(self.device()).is_none() {
                of.signal_in_place(claim);
            }
            of.fail(cause.clone());
        }
    }

    /// Keeps the objects of a submission until it has finished.
    #[inline(always)]
    pub(super) fn keep(&self, number: u64, keep: &mut Keep) {
        if !keep.is_empty() {
            let kept = std::mem::take(keep);
            self.lock().in_flight.add_kept(number, kept);
            self.checks().note_kept(number);
        }
    }

    /// Promotes the signals of a submission, then its position.
    #[inline(always)]
    fn promote(&self, number: u64, signals: &[NativePoint<'_>]) {
        let own = self.own_shared();
        for signal in signals {
            let (of, claim) = (signal.of, signal.claim());
            if of.publishes_ahead() {
                own.note_unpublished(number, of, claim.upto);
            }
            of.note_owed(claim, Owing::Device(self.device()));
            of.promote(claim.upto, self.domain(), Some(self.object()));
        }
        own.raise_pending(number);
    }

    /// Counts the budget that a submission takes, and ends the turn if nothing is held.
    ///
    /// During the turn, so that one submission of a queue at a time is not counted. With the lock,
    /// so that no units are given back before they are counted.
    #[inline(always)]
    fn end_turn(&self, turn: Turn<E>, number: u64, units: u64) -> Option<Turn<E>> {
        let mut state = self.lock();
        if units > 0
            && let Some(budget) = self.budget()
        {
            state.in_flight.add_units(number, units);
            budget.count(units);
        }
        if !state.held.is_empty() {
            return Some(turn);
        }
        self.held_guard().note_empty();
        state.turns.try_end(turn)
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
