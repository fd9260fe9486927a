//! A held submission's places in the graph of who waits for whom.

use super::SubmissionQueue;
use super::hold::Taken;
use crate::base::blockers::Blockers;
use crate::base::error::{Error, Result};
use crate::driver::enqueue::Enqueue;
use crate::held::{Lists, QueueEntry, RelayEntry};

/// One for the submission while it is held, and one for each signal that the host will make for it: such a
/// signal waits for the submission and for its predecessor, but the submission waits for no predecessor of it.
#[derive(Default)]
pub(super) struct GraphEntries<'l> {
    pub(super) entry: Option<QueueEntry<'l>>,
    /// In the order of the submission's claims. Mostly empty.
    pub(super) relayed: Vec<RelayEntry>,
}

impl GraphEntries<'_> {
    /// The submission will be skipped: what is left of it for others to wait for is its turn on its queue.
    pub(super) fn keep_only_entry(&mut self) {
        self.relayed.clear();
        if let Some(entry) = &self.entry {
            entry.reduce();
        }
    }
}

impl<E: Enqueue> SubmissionQueue<E> {
    /// Takes the places of a submission that is about to be held, with what is in `lists`, or only of the signals that
    /// the host makes.
    ///
    /// # Errors
    /// [`Error::Circular`]; nothing has changed then.
    pub(super) fn take_entries(
        &self,
        number: u64,
        lists: Option<&mut Lists>,
        claims: &[Taken<'_>],
    ) -> Result<GraphEntries<'_>> {
        let entry = lists
            .map(|lists| self.take_entry(number, lists))
            .transpose()?;
        let mut relayed = Vec::new();
        for claim in claims {
            if claim.port.is_some() {
                continue;
            }
            let relay =
                RelayEntry::take(self.origin.clone(), number, claim.of.clone(), claim.claim);
            relayed.push(relay.map_err(|circle| self.circular(number, circle))?);
        }
        Ok(GraphEntries { entry, relayed })
    }

    /// Takes the place of the submission itself.
    ///
    /// # Errors
    /// [`Error::Circular`]; nothing has changed then.
    pub(super) fn take_entry(&self, number: u64, lists: &mut Lists) -> Result<QueueEntry<'_>> {
        let entry = self.slot.enter(number, lists);
        entry.map_err(|circle| self.circular(number, circle))
    }

    fn circular(&self, submission: u64, circle: Blockers) -> Error {
        Error::Circular {
            queue: self.object.clone(),
            submission,
            circle,
        }
    }
}
