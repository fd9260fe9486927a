//! Enters submissions that are held into the graph of held submissions.

use super::graph_entries::GraphEntries;
use super::submission_queue::SubmissionQueue;
use super::waits_and_claims::{Taken, parts};
use crate::base::blockers::Blockers;
use crate::base::error::{Error, Result};
use crate::driver::enqueue::Enqueue;
use crate::held::{Lists, QueueEntry, RelayEntry};

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
                RelayEntry::take(self.origin().clone(), number, claim.of.clone(), claim.claim);
            relayed.push(relay.map_err(|circle| self.circular(number, circle))?);
        }
        Ok(GraphEntries { entry, relayed })
    }

    /// Enters the submission itself into the graph.
    ///
    /// # Errors
    /// [`Error::Circular`]. Nothing has changed then.
    pub(super) fn take_entry(&self, number: u64, lists: &mut Lists) -> Result<QueueEntry<'_>> {
        let entry = self.slot().enter(number, lists);
        entry.map_err(|circle| self.circular(number, circle))
    }

    fn circular(&self, submission: u64, circle: Blockers) -> Error {
        Error::Circular {
            queue: self.object().clone(),
            submission,
            circle,
        }
    }

    /// Enters a submission into the graph again, because it stays held after all.
    ///
    /// The submission could go, so it closes no circle. It is in the graph only because a search
    /// for blockers must find it.
    pub(super) fn enter_again(
        &self,
        number: u64,
        lists: &Option<Box<Lists>>,
    ) -> Option<QueueEntry<'_>> {
        let (waits, claims) = parts(lists);
        let mut entered = Lists::default();
        entered.waits.extend(waits.iter().cloned());
        entered.claims.extend(claims.iter().cloned());
        self.take_entry(number, &mut entered).ok()
    }
}
