//! Points to wait for, signals to make, and what a backend sees of both.

use std::fmt;
use std::sync::Arc;

use crate::base::error::{Error, Object, Result};
use crate::base::info::DeviceId;
use crate::base::stage::Stage;
use crate::port::Port;
use crate::timeline::interval::Interval;
use crate::timeline::state::{Shared, Standing};

/// A value of a timeline that a host thread or a submission can wait for. Borrowed, small and
/// `Copy`.
#[must_use = "a point does nothing until it is waited for"]
#[derive(Clone, Copy)]
pub struct Point<'t> {
    pub(crate) of: Option<&'t Arc<Shared>>,
    pub(crate) value: u64,
}

impl<'t> Point<'t> {
    /// A point that is always reached.
    pub const EMPTY: Point<'static> = Point { of: None, value: 0 };

    /// The value it stands for.
    #[must_use]
    pub const fn value(self) -> u64 {
        self.value
    }

    /// True once the value is reached. A load if the engine knows that already.
    ///
    /// Never waits for a device. The first call that sees a value wakes what waits for it, before
    /// it returns and on the calling thread. Held submissions are recorded and wakers are called
    /// then. So the caller must hold no lock that such work takes.
    ///
    /// # Errors
    /// [`Error::Failed`] or [`Error::Cancelled`] if the value will never be reached.
    #[inline]
    pub fn is_reached(self) -> Result<bool> {
        // The known case is one load without a stack frame, so the query is in a function of its
        // own.
        match self.of {
            Some(of) if of.reached() < self.value => self.is_reached_by_now(of),
            _ => Ok(true),
        }
    }

    #[inline(never)]
    fn is_reached_by_now(self, of: &Arc<Shared>) -> Result<bool> {
        of.require_maker()?;
        of.refresh_to(self.value);
        let reached = of.reached() >= self.value;
        if reached || !of.is_troubled() {
            return Ok(reached);
        }
        of.standing(self.value)
            .into_result(of, self.value)
            .map(|s| matches!(s, Standing::Reached))
    }

    /// True once the value is pending or reached.
    ///
    /// A signal from outside the engine becomes visible only when it is reached, or when its page
    /// reports it as pending. Never blocks. Wakes waiters on the calling thread, as
    /// [`Point::is_reached`] does.
    ///
    /// # Errors
    /// Same errors as [`Point::is_reached`].
    pub fn is_pending(self) -> Result<bool> {
        let Some(of) = self.of else { return Ok(true) };
        of.require_maker()?;
        of.refresh_for(Stage::Pending, self.value);
        let standing = of.standing(self.value).into_result(of, self.value)?;
        Ok(matches!(standing, Standing::Reached | Standing::Pending))
    }

    /// An owned copy, which may outlive the borrow of the timeline.
    pub fn keep(self) -> KeptPoint {
        KeptPoint {
            of: self.of.cloned(),
            value: self.value,
        }
    }

    /// The port on `device`, if the timeline has one there and it is of type `P`.
    #[must_use]
    pub fn port<P: Port>(self, device: DeviceId) -> Option<&'t P> {
        self.of?.port_on(device)?.downcast_ref()
    }

    /// Refuses a point that is not pending yet. For handing out raw semaphores and events.
    ///
    /// # Errors
    /// [`Error::NotPending`]; same errors as [`Point::is_pending`].
    pub fn require_pending(self) -> Result<()> {
        match self.of {
            Some(of) if !self.is_pending()? => Err(of.not_pending(self.value)),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for Point<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.of {
            Some(of) => write!(f, "{} at {}", of.object(), self.value),
            None => f.write_str("empty point"),
        }
    }
}

/// An owned [`Point`]. Keeps the timeline's memory, not the right to signal it.
#[must_use = "a point does nothing until it is waited for"]
#[derive(Clone, Default)]
pub struct KeptPoint {
    pub(crate) of: Option<Arc<Shared>>,
    pub(crate) value: u64,
}

impl KeptPoint {
    /// True for a point of no timeline. Such a point is reached.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.of.is_none()
    }

    /// The point at `value` of the same timeline. An empty point stays empty.
    #[inline]
    pub fn at(&self, value: u64) -> Point<'_> {
        let of = self.of.as_ref();
        Point { of, value }
    }

    /// True if `point` is of the same timeline.
    #[inline]
    pub(crate) fn is_of(&self, point: Point<'_>) -> bool {
        match (&self.of, point.of) {
            (Some(of), Some(other)) => Arc::ptr_eq(of, other),
            _ => false,
        }
    }

    /// True if the engine knows that the point is reached. Makes no driver call.
    #[inline]
    pub(crate) fn is_known_reached(&self) -> bool {
        self.of.as_ref().is_none_or(|of| of.reached() >= self.value)
    }

    /// The point, for waiting.
    pub fn point(&self) -> Point<'_> {
        Point {
            of: self.of.as_ref(),
            value: self.value,
        }
    }
}

impl fmt::Debug for KeptPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.point(), f)
    }
}

/// A value of a timeline for a submission to signal. Only an owner of the timeline can make one.
#[must_use = "a signal does nothing until it is submitted"]
#[derive(Clone, Copy)]
pub struct Signal<'t> {
    pub(crate) of: &'t Arc<Shared>,
    pub(crate) value: u64,
}

impl Signal<'_> {
    /// The value that is signalled.
    #[must_use]
    pub const fn value(self) -> u64 {
        self.value
    }
}

impl fmt::Debug for Signal<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.of.object(), self.value)
    }
}

/// A point as a backend sees it: a port of the backend's device, and a value.
#[derive(Clone, Copy)]
pub struct NativePoint<'a> {
    pub(crate) of: &'a Arc<Shared>,
    pub(crate) port: &'a dyn Port,
    pub(crate) value: u64,
    /// The predecessor of a signal that is claimed. Otherwise the value itself.
    pub(crate) above: u64,
}

impl<'a> NativePoint<'a> {
    /// A wait, or a signal that is not claimed.
    #[inline]
    pub(crate) const fn new(of: &'a Arc<Shared>, port: &'a dyn Port, value: u64) -> Self {
        let above = value;
        Self {
            of,
            port,
            value,
            above,
        }
    }

    /// The claim of a signal. Empty if it is not claimed.
    #[inline]
    pub(crate) const fn claim(self) -> Interval {
        Interval {
            above: self.above,
            upto: self.value,
        }
    }

    /// The value.
    #[must_use]
    #[inline]
    pub const fn value(self) -> u64 {
        self.value
    }

    /// The port, if it is of type `P`. A port on the queue's own device always has the backend's
    /// type.
    #[must_use]
    #[inline]
    pub fn port<P: Port>(self) -> Option<&'a P> {
        self.port.downcast_ref()
    }

    /// The timeline's name.
    #[must_use]
    pub fn object(self) -> &'a Object {
        self.of.object()
    }

    /// The right to complete this signal, for backends whose devices are threads of this process.
    ///
    /// `None` if the home of the timeline is a port of another type. Then its counter shows the
    /// signal.
    #[must_use]
    pub fn completion(self) -> Option<Completion> {
        let is_at_home = self.port.type_id() == self.of.home().type_id();
        is_at_home.then(|| Completion(self.of.clone(), self.value))
    }

    /// An owned copy to wait for.
    pub fn keep(self) -> KeptPoint {
        KeptPoint {
            of: Some(self.of.clone()),
            value: self.value,
        }
    }
}

impl fmt::Debug for NativePoint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.of.object(), self.value)
    }
}

/// A signal that a backend's own thread carries out once the work is done.
#[derive(Debug, Clone)]
pub struct Completion(Arc<Shared>, u64);

impl Completion {
    pub(crate) const fn of(of: Arc<Shared>, value: u64) -> Self {
        Self(of, value)
    }

    /// Marks the value as reached. Wakes waiters and releases held submissions on the calling
    /// thread.
    pub fn complete(self) {
        self.0.advance(self.1);
    }

    /// Fails the timeline, because the value will never be reached.
    pub fn fail(self, cause: Error) {
        self.0.fail(cause.into_cause());
    }
}

/// A signal that the engine makes once a submission has finished, unless it is failed before.
#[derive(Debug, Clone)]
pub struct Relayed(Completion);

impl Relayed {
    pub(crate) const fn of(of: Arc<Shared>, value: u64) -> Self {
        Self(Completion(of, value))
    }

    /// Fails the timeline, because the work has failed.
    pub fn fail(self, cause: Error) {
        self.0.fail(cause);
    }
}
