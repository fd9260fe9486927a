//! A record of an event: one place in a stream, which a later record does not move.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::backoff::Backoff;
use crate::engine::Life;
use crate::news;
use crate::shared_event::SharedEvent;

/// One record of an event.
#[derive(Debug, Clone)]
pub(crate) enum Mark {
    /// Of an event of this process: when it was reached, in nanoseconds. 0 before.
    Own(Arc<AtomicU64>),
    /// Of an event that several processes have, with the number of the record.
    Shared(Arc<SharedEvent>, u64),
}

impl Mark {
    pub(crate) fn new() -> Self {
        Self::Own(Arc::default())
    }

    pub(crate) fn is_reached(&self) -> bool {
        match self {
            Self::Own(time) => time.load(Ordering::Acquire) != 0,
            Self::Shared(event, number) => event.has_reached(*number),
        }
    }

    /// When it was reached. `None` before, and for an event that several processes have.
    pub(crate) fn time(&self) -> Option<u64> {
        match self {
            Self::Own(time) => Some(time.load(Ordering::Acquire)).filter(|time| *time != 0),
            Self::Shared(..) => None,
        }
    }

    /// The stream has reached it.
    pub(crate) fn complete(&self) {
        match self {
            Self::Own(time) => time.store(now().max(1), Ordering::Release),
            Self::Shared(event, number) => event.reach(*number),
        }
        news::tell();
    }

    /// Waits until it is reached, or a context is over.
    pub(crate) fn wait(&self, life: &Life) {
        match self {
            Self::Own(_) => news::wait_until(|| self.is_reached() || life.is_over()),
            Self::Shared(..) => {
                let mut backoff = Backoff::new();
                while !self.is_reached() && !life.is_over() {
                    backoff.rest();
                }
            }
        }
    }
}

/// The clock of all devices, in nanoseconds: `CLOCK_MONOTONIC`.
pub(crate) fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}
