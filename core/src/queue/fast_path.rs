//! The path of nearly every submission.
//!
//! One pass over waits and signals checks that every wait is pending and that no other claim is in
//! the way of a signal. It also checks that nothing is held and that the submission is within the
//! in-flight budget. The pass builds the driver's arguments on the stack. If a check fails, nothing
//! has changed, and the submission takes the slow path.

use std::marker::PhantomData;
use std::sync::Arc;

use smallvec::SmallVec;

use super::driving::Drive;
use super::graph_entries::GraphEntries;
use super::send::Handed;
use super::submission_queue::SubmissionQueue;
use super::submitted::Submitted;
use super::waits_and_claims::{AllAwaited, AllTaken, Awaited, Taken, withdraw_all};
use super::work::Work;
use crate::base::error::{Error, Result};
use crate::base::exiting::{exit_error, is_exiting};
use crate::base::run::DeferWakes;
use crate::base::stage::Stage;
use crate::base::sync::{ThreadId, this_thread};
use crate::driver::enqueue::{Batch, Enqueue, Written};
use crate::driver::keep::Keep;
use crate::timeline::point::{NativePoint, Point, Signal};
use crate::timeline::state::{Interval, Shared};

/// The number of waits, and of signals, that need no allocation.
const INLINE: usize = 8;

/// A submission on the fast path.
struct FastPath<'s> {
    waits: SmallVec<[NativePoint<'s>; INLINE]>,
    signals: SmallVec<[NativePoint<'s>; INLINE]>,
    /// The lower ends of the claims of `signals`, as far as they have been claimed.
    above: SmallVec<[u64; INLINE]>,
}

impl<'s> FastPath<'s> {
    #[inline]
    fn new() -> Self {
        Self {
            waits: SmallVec::new(),
            signals: SmallVec::new(),
            above: SmallVec::new(),
        }
    }

    /// The waits in the form of the slow path.
    fn awaited(&self) -> AllAwaited<'s> {
        let waits = self.waits.iter();
        let awaited = |&NativePoint { of, port, value }: &NativePoint<'s>| Awaited {
            of,
            value,
            port: Some(port),
        };
        waits.map(awaited).collect()
    }

    /// The claims in the form of the slow path.
    fn taken(&self) -> AllTaken<'s> {
        let claims = self.claims().zip(&self.signals);
        let taken = |((of, claim), signal): ((_, _), &NativePoint<'s>)| Taken {
            of,
            claim,
            port: Some(signal.port),
        };
        claims.map(taken).collect()
    }

    /// The signals that have been claimed.
    #[inline]
    fn claims(&self) -> impl Iterator<Item = (&'s Arc<Shared>, Interval)> + Clone {
        let signals = self.signals.iter().zip(&*self.above);
        signals.map(
            |(
                &NativePoint {
                    of, value: upto, ..
                },
                &above,
            )| (of, Interval { above, upto }),
        )
    }
}

impl<E: Enqueue> SubmissionQueue<E> {
    /// Same as [`SubmissionQueue::submit`], for work as a trait object and without a trace.
    ///
    /// The trait object lets this be compiled once per backend. For `is_bare` see
    /// [`Batch::is_bare`].
    ///
    /// # Errors
    /// Same errors as [`SubmissionQueue::submit`], in a box to keep the result small.
    #[inline(never)]
    pub(super) fn submit_work<'q>(
        self: &'q Arc<Self>,
        waits: &[Point<'_>],
        work: &mut dyn Work<E>,
        signals: &[Signal<'_>],
        is_bare: bool,
    ) -> Result<Submitted<'q>, Box<Error>> {
        self.require_maker()?;
        if is_exiting() {
            return Err(Box::new(exit_error(self.object(), "take a submission")));
        }
        let me = this_thread();
        let mut fast = FastPath::new();
        let Some((number, drive)) = self.try_start(me, waits, signals, &mut fast) else {
            return self.submit_slow(waits, work, signals);
        };
        // Queues that this submission releases may submit to this queue, so they run after it is no
        // longer driven.
        let _deferred = DeferWakes::new();
        self.send_fast(drive, number, &fast, work, is_bare)
    }

    /// Takes the number and the claims of a submission, and the right to drive.
    ///
    /// `None` without any change otherwise.
    #[inline]
    fn try_start<'s>(
        &self,
        me: ThreadId,
        waits: &[Point<'s>],
        signals: &[Signal<'s>],
        fast: &mut FastPath<'s>,
    ) -> Option<(u64, Drive<E>)> {
        for &Point { of, value } in waits {
            let Some(of) = of.filter(|of| of.reached() < value) else {
                continue;
            };
            let port = of.port_on(self.device())?;
            if !of.has_plainly_come(Stage::Pending, value) {
                return None;
            }
            fast.waits.push(NativePoint { of, port, value });
        }
        for &Signal { of, value } in signals {
            let port = of.port_on(self.device())?;
            fast.signals.push(NativePoint { of, port, value });
        }
        let has_checked = self.check_finished_if_due();
        let mut state = self.lock();
        if has_checked || self.may_keep_finished(&state) {
            state = self.drop_some_finished(state);
        }
        let number = state.last + 1;
        // Claims are decided in the queue's order, so under its lock.
        let starts = state.held.is_empty()
            && state.driving.is_free()
            && self.is_plainly_within_bounds(number)
            && self.claim_fast(fast);
        let Some(drive) = starts.then(|| state.driving.take(me)).flatten() else {
            let deferred = DeferWakes::new();
            self.withdraw_fast(fast);
            // Bridges are woken without the queue's lock.
            drop(state);
            drop(deferred);
            return None;
        };
        self.take_number(&mut state, number);
        Some((number, drive))
    }

    /// Withdraws the claims that were made.
    #[cold]
    fn withdraw_fast(&self, fast: &FastPath<'_>) {
        withdraw_all(&fast.taken());
    }

    /// Claims the signals, if each predecessor is reached, of this driver queue, or among the
    /// waits.
    ///
    /// If it returns false, some signals may be claimed.
    #[inline]
    fn claim_fast(&self, fast: &mut FastPath<'_>) -> bool {
        let FastPath {
            waits,
            signals,
            above,
        } = fast;
        signals.iter().all(|&NativePoint { of, value, .. }| {
            let Some(claim) = of.claim_alone(value) else {
                return false;
            };
            let before = claim.above;
            let is_waited =
                |wait: &NativePoint<'_>| wait.value >= before && Arc::ptr_eq(wait.of, of);
            above.push(before);
            // The reached value last, because another thread may be writing it.
            of.is_from(before, self.domain())
                || waits.iter().any(is_waited)
                || of.reached() >= before
        })
    }

    /// Sends a submission for which [`SubmissionQueue::try_start`] succeeded.
    ///
    /// # Errors
    /// The reason if it is refused. Its claims are withdrawn then.
    #[inline]
    fn send_fast<'q>(
        self: &'q Arc<Self>,
        mut drive: Drive<E>,
        number: u64,
        fast: &FastPath<'_>,
        work: &mut dyn Work<E>,
        is_bare: bool,
    ) -> Result<Submitted<'q>, Box<Error>> {
        let Some(ready) = self.driver().ready() else {
            let (waits, claims) = (fast.awaited(), fast.taken());
            self.put_off_new(
                drive,
                number,
                work,
                &waits,
                &claims,
                GraphEntries::default(),
            );
            return Ok(self.submitted(number));
        };
        let signals = &*fast.signals;
        let batch = Batch {
            waits: &fast.waits,
            order: &[],
            signals,
            relayed: &[],
            end: self.end_point(number),
            times: Written(None),
            is_bare,
            of: PhantomData,
        };
        let mut keep = Keep::default();
        let noted = self.note_dependent(number, &fast.waits, fast.claims());
        let record = |recorder: &mut E::Recorder<'_>| work.record(recorder);
        let handed = self.hand_over(drive.backend(), ready, &batch, record, &mut keep);
        if !matches!(handed, Handed::Taken) {
            if let Some(noted) = noted {
                self.settle_dependent(noted, fast.claims(), &handed);
            }
            let ended = self.not_taken(
                &mut drive,
                number,
                handed,
                &fast.taken(),
                GraphEntries::default(),
                keep,
            );
            self.drive(drive);
            return ended.map(|()| self.submitted(number));
        }
        let units = self.keep(number, &mut keep);
        if let Some(noted) = noted {
            self.settle_dependent(noted, fast.claims(), &Handed::Taken);
        }
        self.promote(number, fast.claims());
        let left = self.take_budget_and_leave(drive, number, units);
        self.wake_promoted(fast.claims());
        if let Err(drive) = left {
            self.drive(drive);
        }
        Ok(Submitted::sent(Point {
            of: Some(self.own_shared()),
            value: number,
        }))
    }
}
