//! A held submission's places in the graph of who waits for whom.

use std::sync::Arc;

use smallvec::SmallVec;

use super::Lane;
use super::hold::Taken;
use crate::backend::Enqueue;
use crate::error::{Error, Result};
use crate::graph::{Lists, Node, Place};

/// One for the submission while it is held, and one for each signal that the host will make for it: such a
/// signal waits for the submission and for its predecessor, but the submission waits for no predecessor of it.
#[derive(Default)]
pub(super) struct Places {
    pub(super) submission: Option<Place>,
    /// In the order of the submission's claims. Mostly empty, and no list then.
    pub(super) relayed: Box<[Place]>,
}

impl Places {
    /// The submission will be skipped: what is left of it for others to wait for is its turn on its queue.
    pub(super) fn keep_only_turn(&mut self) {
        self.relayed = Box::default();
        if let Some(place) = &self.submission {
            place.reduce();
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
        lists: Option<&Arc<Lists>>,
        claims: &[Taken<'_>],
    ) -> Result<Places> {
        let submission = lists
            .map(|lists| self.take_submission(number, lists))
            .transpose()?;
        let mut relayed: SmallVec<[Place; 4]> = SmallVec::new();
        for claim in claims.iter().filter(|claim| claim.port.is_none()) {
            let signal = Lists {
                waits: SmallVec::from_iter([self.own.at(number).keep()]),
                claims: SmallVec::from_iter([claim.keep()]),
                native: 1,
            };
            relayed.push(self.take_place(number, true, Arc::new(signal))?);
        }
        let relayed = relayed.into_iter().collect();
        Ok(Places {
            submission,
            relayed,
        })
    }

    /// Takes the place of the submission itself, with its turn on the queue as one more claim.
    ///
    /// # Errors
    /// [`Error::Circular`]; nothing has changed then.
    pub(super) fn take_submission(
        self: &Arc<Self>,
        number: u64,
        lists: &Arc<Lists>,
    ) -> Result<Place> {
        self.take_place(number, false, lists.clone())
    }

    fn take_place(&self, number: u64, by_host: bool, lists: Arc<Lists>) -> Result<Place> {
        Place::take(Node {
            origin: self.origin.clone(),
            number,
            by_host,
            lists: Some(lists),
        })
        .map_err(|circle| Error::Circular {
            queue: self.object.clone(),
            submission: number,
            circle,
        })
    }
}
