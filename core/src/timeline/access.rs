//! The two rights of a timeline's handle, each as a type of its own (X7).

use std::fmt;
use std::sync::Arc;

use crate::base::error::{Error, Object, Result};
use crate::base::info::DeviceId;
use crate::timeline::Timeline;
use crate::timeline::claim::Claim;
use crate::timeline::point::{Point, Signal};
use crate::timeline::state::Shared;

/// The right to wait for a timeline and to query it, without the right to signal.
///
/// Neither this type nor the [ports](Point::port) of its points lead to a [`Signal`]. It keeps only
/// memory alive, as a point does. When the last handle that may signal is dropped, waits that no
/// claim covers end with [`Error::Cancelled`].
///
/// ```compile_fail,E0599
/// # extern crate syncline_core as syncline;
/// # fn main() -> syncline::Result<()> {
/// use syncline::backend::Device;
/// let line = syncline::host::Device::new().timeline("line")?;
/// line.wait_only().signal(1)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct WaitOnly(Arc<Shared>);

impl WaitOnly {
    /// The timeline's name in errors and reports.
    #[must_use]
    pub fn object(&self) -> &Object {
        self.0.object()
    }

    /// The reached value. Makes a driver call if a signal is outstanding, else a load.
    ///
    /// # Errors
    /// Same errors as [`Timeline::value`].
    pub fn value(&self) -> Result<u64> {
        self.0.value()
    }

    /// The value that the engine knows to be reached, even if the timeline has failed since. A
    /// load.
    #[must_use]
    pub fn frozen_value(&self) -> u64 {
        self.0.reached()
    }

    /// True if the timeline has timestamps, so that its points have [times](Point::time).
    #[must_use]
    pub fn is_clocked(&self) -> bool {
        self.0.times().is_some()
    }

    /// The point at `value`, to wait for.
    pub fn at(&self, value: u64) -> Point<'_> {
        Point {
            of: Some(&self.0),
            value,
        }
    }

    /// True if the timeline has failed because the process or the device that signals it is lost.
    ///
    /// Only a timeline in shared memory tells this. Its pending signals will not come then.
    #[must_use]
    pub fn is_signaller_lost(&self) -> bool {
        self.0.home().is_lost()
    }

    /// True for points of this timeline.
    #[must_use]
    pub fn has(&self, point: Point<'_>) -> bool {
        point.of.is_some_and(|of| Arc::ptr_eq(of, &self.0))
    }

    /// True for signals of this timeline.
    #[must_use]
    pub fn has_signal(&self, signal: Signal<'_>) -> bool {
        Arc::ptr_eq(signal.of, &self.0)
    }

    /// The devices on which queues wait for it natively, its home first.
    pub fn devices(&self) -> impl Iterator<Item = DeviceId> + '_ {
        self.0.devices()
    }
}

impl fmt::Debug for WaitOnly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WaitOnly({:?})", self.0)
    }
}

/// The right to signal a timeline, without the right to wait for it or to query it.
///
/// Each handle keeps the timeline open, as a [`Timeline`] does.
/// ```compile_fail,E0599
/// # extern crate syncline_core as syncline;
/// # fn main() -> syncline::Result<()> {
/// use syncline::backend::Device;
/// let line = syncline::host::Device::new().timeline("line")?;
/// line.signal_only().at(1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SignalOnly(Timeline);

impl SignalOnly {
    pub(crate) const fn timeline(&self) -> &Timeline {
        &self.0
    }

    /// The timeline's name in errors and reports.
    #[must_use]
    pub fn object(&self) -> &Object {
        self.0.object()
    }

    /// The signal of `value`, for a submission to make.
    pub fn signal_at(&self, value: u64) -> Signal<'_> {
        self.0.signal_at(value)
    }

    /// Fails the timeline. See [`Timeline::fail`].
    pub fn fail(&self, cause: Error) {
        self.0.fail(cause);
    }

    /// Claims `value`. See [`Timeline::claim`].
    ///
    /// # Errors
    /// Same errors as [`Timeline::claim`].
    pub fn claim(&self, value: u64) -> Result<Claim> {
        self.0.claim(value)
    }

    /// Claims `value` behind a wait for `waited`. See [`Timeline::claim_after`].
    ///
    /// # Errors
    /// Same errors as [`Timeline::claim_after`].
    pub fn claim_after(&self, value: u64, waited: u64) -> Result<Claim> {
        self.0.claim_after(value, waited)
    }
}

impl fmt::Debug for SignalOnly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SignalOnly({:?})", self.0)
    }
}

impl Timeline {
    /// A view that may wait and query. It does not keep the timeline open.
    #[must_use]
    pub fn wait_only(&self) -> WaitOnly {
        WaitOnly(self.shared().clone())
    }

    /// A handle that may signal. It keeps the timeline open.
    #[must_use]
    pub fn signal_only(&self) -> SignalOnly {
        SignalOnly(self.clone())
    }
}
