//! Native marks: what a fence holds after its backend has recorded it natively.

use std::any::Any;

use crate::base::error::{Object, Result};
use crate::timeline::point::KeptPoint;

/// What a fence holds instead of a queue's position, if its backend has recorded it natively.
///
/// See [`SubmissionQueue::record_natively`](crate::backend::SubmissionQueue::record_natively).
pub trait NativeMark: Any + Send + Sync {
    /// The point that a wait for `fence` must wait for if it is made now.
    ///
    /// # Errors
    /// [`Error::Captured`](crate::Error::Captured), or a driver error.
    fn point(&self, fence: &Object) -> Result<KeptPoint>;

    /// False if the fence was never recorded, so that there is nothing to wait for (F1).
    fn is_recorded(&self) -> bool {
        true
    }

    /// True if a wait for `fence` that is made now would end at once. Never blocks.
    ///
    /// # Errors
    /// Same errors as [`NativeMark::point`].
    fn is_complete(&self, fence: &Object) -> Result<bool> {
        self.point(fence)?.point().is_reached()
    }
}
