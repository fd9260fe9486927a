//! The times at which values of a timeline were reached (M6).
//!
//! A signal has its entry here before other threads can see it. A queue adds the entry before the
//! driver gets the submission, because the device may be faster than the submitting thread. The
//! host adds it before it signals. So a thread that finds a value reached also finds its time, or
//! that there is none.
//!
//! At most one signal is between its entry and the driver, because the next one needs it to be
//! pending. So the entries are in order, and the entry of a signal that the driver refuses is the
//! last one.
//!
//! An entry has the values that its signal claims. A value between two entries was signalled
//! outside the engine or by a raw claim.
//!
//! | file | contents |
//! |---|---|
//! | `local` | the times of signals that this process makes |
//! | `published` | publication of times to other processes, and their view |
//! | `page` | the layout of the shared page |
//! | `sampling` | a thread that samples clocks, so that publishing threads do not wait for it |

mod local;
mod page;
mod published;
mod sampling;

use std::sync::OnceLock;

use crate::base::error::{Error, Object, Result};
use crate::base::info::DeviceId;
use crate::clock::{Clock, Time};
use crate::timeline::Timeline;
use crate::timeline::point::Point;
use crate::timeline::state::{Interval, Shared};

pub(crate) use local::LocalTimes;
pub use page::SharedTimes;
use published::{RemoteTimes, TimePublisher};

/// The times of a timeline with timestamps.
#[allow(
    clippy::large_enum_variant,
    reason = "each timeline has one at the most, in a box of its own"
)]
pub(crate) enum Times {
    /// This process signals it.
    ///
    /// The publisher is set if other processes want the times.
    Local(LocalTimes, OnceLock<TimePublisher>),
    /// Another process signals it and publishes the times.
    Remote(RemoteTimes),
}

impl Times {
    /// The times, if this process signals the timeline.
    pub(crate) const fn local(&self) -> Option<&LocalTimes> {
        match self {
            Self::Local(times, _) => Some(times),
            Self::Remote(_) => None,
        }
    }

    /// The times and their publisher, if other processes want the times.
    fn published(&self) -> Option<(&LocalTimes, &TimePublisher)> {
        match self {
            Self::Local(times, publisher) => Some((times, publisher.get()?)),
            Self::Remote(_) => None,
        }
    }
}

impl Shared {
    /// The times of its signals, if it has timestamps.
    #[inline]
    pub(crate) fn times(&self) -> Option<&Times> {
        self.extras()?.times()
    }

    /// The times of its signals, if it has timestamps and this process signals it.
    #[inline]
    pub(crate) fn local_times(&self) -> Option<&LocalTimes> {
        self.times()?.local()
    }

    /// Records the time of the host signal of `value`, which is made next and cannot be refused.
    ///
    /// All values below those of this signal are reached.
    #[inline]
    pub(crate) fn time_by_host(&self, value: u64) {
        if let Some(times) = self.local_times() {
            let values = Interval {
                above: self.reached(),
                upto: value,
            };
            times.add_by_host(values);
            // A timeline without a page is published later by its publisher. A lock is held here.
            if !self.ports().is_only_a_value() {
                self.publish_times(value);
            }
        }
    }

    /// Publishes the times of values up to `reached`, if other processes want them.
    #[inline]
    pub(crate) fn publish_times(&self, reached: u64) {
        if let Some((times, publisher)) = self.times().and_then(Times::published) {
            publisher.publish(times, reached);
        }
    }

    /// Prepares for the publication of times of pending values.
    pub(crate) fn prepare_times(&self) {
        if let Some((_, publisher)) = self.times().and_then(Times::published) {
            publisher.prepare();
        }
    }
}

impl Timeline {
    /// The number of signals whose times a timeline with timestamps remembers.
    pub const TIMES: usize = 256;

    /// The same timeline with timestamps, so that its points have [times](Point::time).
    ///
    /// For an application that makes a timeline by [`Timeline::new`]. For a timeline on a single
    /// device use [`Device::clocked_timeline`](crate::backend::Device::clocked_timeline).
    ///
    /// `clocks` are the clocks of the devices whose queues signal it through their own ports. Call
    /// this before the first signal. Values that are reached or pending by then have no time.
    ///
    /// Timestamps cost about ten kilobytes of memory. Each submission that signals the timeline
    /// writes a time; see `docs/performance.md`. Other timelines cost nothing more.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if it already has timestamps.
    pub fn clocked(self, clocks: impl IntoIterator<Item = (DeviceId, Clock)>) -> Result<Self> {
        let clocks = clocks.into_iter().collect();
        let times = LocalTimes::new(clocks, self.shared().refresh());
        self.with(Times::Local(times, OnceLock::new()))
    }

    /// The same timeline with times that another process [publishes](Timeline::tell_times).
    ///
    /// Only that process may signal it. The times are on the host's clock, with an
    /// [error](Time::error) if a device has written them.
    ///
    /// # Errors
    /// Same errors as [`Timeline::clocked`].
    #[doc(hidden)]
    pub fn clocked_elsewhere(self, times: SharedTimes) -> Result<Self> {
        // Values on the page have times, even if they were signalled after this timeline was made.
        let first = self.shared().reached();
        self.with(Times::Remote(RemoteTimes::new(times, first)))
    }

    fn with(self, times: Times) -> Result<Self> {
        let shared = self.shared();
        if !shared.make_extras().set_times(times) {
            return Err(Error::unsupported(
                shared.object(),
                "be given timestamps",
                "it has them already",
            ));
        }
        Ok(self)
    }

    /// Publishes the times of this timeline to the processes that have `times`.
    ///
    /// Call it once, in the process that signals the timeline, before the timeline is
    /// [published](Timeline::publish). From then on a time is published before its value is
    /// published as reached, and before a host signal is made. A device that writes the page's
    /// counter itself is faster; its time follows later.
    ///
    /// Times that devices have written are converted to the host's clock by the latest samples of
    /// their clocks. This call samples each clock, and blocks for up to one second per clock while
    /// the device is busy. A thread takes the later samples.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a timeline without timestamps or with published times.
    /// [`Error::ClockSilent`] if a clock without any sample could not be read within the second.
    /// [`Error::Native`] if no thread can be started. A driver error.
    #[doc(hidden)]
    pub fn tell_times(&self, times: SharedTimes) -> Result<()> {
        let shared = self.shared();
        let refuse = |reason: &str| {
            let asked = "tell other processes when it is signalled";
            Error::unsupported(shared.object(), asked, reason)
        };
        let Some(Times::Local(times_here, publisher)) = shared.times() else {
            return Err(refuse("it was made without timestamps of this process"));
        };
        if publisher.get().is_some() {
            return Err(refuse("it tells them already"));
        }
        let new = TimePublisher::new(times, shared.refresh(), times_here.clocks())?;
        let set = publisher.set(new);
        set.map_err(|_| refuse("it tells them already"))
    }

    /// True if it has timestamps.
    #[must_use]
    pub fn is_clocked(&self) -> bool {
        self.shared().times().is_some()
    }
}

impl Point<'_> {
    /// When the point was reached: the time of the first signal at or past its value.
    ///
    /// - A signal of a queue with a port on its device: written by the device after the work,
    ///   after earlier work of the queue, and after lower values.
    /// - A signal of the host, also for a queue without a port: taken on
    ///   [the host's clock](crate::clock::HostClock::Monotonic) just before the signal.
    /// - A signal of another process: on the host's clock. If a device wrote the time, it is
    ///   converted and has the [error](Time::error) of that.
    ///
    /// Times are whole nanoseconds. [`Time::to_host`] and [`Time::since`] return their error. Times
    /// that one device writes never go back as values grow.
    ///
    /// ```
    /// # extern crate syncline_core as syncline;
    /// use std::time::Duration;
    /// use syncline::backend::{Device as _, Queue as _};
    /// use syncline::{QueueKind, host};
    ///
    /// # fn main() -> syncline::Result<()> {
    /// let device = host::Device::new();
    /// let frames = device.clocked_timeline("frames")?;
    /// let queue = device.queue(QueueKind::Compute, "worker")?;
    /// for frame in 1..=2 {
    ///     queue.submit(&[], |_| Ok(()), &[frames.signal_at(frame)])?;
    /// }
    /// frames.at(2).wait(Duration::from_secs(10))?;
    /// let took = frames.at(2).time()?.since(&frames.at(1).time()?)?;
    /// println!("{took}");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Never waits for a device. The cost is that of [`Point::is_reached`];
    /// [`Fence::time`](crate::Fence::time) says what applies where timestamps wrap around. Any
    /// thread may call it. Contract: M6.
    ///
    /// # Errors
    /// - [`Error::TimesNotEnabled`] for a timeline without timestamps and for an empty point.
    /// - [`Error::NotReached`]; [`Error::Failed`] or [`Error::Cancelled`] if the point will never
    ///   be reached.
    /// - [`Error::TimeForgotten`] for a signal before the last [`Timeline::TIMES`] ones.
    /// - [`Error::TimeNotTold`] for a signal of another process whose time is not published yet.
    /// - [`Error::NoTime`] if no time was written: for the initial value, for a
    ///   [claim](Timeline::claim) of the application, and for a signal from outside the engine.
    /// - A driver error.
    pub fn time(self) -> Result<Time> {
        let Some(of) = self.of else {
            return Err(Error::TimesNotEnabled {
                timeline: Object::new("empty point", ""),
                value: self.value,
            });
        };
        let Some(times) = of.times() else {
            return Err(Error::TimesNotEnabled {
                timeline: of.object().clone(),
                value: self.value,
            });
        };
        if !self.is_reached()? {
            return Err(Error::NotReached {
                timeline: of.object().clone(),
                value: self.value,
                reached: of.reached(),
            });
        }
        match times {
            Times::Local(times, _) => times.of(of.object(), self.value),
            Times::Remote(times) => times.of(of, self.value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Device as _;

    fn line(initial: u64) -> Timeline {
        let device = crate::host::Device::new();
        device.clocked_timeline_from("line", initial).unwrap()
    }

    #[test]
    fn the_last_signals_are_remembered_and_no_more() {
        let line = line(10);
        let kept = Timeline::TIMES as u64;
        for n in 1..=2 * kept + 7 {
            line.signal(10 + 3 * n).unwrap();
        }
        let last = 10 + 3 * (2 * kept + 7);
        let oldest = last - 3 * kept;
        for value in oldest - 2..=last {
            line.at(value).time().unwrap();
        }
        let forgotten = line.at(oldest - 3).time();
        assert!(
            matches!(forgotten, Err(Error::TimeForgotten { oldest: found, .. }) if found == oldest),
            "{forgotten:?}"
        );
        assert!(matches!(
            line.at(11).time(),
            Err(Error::TimeForgotten { .. })
        ));
        assert!(matches!(line.at(10).time(), Err(Error::NoTime { .. })));
        let shared = line.shared();
        let (length, capacity) = shared.local_times().unwrap().size();
        assert_eq!(length, Timeline::TIMES + 1);
        assert_eq!(capacity, Timeline::TIMES + 1);
    }

    #[test]
    fn a_signal_before_the_timestamps_has_no_time() {
        let device = crate::host::Device::new();
        let line = device.timeline("line").unwrap();
        line.signal(3).unwrap();
        let line = line
            .clocked([(device.id(), device.clock().unwrap())])
            .unwrap();
        assert!(matches!(line.at(3).time(), Err(Error::NoTime { .. })));
        line.signal(5).unwrap();
        assert!(line.at(4).time().is_ok() && line.at(5).time().is_ok());
        assert!(matches!(
            line.at(6).time(),
            Err(Error::NotReached { reached: 5, .. })
        ));
        assert!(matches!(line.clocked([]), Err(Error::Unsupported { .. })));
    }

    #[test]
    fn a_refused_submission_forgets_nothing() {
        let line = line(0);
        let times = line.shared().local_times().unwrap();
        let kept = Timeline::TIMES as u64;
        for value in 1..=kept {
            line.signal(value).unwrap();
        }
        for _ in 0..10 {
            times.add_by_host(Interval {
                above: kept,
                upto: kept + 1,
            });
            times.forget_refused(kept + 1);
            times.forget_refused(kept + 1);
        }
        assert!((1..=kept).all(|value| line.at(value).time().is_ok()));
    }
}
