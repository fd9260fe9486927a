//! The entries of a held submission in the graph of held submissions.

use crate::held::{QueueEntry, RelayEntry};

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
