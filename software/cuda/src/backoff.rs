//! Polling of what gives no notice: memory, and what other processes write.

use std::time::{Duration, Instant};

/// How often a poll follows another at once.
const QUICK: u32 = 32;
const SHORTEST: Duration = Duration::from_micros(20);
const LONGEST: Duration = Duration::from_millis(1);

/// Rests between two polls, for longer the longer it takes.
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
