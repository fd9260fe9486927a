//! One timeline as one device sees it, and the right to signal it there.

use std::any::Any;

use crate::base::error::{Error, Object, Result};

/// The right to signal one [`Port`]. The engine gives it, for the length of one call.
///
/// Safe code can find a port by its type, in a [`Watch`](crate::backend::Watch) or in a list of
/// points. It cannot signal the port past its timeline (X7), because it can neither make nor keep
/// this right. [`ByEngine::check`] refuses the right to another port.
///
/// ```compile_fail,E0423
/// # extern crate syncline_core as syncline;
/// use syncline_core::backend::{ByEngine, Port};
/// fn signal(port: &dyn Port) {
///     let _ = port.signal(1, ByEngine(port));
/// }
/// ```
///
/// ```compile_fail,E0521
/// # extern crate syncline_core as syncline;
/// use std::sync::Mutex;
/// use syncline::Result;
/// use syncline_core::backend::{ByEngine, Port};
/// struct Keeps(Mutex<Option<ByEngine<'static>>>);
/// impl Port for Keeps {
///     fn poll(&self) -> Result<Option<u64>> {
///         Ok(None)
///     }
///     fn signal(&self, _: u64, by: ByEngine<'_>) -> Result<()> {
///         *self.0.lock().unwrap() = Some(by);
///         Ok(())
///     }
/// }
/// ```
pub struct ByEngine<'a>(&'a dyn Port);

impl<'a> ByEngine<'a> {
    #[inline]
    pub(crate) const fn new(port: &'a dyn Port) -> Self {
        Self(port)
    }

    /// Checks that this is the right to signal `port`. `object` is the name of the port in errors.
    ///
    /// Call this first if the driver does not check that counters grow. Ports that no other code
    /// can reach need no check.
    ///
    /// # Errors
    /// [`Error::Unsupported`].
    #[inline]
    pub fn check<P: Port>(&self, port: &P, object: &Object) -> Result<()> {
        if std::ptr::addr_eq(self.0, port) {
            return Ok(());
        }
        Err(Error::unsupported(
            object,
            "be signalled by another port",
            "only the engine signals it, for its timeline",
        ))
    }
}

impl std::fmt::Debug for ByEngine<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ByEngine")
    }
}

/// One timeline as one device sees it.
///
/// Examples are a timeline semaphore, a ring of CUDA events and an imported semaphore.
pub trait Port: Any + Send + Sync {
    /// Returns the value that the counter has reached. Never blocks.
    ///
    /// `None` if the host [cannot read it](Port::is_readable). Then the engine knows the value from
    /// its own signals or from another port.
    ///
    /// # Errors
    /// [`Error::DeviceLost`] or a driver error. The timeline fails with it.
    fn poll(&self) -> Result<Option<u64>>;

    /// Returns the value in the counter, of which the host may act only on what `poll` returns.
    ///
    /// The engine asks a home that takes promises before each of its own signals (T2). `None` if
    /// the host cannot read the counter.
    ///
    /// # Errors
    /// Any error. [`Port::poll`] returns it, too, and the engine waits for that.
    fn counter_value(&self) -> Result<Option<u64>> {
        self.poll()
    }

    /// Signals `value` from the host.
    ///
    /// The engine has checked that the value is next. It makes one call at a time, under the lock
    /// that orders the host's signals of this timeline. So the call must not signal the same
    /// timeline, and must not wait for another thread.
    ///
    /// # Errors
    /// A driver error. The timeline fails with it.
    fn signal(&self, value: u64, by: ByEngine<'_>) -> Result<()>;

    /// Checks that the host can signal the port.
    ///
    /// The engine asks the home before it accepts a signal of `value` that the host is to make: one
    /// of the application, or one for a queue without a port.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with the reason. Nothing has changed then.
    fn takes_host_signals(&self, value: u64) -> Result<()> {
        let _ = value;
        Ok(())
    }

    /// True if the host can read the value here. The home of a timeline must be such a port.
    fn is_readable(&self) -> bool {
        true
    }

    /// Returns how much of `reached` the host may act on.
    ///
    /// `reached` is the value of the timeline's home. The memory that the device of this port wrote
    /// before a signal must be visible to the host before the signal is. The engine asks every port
    /// but the home. A result below `reached` is 0 or a value that was signalled before. The values
    /// above the result must become visible soon, without an action of the host.
    ///
    /// # Errors
    /// Same errors as [`Port::poll`].
    fn visible(&self, reached: u64) -> Result<u64> {
        Ok(reached)
    }

    /// Checks that the port will show the value of the application's own submission.
    ///
    /// The engine asks the home when the application says that its own submission is with the
    /// driver.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the port would not show it. The claim stays open then.
    fn sees_submitted(&self, value: u64) -> Result<()> {
        let _ = value;
        Ok(())
    }

    /// The port as one that other devices or processes use too, or `None` if it is not.
    fn shared(&self) -> Option<&dyn SharedPort> {
        None
    }
}

/// A port of a counter that other devices or processes use too.
pub trait SharedPort {
    /// The highest value that the port knows to be reached.
    ///
    /// At least what [`Port::poll`] has returned on any thread.
    ///
    /// The engine reads it when the `poll` of a home fails, because another thread may have polled
    /// a value that it has not used yet. 0 for a port that keeps no value.
    fn last_polled(&self) -> u64 {
        0
    }

    /// The value up to which signals outside this engine are pending.
    ///
    /// The engine asks a home that is
    /// [signalled elsewhere](crate::backend::Attachment::signalled_elsewhere): before the first
    /// wait, and at each query of the value. [`Watch::watch`](crate::backend::Watch::watch) returns
    /// when this value has grown.
    ///
    /// # Errors
    /// Same errors as [`Port::poll`].
    fn pending_elsewhere(&self) -> Result<u64> {
        Ok(0)
    }

    /// True if `poll` fails because the signalling process is gone.
    ///
    /// Then the values that it reported as [pending](SharedPort::pending_elsewhere) do not come any
    /// more. The engine asks a home whose `poll` has failed.
    fn is_lost(&self) -> bool {
        false
    }

    /// The turn of this process to [recover](Self::recover), once the timeline
    /// [is lost](Self::is_lost).
    ///
    /// It is the number of processes that have called this before. The processes recover the
    /// timeline in this order, until one of them has made the signals. A hostile peer may cause any
    /// number.
    fn recovery_turn(&self) -> u32 {
        0
    }

    /// Signals `value` in place of the dead process or lost device, to end native waits.
    ///
    /// The timeline has failed. The port must not signal the counter while the counter is below
    /// `after`, because a device that works still makes the signals up to `after`.
    ///
    /// A port that cannot read its counter knows only the signals of its own device. Such a port
    /// returns [`Recovered::NotYet`] until its device has made its own signals up to `after`.
    ///
    /// A lost device may answer success to a call without an effect. So a port of such a device
    /// reads the counter after the signal.
    ///
    /// # Errors
    /// A driver error. The engine then asks the next port.
    fn recover(&self, after: u64, value: u64, by: ByEngine<'_>) -> Result<Recovered> {
        let _ = (after, value, by);
        Ok(Recovered::Elsewhere)
    }
}

/// The result of [`SharedPort::recover`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Recovered {
    /// The counter has the value, or the driver has its signal.
    Signalled,
    /// The counter is below the value that must come first. The engine asks again.
    NotYet,
    /// No native wait is left at this port, except for waits that another port ends.
    Elsewhere,
}

impl dyn Port {
    /// See [`SharedPort::last_polled`].
    pub(crate) fn last_polled(&self) -> u64 {
        self.shared().map_or(0, SharedPort::last_polled)
    }

    /// See [`SharedPort::pending_elsewhere`].
    pub(crate) fn pending_elsewhere(&self) -> Result<u64> {
        self.shared().map_or(Ok(0), SharedPort::pending_elsewhere)
    }

    /// See [`SharedPort::is_lost`].
    pub(crate) fn is_lost(&self) -> bool {
        self.shared().is_some_and(SharedPort::is_lost)
    }

    /// See [`SharedPort::recovery_turn`].
    pub(crate) fn recovery_turn(&self) -> u32 {
        self.shared().map_or(0, SharedPort::recovery_turn)
    }

    /// See [`SharedPort::recover`].
    pub(crate) fn recover(&self, after: u64, value: u64) -> Result<Recovered> {
        let by = ByEngine::new(self);
        let shared = self.shared();
        shared.map_or(Ok(Recovered::Elsewhere), |shared| {
            shared.recover(after, value, by)
        })
    }

    /// The port, if it is of type `P`.
    #[inline]
    pub(crate) fn downcast_ref<P: Port>(&self) -> Option<&P> {
        let any: &dyn Any = self;
        any.downcast_ref()
    }
}
