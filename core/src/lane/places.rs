//! The places of a submission in the graph of who waits for whom.

use std::sync::Arc;

use smallvec::SmallVec;

use super::Lane;
use super::hold::{Awaited, OwnedClaims, Taken};
use super::send::owned;
use crate::backend::{Enqueue, KeptPoints};
use crate::error::{Error, Result};
use crate::graph::{Holder, Node, Place};
use crate::state::{Interval, Shared};

/// One for the submission while it is held, and one for each signal that the host will make for it: such a
/// signal waits for the submission and for its predecessor, but the submission waits for no predecessor of it.
#[derive(Default)]
pub(super) struct Places {
    pub(super) submission: Option<Place>,
    /// In the order of the submission's claims.
    pub(super) relayed: SmallVec<[Place; 1]>,
}

impl Places {
    /// The submission will be skipped: what is left of it for others to wait for is its turn on `queue`.
    pub(super) fn keep_only_turn(&mut self, queue: &Arc<Shared>) {
        self.relayed.clear();
        if let Some(place) = &self.submission {
            place.reduce(|of| Arc::ptr_eq(of, queue));
        }
    }
}

impl<E: Enqueue> Lane<E> {
    /// Takes the places of a submission that is about to be `held`, or only of the signals that the host makes.
    ///
    /// # Errors
    /// [`Error::Circular`]; nothing has changed then.
    pub(super) fn take_places(
        self: &Arc<Self>,
        number: u64,
        waits: &[Awaited<'_>],
        claims: &[Taken<'_>],
        held: bool,
    ) -> Result<Places> {
        let mut places = Places::default();
        if held {
            places.submission = Some(self.take_submission(number, waits, claims)?);
        }
        for claim in claims.iter().filter(|claim| claim.port.is_none()) {
            let done = self.own.at(number).keep();
            let place = self.take_place(
                number,
                true,
                KeptPoints::from_iter([done]),
                owned(&[*claim]),
            )?;
            places.relayed.push(place);
        }
        Ok(places)
    }

    /// Takes the place of the submission itself, with its turn on the queue as one more claim.
    ///
    /// # Errors
    /// [`Error::Circular`]; nothing has changed then.
    pub(super) fn take_submission(
        self: &Arc<Self>,
        number: u64,
        waits: &[Awaited<'_>],
        claims: &[Taken<'_>],
    ) -> Result<Place> {
        let native = claims.iter().filter(|claim| claim.port.is_some());
        let mut native: OwnedClaims = native.map(Taken::keep).collect();
        let turn = Interval {
            above: number - 1,
            upto: number,
        };
        native.push((self.own_shared().clone(), turn));
        self.take_place(
            number,
            false,
            waits.iter().map(Awaited::keep).collect(),
            native,
        )
    }

    fn take_place(
        self: &Arc<Self>,
        number: u64,
        by_host: bool,
        waits: KeptPoints,
        claims: OwnedClaims,
    ) -> Result<Place> {
        let this: Arc<dyn Holder> = self.clone();
        Place::take(Node {
            queue: self.object.clone(),
            number,
            by_host,
            holder: Arc::downgrade(&this),
            waits,
            claims,
        })
        .map_err(|circle| Error::Circular {
            queue: self.object.clone(),
            submission: number,
            circle,
        })
    }
}
