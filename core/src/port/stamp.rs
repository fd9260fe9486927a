//! Times that devices write.

use std::any::Any;

use crate::base::error::Result;

/// A time written by a device at a queue position.
pub trait Stamp: Any + Send + Sync {
    /// Nanoseconds from `start` to this stamp, negative if `start` is later.
    ///
    /// Both stamps are complete and were [made](crate::backend::Enqueue::stamp) for the same
    /// timing.
    ///
    /// # Errors
    /// A driver error, or [`Error::NotReady`](crate::Error::NotReady).
    fn nanoseconds_since(&self, start: &dyn Stamp) -> Result<i64>;

    /// The time on the device's [clock](crate::backend::Device::clock), in nanoseconds.
    ///
    /// The stamp is complete and was made for [`Timing::Clock`](crate::backend::Timing::Clock).
    /// `None` from backends without a clock, which the engine does not ask.
    ///
    /// # Errors
    /// Same errors as [`Stamp::nanoseconds_since`].
    fn time(&self) -> Result<Option<i64>> {
        Ok(None)
    }

    /// Same as [`Stamp::time`], for a stamp that may not be complete. Never blocks.
    ///
    /// `None` if the device has not written the time, or if this cannot be known without waiting
    /// for work. A trace asks this of submissions that have not ended.
    fn time_if_written(&self) -> Option<i64> {
        None
    }
}
