//! The way of nearly every submission: what it waits for is pending, nobody is in the way of what it signals, nothing is held
//! before it, and the driver has budget. One pass over waits and signals finds that out, and makes of them what the driver is
//! given, on the stack. Where it finds anything else nothing has changed, and the submission goes the long way.

use std::sync::Arc;

use smallvec::SmallVec;

use super::entry::Work;
use super::graph_entries::GraphEntries;
use super::hold::{AllAwaited, AllTaken, Awaited, Taken};
use super::send::Handed;
use super::{SubmissionQueue, Submitted, withdraw_all};
use crate::base::error::{Error, Result};
use crate::base::run::PutOff;
use crate::base::stage::Stage;
use crate::base::sync::{ThreadId, this_thread};
use crate::driver::enqueue::{Batch, Enqueue, Written};
use crate::driver::keep::Keep;
use crate::timeline::point::{NativePoint, Point, Signal};
use crate::timeline::state::{Interval, Shared};

/// So many waits, and so many signals, need no allocation.
const INLINE: usize = 8;

/// A submission on its way.
struct FastPath<'s> {
    waits: SmallVec<[NativePoint<'s>; INLINE]>,
    signals: SmallVec<[NativePoint<'s>; INLINE]>,
    /// Where the claims of these begin, as far as they are claimed.
    above: SmallVec<[u64; INLINE]>,
    /// The budget that others before it had taken, and which have finished: to be given back without the lock.
    budget: u64,
}

impl<'s> FastPath<'s> {
    #[inline]
    fn new() -> Self {
        Self {
            waits: SmallVec::new(),
            signals: SmallVec::new(),
            above: SmallVec::new(),
            budget: 0,
        }
    }

    /// What it waits for, as the long way has that.
    fn awaited(&self) -> AllAwaited<'s> {
        let waits = self.waits.iter();
        let awaited = |&NativePoint { of, port, value }: &NativePoint<'s>| Awaited {
            of,
            value,
            port: Some(port),
        };
        waits.map(awaited).collect()
    }

    /// What it has claimed, as the long way has that.
    fn taken(&self) -> AllTaken<'s> {
        let signals = self.signals.iter().zip(&*self.above);
        let taken = |(
            &NativePoint {
                of,
                port,
                value: upto,
            },
            &above,
        ): (&NativePoint<'s>, &u64)| Taken {
            of,
            claim: Interval { above, upto },
            port: Some(port),
        };
        signals.map(taken).collect()
    }
}

/// The position of a queue as its driver signals it.
#[inline]
pub(super) fn own_point(own: &Arc<Shared>, number: u64) -> NativePoint<'_> {
    NativePoint {
        of: own,
        port: own.home(),
        value: number,
    }
}

impl<E: Enqueue> SubmissionQueue<E> {
    /// As [`SubmissionQueue::submit`], for work of any kind, which nobody traces. See [`Batch::is_bare`].
    ///
    /// Knows the work by its functions alone: so this is compiled once for a backend, in one piece.
    ///
    /// # Errors
    /// As there, in a box: so that what mostly is returned is small.
    #[inline(never)]
    pub(super) fn submit_work<'q>(
        self: &'q Arc<Self>,
        waits: &[Point<'_>],
        work: &mut dyn Work<E>,
        signals: &[Signal<'_>],
        is_bare: bool,
    ) -> Result<Submitted<'q>, Box<Error>> {
        let me = this_thread();
        let mut fast = FastPath::new();
        let Some(number) = self.set_out(me, waits, signals, &mut fast) else {
            self.take_back(fast.budget);
            return self.submit_slow(waits, work, signals);
        };
        // What this submission releases may submit to this queue too: only once it is not driven here.
        let _put_off = PutOff::new();
        self.take_back(fast.budget);
        self.send_fast(me, number, &fast, work, is_bare)
    }

    /// Gives a submission its number and its claims, and has this thread drive. If not, nothing has changed.
    #[inline]
    fn set_out<'s>(
        &self,
        me: ThreadId,
        waits: &[Point<'s>],
        signals: &[Signal<'s>],
        fast: &mut FastPath<'s>,
    ) -> Option<u64> {
        for &Point { of, value } in waits {
            let Some(of) = of.filter(|of| of.reached() < value) else {
                continue;
            };
            let port = of.port_on(self.device)?;
            let plain = of.has_plainly_come(Stage::Pending, value) && !of.depends_on_others();
            if !plain {
                return None;
            }
            fast.waits.push(NativePoint { of, port, value });
        }
        for &Signal { of, value } in signals {
            let port = of.port_on(self.device)?;
            fast.signals.push(NativePoint { of, port, value });
        }
        self.look_if_due();
        let mut finished = None;
        let mut state = self.state.lock();
        self.take_finished(&mut state, &mut finished);
        if let Some(finished) = &mut finished {
            fast.budget = finished.take_in_flight();
            if !finished.is_empty() {
                drop(state);
                // Before it goes: what is dropped may take its time, or wait for a device, and this one may stand there until the host
                // does something. And before it has its turn: what is dropped is the application's, and may wait for this queue, or
                // submit to it.
                finished.let_go(None);
                state = self.state.lock();
            }
        }
        let number = state.last + 1;
        // Claims are decided in the queue's order: under its lock.
        let fine = state.held.is_empty()
            && state.driving.is_free()
            && self.is_plainly_within_bounds(number)
            && self.claim_fast(fast);
        if !fine {
            let put_off = PutOff::new();
            self.stay_behind(fast);
            // Bridges are told without the queue's lock.
            drop(state);
            drop(put_off);
            return None;
        }
        self.take_number(&mut state, number);
        state.driving.take(me);
        Some(number)
    }

    /// Takes the claims back.
    #[cold]
    fn stay_behind(&self, fast: &FastPath<'_>) {
        withdraw_all(&fast.taken());
    }

    /// Claims the signals, each of which comes after the one before it by itself, or as that is waited for. If not, some may
    /// be claimed.
    #[inline]
    fn claim_fast(&self, fast: &mut FastPath<'_>) -> bool {
        let FastPath {
            waits,
            signals,
            above,
            ..
        } = fast;
        signals.iter().all(|&NativePoint { of, value, .. }| {
            let Some(claim) = of.claim_alone(value) else {
                return false;
            };
            let before = claim.above;
            let waited = |wait: &NativePoint<'_>| wait.value >= before && Arc::ptr_eq(wait.of, of);
            above.push(before);
            of.reached() >= before || of.is_from(before, self.domain) || waits.iter().any(waited)
        })
    }

    /// Sends a submission that has [set out](SubmissionQueue::set_out).
    ///
    /// # Errors
    /// If it is refused, with its claims withdrawn.
    #[inline]
    fn send_fast<'q>(
        self: &'q Arc<Self>,
        me: ThreadId,
        number: u64,
        fast: &FastPath<'_>,
        work: &mut dyn Work<E>,
        is_bare: bool,
    ) -> Result<Submitted<'q>, Box<Error>> {
        if !self.driver.ready() {
            let (waits, claims) = (fast.awaited(), fast.taken());
            self.put_off_new(number, work, &waits, &claims, GraphEntries::default());
            return Ok(self.submitted(number));
        }
        let own = self.own_shared();
        let signals = &*fast.signals;
        let batch = Batch {
            waits: &fast.waits,
            order: &[],
            signals,
            relayed: &[],
            end: own_point(own, number),
            times: Written(None),
            is_bare,
        };
        let mut keep = Keep::default();
        let record = |recorder: &mut E::Recorder<'_>| work.record(recorder);
        let handed = self.hand_over(&batch, record, &mut keep);
        if !matches!(handed, Handed::Taken) {
            let ended =
                self.not_taken(number, handed, &fast.taken(), GraphEntries::default(), keep);
            self.drive(me);
            return ended.map(|()| self.submitted(number));
        }
        let units = self.keep(number, &mut keep);
        // No object is left in it, and nobody has to find that out again.
        std::mem::forget(keep);
        let signalled = signals.iter().map(|signal| (signal.of, signal.value));
        self.promote(number, units, signalled);
        if !self.try_leave() {
            self.drive(me);
        }
        Ok(Submitted {
            end: self.own.at(number),
            held: false,
            skipped: None,
        })
    }
}
