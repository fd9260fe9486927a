//! Claims for submissions that the application makes itself.

use std::sync::Arc;

use crate::base::error::{Error, Result};
use crate::base::info::DeviceId;
use crate::timeline::state::{Interval, Owing, Shared};

/// The right to signal one value by a submission that the application makes itself.
///
/// If the application's own code calls the driver, `submit_raw` of the queues of CUDA and Vulkan is
/// simpler. A claim is for a submission of another library, or of a device that was adopted without
/// queues.
///
/// 1. Claim the value.
/// 2. Call [`Claim::wait_ready`]. Once it returns, the [predecessor](Claim::predecessor) is
///    pending.
/// 3. Submit to the driver with the timeline's raw semaphore. The submission signals
///    [`Claim::value`] and waits for the predecessor. The wait is not needed if the same driver
///    queue signals the predecessor.
/// 4. Call [`Claim::submitted_on`], or [`Claim::submitted`].
///
/// A claim that is dropped before step 4 is withdrawn. Its values can then be claimed or signalled
/// again. A claim that was made above it stays above it and waits for these values. `docs/adopt.md`
/// shows all steps in one function.
#[must_use = "a claim that is dropped is withdrawn"]
#[derive(Debug)]
pub struct Claim {
    of: Arc<Shared>,
    interval: Interval,
    open: bool,
}

impl Claim {
    pub(crate) fn new(of: Arc<Shared>, interval: Interval) -> Self {
        Self {
            of,
            interval,
            open: true,
        }
    }

    /// The timeline.
    pub(crate) const fn of(&self) -> &Arc<Shared> {
        &self.of
    }

    /// The value that the application's submission signals.
    #[must_use]
    pub const fn value(&self) -> u64 {
        self.interval.upto
    }

    /// The value that must be pending before the submission may go to the driver.
    ///
    /// If another queue signals it, the submission must also wait for it.
    #[must_use]
    pub const fn predecessor(&self) -> u64 {
        self.interval.above
    }

    /// Tells the engine that the submission is with the driver. The value is pending from now on.
    ///
    /// If several devices have the timeline, [`Claim::submitted_on`] is better. After this call the
    /// loss of any of them fails the timeline (E3).
    ///
    /// Releases held submissions that waited for it, on the calling thread. After success further
    /// calls do nothing.
    ///
    /// # Errors
    /// [`Error::NotPending`] if the predecessor is not pending yet. [`Error::Unsupported`] if the
    /// timeline's home cannot see a signal that its device did not make (CUDA events: use
    /// `Device::submit_claimed`). The claim stays open after an error.
    pub fn submitted(&mut self) -> Result<()> {
        self.note_submitted(Owing::AnyDevice)
    }

    /// Same as [`Claim::submitted`], for a submission to a queue of `device`.
    ///
    /// If another device of the timeline is lost, the timeline waits for this signal.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the timeline has no port on `device`. Same errors as
    /// [`Claim::submitted`]. The claim stays open after an error.
    pub fn submitted_on(&mut self, device: DeviceId) -> Result<()> {
        if self.of.devices().any(|having| having == device) {
            return self.note_submitted(Owing::Device(device));
        }
        Err(Error::unsupported(
            self.of.object(),
            format!("be signalled to {} by {device:?}", self.value()),
            "the timeline has no port on that device",
        ))
    }

    pub(crate) fn note_submitted(&mut self, by: Owing) -> Result<()> {
        self.of.require_maker()?;
        if self.of.pending() < self.interval.above {
            return Err(self.of.not_pending(self.interval.above));
        }
        if !self.open {
            return Ok(());
        }
        self.of.home().sees_submitted(self.interval.upto)?;
        self.open = false;
        self.of.note_owed(self.interval, by);
        // 0: the application's own queue is no order domain of the engine.
        self.of.promote(self.interval.upto, 0, None);
        // After that: while it is open, the counter may be ahead of what is pending.
        self.of.drop_raw_claim();
        self.of.wake_promoted();
        Ok(())
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.open {
            // Does nothing in a forked child.
            self.of.withdraw(self.interval);
            self.of.drop_raw_claim();
        }
    }
}
