//! Timelines and points.

use std::fmt;
use std::future::IntoFuture;
use std::os::fd::OwnedFd;
use std::time::Duration;

use syncline::{
    Claim, Error, Result, Signal, WaitMode,
    error::Object,
    handle::Rejected,
    info::DeviceId,
    wait::{Blockers, Notification},
};

use super::Time;
use crate::Subject;
use crate::subject::Waiting;

/// [`syncline::Timeline`].
#[derive(Clone)]
pub struct Timeline<S> {
    on: S,
    library: syncline::Timeline,
}

impl<S: Subject> Timeline<S> {
    pub(super) fn new(on: &S, library: syncline::Timeline) -> Self {
        let on = on.clone();
        Self { on, library }
    }

    /// The library's timeline.
    #[must_use]
    pub const fn library(&self) -> &syncline::Timeline {
        &self.library
    }

    /// [`syncline::Timeline::object`].
    #[must_use]
    pub fn object(&self) -> &Object {
        self.library.object()
    }

    /// [`syncline::Timeline::devices`].
    pub fn devices(&self) -> impl Iterator<Item = DeviceId> + '_ {
        self.library.devices()
    }

    /// [`syncline::Timeline::is_clocked`].
    #[must_use]
    pub fn is_clocked(&self) -> bool {
        self.library.is_clocked()
    }

    /// [`syncline::Timeline::frozen_value`].
    #[must_use]
    pub fn frozen_value(&self) -> u64 {
        self.on.frozen_value(&self.library)
    }

    /// [`syncline::Timeline::value`].
    ///
    /// # Errors
    /// Same errors.
    pub fn value(&self) -> Result<u64> {
        self.on.value(&self.library)
    }

    /// [`syncline::Timeline::at`].
    pub fn at(&self, value: u64) -> Point<'_, S> {
        Point::new(&self.on, self.on.at(&self.library, value))
    }

    /// [`syncline::Timeline::signal_at`].
    pub fn signal_at(&self, value: u64) -> Signal<'_> {
        self.on.signal_at(&self.library, value)
    }

    /// [`syncline::Timeline::signal`].
    ///
    /// # Errors
    /// Same errors.
    pub fn signal(&self, value: u64) -> Result<()> {
        self.on.signal(&self.library, value)
    }

    /// [`syncline::Timeline::fail`].
    pub fn fail(&self, cause: Error) {
        self.on.fail(&self.library, cause);
    }

    /// [`syncline::Timeline::claim`].
    ///
    /// # Errors
    /// Same errors.
    pub fn claim(&self, value: u64) -> Result<Claim> {
        self.claim_after(value, 0)
    }

    /// [`syncline::Timeline::claim_after`].
    ///
    /// # Errors
    /// Same errors.
    pub fn claim_after(&self, value: u64, waited: u64) -> Result<Claim> {
        self.on.claim(&self.library, value, waited)
    }

    /// [`syncline::Timeline::signalled_by_others`].
    ///
    /// # Errors
    /// Same errors.
    pub fn signalled_by_others(&self, value: u64) -> Result<()> {
        self.on.signalled_by_others(&self.library, value)
    }
}

impl<S> fmt::Debug for Timeline<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.library, f)
    }
}

/// [`syncline::Point`].
#[must_use = "a point does nothing until it is waited for"]
pub struct Point<'t, S> {
    /// `None` for a point of no timeline.
    on: Option<&'t S>,
    library: syncline::Point<'t>,
}

impl<S> Clone for Point<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Point<'_, S> {}

impl<'t, S: Subject> Point<'t, S> {
    /// [`syncline::Point::EMPTY`].
    pub const EMPTY: Point<'static, S> = Point {
        on: None,
        library: syncline::Point::EMPTY,
    };

    pub(super) const fn new(on: &'t S, library: syncline::Point<'t>) -> Self {
        let on = Some(on);
        Self { on, library }
    }

    /// The library's point.
    pub const fn library(self) -> syncline::Point<'t> {
        self.library
    }

    /// [`syncline::Point::value`].
    #[must_use]
    pub const fn value(self) -> u64 {
        self.library.value()
    }

    /// [`syncline::Point::is_reached`].
    ///
    /// # Errors
    /// Same errors.
    pub fn is_reached(self) -> Result<bool> {
        match self.on {
            Some(on) => on.is_reached(self.library),
            None => self.library.is_reached(),
        }
    }

    /// [`syncline::Point::is_pending`].
    ///
    /// # Errors
    /// Same errors.
    pub fn is_pending(self) -> Result<bool> {
        match self.on {
            Some(on) => on.is_pending(self.library),
            None => self.library.is_pending(),
        }
    }

    /// [`syncline::Point::require_pending`].
    ///
    /// # Errors
    /// Same errors.
    pub fn require_pending(self) -> Result<()> {
        match self.on {
            Some(on) => on.require_pending(self.library),
            None => self.library.require_pending(),
        }
    }

    /// [`syncline::Point::notify`].
    ///
    /// # Errors
    /// Same errors.
    pub fn notify(self, eventfd: OwnedFd) -> Result<Notification, Rejected<OwnedFd>> {
        match self.on {
            Some(on) => on.notify(self.library, eventfd),
            None => self.library.notify(eventfd),
        }
    }

    /// [`syncline::Point::notify_pending`].
    ///
    /// # Errors
    /// Same errors.
    pub fn notify_pending(self, eventfd: OwnedFd) -> Result<Notification, Rejected<OwnedFd>> {
        match self.on {
            Some(on) => on.notify_pending(self.library, eventfd),
            None => self.library.notify_pending(eventfd),
        }
    }

    /// [`syncline::Point::wait`].
    ///
    /// # Errors
    /// Same errors.
    pub fn wait(self, timeout: Duration) -> Result<()> {
        self.wait_with(WaitMode::Adaptive, timeout)
    }

    /// [`syncline::Point::wait_with`].
    ///
    /// # Errors
    /// Same errors.
    pub fn wait_with(self, mode: WaitMode, timeout: Duration) -> Result<()> {
        match self.on {
            Some(on) => on.wait(self.library, mode, timeout),
            None => self.library.wait_with(mode, timeout),
        }
    }

    /// [`syncline::Point::wait_pending`].
    ///
    /// # Errors
    /// Same errors.
    pub fn wait_pending(self, timeout: Duration) -> Result<()> {
        match self.on {
            Some(on) => on.wait_pending(self.library, timeout),
            None => self.library.wait_pending(timeout),
        }
    }

    /// [`syncline::Point::pending`].
    #[must_use = "futures do nothing unless polled"]
    pub fn pending(self) -> Waiting<()> {
        match self.on {
            Some(on) => on.await_pending(self.library),
            None => Box::pin(self.library.pending()),
        }
    }

    /// [`syncline::Point::time`].
    ///
    /// # Errors
    /// Same errors. An empty point has the library's error for it.
    pub fn time(self) -> Result<Time<S>> {
        let Some(on) = self.on else {
            return match self.library.time() {
                Err(error) => Err(error),
                Ok(time) => Err(Error::no_time(
                    time.clock().object(),
                    self.value(),
                    "an empty point has a time",
                )),
            };
        };
        Ok(Time::new(on, on.point_time(self.library)?))
    }

    /// [`syncline::Point::blockers`].
    #[must_use]
    pub fn blockers(self) -> Blockers {
        match self.on {
            Some(on) => on.blockers(self.library),
            None => self.library.blockers(),
        }
    }

    /// [`syncline::Point::keep`].
    pub fn keep(self) -> KeptPoint<S> {
        KeptPoint {
            on: self.on.cloned(),
            library: self.library.keep(),
        }
    }
}

impl<S: Subject> IntoFuture for Point<'_, S> {
    type Output = Result<()>;
    type IntoFuture = Waiting<()>;

    fn into_future(self) -> Waiting<()> {
        all(&[self])
    }
}

impl<S: Subject> IntoFuture for KeptPoint<S> {
    type Output = Result<()>;
    type IntoFuture = Waiting<()>;

    fn into_future(self) -> Waiting<()> {
        all(&[self.point()])
    }
}

impl<S> fmt::Debug for Point<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.library, f)
    }
}

/// [`syncline::KeptPoint`].
#[must_use = "a point does nothing until it is waited for"]
#[derive(Clone)]
pub struct KeptPoint<S> {
    on: Option<S>,
    library: syncline::KeptPoint,
}

impl<S: Subject> KeptPoint<S> {
    pub(super) fn new(on: &S, library: syncline::KeptPoint) -> Self {
        let on = Some(on.clone());
        Self { on, library }
    }

    /// [`syncline::KeptPoint::point`].
    pub fn point(&self) -> Point<'_, S> {
        Point {
            on: self.on.as_ref(),
            library: self.library.point(),
        }
    }
}

impl<S> fmt::Debug for KeptPoint<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.library, f)
    }
}

/// Returns the library's points, in order.
pub(super) fn library<'t, S: Subject>(points: &[Point<'t, S>]) -> Vec<syncline::Point<'t>> {
    points.iter().map(|point| point.library).collect()
}

/// [`syncline::wait_all`], by the hook of the first point's subject.
///
/// # Errors
/// Same errors.
pub fn wait_all<S: Subject>(points: &[Point<'_, S>], timeout: Duration) -> Result<()> {
    match points.iter().find_map(|point| point.on) {
        Some(on) => on.wait_all(&library(points), timeout),
        None => syncline::wait_all(&library(points), timeout),
    }
}

/// [`syncline::wait_any`], by the hook of the first point's subject.
///
/// # Errors
/// Same errors.
pub fn wait_any<S: Subject>(points: &[Point<'_, S>], timeout: Duration) -> Result<usize> {
    match points.iter().find_map(|point| point.on) {
        Some(on) => on.wait_any(&library(points), timeout),
        None => syncline::wait_any(&library(points), timeout),
    }
}

/// [`syncline::wait::future::all`], by the hook of the first point's subject.
#[must_use = "futures do nothing unless polled"]
pub fn all<S: Subject>(points: &[Point<'_, S>]) -> Waiting<()> {
    match points.iter().find_map(|point| point.on) {
        Some(on) => on.await_all(&library(points)),
        None => Box::pin(syncline::wait::future::all(&library(points))),
    }
}

/// [`syncline::wait::future::any`], by the hook of the first point's subject.
#[must_use = "futures do nothing unless polled"]
pub fn any<S: Subject>(points: &[Point<'_, S>]) -> Waiting<usize> {
    match points.iter().find_map(|point| point.on) {
        Some(on) => on.await_any(&library(points)),
        None => Box::pin(syncline::wait::future::any(&library(points))),
    }
}
