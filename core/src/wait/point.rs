//! Blocking waits for points and claims.

use std::time::Duration;

#[allow(unused_imports, reason = "for links, also in the facade")]
use crate::base::error::Error;
use crate::base::error::Result;
use crate::base::stage::Stage;
use crate::timeline::claim::Claim;
use crate::timeline::point::Point;
use crate::wait::blocking::{WaitMode, wait_reached, wait_stage};

impl Point<'_> {
    /// Blocks the calling thread until the value is reached. Spins briefly, then parks.
    ///
    /// A `timeout` of zero polls once; [`Point::is_reached`] does so at a lower cost. A very long
    /// one saturates. The wait never times out early. As [`Point::is_reached`] does, it may run on
    /// the calling thread what a new value releases.
    ///
    /// # Errors
    /// [`Error::TimedOut`], which changes nothing. [`Error::Failed`] or [`Error::Cancelled`].
    /// [`Error::ValueOutOfRange`] if no device can compare the value (T7).
    pub fn wait(self, timeout: Duration) -> Result<()> {
        self.wait_with(WaitMode::Adaptive, timeout)
    }

    /// Same as [`Point::wait`], with a given [`WaitMode`].
    ///
    /// # Errors
    /// Same errors as [`Point::wait`].
    #[inline]
    pub fn wait_with(self, mode: WaitMode, timeout: Duration) -> Result<()> {
        match self.of {
            // Polls before it prepares a wait, because the value is often reached already.
            Some(of) if of.reached() < self.value => match of.look_for(self.value) {
                Some(true) => Ok(()),
                polled => wait_reached(self, polled.is_some(), mode, timeout),
            },
            _ => Ok(()),
        }
    }

    /// Blocks the calling thread until the value is pending.
    ///
    /// Its signal and everything before it are then with a driver and need no host any more. An
    /// application waits for this before it presents, or submits to the driver itself.
    ///
    /// # Errors
    /// Same errors as [`Point::wait`].
    pub fn wait_pending(self, timeout: Duration) -> Result<()> {
        let Some(of) = self.of else { return Ok(()) };
        wait_stage(of, self.value, Stage::Pending, timeout)
    }
}

impl Claim {
    /// Blocks the calling thread until the predecessor is pending.
    ///
    /// The submission may then go to the driver.
    ///
    /// # Errors
    /// [`Error::TimedOut`], or the failure of the timeline.
    pub fn wait_ready(&self, timeout: Duration) -> Result<()> {
        wait_stage(self.of(), self.predecessor(), Stage::Pending, timeout)
    }
}
