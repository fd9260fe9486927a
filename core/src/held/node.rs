//! What is held, as the graph sees it: where it comes from, what it waits for and what it has claimed.

use std::sync::{Arc, Weak};

use smallvec::SmallVec;

use super::entries::Parts;
use crate::base::error::Object;
use crate::base::info::DeviceId;
use crate::timeline::point::KeptPoint;
use crate::timeline::state::{Interval, Shared};

/// In the place of a slot.
pub(super) const RELAYED: u32 = u32::MAX;

/// A queue with held submissions, to be told that one of them may have become hopeless.
pub(crate) trait Holder: Send + Sync {
    /// Looks again at what submission `number` waits for. Called with no lock held.
    fn reconsider(self: Arc<Self>, number: u64);
}

/// Where submissions come from.
pub(crate) struct Origin {
    pub(crate) queue: Object,
    pub(crate) device: DeviceId,
    pub(crate) holder: Weak<dyn Holder>,
    /// The queue's own timeline.
    pub(crate) own: Arc<Shared>,
}

/// What a submission waits for and claims, on its way between its queue and the graph.
#[derive(Default)]
pub(crate) struct Lists {
    pub(crate) waits: SmallVec<[KeptPoint; 2]>,
    pub(crate) claims: SmallVec<[OwnedClaim; 2]>,
}

impl Lists {
    /// What they hold goes; the room that they have had stays.
    pub(crate) fn clear(&mut self) {
        self.waits.clear();
        self.claims.clear();
    }
}

/// A claim that a submission holds for as long as it is held. None: it has been given up.
pub(crate) type OwnedClaim = (Option<Arc<Shared>>, Interval);

/// What a submission, or a signal that the host makes for it, is to the graph.
#[derive(Clone, Copy)]
pub(super) struct Node<'n> {
    pub(super) origin: &'n Arc<Origin>,
    pub(super) number: u64,
    /// The host makes its claims, once the submission has finished. If not, it also claims its number of the
    /// queue's own timeline.
    pub(super) by_host: bool,
    pub(super) waits: Parts<'n, KeptPoint>,
    pub(super) claims: Parts<'n, OwnedClaim>,
}

impl<'n> Node<'n> {
    pub(super) fn waits(self) -> impl Iterator<Item = (&'n Arc<Shared>, u64)> {
        let waits = self.waits.into_iter().flatten();
        waits.filter_map(|wait| Some((wait.of.as_ref()?, wait.value)))
    }

    /// What it has claimed, but for its turn. Signals that the host makes for a submission are not the submission's.
    pub(super) fn signals(self) -> impl Iterator<Item = (&'n Arc<Shared>, Interval)> {
        let claims = self.claims.into_iter().flatten();
        let claims = claims.filter_map(|(of, claim)| Some((of.as_ref()?, *claim)));
        claims.filter(move |(of, _)| self.by_host || of.port_on(self.origin.device).is_some())
    }

    /// Its turn on its queue: a claim of the queue's own timeline.
    pub(super) fn own_claim(self) -> Option<(&'n Arc<Shared>, Interval)> {
        let turn = Interval {
            above: self.number - 1,
            upto: self.number,
        };
        (!self.by_host).then_some((&self.origin.own, turn))
    }

    pub(super) fn claims(self) -> impl Iterator<Item = (&'n Arc<Shared>, Interval)> {
        self.signals().chain(self.own_claim())
    }

    /// What it waits for: its points, and the signals before its own.
    pub(super) fn points(self) -> impl Iterator<Item = (&'n Arc<Shared>, u64)> {
        let order = self.claims().map(|(of, claim)| (of, claim.above));
        self.waits().chain(order)
    }

    /// As [`Node::points`], for what each submission does as it comes: plain loops, as the iterators in one another cost several
    /// times as much.
    #[inline]
    pub(super) fn for_each_point(self, mut action: impl FnMut(&Arc<Shared>, u64)) {
        self.for_each_part(&mut action, |action, of, claim| action(of, claim.above));
        if let Some((own, turn)) = self.own_claim() {
            action(own, turn.above);
        }
    }

    /// Calls `waits` for what it waits for, and `claims` for its [signals](Node::signals).
    #[inline]
    pub(super) fn for_each_part<W: FnMut(&Arc<Shared>, u64)>(
        self,
        waits: &mut W,
        mut claims: impl FnMut(&mut W, &Arc<Shared>, Interval),
    ) {
        for part in self.waits {
            for wait in part {
                if let Some(of) = &wait.of {
                    waits(of, wait.value);
                }
            }
        }
        for part in self.claims {
            for (of, claim) in part {
                if let Some(of) = of
                    && (self.by_host || of.port_on(self.origin.device).is_some())
                {
                    claims(waits, of, *claim);
                }
            }
        }
    }

    pub(super) fn is_of_the_same_submission(self, other: Self) -> bool {
        self.origin.queue == other.origin.queue && self.number == other.number
    }
}
