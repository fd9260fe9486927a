//! How far a stream is.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::news;

/// Counts the commands of one stream, which end in the order in which they were submitted.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    submitted: AtomicU64,
    completed: AtomicU64,
    /// The next command ends now, and an event tells it already.
    ends: AtomicBool,
}

impl Progress {
    /// Counts a command and returns its number, 1 for the first. Called in the order of the stream.
    pub(crate) fn submit(&self) -> u64 {
        self.submitted.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// The number of the last command.
    pub(crate) fn submitted(&self) -> u64 {
        self.submitted.load(Ordering::Acquire)
    }

    /// Ends the next command.
    pub(crate) fn complete(&self) {
        self.completed.fetch_add(1, Ordering::AcqRel);
        news::tell();
    }

    /// Ends the next command, a record of an event, which `tell` makes complete.
    ///
    /// Event and stream change as one: no thread sees one of them complete and then finds the other
    /// not ready.
    pub(crate) fn complete_record(&self, tell: impl FnOnce()) {
        self.ends.store(true, Ordering::Release);
        tell();
        self.completed.fetch_add(1, Ordering::AcqRel);
        self.ends.store(false, Ordering::Release);
        news::tell();
    }

    /// True if the command with this number has ended.
    pub(crate) fn has_reached(&self, number: u64) -> bool {
        let has_reached = || self.completed.load(Ordering::Acquire) >= number;
        while !has_reached() {
            if !self.ends.load(Ordering::Acquire) {
                // It may have ended between the two loads.
                return has_reached();
            }
            std::thread::yield_now();
        }
        true
    }

    /// True if every command has ended.
    pub(crate) fn is_idle(&self) -> bool {
        self.has_reached(self.submitted())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_idle_once_its_event_is_complete_and_not_before() {
        const COMMANDS: u64 = 20_000;
        let (progress, event) = (Progress::default(), AtomicU64::new(0));
        std::thread::scope(|threads| {
            threads.spawn(|| {
                for number in 1..=COMMANDS {
                    progress.submit();
                    progress.complete_record(|| event.store(number, Ordering::Release));
                }
            });
            let mut number = 1;
            while number <= COMMANDS {
                let told = event.load(Ordering::Acquire);
                assert!(progress.has_reached(told));
                if progress.has_reached(number) {
                    assert!(event.load(Ordering::Acquire) >= number);
                    number += 1;
                }
            }
        });
    }
}
