//! The entries of a held submission in the graph of held submissions.

use super::SubmissionQueue;
use super::verdict::Taken;
use crate::base::blockers::Blockers;
use crate::base::error::{Error, Result};
use crate::driver::enqueue::Enqueue;
use crate::held::{Lists, QueueEntry, RelayEntry};

/// The entry of a held submission, and one entry for each of its host signals.
///
/// A host signal waits for the submission and for its own predecessor. The submission does not wait
/// for that predecessor.
#[derive(Default)]
pub(super) struct GraphEntries<'l> {
    pub(super) entry: Option<QueueEntry<'l>>,
    /// In the order of the submission's claims. Usually empty.
    pub(super) relayed: Vec<RelayEntry>,
}

impl GraphEntries<'_> {
    /// Reduces the entries of a submission that will be skipped to its position in the queue.
    pub(super) fn keep_only_entry(&mut self) {
        self.relayed.clear();
        if let Some(entry) = &self.entry {
            entry.reduce();
        }
    }
}

impl<E: Enqueue> SubmissionQueue<E> {
    /// Enters a submission that is about to be held into the graph, with its `lists`.
    ///
    /// Without `lists` only the host signals are entered.
    ///
    /// # Errors
    /// [`Error::Circular`]. Nothing has changed then.
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

    /// Enters the submission itself into the graph.
    ///
    /// # Errors
    /// [`Error::Circular`]. Nothing has changed then.
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
