//! The nodes of the graph: where a submission comes from, what it waits for and what it claims.

use std::sync::{Arc, Weak};

use smallvec::SmallVec;

use crate::base::error::{Failure, Object};
use crate::base::info::DeviceId;
use crate::timeline::state::{Interval, Shared};

/// The index that stands for signals by the host, in place of that of a queue.
pub(super) const RELAYED: u32 = u32::MAX;

/// A queue with held submissions. It is called if a wait of one of them may never be reached.
pub(crate) trait Holder: Send + Sync {
    /// Checks again what submission `number` waits for. Called with no lock held.
    fn reconsider(self: Arc<Self>, number: u64);
}

/// The queue of a submission.
pub(crate) struct QueueOrigin {
    queue: Object,
    device: DeviceId,
    holder: Weak<dyn Holder>,
    /// The queue's position.
    own: Arc<Shared>,
}

impl QueueOrigin {
    /// The queue `queue` of `device`, whose position is `own`.
    pub(crate) fn new(
        queue: Object,
        device: DeviceId,
        holder: Weak<dyn Holder>,
        own: Arc<Shared>,
    ) -> Arc<Self> {
        Arc::new(Self {
            queue,
            device,
            holder,
            own,
        })
    }

    /// The queue's position.
    #[inline]
    pub(super) const fn own(&self) -> &Arc<Shared> {
        &self.own
    }
}

/// What a held submission waits for and what it claims: its edges in the graph.
///
/// Its queue and the graph share it, so neither copies it.
#[derive(Default)]
pub(crate) struct Edges {
    pub(crate) waits: SmallVec<[(Arc<Shared>, u64); 1]>,
    /// First the claims whose signals the device makes, then those of the host's signals.
    pub(crate) claims: SmallVec<[(Arc<Shared>, Interval); 1]>,
}

impl Edges {
    /// Fails the timelines of the claims, because the submission will not run.
    pub(crate) fn fail(&self, cause: &Failure) {
        for (of, _) in &self.claims {
            of.fail(cause.clone());
        }
    }
}

/// A submission, or a signal that the host will make for it, as a node of the graph.
#[derive(Clone, Copy)]
pub(super) struct Node<'n> {
    origin: &'n Arc<QueueOrigin>,
    number: u64,
    /// True for a signal that the host will make.
    ///
    /// Otherwise the node also claims its number of the queue's position.
    by_host: bool,
    waits: &'n [(Arc<Shared>, u64)],
    claims: &'n [(Arc<Shared>, Interval)],
}

impl<'n> Node<'n> {
    /// Submission `number` of the queue `origin`. Without `edges` it only has its position.
    #[inline]
    pub(super) fn submission(
        origin: &'n Arc<QueueOrigin>,
        number: u64,
        edges: Option<&'n Edges>,
    ) -> Self {
        Self {
            origin,
            number,
            by_host: false,
            waits: edges.map_or(&[], |edges| &edges.waits),
            claims: edges.map_or(&[], |edges| &edges.claims),
        }
    }

    /// The signal that the host will make for submission `number`.
    #[inline]
    pub(super) fn relayed(origin: &'n Arc<QueueOrigin>, number: u64, edges: &'n Edges) -> Self {
        Self {
            origin,
            number,
            by_host: true,
            waits: &edges.waits,
            claims: &edges.claims,
        }
    }

    /// The number of the submission.
    pub(super) const fn number(self) -> u64 {
        self.number
    }

    /// True for a signal that the host will make.
    pub(super) const fn is_by_host(self) -> bool {
        self.by_host
    }

    /// The name of the submission's queue.
    pub(super) fn queue(self) -> &'n Object {
        &self.origin.queue
    }

    /// The position of the submission's queue.
    pub(super) fn position(self) -> &'n Arc<Shared> {
        &self.origin.own
    }

    /// The submission's queue, if it still exists.
    pub(super) fn holder(self) -> Option<Arc<dyn Holder>> {
        self.origin.holder.upgrade()
    }

    pub(super) fn waits(self) -> impl Iterator<Item = (&'n Arc<Shared>, u64)> {
        self.waits.iter().map(|(of, value)| (of, *value))
    }

    /// Its claims without the position.
    ///
    /// A submission's claims without a port on its device belong to host signals.
    pub(super) fn signals(self) -> impl Iterator<Item = (&'n Arc<Shared>, Interval)> {
        let claims = self.claims.iter().map(|(of, claim)| (of, *claim));
        claims.filter(move |(of, _)| self.by_host || of.port_on(self.origin.device).is_some())
    }

    /// The submission's claim of the queue's position.
    pub(super) fn own_claim(self) -> Option<(&'n Arc<Shared>, Interval)> {
        let position = Interval {
            above: self.number - 1,
            upto: self.number,
        };
        (!self.by_host).then_some((&self.origin.own, position))
    }

    pub(super) fn claims(self) -> impl Iterator<Item = (&'n Arc<Shared>, Interval)> {
        self.signals().chain(self.own_claim())
    }

    /// Everything that it waits for: its points, and the predecessors of its signals.
    pub(super) fn points(self) -> impl Iterator<Item = (&'n Arc<Shared>, u64)> {
        let order = self.claims().map(|(of, claim)| (of, claim.above));
        self.waits().chain(order)
    }

    /// Calls `action` for each of [`Node::points`]. Made for the path of each submission.
    ///
    /// Plain loops, because nested iterators cost several times as much.
    #[inline]
    pub(super) fn for_each_point(self, mut action: impl FnMut(&Arc<Shared>, u64)) {
        self.for_each_part(&mut action, |action, of, claim| action(of, claim.above));
        if let Some((own, position)) = self.own_claim() {
            action(own, position.above);
        }
    }

    /// Calls `waits` for its waits and `claims` for its [signals](Node::signals).
    #[inline]
    pub(super) fn for_each_part<W: FnMut(&Arc<Shared>, u64)>(
        self,
        waits: &mut W,
        mut claims: impl FnMut(&mut W, &Arc<Shared>, Interval),
    ) {
        for (of, value) in self.waits {
            waits(of, *value);
        }
        for (of, claim) in self.claims {
            if self.by_host || of.port_on(self.origin.device).is_some() {
                claims(waits, of, *claim);
            }
        }
    }

    pub(super) fn is_of_the_same_submission(self, other: Self) -> bool {
        self.origin.queue == other.origin.queue && self.number == other.number
    }
}
