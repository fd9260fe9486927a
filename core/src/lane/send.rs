//! Recording a submission and handing it to the driver.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use smallvec::SmallVec;

use super::hold::{Entry, Job, Taken};
use super::relay::Relay;
use super::{Lane, panic_message};
use crate::backend::{Batch, Enqueue, Flush, Keep, Waker};
use crate::claim::Interval;
use crate::error::{Error, Result};
use crate::graph::Place;
use crate::info::DeviceId;
use crate::point::{Completion, NativePoint, Point};
use crate::run::{Wake, wake_all};
use crate::state::Shared;
use crate::sync::Ordering;

/// What became of an attempt to hand a submission to the driver.
pub(super) enum Sent<E: Enqueue> {
    Done,
    Busy(E::Prepared, Keep, Option<Place>),
    Refused(Error, Keep),
}

impl<E: Enqueue> Lane<E> {
    /// Sends a submission that was never held.
    ///
    /// # Errors
    /// If it is refused, with its claims withdrawn.
    pub(super) fn send_now<W>(
        self: &Arc<Self>,
        number: u64,
        waits: &[Point<'_>],
        work: W,
        claims: &[Taken<'_>],
        place: Option<Place>,
    ) -> Result<()>
    where
        W: for<'r, 'a> FnOnce(&'r mut E::Recorder<'a>) -> Result<()>,
    {
        match self.send(number, waits, work, claims, place) {
            Sent::Done => Ok(()),
            Sent::Busy(prepared, keep, place) => {
                self.put_back(number, prepared, keep, owned(claims), place);
                Ok(())
            }
            Sent::Refused(error, keep) => {
                for (of, claim) in claims {
                    of.withdraw(*claim);
                }
                self.pass_over(number, keep, None);
                Err(error)
            }
        }
    }

    /// Records a submission and hands it to the driver.
    pub(super) fn send<W>(
        self: &Arc<Self>,
        number: u64,
        waits: &[Point<'_>],
        work: W,
        claims: &[Taken<'_>],
        place: Option<Place>,
    ) -> Sent<E>
    where
        W: for<'r, 'a> FnOnce(&'r mut E::Recorder<'a>) -> Result<()>,
    {
        type Natives<'n> = SmallVec<[NativePoint<'n>; 4]>;
        let native = |of, value| native(of, self.device, value);
        let batch_waits: Natives<'_> = waits
            .iter()
            .filter_map(|wait| native(wait.of.filter(|of| of.reached() < wait.value)?, wait.value))
            .collect();
        let domain = self.driver.order_domain();
        let order: Natives<'_> = claims
            .iter()
            .filter(|(of, claim)| of.reached() < claim.above && of.domain_of(claim.above) != domain)
            // Waited for before the work already.
            .filter(|(of, claim)| {
                !waits.iter().any(|wait| {
                    wait.value >= claim.above && wait.of.is_some_and(|other| Arc::ptr_eq(other, of))
                })
            })
            .filter_map(|(of, claim)| native(of, claim.above))
            .collect();
        let signals: Natives<'_> = claims
            .iter()
            .filter(|(of, _)| of.failure().is_none())
            .filter_map(|(of, claim)| native(of, claim.upto))
            .collect();
        let relayed: SmallVec<[Completion; 2]> = claims
            .iter()
            .filter(|(of, _)| of.port_on(self.device).is_none())
            .map(|(of, claim)| Completion::new(of, claim.upto))
            .collect();
        let own = self.own_shared();
        let end = NativePoint {
            of: own,
            port: own.home(),
            value: number,
        };
        let batch = Batch {
            waits: &batch_waits,
            order: &order,
            signals: &signals,
            relayed: &relayed,
            end,
        };

        let mut keep = Keep::default();
        let recorded = self.driver.record(&batch, &mut keep, |recorder| {
            catch_unwind(AssertUnwindSafe(|| work(recorder))).unwrap_or_else(|payload| {
                Err(Error::WorkPanicked {
                    queue: self.object.clone(),
                    message: panic_message(&*payload),
                })
            })
        });
        match recorded {
            Ok(prepared) => self.flush(number, prepared, keep, claims, place),
            Err(error) => Sent::Refused(error, keep),
        }
    }

    /// Hands a recorded submission to the driver, and lets the timelines know.
    pub(super) fn flush(
        self: &Arc<Self>,
        number: u64,
        prepared: E::Prepared,
        keep: Keep,
        claims: &[Taken<'_>],
        place: Option<Place>,
    ) -> Sent<E> {
        let waker = || Waker(self.clone() as Arc<dyn Wake>);
        match self.driver.flush(prepared, &waker) {
            Flush::Done => {}
            Flush::Busy(prepared) => return Sent::Busy(prepared, keep, place),
            Flush::Refused(error) => return Sent::Refused(error, keep),
        }
        if !keep.is_empty() {
            self.state.lock().kept.push_back((number, keep));
            self.keeps.store(true, Ordering::Relaxed);
        }
        let domain = self.driver.order_domain();
        let own = self.own_shared();
        let relayed = |of: &Arc<Shared>| of.port_on(self.device).is_none();
        // Until the host has made its signals, others wait for this submission.
        let place = place
            .filter(|_| claims.iter().any(|(of, _)| relayed(of)))
            .map(|place| {
                place.reduce(true, |of| !Arc::ptr_eq(of, own) && relayed(of));
                Arc::new(place)
            });
        own.promote(
            Interval {
                above: number - 1,
                upto: number,
            },
            domain,
            Some(&self.object),
        );
        for &(of, claim) in claims {
            if !relayed(of) {
                of.promote(claim, domain, Some(&self.object));
            } else {
                let relay = Relay {
                    own: own.clone(),
                    number,
                    of: of.clone(),
                    claim,
                    _place: place.clone(),
                };
                wake_all([Arc::new(relay) as Arc<dyn Wake>]);
            }
        }
        Sent::Done
    }

    /// Gives a refused or skipped submission's number to the driver, with no work, so that the queue's
    /// position goes on and what the driver may already use of it is kept until then. Stays at the front if
    /// the driver takes none now: the caller drives on, and so finds it.
    pub(super) fn pass_over(self: &Arc<Self>, number: u64, mut kept: Keep, place: Option<Place>) {
        if !self.driver.ready() {
            let pass = Entry {
                number,
                waits: SmallVec::new(),
                claims: SmallVec::new(),
                job: Job::Pass(kept),
                place,
            };
            self.state.lock().held.push_front(pass);
            return;
        }
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
        };
        let sent = match self.driver.record(&batch, &mut kept, |_| Ok(())) {
            Ok(prepared) => self.flush(number, prepared, kept, &[], place),
            Err(error) => Sent::Refused(error, kept),
        };
        match sent {
            Sent::Done => {}
            Sent::Busy(prepared, keep, place) => {
                self.put_back(number, prepared, keep, SmallVec::new(), place);
            }
            // Not even that: the queue itself is gone.
            Sent::Refused(error, keep) => {
                own.fail(error.into_cause());
                drop(keep);
            }
        }
    }
}

fn native<'n>(of: &'n Arc<Shared>, device: DeviceId, value: u64) -> Option<NativePoint<'n>> {
    of.port_on(device)
        .map(|port| NativePoint { of, port, value })
}

pub(super) fn owned(claims: &[Taken<'_>]) -> SmallVec<[(Arc<Shared>, Interval); 4]> {
    claims
        .iter()
        .map(|&(of, claim)| (of.clone(), claim))
        .collect()
}
