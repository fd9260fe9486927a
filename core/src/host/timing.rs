//! Times written by worker threads.

use std::sync::OnceLock;

use crate::backend;
use crate::clock::HostClock;
use crate::{Error, Object, Result};

/// What the monotonic clock showed, in nanoseconds, whatever the timing it was made for.
#[derive(Debug)]
pub(crate) struct Stamp {
    object: Object,
    nanoseconds: OnceLock<i64>,
}

impl Stamp {
    pub(crate) fn new(queue: &Object) -> Self {
        Self {
            object: queue.clone(),
            nanoseconds: OnceLock::new(),
        }
    }

    /// For the next record.
    pub(crate) fn renew(&mut self) {
        self.nanoseconds = OnceLock::new();
    }

    /// Called once, by the worker.
    pub(crate) fn write(&self) {
        let _ = self.nanoseconds.set(HostClock::Monotonic.now());
    }

    fn read(&self) -> Result<i64> {
        let not_written = || Error::NotReady {
            fence: self.object.clone(),
        };
        self.nanoseconds.get().copied().ok_or_else(not_written)
    }
}

impl backend::Stamp for Stamp {
    fn nanoseconds_since(&self, start: &dyn backend::Stamp) -> Result<i64> {
        let start: &dyn std::any::Any = start;
        let start = start
            .downcast_ref::<Self>()
            .ok_or_else(|| Error::Unsupported {
                object: self.object.clone(),
                asked: "measure from a stamp of another backend".into(),
                reason: "host stamps count on the host's clock".into(),
            })?;
        Ok(self.read()? - start.read()?)
    }

    fn time(&self) -> Result<Option<i64>> {
        self.read().map(Some)
    }

    fn time_if_written(&self) -> Option<i64> {
        self.nanoseconds.get().copied()
    }
}
