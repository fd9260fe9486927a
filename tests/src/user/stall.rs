//! Work that blocks a device until the host releases it.

use std::fmt;

use syncline::Result;

use crate::Subject;
use crate::subject::RecorderOf;

/// The host's handle of device-side work that blocks. Releases it when dropped.
///
/// So a failing case never hangs.
///
/// **While a stall blocks a queue, the case must need no progress on another queue of the same
/// device**, because queues may share driver queues and connections.
#[must_use = "a stall that is dropped is released"]
pub struct Stall<S: Subject>(Latch<S>);

/// The part of a stall that work records.
pub struct Latch<S: Subject>(S::Latch);

impl<S: Subject> Clone for Latch<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<S: Subject> Latch<S> {
    /// Records a command that blocks the device until the stall is released.
    pub fn block(&self, recorder: &mut RecorderOf<'_, S>) -> Result<()> {
        S::block(recorder, &self.0)
    }
}

impl<S: Subject> Stall<S> {
    pub(super) const fn new(latch: S::Latch) -> Self {
        Self(Latch(latch))
    }

    /// Returns the part that work records.
    #[must_use]
    pub fn latch(&self) -> Latch<S> {
        self.0.clone()
    }

    /// Releases the device for good.
    pub fn release(&self) -> Result<()> {
        S::open(&self.0.0)
    }
}

impl<S: Subject> Drop for Stall<S> {
    fn drop(&mut self) {
        // If this fails, the case hangs and its time limit reports it.
        let _ = self.release();
    }
}

impl<S: Subject> fmt::Debug for Stall<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stall")
    }
}
