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
    pub fn signal(&self, value: u64) -> Result<()> {
        self.on.signal(&self.library, value)
    }

    /// [`syncline::Timeline::fail`].
    pub fn fail(&self, cause: Error) {
        self.on.fail(&self.library, cause);
    }

    /// [`syncline::Timeline::claim`].
    pub fn claim(&self, value: u64) -> Result<Claim> {
        self.claim_after(value, 0)
    }

    /// [`syncline::Timeline::claim_after`].
    pub fn claim_after(&self, value: u64, waited: u64) -> Result<Claim> {
        self.on.claim(&self.library, value, waited)
    }

    /// [`syncline::Timeline::signalled_by_others`].
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
    on: &'t S,
    library: syncline::Point<'t>,
}

impl<S> Clone for Point<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Point<'_, S> {}

impl<'t, S: Subject> Point<'t, S> {
    pub(super) const fn new(on: &'t S, library: syncline::Point<'t>) -> Self {
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
    pub fn is_reached(self) -> Result<bool> {
        self.on.is_reached(self.library)
    }

    /// [`syncline::Point::is_pending`].
    pub fn is_pending(self) -> Result<bool> {
        self.on.is_pending(self.library)
    }

    /// [`syncline::Point::require_pending`].
    pub fn require_pending(self) -> Result<()> {
        self.on.require_pending(self.library)
    }

    /// [`syncline::Point::notify`].
    pub fn notify(self, eventfd: OwnedFd) -> Result<Notification, Rejected<OwnedFd>> {
        self.on.notify(self.library, eventfd)
    }

    /// [`syncline::Point::notify_pending`].
    pub fn notify_pending(self, eventfd: OwnedFd) -> Result<Notification, Rejected<OwnedFd>> {
        self.library.notify_pending(eventfd)
    }

    /// [`syncline::Point::wait`].
    pub fn wait(self, timeout: Duration) -> Result<()> {
        self.wait_with(WaitMode::Adaptive, timeout)
    }

    /// [`syncline::Point::wait_with`].
    pub fn wait_with(self, mode: WaitMode, timeout: Duration) -> Result<()> {
        self.on.wait(self.library, mode, timeout)
    }

    /// [`syncline::Point::wait_pending`].
    pub fn wait_pending(self, timeout: Duration) -> Result<()> {
        self.on.wait_pending(self.library, timeout)
    }

    /// [`syncline::Point::pending`].
    #[must_use = "futures do nothing unless polled"]
    pub fn pending(self) -> Waiting<()> {
        self.on.await_pending(self.library)
    }

    /// [`syncline::Point::time`].
    ///
    /// # Errors
    /// Same errors.
    pub fn time(self) -> Result<Time<S>> {
        Ok(Time::new(self.on, self.on.point_time(self.library)?))
    }

    /// [`syncline::Point::blockers`].
    #[must_use]
    pub fn blockers(self) -> Blockers {
        self.on.blockers(self.library)
    }

    /// [`syncline::Point::keep`].
    pub fn keep(self) -> KeptPoint<S> {
        KeptPoint {
            on: self.on.clone(),
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
    on: S,
    library: syncline::KeptPoint,
}

impl<S: Subject> KeptPoint<S> {
    pub(super) fn new(on: &S, library: syncline::KeptPoint) -> Self {
        let on = on.clone();
        Self { on, library }
    }

    /// [`syncline::KeptPoint::point`].
    pub fn point(&self) -> Point<'_, S> {
        Point::new(&self.on, self.library.point())
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
pub fn wait_all<S: Subject>(points: &[Point<'_, S>], timeout: Duration) -> Result<()> {
    match points.first().map(|point| point.on) {
        Some(on) => on.wait_all(&library(points), timeout),
        None => syncline::wait_all(&library(points), timeout),
    }
}

/// [`syncline::wait_any`], by the hook of the first point's subject.
pub fn wait_any<S: Subject>(points: &[Point<'_, S>], timeout: Duration) -> Result<usize> {
    match points.first().map(|point| point.on) {
        Some(on) => on.wait_any(&library(points), timeout),
        None => syncline::wait_any(&library(points), timeout),
    }
}

/// [`syncline::wait::future::all`], by the hook of the first point's subject.
#[must_use = "futures do nothing unless polled"]
pub fn all<S: Subject>(points: &[Point<'_, S>]) -> Waiting<()> {
    match points.first().map(|point| point.on) {
        Some(on) => on.await_all(&library(points)),
        None => Box::pin(syncline::wait::future::all(&library(points))),
    }
}

/// [`syncline::wait::future::any`], by the hook of the first point's subject.
#[must_use = "futures do nothing unless polled"]
pub fn any<S: Subject>(points: &[Point<'_, S>]) -> Waiting<usize> {
    match points.first().map(|point| point.on) {
        Some(on) => on.await_any(&library(points)),
        None => Box::pin(syncline::wait::future::any(&library(points))),
    }
}
