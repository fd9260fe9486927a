//! A held submission's places in the graph of who waits for whom.

use super::Lane;
use super::hold::Taken;
use crate::base::blockers::Blockers;
use crate::base::error::{Error, Result};
use crate::driver::enqueue::Enqueue;
use crate::held::{Lists, Place, Turn};

/// One for the submission while it is held, and one for each signal that the host will make for it: such a
/// signal waits for the submission and for its predecessor, but the submission waits for no predecessor of it.
#[derive(Default)]
pub(super) struct Places<'l> {
    pub(super) turn: Option<Turn<'l>>,
    /// In the order of the submission's claims. Mostly empty.
    pub(super) relayed: Vec<Place>,
}

impl Places<'_> {
    /// The submission will be skipped: what is left of it for others to wait for is its turn on its queue.
    pub(super) fn keep_only_turn(&mut self) {
        self.relayed.clear();
        if let Some(turn) = &self.turn {
            turn.reduce();
        }
    }
}

impl<E: Enqueue> Lane<E> {
    /// Takes the places of a submission that is about to be held, with what is in `lists`, or only of the signals that
    /// the host makes.
    ///
    /// # Errors
    /// [`Error::Circular`]; nothing has changed then.
    pub(super) fn take_places(
        &self,
        number: u64,
        lists: Option<&mut Lists>,
        claims: &[Taken<'_>],
    ) -> Result<Places<'_>> {
        let turn = lists
            .map(|lists| self.take_turn(number, lists))
            .transpose()?;
        let mut relayed = Vec::new();
        for claim in claims {
            if claim.port.is_some() {
                continue;
            }
            let place = Place::take(self.origin.clone(), number, claim.of.clone(), claim.claim);
            relayed.push(place.map_err(|circle| self.circular(number, circle))?);
        }
        Ok(Places { turn, relayed })
    }

    /// Takes the place of the submission itself.
    ///
    /// # Errors
    /// [`Error::Circular`]; nothing has changed then.
    pub(super) fn take_turn(&self, number: u64, lists: &mut Lists) -> Result<Turn<'_>> {
        let turn = self.seat.enter(number, lists);
        turn.map_err(|circle| self.circular(number, circle))
    }

    fn circular(&self, submission: u64, circle: Blockers) -> Error {
        Error::Circular {
            queue: self.object.clone(),
            submission,
            circle,
        }
    }
}
