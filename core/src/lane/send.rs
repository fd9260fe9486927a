//! Recording a submission and handing it to the driver.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use smallvec::SmallVec;

use super::entry::{Entry, kept};
use super::hold::{Awaited, State, Taken};
use super::places::Places;
use super::relay::Relay;
use super::{Lane, panic_message, withdraw_all};
use crate::backend::{Batch, Enqueue, Flush, Keep, Waker};
use crate::error::{Error, Result};
use crate::graph::Lists;
use crate::point::{Completion, NativePoint};
use crate::run::{Wake, wake_all};
use crate::sync::{Ordering, fence};

/// What became of an attempt to hand a submission to the driver.
pub(super) enum Sent<E: Enqueue> {
    /// What the submission kept and its places are taken care of. Who has come meanwhile is yet to be [looked
    /// for](Lane::look_behind), behind a barrier.
    Done(Promoted),
    Busy(E::Prepared),
    Refused(Error),
}

/// Which of a submission's claims were promoted without a lock, bit by bit; those beyond the last bit may have been.
#[derive(Clone, Copy)]
pub(super) struct Promoted(u64);

impl Promoted {
    #[inline]
    const fn add(&mut self, index: usize) {
        if index < 64 {
            self.0 |= 1 << index;
        }
    }

    #[inline]
    const fn has(self, index: usize) -> bool {
        index >= 64 || self.0 & (1 << index) != 0
    }
}

/// How a submission that was never held went.
pub(super) enum Went {
    /// To the driver. See [`Sent::Done`].
    Straight(Promoted),
    /// To the front of what is held.
    Held,
}

impl<E: Enqueue> Lane<E> {
    /// Sends a submission that was never held.
    ///
    /// # Errors
    /// If it is refused, with its claims withdrawn.
    pub(super) fn send_now<'l, W>(
        self: &'l Arc<Self>,
        number: u64,
        waits: &[Awaited<'_>],
        work: W,
        claims: &[Taken<'_>],
        mut places: Places<'l>,
    ) -> Result<Went>
    where
        W: for<'r, 'a> FnOnce(&'r mut E::Recorder<'a>) -> Result<()>,
    {
        let mut keep = Keep::default();
        match self.send(number, waits, work, claims, &mut places, &mut keep) {
            Sent::Done(promoted) => Ok(Went::Straight(promoted)),
            Sent::Busy(prepared) => {
                // It is held now, if only by a lock: whoever asks must find it. It waits for nobody in the
                // graph, so it closes no circle.
                let (mut lists, mut entered) = (Box::<Lists>::default(), Lists::default());
                State::<E>::fill(&mut lists, &[], claims);
                State::<E>::fill(&mut entered, &[], claims);
                places.turn = self.take_turn(number, &mut entered).ok();
                self.put_back(number, prepared, keep, Some(lists), places);
                Ok(Went::Held)
            }
            Sent::Refused(error) => {
                withdraw_all(claims);
                self.pass_over(number, keep, Places::default());
                Err(error)
            }
        }
    }

    /// Records a submission and hands it to the driver. What is kept, also by a part of it, goes to `keep`.
    pub(super) fn send<W>(
        self: &Arc<Self>,
        number: u64,
        waits: &[Awaited<'_>],
        work: W,
        claims: &[Taken<'_>],
        places: &mut Places<'_>,
        keep: &mut Keep,
    ) -> Sent<E>
    where
        W: for<'r, 'a> FnOnce(&'r mut E::Recorder<'a>) -> Result<()>,
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
        for &Taken { of, claim, port } in claims {
            if let Some(port) = port.filter(|_| !of.is_failed()) {
                let value = claim.upto;
                natives.push(NativePoint { of, port, value });
            }
        }
        let own = self.own_shared();
        let end = NativePoint {
            of: own,
            port: own.home(),
            value: number,
        };
        let batch = Batch {
            waits: &natives[..before],
            order: &natives[before..between],
            signals: &natives[between..],
            relayed: &relayed,
            end,
            finished: own.reached(),
        };

        // Around the work, so that the backend can undo what it had begun; and around all of it, since what
        // is dropped in there, the work's own captures among it, is the application's and may panic too.
        let flushed = self.guarded(|| {
            let work = |recorder: &mut E::Recorder<'_>| self.guarded(|| work(recorder));
            let prepared = self.driver.record(&batch, keep, work)?;
            Ok(self.hand_over(prepared))
        });
        self.take_in(number, flushed, claims, places, keep)
    }

    /// Runs what may panic for the application's sake: that is a refusal then.
    #[inline]
    fn guarded<T>(&self, action: impl FnOnce() -> Result<T>) -> Result<T> {
        catch_unwind(AssertUnwindSafe(action)).unwrap_or_else(|payload| {
            Err(Error::WorkPanicked {
                queue: self.object.clone(),
                message: panic_message(payload),
            })
        })
    }

    /// Hands a recorded submission to the driver. May panic: one that refuses it drops what was prepared, on the host
    /// closures of the application.
    #[inline]
    fn hand_over(self: &Arc<Self>, prepared: E::Prepared) -> Flush<E::Prepared> {
        let waker = || Waker(self.clone() as Arc<dyn Wake>);
        self.driver.flush(prepared, &waker)
    }

    /// Hands a submission that was recorded before to the driver, and lets the timelines know.
    pub(super) fn flush(
        self: &Arc<Self>,
        number: u64,
        prepared: E::Prepared,
        claims: &[Taken<'_>],
        places: &mut Places<'_>,
        keep: &mut Keep,
    ) -> Sent<E> {
        let flushed = self.guarded(|| Ok(self.hand_over(prepared)));
        self.take_in(number, flushed, claims, places, keep)
    }

    /// Lets the timelines know of a submission that the driver has taken.
    #[inline]
    fn take_in(
        self: &Arc<Self>,
        number: u64,
        flushed: Result<Flush<E::Prepared>>,
        claims: &[Taken<'_>],
        places: &mut Places<'_>,
        keep: &mut Keep,
    ) -> Sent<E> {
        match flushed {
            Ok(Flush::Done) => {}
            Ok(Flush::Busy(prepared)) => return Sent::Busy(prepared),
            Ok(Flush::Refused(error)) => return Sent::Refused(error),
            Err(error) => return Sent::Refused(error.on(&self.object)),
        }
        let units = keep.units();
        let room = self.room.as_ref().filter(|_| units > 0);
        let objects = !keep.is_empty();
        let left = room.is_some() && !(objects || self.aside.put(number, units));
        if left || objects {
            let mut state = self.state.lock();
            state.take_up(&self.aside);
            if room.is_some() {
                state.taken.push_back((number, units));
            }
            if objects {
                state.kept.push_back((number, std::mem::take(keep)));
            }
            drop(state);
            // Room alone is looked at when there is none left.
            if objects {
                self.keeps.store(true, Ordering::Relaxed);
            }
        }
        let domain = self.domain;
        let own = self.own_shared();
        // Who waits for it waits for the driver from now on, or for the signals that the host has yet to make.
        drop(places.turn.take());
        let mut promoted = Promoted(0);
        for (index, Taken { of, claim, port }) in claims.iter().enumerate() {
            if port.is_some() && of.promote(*claim, domain, Some(&self.object)) {
                promoted.add(index);
            }
        }
        // After its signals: who sees the position pending finds them pending, too.
        own.promote_own(number);
        // Pending first: who finds no room then finds what to wait for.
        if let Some(room) = room {
            room.count(units);
        }
        if claims.iter().all(|claim| claim.port.is_some()) {
            return Sent::Done(promoted);
        }
        let mut places = std::mem::take(&mut places.relayed).into_iter();
        for Taken { of, claim, .. } in claims.iter().filter(|claim| claim.port.is_none()) {
            let relay = Relay {
                own: own.clone(),
                number,
                of: Arc::clone(of),
                claim: *claim,
                _place: places.next(),
            };
            wake_all([Arc::new(relay) as Arc<dyn Wake>]);
        }
        Sent::Done(promoted)
    }

    /// Looks who waits for what has been promoted, and who has looked for it. Comes behind a barrier: one for all that a
    /// submission promotes.
    #[inline]
    pub(super) fn look_behind(&self, claims: &[Taken<'_>], promoted: Promoted) {
        for (index, Taken { of, claim, port }) in claims.iter().enumerate() {
            if port.is_some() && promoted.has(index) {
                of.look_behind(*claim);
            }
        }
        self.own_shared().release_if_awaited();
    }

    /// Gives a refused or skipped submission's number to the driver, with no work, so that the queue's
    /// position goes on and what the driver may already use of it is kept until then. Stays at the front if
    /// the driver takes none now: the caller drives on, and so finds it.
    pub(super) fn pass_over(self: &Arc<Self>, number: u64, keep: Keep, places: Places<'_>) {
        if !self.driver.ready() {
            let pass = Entry::pass(number, kept(keep), places);
            self.state.lock().push_front(pass);
            return;
        }
        self.pass(number, keep, places);
    }

    /// As [`Lane::pass_over`], for a driver that has just said that it is ready.
    pub(super) fn pass(self: &Arc<Self>, number: u64, mut kept: Keep, mut places: Places<'_>) {
        let own = self.own_shared();
        let end = NativePoint {
            of: own,
            port: own.home(),
            value: number,
        };
        let batch = Batch {
            waits: &[],
            order: &[],
            signals: &[],
            relayed: &[],
            end,
            finished: own.reached(),
        };
        let sent = match self.driver.record(&batch, &mut kept, |_| Ok(())) {
            Ok(prepared) => self.flush(number, prepared, &[], &mut places, &mut kept),
            Err(error) => Sent::Refused(error),
        };
        match sent {
            Sent::Done(promoted) => {
                fence(Ordering::SeqCst);
                self.look_behind(&[], promoted);
            }
            Sent::Busy(prepared) => {
                self.put_back(number, prepared, kept, None, places);
            }
            // Not even that: the queue itself is gone. The driver may still use what was kept, so that stays
            // for as long as the queue.
            Sent::Refused(error) => {
                self.state.lock().kept.push_back((number, kept));
                own.fail(error.into_cause());
            }
        }
    }
}
