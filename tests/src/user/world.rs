//! The one or two devices that a case runs on.

use std::fmt;

use syncline::{
    Error, QueueKind, Result,
    error::Object,
    info::{DeviceId, Info},
};
use syncline_core::backend::{Attachment, Device as _};

use super::{Clock, Fence, Point, Queue, Stall, Timeline};
use crate::case::Stop;
use crate::subject::RecorderOf;
use crate::{Case, Subject};

/// A device of a subject.
#[derive(Clone)]
pub struct Device<S>(S);

impl<S: Subject> Device<S> {
    /// Wraps the device of `subject`.
    #[must_use]
    pub const fn new(subject: S) -> Self {
        Self(subject)
    }

    /// Returns its hooks.
    #[must_use]
    pub const fn subject(&self) -> &S {
        &self.0
    }

    /// Returns the library's device.
    #[must_use]
    pub fn library(&self) -> &S::Device {
        self.0.device()
    }

    /// Returns its identity.
    #[must_use]
    pub fn id(&self) -> DeviceId {
        self.library().id()
    }

    /// Returns its name in errors.
    #[must_use]
    pub fn object(&self) -> &Object {
        self.library().object()
    }

    /// Returns its description and capabilities.
    #[must_use]
    pub fn info(&self) -> &Info {
        self.library().info()
    }

    /// Creates a counter of the device, for a timeline that a case puts together itself.
    pub fn port(&self, initial: u64) -> Result<Attachment> {
        self.library().port(initial)
    }

    /// Checks that the device still answers.
    ///
    /// # Errors
    /// It does not.
    pub fn check(&self) -> Result<()> {
        self.library().check()
    }

    /// Creates a timeline with its home here, at 0.
    pub fn timeline(&self, label: &str) -> Result<Timeline<S>> {
        self.timeline_from(label, 0)
    }

    /// Creates a timeline with its home here, at `initial`.
    pub fn timeline_from(&self, label: &str, initial: u64) -> Result<Timeline<S>> {
        let library = self.0.timeline_with(&self.0, label, initial)?;
        Ok(self.own(library))
    }

    /// Creates a timeline with timestamps and its home here, at `initial`.
    ///
    /// # Errors
    /// A skip if the device has no clock. Also errors of the backend.
    pub fn clocked_timeline_from(&self, label: &str, initial: u64) -> Result<Timeline<S>, Stop> {
        Ok(self.own(or_skip(self.0.clocked_timeline(label, initial))?))
    }

    /// Creates a timeline with timestamps and its home here, at 0.
    ///
    /// # Errors
    /// Same errors as [`Device::clocked_timeline_from`].
    pub fn clocked_timeline(&self, label: &str) -> Result<Timeline<S>, Stop> {
        self.clocked_timeline_from(label, 0)
    }

    /// Wraps a timeline that a case made by other means with this device's hooks.
    #[must_use]
    pub fn own(&self, library: syncline::Timeline) -> Timeline<S> {
        Timeline::new(&self.0, library)
    }

    /// Wraps a fence that a case made by other means with this device's hooks.
    #[must_use]
    pub fn own_fence(&self, library: syncline::Fence) -> Fence<S> {
        Fence::new(&self.0, library)
    }

    /// Imports a descriptor as a fence. `None` stands for nothing to wait for, which is complete.
    pub fn import_descriptor(
        &self,
        descriptor: Option<std::os::fd::OwnedFd>,
        label: &str,
    ) -> Result<Fence<S>, syncline::handle::Rejected<std::os::fd::OwnedFd>> {
        let fence = self.0.import_descriptor(descriptor, label)?;
        Ok(self.own_fence(fence))
    }

    /// Creates a queue for `kind`.
    pub fn queue(&self, kind: QueueKind, label: &str) -> Result<Queue<S>> {
        Ok(Queue::new(&self.0, self.0.queue(kind, label)?))
    }

    /// Creates a fence.
    #[must_use]
    pub fn fence(&self, label: &str) -> Fence<S> {
        Fence::new(&self.0, self.0.fence(label, false))
    }

    /// Creates a fence with times.
    #[must_use]
    pub fn timed_fence(&self, label: &str) -> Fence<S> {
        Fence::new(&self.0, self.0.fence(label, true))
    }

    /// Creates a fence with times on the device's clock.
    ///
    /// # Errors
    /// A skip if the device has no clock or no timestamps. Also errors of the backend.
    pub fn clocked_fence(&self, label: &str) -> Result<Fence<S>, Stop> {
        if self.info().capabilities.timestamp_bits == 0 {
            return Stop::skip("the device has no timestamps");
        }
        Ok(self.own_fence(or_skip(self.0.clocked_fence(label))?))
    }

    /// Returns the device's clock.
    ///
    /// # Errors
    /// A skip if it has none. Also errors of the backend.
    pub fn clock(&self) -> Result<Clock<S>, Stop> {
        Ok(self.own_clock(or_skip(self.library().clock())?))
    }

    /// Wraps a clock that a case made by other means with this device's hooks.
    #[must_use]
    pub fn own_clock(&self, library: syncline::clock::Clock) -> Clock<S> {
        Clock::new(&self.0, library)
    }

    /// [`syncline::Point::EMPTY`].
    pub const fn empty_point(&self) -> Point<'_, S> {
        Point::new(&self.0, syncline::Point::EMPTY)
    }

    /// Creates a buffer of zeroes.
    pub fn buffer(&self, words: usize) -> Result<S::Buffer> {
        self.0.buffer(words)
    }

    /// Records [`Subject::busy`].
    pub fn busy(&self, recorder: &mut RecorderOf<'_, S>, time: std::time::Duration) -> Result<()> {
        self.0.busy(recorder, time)
    }

    /// Creates a stall that is not released, for work of this device.
    ///
    /// **While a stall blocks a queue, the case must need no progress on another queue of the same
    /// device**, because queues may share driver queues and connections.
    ///
    /// # Errors
    /// A skip if the device cannot block until the host releases it. Also the backend's errors.
    pub fn stall(&self) -> Result<Stall<S>, Stop> {
        Ok(Stall::new(or_skip(self.0.latch())?))
    }
}

impl<S: Subject> fmt::Debug for Device<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.object(), f)
    }
}

/// Skips the case if the device cannot do what was asked of it.
pub(crate) fn or_skip<T>(made: Result<T>) -> Result<T, Stop> {
    match made {
        Err(Error::Unsupported { reason, .. }) => Stop::skip(reason),
        made => Ok(made?),
    }
}

/// The one or two devices that a case runs on. If there is one, it is both sides.
pub struct World<S> {
    /// The side that signals first.
    pub left: Device<S>,
    /// The side that waits.
    pub right: Device<S>,
}

impl<S: Subject> World<S> {
    /// Creates a world of one device.
    #[must_use]
    pub fn one(subject: S) -> Self {
        Self::two(subject.clone(), subject)
    }

    /// Creates a world of two devices.
    #[must_use]
    pub const fn two(left: S, right: S) -> Self {
        Self {
            left: Device::new(left),
            right: Device::new(right),
        }
    }

    /// Creates a timeline at 0 for both sides.
    pub fn timeline(&self, label: &str) -> Result<Timeline<S>> {
        self.timeline_from(label, 0)
    }

    /// Creates timelines at 0 for both sides.
    pub fn timelines<const N: usize>(&self, labels: [&str; N]) -> Result<[Timeline<S>; N]> {
        let made: Vec<_> = labels
            .into_iter()
            .map(|label| self.timeline(label))
            .collect::<Result<_>>()?;
        made.try_into().map_err(|_| Error::NothingToWaitFor)
    }

    /// Creates a timeline at `initial` for both sides.
    pub fn timeline_from(&self, label: &str, initial: u64) -> Result<Timeline<S>> {
        let (left, right) = (self.left.subject(), self.right.subject());
        Ok(self.left.own(left.timeline_with(right, label, initial)?))
    }

    /// Creates a timeline with timestamps at 0 for both sides.
    ///
    /// # Errors
    /// A skip if a device has no clock. Also errors of the backend.
    pub fn clocked_timeline(&self, label: &str) -> Result<Timeline<S>, Stop> {
        if !self.is_pair() {
            return self.left.clocked_timeline(label);
        }
        let line = self.timeline(label)?;
        let mut clocks = Vec::new();
        for id in line.devices() {
            let side = [&self.left, &self.right]
                .into_iter()
                .find(|side| side.id() == id);
            if let Some(side) = side {
                clocks.push((id, side.clock()?.library().clone()));
            }
        }
        Ok(self.left.own(line.library().clone().clocked(clocks)?))
    }

    /// Creates a queue of the left side.
    pub fn left_queue(&self, label: &str) -> Result<Queue<S>> {
        self.left.queue(QueueKind::Compute, label)
    }

    /// Creates a queue of the right side.
    pub fn right_queue(&self, label: &str) -> Result<Queue<S>> {
        self.right.queue(QueueKind::Compute, label)
    }

    /// Creates `count` timelines at 0 for both sides: `line 0`, `line 1` and so on.
    pub fn numbered(&self, count: usize, label: &str) -> Result<Vec<Timeline<S>>> {
        (0..count)
            .map(|n| self.timeline(&format!("{label} {n}")))
            .collect()
    }

    /// Returns the left side for an even number, and else the right one.
    #[must_use]
    pub const fn side(&self, n: usize) -> &Device<S> {
        if n.is_multiple_of(2) {
            &self.left
        } else {
            &self.right
        }
    }

    /// Creates `count` queues, of both sides in turn: `queue 0`, `queue 1` and so on.
    pub fn queues(&self, count: usize) -> Result<Vec<Queue<S>>> {
        let queue = |n| {
            self.side(n)
                .queue(QueueKind::Compute, &format!("queue {n}"))
        };
        (0..count).map(queue).collect()
    }

    /// Whether the sides are two devices.
    #[must_use]
    pub fn is_pair(&self) -> bool {
        self.left.id() != self.right.id()
    }

    /// Runs a case in this world.
    ///
    /// # Errors
    /// The verdict, if the case did not pass.
    pub fn run(&self, case: &Case<S>) -> crate::Verdict {
        (case.run)(self)
    }
}

impl<S: Subject> fmt::Debug for World<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} and {:?}", self.left, self.right)
    }
}
