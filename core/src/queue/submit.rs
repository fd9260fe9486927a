//! Submitting: waits and signals are resolved and claimed, then the submission is sent or held.

use std::sync::Arc;

use super::held_list::HeldSubmission;
use super::send::Outcome;
use super::state::State;
use super::submission::Submission;
use super::submission_queue::SubmissionQueue;
use super::submitted::Submitted;
use super::turn::Turn;
use super::work::Record;
use crate::base::blockers::Blockers;
use crate::base::error::{Error, Result};
use crate::base::exiting::{exit_error, is_exiting};
use crate::base::run::DeferWakes;
use crate::base::stage::Stage;
use crate::base::sync::{MutexGuard, this_thread};
use crate::driver::enqueue::Enqueue;
use crate::timeline::point::{NativePoint, Point, Signal};
use crate::timeline::state::{Interval, NewClaim, Shared};

impl<E: Enqueue> SubmissionQueue<E> {
    /// Same as [`SubmissionQueue::submit`], for work as a trait object.
    ///
    /// # Errors
    /// Same errors as [`SubmissionQueue::submit`], in a box to keep the result small.
    #[inline]
    pub(super) fn submit_work<'q>(
        self: &'q Arc<Self>,
        waits: &[Point<'_>],
        work: &mut dyn Record<E>,
        signals: &[Signal<'_>],
    ) -> Result<Submitted<'q>, Box<Error>> {
        match self.follower.is_set() {
            true => self.submit_traced(waits, work, signals),
            false => self.submit_untraced(waits, work, signals),
        }
    }

    /// Same as [`SubmissionQueue::submit_work`], without a trace. Compiled once per backend.
    #[inline(never)]
    pub(super) fn submit_untraced<'q>(
        self: &'q Arc<Self>,
        waits: &[Point<'_>],
        work: &mut dyn Record<E>,
        signals: &[Signal<'_>],
    ) -> Result<Submitted<'q>, Box<Error>> {
        self.require_maker()?;
        if is_exiting() {
            return Err(Box::new(exit_error(self.object(), "take a submission")));
        }
        let mut submission = Submission::new();
        self.resolve(waits, signals, &mut submission)?;
        let has_checked = self.check_finished();
        let mut state = self.lock();
        if has_checked || self.may_keep_finished(&state) {
            state = self.drop_some_finished(state);
        }
        let released = DeferWakes::new();
        let submitted = self.accept_and_send(state, (waits, signals), &mut submission, work);
        // Runs the queues that waited for this submission. They may submit to this queue, so they
        // run after its turn.
        drop(released);
        submitted
    }

    /// Accepts a submission, and sends it if it can go at once. Otherwise it is held.
    ///
    /// # Errors
    /// The reason if it is refused.
    #[inline(always)]
    fn accept_and_send<'q>(
        self: &'q Arc<Self>,
        state: MutexGuard<'q, State<E>>,
        (waits, signals): (&[Point<'_>], &[Signal<'_>]),
        submission: &mut Submission<'_>,
        work: &mut dyn Record<E>,
    ) -> Result<Submitted<'q>, Box<Error>> {
        let turn = self.accept(state, (waits, signals), submission, work)?;
        let number = submission.number;
        let Some(mut turn) = turn else {
            return Ok(self.submitted(number));
        };
        let left = match self.send(&mut turn, submission, Some(&mut *work)) {
            Outcome::Pending => {
                if let Some(turn) = self.end_turn(turn, submission) {
                    self.release_held(turn, self.lock());
                }
                return Ok(Submitted::sent(self.own.at(number)));
            }
            Outcome::NotYet(until) => {
                let held = self.hold_sent(submission, waits, work, &until);
                self.hold_first(number, held);
                self.wait_until(until, turn)
            }
            Outcome::Refused(error) => {
                submission.withdraw();
                self.hold_first(number, HeldSubmission::skipped());
                self.release_held(turn, self.lock());
                return Err(error);
            }
        };
        if let Some(turn) = left {
            self.release_held(turn, self.lock());
        }
        Ok(self.submitted(number))
    }

    /// Finds the ports of waits and signals, and checks the ranges of their values.
    ///
    /// Everything that may poll a driver is here, before the queue's lock is taken. Leaves out
    /// waits that are reached.
    ///
    /// # Errors
    /// [`Error::ValueOutOfRange`], [`Error::MadeBeforeFork`], and [`Error::Unsupported`] for a
    /// signal whose time the queue cannot write, or that the host cannot make.
    #[inline]
    fn resolve<'s>(
        &self,
        waits: &[Point<'s>],
        signals: &[Signal<'s>],
        submission: &mut Submission<'s>,
    ) -> Result<(), Box<Error>> {
        for &Point { of, value } in waits {
            let Some(of) = of.filter(|of| of.reached() < value) else {
                continue;
            };
            let port = of.port_on(self.device);
            let needed = port.map_or(Stage::Reached, |_| Stage::Pending);
            let has_come = of.has_plainly_come(needed, value) || refresh_wait(of, needed, value)?;
            submission.add_wait(of, port, value, has_come);
        }
        for &Signal { of, value } in signals {
            of.check_signal_range(value)?;
            let (above, upto) = (value, value);
            submission.add_signal(of, of.port_on(self.device), Interval { above, upto });
        }
        if submission.must_be_noted || submission.host.is_some() {
            self.require_times(submission)?;
        }
        Ok(())
    }

    /// Accepts a submission: takes its claims and its number.
    ///
    /// Returns the turn if the submission can go at once. Otherwise it is held now.
    ///
    /// # Errors
    /// The reason if it is refused. Nothing has changed then.
    #[inline]
    fn accept<'l>(
        self: &'l Arc<Self>,
        mut state: MutexGuard<'l, State<E>>,
        (waits, signals): (&[Point<'_>], &[Signal<'_>]),
        submission: &mut Submission<'_>,
        work: &mut dyn Record<E>,
    ) -> Result<Option<Turn<E>>, Box<Error>> {
        let me = this_thread();
        if state.turns.is_of(me) {
            return Err(Box::new(Error::reentrant(self.object())));
        }
        submission.number = state.last + 1;
        // Claims are decided in the queue's order, so under its lock.
        self.claim(signals, submission)?;
        let is_next = state.held.is_empty() && state.turns.is_free();
        if is_next && submission.is_ready && self.has_space(submission.number) {
            if submission.host.is_some() {
                let entered = self.enter_relays(&mut state, submission);
                entered.map_err(|circle| self.circular(submission, circle))?;
            }
            self.take_number(&mut state, submission.number);
            return Ok(state.turns.begin(me));
        }
        self.hold(state, waits, submission, work)?;
        Ok(None)
    }

    /// The refusal of a submission that would wait for itself. Withdraws its claims.
    ///
    /// The submission is not in the graph any more, so the graph names no claimant of free values.
    #[cold]
    pub(super) fn circular(&self, submission: &Submission<'_>, circle: Blockers) -> Box<Error> {
        submission.withdraw();
        Box::new(Error::Circular {
            queue: self.object().clone(),
            submission: submission.number,
            circle,
        })
    }

    /// Claims every signal of a submission, or none (T2). Call it with the lock.
    ///
    /// # Errors
    /// The reason if a signal is not legal.
    #[inline]
    fn claim(
        &self,
        signals: &[Signal<'_>],
        submission: &mut Submission<'_>,
    ) -> Result<(), Box<Error>> {
        let claimed = self.claim_on_device(submission);
        // Of two signals of one timeline, the second is refused or waits for the first. So a ready
        // submission of the device has no duplicates.
        if claimed.is_ok() && submission.is_ready && submission.host.is_none() {
            return Ok(());
        }
        let claimed = refuse_duplicates(signals)
            .and(claimed)
            .and_then(|()| claim_on_host(submission));
        if claimed.is_err() {
            submission.withdraw();
        }
        claimed
    }

    /// Claims every signal that the device makes. After an error some of them are claimed.
    #[inline]
    fn claim_on_device(&self, submission: &mut Submission<'_>) -> Result<(), Box<Error>> {
        let mut at = 0;
        while let Some(&NativePoint { of, value, .. }) = submission.signals.get(at) {
            // A claim begins above all pending values, so a pending own wait changes nothing.
            let own_wait = match submission.is_ready {
                true => 0,
                false => submission.own_wait(of),
            };
            match of.claim(value, own_wait) {
                Ok(NewClaim { interval, is_next }) => {
                    submission.is_ready &= is_next;
                    submission.note_claim(at, interval.above, self.domain);
                    at += 1;
                }
                // Once more with the own wait, because the error may be about it.
                Err(_) if submission.is_ready => submission.is_ready = false,
                Err(error) if can_be_left_out(submission, of, &error) => {
                    submission.signals.remove(at);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Claims every signal that the host makes. After an error some of them are claimed.
#[cold]
fn claim_on_host(submission: &mut Submission<'_>) -> Result<(), Box<Error>> {
    let mut at = 0;
    while let Some(&(of, Interval { upto, .. })) = submission.host_signals().get(at) {
        let waits = submission.host.iter().flat_map(|host| &host.waits);
        let own = waits.filter(|(wait, _)| Arc::ptr_eq(wait, of));
        let own_wait = own.map(|&(_, value)| value).max().unwrap_or(0);
        match of.claim(upto, own_wait) {
            Ok(claimed) => {
                submission.on_host().signals[at].1 = claimed.interval;
                at += 1;
            }
            Err(error) if can_be_left_out(submission, of, &error) => {
                submission.is_ready = false;
                submission.on_host().signals.remove(at);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Refuses a submission that signals one timeline twice.
///
/// # Errors
/// [`Error::DuplicateSignal`].
#[cold]
fn refuse_duplicates(signals: &[Signal<'_>]) -> Result<(), Box<Error>> {
    for (at, &Signal { of, value }) in signals.iter().enumerate() {
        if signals[..at].iter().any(|other| Arc::ptr_eq(other.of, of)) {
            return Err(Box::new(Error::DuplicateSignal {
                timeline: of.object().clone(),
                asked: value,
            }));
        }
    }
    Ok(())
}

/// Checks that a wait is legal, and polls whether it has come to `needed`.
///
/// A pending value was in the legal range when it was claimed.
///
/// # Errors
/// [`Error::ValueOutOfRange`], [`Error::MadeBeforeFork`].
#[cold]
fn refresh_wait(of: &Shared, needed: Stage, value: u64) -> Result<bool, Box<Error>> {
    of.require_maker()?;
    of.check_wait(value)?;
    of.refresh_for(needed, value);
    Ok(needed.is_met(&of.standing(value)))
}

/// True if a signal of `of` that was refused with `error` can be left out.
///
/// A submission that can never run is accepted and then skipped, as if the timelines of its
/// signals had failed after their claims. If others signal the timeline, too, it is refused
/// instead, because an accepted submission makes its signal for them.
#[cold]
fn can_be_left_out(submission: &Submission<'_>, of: &Arc<Shared>, error: &Error) -> bool {
    if of.ports().takes_promises() {
        return false;
    }
    let is_lost = |of: &Arc<Shared>, value| of.unreachable_cause(value).is_some();
    let mut waits = submission.waits().iter();
    let mut host_waits = submission.host.iter().flat_map(|host| host.waits.iter());
    matches!(error, Error::Failed { .. })
        && (waits.any(|wait| is_lost(wait.of, wait.value))
            || host_waits.any(|&(of, value)| is_lost(of, value)))
}
