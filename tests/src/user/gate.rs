//! Gates: work that stands still on a device until the host lets it go on.

use std::fmt;

use syncline::Result;

use crate::Subject;
use crate::subject::RecorderOf;

/// The host's side of device-side work that stands still. Opens when it goes, so that a case that
/// fails never hangs.
///
/// **No closed gate may stand on a queue while the case needs progress on another queue of the same
/// device**: driver queues and connections are shared.
#[must_use = "a gate that is dropped is open"]
pub struct Gate<S: Subject>(Latch<S>);

/// A gate as work records it.
pub struct Latch<S: Subject>(S::Latch);

impl<S: Subject> Clone for Latch<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<S: Subject> Latch<S> {
    /// Records: the device stands still until the gate opens.
    ///
    /// # Errors
    /// The backend's.
    pub fn block(&self, recorder: &mut RecorderOf<'_, S>) -> Result<()> {
        S::block(recorder, &self.0)
    }
}

impl<S: Subject> Gate<S> {
    pub(super) const fn new(latch: S::Latch) -> Self {
        Self(Latch(latch))
    }

    /// For work to record.
    #[must_use]
    pub fn latch(&self) -> Latch<S> {
        self.0.clone()
    }

    /// Lets the device go on, for good.
    ///
    /// # Errors
    /// The backend's.
    pub fn open(&self) -> Result<()> {
        S::open(&self.0.0)
    }
}

impl<S: Subject> Drop for Gate<S> {
    fn drop(&mut self) {
        // What cannot be opened shows as a hang of the case, which names it.
        let _ = self.open();
    }
}

impl<S: Subject> fmt::Debug for Gate<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Gate")
    }
}
