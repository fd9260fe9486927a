//! The blocking calls of points and claims.

use std::time::Duration;

#[cfg(doc)]
use crate::base::error::Error;
use crate::base::error::Result;
use crate::base::stage::Stage;
use crate::timeline::claim::Claim;
use crate::timeline::point::Point;
use crate::wait::{WaitMode, wait_longer, wait_stage};

impl Point<'_> {
    /// Blocks this thread until the value is reached: spins briefly, then parks.
    ///
    /// `timeout` of zero polls ([`Point::is_reached`] does so for less); a long one saturates. Never returns early.
    /// Like that it may run what a new value releases.
    ///
    /// # Errors
    /// [`Error::TimedOut`] (nothing has changed then), [`Error::Failed`] or [`Error::Cancelled`];
    /// [`Error::ValueOutOfRange`] if no device can tell the value from others.
    pub fn wait(self, timeout: Duration) -> Result<()> {
        self.wait_with(WaitMode::Adaptive, timeout)
    }

    /// As [`Point::wait`], with the way to wait chosen by the caller.
    ///
    /// # Errors
    /// As [`Point::wait`].
    #[inline]
    pub fn wait_with(self, mode: WaitMode, timeout: Duration) -> Result<()> {
        match self.of {
            // The first look comes before everything else that a wait needs: often it finds that.
            Some(of) if of.reached() < self.value => match of.look_for(self.value) {
                Some(true) => Ok(()),
                looked => wait_longer(self, looked.is_some(), mode, timeout),
            },
            _ => Ok(()),
        }
    }

    /// Blocks until the value is pending: its signal, and everything before it, is with the driver and needs no
    /// more host action. An engine asks this before it presents or submits by itself.
    ///
    /// # Errors
    /// As [`Point::wait`].
    pub fn wait_pending(self, timeout: Duration) -> Result<()> {
        let Some(of) = self.of else { return Ok(()) };
        wait_stage(of, self.value, Stage::Pending, timeout)
    }
}

impl Claim {
    /// Blocks until the predecessor is pending, so that the submission may go to the driver.
    ///
    /// # Errors
    /// [`Error::TimedOut`], or the timeline's failure.
    pub fn wait_ready(&self, timeout: Duration) -> Result<()> {
        wait_stage(self.of(), self.predecessor(), Stage::Pending, timeout)
    }
}
