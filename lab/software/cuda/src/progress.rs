//! The progress of a stream.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::news;

/// Counts the commands of one stream, which end in the order in which they were submitted.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    submitted: AtomicU64,
    completed: AtomicU64,
}

impl Progress {
    /// Counts a command and returns its number, 1 for the first. Called in the order of the stream.
    pub(crate) fn submit(&self) -> u64 {
        self.submitted.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Returns the number of the last command.
    pub(crate) fn submitted(&self) -> u64 {
        self.submitted.load(Ordering::Acquire)
    }

    /// Ends the next command.
    pub(crate) fn complete(&self) {
        self.completed.fetch_add(1, Ordering::AcqRel);
        news::tell();
    }

    /// True if the command with this number has ended.
    pub(crate) fn has_reached(&self, number: u64) -> bool {
        self.completed.load(Ordering::Acquire) >= number
    }

    /// True if every command has ended.
    pub(crate) fn is_idle(&self) -> bool {
        self.has_reached(self.submitted())
    }
}
