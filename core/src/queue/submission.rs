//! One submission on its way to the driver.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::base::error::Failure;
use crate::driver::keep::Keep;
use crate::held::Edges;
use crate::port::{Port, Stamp};
use crate::timeline::point::{NativePoint, Point};
use crate::timeline::state::{Interval, Shared};

/// What a submission waits for, signals and keeps.
///
/// Up to eight waits and eight signals need no allocation.
pub(super) struct Submission<'s> {
    /// The number of the submission on its queue.
    pub(super) number: u64,
    /// True if it was held, so that it is in the graph of held submissions.
    pub(super) was_held: bool,
    /// True if all that it waits for has come.
    ///
    /// A submission with fewer signals than its caller asked for can never run, and is not ready.
    pub(super) is_ready: bool,
    /// True if others must know of it before the driver has it.
    ///
    /// It waits for another device or process, the times of its signals are written, or others
    /// signal its timelines, too.
    pub(super) must_be_noted: bool,
    /// The waits of the device before the work, then those after it.
    ///
    /// Each must be pending before the submission goes to the driver. Those after the work are the
    /// predecessors of signals.
    pub(super) all_waits: SmallVec<[NativePoint<'s>; 16]>,
    /// The number of waits before the work.
    pub(super) waits_before: usize,
    /// The signals of the device.
    ///
    /// The predecessor of each must be pending before the submission goes to the driver.
    pub(super) signals: SmallVec<[NativePoint<'s>; 8]>,
    /// The waits and signals without a port on the device. `None` for most submissions.
    pub(super) host: Option<Box<OnHost<'s>>>,
    /// What the submission needs until it has finished.
    pub(super) keep: Keep,
    /// The stamp for the time of its signals, if one of them needs it.
    pub(super) stamp: Option<Arc<dyn Stamp>>,
    /// The cause, if a timeline that it waits for was lost before the driver had it.
    pub(super) lost: Option<Failure>,
}

/// The waits and signals that the host makes for a submission.
#[derive(Default)]
pub(super) struct OnHost<'s> {
    /// Each must be reached before the submission goes to the driver.
    pub(super) waits: SmallVec<[(&'s Arc<Shared>, u64); 2]>,
    /// Made once the submission has finished. The interval is empty until it is claimed.
    pub(super) signals: SmallVec<[(&'s Arc<Shared>, Interval); 2]>,
}

impl<'s> Submission<'s> {
    #[inline]
    pub(super) fn new() -> Self {
        Self {
            number: 0,
            was_held: false,
            is_ready: true,
            must_be_noted: false,
            all_waits: SmallVec::new(),
            waits_before: 0,
            signals: SmallVec::new(),
            host: None,
            keep: Keep::default(),
            stamp: None,
            lost: None,
        }
    }

    /// Adds a wait. Without a `port` the host makes it. Call it before the signals are claimed.
    ///
    /// `has_come` is true if it is pending, or reached if the host makes it.
    #[inline(always)]
    pub(super) fn add_wait(
        &mut self,
        of: &'s Arc<Shared>,
        port: Option<&'s dyn Port>,
        value: u64,
        has_come: bool,
    ) {
        self.is_ready &= has_come;
        if let Some(port) = port {
            // A timeline begins to depend on others before its signal is pending.
            self.must_be_noted |= of.depends_on_others();
            self.all_waits.push(NativePoint::new(of, port, value));
            self.waits_before += 1;
        } else if !has_come {
            self.on_host().waits.push((of, value));
        }
    }

    /// Adds a signal. Without a `port` the host makes it. The claim is empty if it is not made yet.
    ///
    /// [`Submission::note_claim`] adds the claim of a signal of the device.
    #[inline(always)]
    pub(super) fn add_signal(
        &mut self,
        of: &'s Arc<Shared>,
        port: Option<&'s dyn Port>,
        claim: Interval,
    ) {
        let Some(port) = port else {
            self.on_host().signals.push((of, claim));
            return;
        };
        self.must_be_noted |= of.local_times().is_some() || of.ports().takes_promises();
        self.signals.push(NativePoint::new(of, port, claim.upto));
    }

    /// The waits of the device before the work.
    #[inline]
    pub(super) fn waits(&self) -> &[NativePoint<'s>] {
        self.all_waits.split_at(self.waits_before).0
    }

    /// The highest wait of the device for the timeline `of`, or 0.
    #[inline]
    pub(super) fn own_wait(&self, of: &Arc<Shared>) -> u64 {
        let mut highest = 0;
        for wait in self.waits() {
            if Arc::ptr_eq(wait.of, of) {
                highest = highest.max(wait.value);
            }
        }
        highest
    }

    /// Notes that the signal `at` is claimed from `above` on, and adds the wait for `above` (T3).
    ///
    /// `domain` is the driver queue. A signal of it before needs no wait.
    #[inline(always)]
    pub(super) fn note_claim(&mut self, at: usize, above: u64, domain: u64) {
        let Some(signal) = self.signals.get_mut(at) else {
            return;
        };
        signal.above = above;
        let NativePoint { of, port, .. } = *signal;
        // The reached value last, because another thread may be writing it.
        if !(of.is_from(above, domain) || self.own_wait(of) >= above || of.reached() >= above) {
            self.all_waits.push(NativePoint::new(of, port, above));
            // A lost device is noticed only as long as the timeline exists.
            if of.depends_on_others() {
                self.keep.push(of.clone());
            }
        }
    }

    /// The part of the host, which is added if there is none.
    #[cold]
    pub(super) fn on_host(&mut self) -> &mut OnHost<'s> {
        self.host.get_or_insert_default()
    }

    /// The signals of the host.
    #[inline]
    pub(super) fn host_signals(&self) -> &[(&'s Arc<Shared>, Interval)] {
        self.host.as_ref().map_or(&[], |host| &host.signals)
    }

    /// The claims of all signals, first those of the device.
    pub(super) fn claims(&self) -> impl Iterator<Item = (&'s Arc<Shared>, Interval)> {
        let here = self
            .signals
            .iter()
            .map(|signal| (signal.of, signal.claim()));
        here.chain(self.host_signals().iter().copied())
    }

    /// Leaves out the signals of timelines that have failed since they were claimed.
    ///
    /// Others that signal the same timelines, too, get them after the work (E2).
    pub(super) fn leave_out_failed(&mut self) {
        self.signals
            .retain(|signal| signal.of.failure().is_none() || signal.of.serves_others());
    }

    /// Withdraws the claims that were made, because the submission is refused.
    ///
    /// The caller has handles of these timelines, so no wait is cancelled. Wakes bridges. A caller
    /// with the queue's lock delays the wakes.
    #[cold]
    pub(super) fn withdraw(&self) {
        for (of, claim) in self.claims().filter(|(_, claim)| claim.above < claim.upto) {
            of.withdraw(claim);
        }
    }

    /// The claims and these waits with references of their own, for a submission that is held.
    pub(super) fn edges(&self, waits: &[Point<'_>]) -> Arc<Edges> {
        let mut edges = Edges::default();
        edges.waits.reserve(waits.len());
        edges
            .claims
            .reserve(self.signals.len() + self.host_signals().len());
        // In the order of the caller: the first that has failed is the cause.
        for &Point { of, value } in waits {
            if let Some(of) = of.filter(|of| of.reached() < value) {
                edges.waits.push((of.clone(), value));
            }
        }
        for (of, claim) in self.claims() {
            edges.claims.push((of.clone(), claim));
        }
        Arc::new(edges)
    }
}
