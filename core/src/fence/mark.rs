//! What a fence holds where its backend has recorded it natively.

use std::any::Any;

use crate::base::error::{Object, Result};
use crate::timeline::point::KeptPoint;

/// What a fence holds where its backend has recorded it natively (see [`SubmissionQueue::record_natively`](crate::backend::SubmissionQueue::record_natively)).
pub trait NativeMark: Any + Send + Sync {
    /// What waits for `fence` now wait for.
    ///
    /// # Errors
    /// [`Error::Captured`](crate::Error::Captured), or a driver error.
    fn point(&self, fence: &Object) -> Result<KeptPoint>;

    /// False if nothing has ever been recorded, so that there is nothing to wait for (F1).
    fn is_recorded(&self) -> bool {
        true
    }

    /// True if waiting for `fence` now would end at once. Never blocks.
    ///
    /// # Errors
    /// As [`NativeMark::point`].
    fn is_complete(&self, fence: &Object) -> Result<bool> {
        self.point(fence)?.point().is_reached()
    }
}
