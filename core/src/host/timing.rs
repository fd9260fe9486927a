//! Times written by worker threads.

use std::sync::atomic::{AtomicI64, Ordering};

use crate::backend;
use crate::clock::HostClock;
use crate::{Error, Object, Result};

/// It is not written yet. No clock of today shows that.
const NEVER: i64 = i64::MIN;

/// What the monotonic clock showed, in nanoseconds, whatever the timing it was made for.
#[derive(Debug)]
pub struct Stamp {
    object: Object,
    /// Or [`NEVER`].
    nanoseconds: AtomicI64,
}

impl Stamp {
    pub(crate) fn new(queue: &Object) -> Self {
        Self {
            object: queue.clone(),
            nanoseconds: AtomicI64::new(NEVER),
        }
    }

    /// For the next record. Nobody else has the stamp.
    pub(crate) fn renew(&self) -> bool {
        self.nanoseconds.store(NEVER, Ordering::Relaxed);
        true
    }

    /// Called once, by the worker.
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
