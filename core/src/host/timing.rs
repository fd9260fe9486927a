//! Times written by worker threads.

use std::sync::atomic::{AtomicI64, Ordering};

use crate::backend;
use crate::clock::HostClock;
use crate::{Error, Result, error::Object};

/// The value of a stamp that is not written. No present clock shows it.
const NEVER: i64 = i64::MIN;

/// A time of the host's monotonic clock in nanoseconds, for any timing.
#[derive(Debug)]
pub struct Stamp {
    object: Object,
    /// [`NEVER`] if not written yet.
    nanoseconds: AtomicI64,
}

impl Stamp {
    pub(crate) fn new(queue: &Object) -> Self {
        Self {
            object: queue.clone(),
            nanoseconds: AtomicI64::new(NEVER),
        }
    }

    /// Resets the stamp for the next record. There must be no other reference to it.
    pub(crate) fn renew(&self) -> bool {
        self.nanoseconds.store(NEVER, Ordering::Relaxed);
        true
    }

    /// Writes the time. Called once, by the worker thread.
    pub(crate) fn write(&self) {
        let now = HostClock::Monotonic.now();
        self.nanoseconds.store(now, Ordering::Release);
    }

    fn read(&self) -> Result<i64> {
        let not_written = || Error::NotReady {
            fence: self.object.clone(),
        };
        self.written().ok_or_else(not_written)
    }

    fn written(&self) -> Option<i64> {
        let nanoseconds = self.nanoseconds.load(Ordering::Acquire);
        (nanoseconds != NEVER).then_some(nanoseconds)
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
        self.written()
    }
}
