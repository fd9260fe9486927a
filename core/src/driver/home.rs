//! A device as the home of timelines and queues.

use crate::base::error::Result;
use crate::driver::enqueue::Enqueue;
use crate::port::attachment::Attachment;

/// A device as the home of timelines and queues.
///
/// Device and driver's half name each other's types. So a type of queue belongs to one type of
/// device, and no other backend can act for either (X7).
pub trait Home: Send + Sync + Sized + 'static {
    /// Gives the submissions of one queue to the driver.
    type Enqueue: Enqueue<Device = Self>;

    /// Makes a counter of this device that stands at `initial`, for a timeline whose home is this
    /// device.
    ///
    /// The attachment has the [id](crate::info::DeviceId) of this device.
    ///
    /// # Errors
    /// A driver error.
    fn port(&self, initial: u64) -> Result<Attachment>;
}
