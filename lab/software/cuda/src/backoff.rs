//! Polling of memory, which other processes may write and which gives no notice of changes.

use std::time::{Duration, Instant};

/// The number of polls without a pause.
const QUICK: u32 = 32;
const SHORTEST: Duration = Duration::from_micros(20);
const LONGEST: Duration = Duration::from_millis(1);

/// Pauses between two polls. The pauses become longer with time.
pub(crate) struct Backoff {
    polls: u32,
    start: Instant,
}

impl Backoff {
    pub(crate) fn new() -> Self {
        Self {
            polls: 0,
            start: Instant::now(),
        }
    }

    pub(crate) fn rest(&mut self) {
        self.polls = self.polls.saturating_add(1);
        if self.polls <= QUICK {
            std::thread::yield_now();
        } else {
            let rest = self.start.elapsed() / 16;
            std::thread::sleep(rest.clamp(SHORTEST, LONGEST));
        }
    }
}
