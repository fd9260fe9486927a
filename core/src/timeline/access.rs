//! The two halves of what a timeline's handle permits, each by itself (X7).

use std::fmt;
use std::sync::Arc;

use crate::base::error::{Error, Object, Result};
use crate::base::info::DeviceId;
use crate::timeline::Timeline;
use crate::timeline::claim::Claim;
use crate::timeline::point::{Point, Signal};
use crate::timeline::state::Shared;

/// What may wait for a timeline and ask it, and not signal it: there is no way from here to a [`Signal`], nor through the
/// [ports](Point::port) that points lead to.
///
/// It keeps memory alive and no more, as points do: when the last handle that may signal goes, waits that no claim covers end with
/// [`Error::Cancelled`].
///
/// ```compile_fail,E0599
/// # fn main() -> syncline_core::Result<()> {
/// use syncline_core::backend::Device;
/// let line = syncline_core::host::Device::new().timeline("line")?;
/// line.wait_only().signal(1)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct WaitOnly(Arc<Shared>);

impl WaitOnly {
    /// Its name in errors and reports: the timeline's.
    #[must_use]
    pub fn object(&self) -> &Object {
        &self.0.object
    }

    /// The value reached by now. A driver call if something is outstanding, else a load.
    ///
    /// # Errors
    /// As [`Timeline::value`].
    pub fn value(&self) -> Result<u64> {
        self.0.value()
    }

    /// The value that the engine knows to be reached, whether or not the timeline has failed since. A load.
    #[must_use]
    pub fn frozen_value(&self) -> u64 {
        self.0.reached()
    }

    /// True if the timeline was made with timestamps, so that its points tell [when they were reached](Point::time).
    #[must_use]
    pub fn is_clocked(&self) -> bool {
        self.0.times().is_some()
    }

    /// The point at `value`: something to wait for.
    pub fn at(&self, value: u64) -> Point<'_> {
        Point {
            of: Some(&self.0),
            value,
        }
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

    /// The devices on which queues wait for it natively; its home comes first.
    pub fn devices(&self) -> impl Iterator<Item = DeviceId> + '_ {
        self.0.devices()
    }
}

impl fmt::Debug for WaitOnly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WaitOnly({:?})", self.0)
    }
}

/// What may signal a timeline, and neither wait for it nor ask it. Each handle is the right to signal, as a [`Timeline`] is.
///
/// ```compile_fail,E0599
/// # fn main() -> syncline_core::Result<()> {
/// use syncline_core::backend::Device;
/// let line = syncline_core::host::Device::new().timeline("line")?;
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

    /// Its name in errors and reports: the timeline's.
    #[must_use]
    pub fn object(&self) -> &Object {
        self.0.object()
    }

    /// The signal of `value`: something for a submission to make.
    pub fn signal_at(&self, value: u64) -> Signal<'_> {
        self.0.signal_at(value)
    }

    /// As [`Timeline::fail`].
    pub fn fail(&self, cause: Error) {
        self.0.fail(cause);
    }

    /// As [`Timeline::claim`].
    ///
    /// # Errors
    /// As there.
    pub fn claim(&self, value: u64, own_wait: u64) -> Result<Claim> {
        self.0.claim(value, own_wait)
    }
}

impl fmt::Debug for SignalOnly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SignalOnly({:?})", self.0)
    }
}

impl Timeline {
    /// A view that may wait and ask. It does not keep the timeline from closing.
    #[must_use]
    pub fn wait_only(&self) -> WaitOnly {
        WaitOnly(self.shared().clone())
    }

    /// A handle that may signal. Like every handle it keeps the timeline open.
    #[must_use]
    pub fn signal_only(&self) -> SignalOnly {
        SignalOnly(self.clone())
    }
}
