//! What a timeline needs from a device: a port, the thread that watches for its signals, and times.

pub(crate) mod attachment;
pub(crate) mod parker;
pub(crate) mod watch;

use std::any::Any;
use std::time::Instant;

use crate::base::error::{Object, Result};
use crate::port::watch::Watcher;

/// The right to signal one [`Port`], which only the engine gives, and only for the length of a call.
///
/// Safe code can find a port: by its type, in a [`Watch`], or in a list of points. It cannot signal it past the timeline (X7), because it
/// can neither make such a right nor keep one. A right that was given for another port does not pass
/// [`ByEngine::check`].
///
/// ```compile_fail,E0423
/// use syncline_core::backend::{ByEngine, Port};
/// fn signal(port: &dyn Port) {
///     let _ = port.signal(1, ByEngine(port));
/// }
/// ```
///
/// ```compile_fail,E0521
/// use std::sync::Mutex;
/// use syncline_core::Result;
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

    /// Refuses to signal `port`, which `object` names, if the right is for another port. A backend whose driver does not
    /// check that counters grow asks this first.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported).
    #[inline]
    pub fn check<P: Port>(&self, port: &P, object: &Object) -> Result<()> {
        if std::ptr::addr_eq(self.0, port) {
            return Ok(());
        }
        Err(crate::base::error::Error::Unsupported {
            object: object.clone(),
            asked: "be signalled by another port".into(),
            reason: "only the engine signals it, for its timeline".into(),
        })
    }
}

impl std::fmt::Debug for ByEngine<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ByEngine")
    }
}

/// One timeline as one device sees it: a timeline semaphore, a ring of events, an imported semaphore.
pub trait Port: Any + Send + Sync {
    /// Asked of the home port when the application says that its own submission signals `value` and is with
    /// the driver: whether the port will see that.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) if it would not; the claim stays open then.
    fn sees_submitted(&self, value: u64) -> Result<()> {
        let _ = value;
        Ok(())
    }

    /// Whether the host can read the value here: a timeline's home must be such a port.
    fn is_readable(&self) -> bool {
        true
    }

    /// The value it has reached, or `None` if the host [cannot read it](Port::is_readable) (the engine then knows
    /// the value from its own signals or from another port).
    ///
    /// # Errors
    /// [`Error::DeviceLost`](crate::Error::DeviceLost) or a driver error; the timeline fails with it.
    fn poll(&self) -> Result<Option<u64>>;

    /// The highest value that [`Port::poll`] has told of, on whatever thread. Asked of a home whose poll ends with an error, as the one who was told may not have come to
    /// use it yet; nothing needs to be told by ports that fail with their device.
    fn told(&self) -> u64 {
        0
    }

    /// Up to which value signals are known to be pending that are made beyond this engine, by another process for one. Asked of homes whose
    /// attachment says that it is [signalled elsewhere](crate::backend::Attachment::signalled_elsewhere), once before anybody waits, and whenever
    /// the value is asked for; [`Watch::watch`] returns when it has grown.
    ///
    /// # Errors
    /// As for [`Port::poll`].
    fn pending_elsewhere(&self) -> Result<u64> {
        Ok(0)
    }

    /// True if poll ends with an error because whoever signals is gone, with what he had said to be [pending](Port::pending_elsewhere): then nothing of that
    /// comes by itself. Asked of a home whose poll has ended with an error.
    fn is_lost(&self) -> bool {
        false
    }

    /// How many have asked before, of all that have the same timeline in whatever process, once it [is lost](Port::is_lost): in this order they
    /// [release](Port::recover) what one of them has to. As far as a page can be believed: any number may come.
    fn recovery_turn(&self) -> u32 {
        0
    }

    /// Who should have signalled this timeline is dead, and it has failed: lets go what waits for it natively, up to `value`, by a signal
    /// in his place. False if nothing waits here natively but what another port lets go.
    ///
    /// # Errors
    /// A driver error; then the next port is asked.
    fn recover(&self, value: u64, by: ByEngine<'_>) -> Result<bool> {
        let _ = (value, by);
        Ok(false)
    }

    /// Signals from the host. The engine has checked that the value is next, and calls one at a time: under
    /// the lock that keeps the host's signals of this timeline in order. So it must not signal the same timeline,
    /// nor wait for anything that needs another thread to.
    ///
    /// # Errors
    /// A driver error; the timeline fails with it.
    fn signal(&self, value: u64, by: ByEngine<'_>) -> Result<()>;

    /// How much of `reached`, the value that the timeline's home reads, the host may act on: the memory
    /// that this port's device wrote before it signalled a value must be visible to the host first. Asked
    /// of every port but the home. An answer below `reached` is a value that was signalled before, or 0, and
    /// means that the rest follows by itself, soon.
    ///
    /// # Errors
    /// As [`Port::poll`].
    fn visible(&self, reached: u64) -> Result<u64> {
        Ok(reached)
    }
}

impl dyn Port {
    /// The port, if it is of type `P`.
    #[inline]
    pub(crate) fn downcast_ref<P: Port>(&self) -> Option<&P> {
        let any: &dyn Any = self;
        any.downcast_ref()
    }
}

/// A device whose driver advances ports by itself, so that somebody must watch them. One thread per
/// device does, started when first needed, or a thread that waits itself (see [`Watch::lends`]).
pub trait Watch: Send + Sync + 'static {
    /// The device's watcher.
    fn watcher(&self) -> &Watcher;

    /// Blocks until one of the ports reaches its value, the watch is nudged, or `until` has passed.
    /// May return early.
    ///
    /// # Errors
    /// [`Error::DeviceLost`](crate::Error::DeviceLost) or a driver error; the watched timelines fail with it.
    fn watch(&self, ports: &[(&dyn Port, u64)], until: Instant) -> Result<()>;

    /// Ends the present call of [`Watch::watch`], or the next one if there is none.
    fn nudge(&self);

    /// True if a thread that waits may call [`Watch::watch`] itself, in the watching thread's place. It does where nobody
    /// else waits for anything of this device, so that one thread sleeps and wakes and not two, one after the other. There
    /// is never more than one call at a time.
    fn lends(&self) -> bool {
        false
    }
}

/// A time written by a device at a queue position.
pub trait Stamp: Any + Send + Sync {
    /// Nanoseconds from `start` to this stamp; negative if `start` is the later one. Both are complete, and were
    /// [made](crate::backend::Enqueue::stamp) for the same timing.
    ///
    /// # Errors
    /// A driver error, or [`Error::NotReady`](crate::Error::NotReady).
    fn nanoseconds_since(&self, start: &dyn Stamp) -> Result<i64>;

    /// The time on the device's [clock](crate::backend::Device::clock), in nanoseconds, of a complete stamp that was made for
    /// [`Timing::Clock`](crate::backend::Timing::Clock); `None` from backends without a clock, which are never asked.
    ///
    /// # Errors
    /// As for [`Stamp::nanoseconds_since`].
    fn time(&self) -> Result<Option<i64>> {
        Ok(None)
    }

    /// As [`Stamp::time`], of a stamp that may not be complete: the time if the device has written it; `None` if it has not, or nobody can tell
    /// without waiting for work. A trace asks, of submissions that have not ended.
    fn time_if_written(&self) -> Option<i64> {
        None
    }
}
