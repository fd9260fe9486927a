//! When values of a timeline were reached (M6): what its last signals have written, in the order of their values.
//!
//! A signal has its place here before it can be seen: a queue's before the driver is given the submission, since a device may be
//! faster than whoever submits to it, and the host's before it is made. So who finds a value reached finds its time, or that there
//! is none. At most one signal is on its way from here to a driver, as the next one needs it to be pending. So the places are in order, and
//! that of a signal which the driver refuses is the last one.
//!
//! A place says which values its signal claims, so a value between two places was signalled by somebody who has none here.
//!
//! | file | what is in it |
//! |---|---|
//! | `elsewhere` | times that one process tells others: who tells them, and who is told |
//! | `page` | the page on which that stands, word by word |
//! | `sampling` | a thread that samples clocks, so that nobody who tells has to |

mod elsewhere;
mod page;
mod sampling;

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use smallvec::SmallVec;

use crate::base::error::{Error, Object, Result};
use crate::base::info::DeviceId;
use crate::base::sync::Mutex;
use crate::clock::{Clock, HostClock, SameClock, Time};
use crate::port::Stamp;
use crate::timeline::Timeline;
use crate::timeline::point::Point;
use crate::timeline::state::{Interval, Shared};

use elsewhere::{Elsewhere, Teller};
pub use page::SharedTimes;

/// Why there is no time of what a timeline began with.
const BEFORE_THE_FIRST: &str = "it was there before the first signal that has a time";

/// What a timeline with timestamps has besides.
#[allow(
    clippy::large_enum_variant,
    reason = "each timeline has one at the most, in a box of its own"
)]
pub(crate) enum Times {
    /// It is signalled in this process.
    Here(Here),
    /// Another process signals it, and tells when.
    Elsewhere(Elsewhere),
}

/// What was signalled in this process.
pub(crate) struct Here {
    /// Those of the devices that may write times.
    clocks: SmallVec<[(DeviceId, Clock); 2]>,
    /// What signals of the host are timed on.
    host: Clock,
    /// What was reached when the first signal with a time was still to come.
    first: u64,
    kept: Mutex<Kept>,
    /// Who tells other processes.
    teller: OnceLock<Teller>,
}

struct Kept {
    /// One more than are promised, as the last one may yet be refused.
    signals: VecDeque<Signalled>,
    /// The value of the last signal that has been let go of.
    forgotten: Option<u64>,
}

/// A signal, and when it was made.
#[derive(Clone)]
struct Signalled {
    values: Interval,
    at: At,
}

#[derive(Clone)]
enum At {
    /// Once a device has written it, on the clock that stands at this place of the list.
    Written(usize, Arc<dyn Stamp>),
    /// On the host's clock, in nanoseconds.
    Host(i64),
}

impl Times {
    /// Those that submissions of this process write; `None` where that is another's to do.
    pub(crate) const fn here(&self) -> Option<&Here> {
        match self {
            Self::Here(here) => Some(here),
            Self::Elsewhere(_) => None,
        }
    }
}

impl Here {
    fn new(clocks: SmallVec<[(DeviceId, Clock); 2]>, first: u64) -> Self {
        let given = clocks.iter().map(|(_, clock)| clock);
        let host = given.into_iter().find(|clock| clock.is_the_hosts());
        let fresh = || Clock::new(Object::new("clock", "host"), SameClock);
        Self {
            host: host.cloned().unwrap_or_else(fresh),
            clocks,
            first,
            teller: OnceLock::new(),
            kept: Mutex::new(Kept {
                // All that there ever will be: what is signalled allocates nothing.
                signals: VecDeque::with_capacity(Timeline::TIMES + 1),
                forgotten: None,
            }),
        }
    }

    /// Where the clock of `device` stands.
    fn place(&self, device: DeviceId) -> Option<usize> {
        self.clocks.iter().position(|(of, _)| *of == device)
    }

    /// Refuses what a queue of `device`, named `queue`, cannot time.
    pub(crate) fn require(
        &self,
        timeline: &Object,
        device: DeviceId,
        queue: &Object,
    ) -> Result<()> {
        if self.place(device).is_some() {
            return Ok(());
        }
        Err(Error::Unsupported {
            object: queue.clone(),
            asked: format!("write when {timeline} is signalled"),
            reason: "the timeline was made without the clock of its device".into(),
        })
    }

    /// A submission that signals `values` is about to go to a driver of `device`, which is to write `stamp`.
    pub(crate) fn expect(&self, values: Interval, device: DeviceId, stamp: &Arc<dyn Stamp>) {
        if let Some(place) = self.place(device) {
            self.add(values, At::Written(place, stamp.clone()));
        }
    }

    /// The driver has refused the submission that was to signal `value`.
    pub(crate) fn expect_no_more(&self, value: u64) {
        let mut kept = self.kept.lock();
        let is_last = kept
            .signals
            .back()
            .is_some_and(|last| last.values.upto == value);
        let refused = if is_last {
            kept.signals.pop_back()
        } else {
            None
        };
        drop(kept);
        // Never under the lock: the last reference may be that of a queue, and of its device.
        drop(refused);
    }

    fn add(&self, values: Interval, at: At) {
        let mut kept = self.kept.lock();
        let mut oldest = None;
        if kept.signals.len() > Timeline::TIMES {
            oldest = kept.signals.pop_front();
            kept.forgotten = oldest.as_ref().map(|oldest| oldest.values.upto);
        }
        kept.signals.push_back(Signalled { values, at });
        drop(kept);
        // As above.
        drop(oldest);
    }

    /// When `value` of `timeline` was reached, which it is.
    fn of(&self, timeline: &Object, value: u64) -> Result<Time> {
        let none = |reason: &str| Error::NoTime {
            timeline: timeline.clone(),
            value,
            reason: reason.into(),
        };
        if value <= self.first {
            return Err(none(BEFORE_THE_FIRST));
        }
        let kept = self.kept.lock();
        if kept.forgotten.is_some_and(|forgotten| value <= forgotten) {
            let oldest = kept
                .signals
                .front()
                .map_or(value, |first| first.values.upto);
            return Err(Error::TimeForgotten {
                timeline: timeline.clone(),
                value,
                kept: Timeline::TIMES,
                oldest,
            });
        }
        let found = kept
            .signals
            .partition_point(|signal| signal.values.upto < value);
        let found = kept
            .signals
            .get(found)
            .filter(|signal| signal.values.above < value);
        let (clock, stamp) = match found.map(|signal| &signal.at) {
            None => {
                return Err(none(
                    "it was signalled by a submission that the application made itself, or by somebody whom the engine does not know",
                ));
            }
            Some(At::Host(nanoseconds)) => return Ok(Time::new(self.host.clone(), *nanoseconds)),
            Some(At::Written(place, stamp)) => (self.clocks.get(*place), stamp.clone()),
        };
        drop(kept);
        // A driver may be asked, so not under the lock.
        match (clock, stamp.time()) {
            (Some((_, clock)), Ok(Some(nanoseconds))) => Ok(Time::new(clock.clone(), nanoseconds)),
            (_, Ok(_)) => Err(none("its device has no times on a clock")),
            // The value can be reached without the submission if somebody else has signalled it, where nobody may.
            (_, Err(Error::NotReady { .. })) => Err(none("its device has written none")),
            (_, Err(error)) => Err(error),
        }
    }
}

impl Shared {
    /// Where the times of its signals are, if it was made with timestamps.
    #[inline]
    pub(crate) fn times(&self) -> Option<&Times> {
        self.times.get().map(|times| &**times)
    }

    /// The same, where its signals are made in this process.
    #[inline]
    pub(crate) fn times_here(&self) -> Option<&Here> {
        self.times()?.here()
    }

    /// The host is about to signal `value`, which nobody stops it from any more; what is below it is reached.
    #[inline]
    pub(crate) fn time_by_host(&self, value: u64) {
        if let Some(times) = self.times_here() {
            let values = Interval {
                above: self.reached(),
                upto: value,
            };
            times.add(values, At::Host(HostClock::Monotonic.now()));
            // Of one that lies on no page other processes hear by who publishes it, and here is a lock.
            if !self.is_counted_here() {
                self.tell_times(value);
            }
        }
    }

    /// Tells other processes when values up to `reached` were reached, if there are any that want to know.
    #[inline]
    pub(crate) fn tell_times(&self, reached: u64) {
        if let Some(times) = self.times_here()
            && let Some(teller) = times.teller.get()
        {
            teller.tell(times, reached);
        }
    }

    /// What is pending will be told of before long.
    pub(crate) fn prepare_times(&self) {
        if let Some(teller) = self.times_here().and_then(|times| times.teller.get()) {
            teller.prepare();
        }
    }
}

impl Timeline {
    /// A timeline with timestamps remembers when its last so many signals were made.
    pub const TIMES: usize = 256;

    /// The same timeline with timestamps: its points tell [when they were reached](Point::time). For who puts a timeline together himself
    /// ([`Timeline::new`]); [`Device::clocked_timeline`](crate::backend::Device::clocked_timeline) makes one on a single device.
    ///
    /// `clocks` are those of the devices whose queues signal it by ports of their own. To be called before it is signalled: what is
    /// reached by then has no time, and what is on its way has none either.
    ///
    /// Such a timeline takes some ten kilobytes more, and each submission that signals it writes a time, and goes a longer way to the driver than
    /// others; see `docs/performance.md`. Nothing changes for other timelines.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if it has timestamps already.
    pub fn clocked(self, clocks: impl IntoIterator<Item = (DeviceId, Clock)>) -> Result<Self> {
        let clocks = clocks.into_iter().collect();
        let times = Here::new(clocks, self.shared().refresh());
        self.with(Times::Here(times))
    }

    /// The same timeline with timestamps that another process [tells](Timeline::tell_times), which alone signals it. Its points tell them on the host's clock, with
    /// an [error](Time::error) where a device has written them.
    ///
    /// # Errors
    /// As for [`Timeline::clocked`].
    pub fn clocked_elsewhere(self, times: SharedTimes) -> Result<Self> {
        // What is on the page already has a time, and may have been signalled since this was made.
        let first = self.shared().reached();
        self.with(Times::Elsewhere(Elsewhere::new(times, first)))
    }

    fn with(self, times: Times) -> Result<Self> {
        let shared = self.shared();
        if shared.times.set(Box::new(times)).is_err() {
            return Err(Error::Unsupported {
                object: shared.object.clone(),
                asked: "be given timestamps".into(),
                reason: "it has them already".into(),
            });
        }
        Ok(self)
    }

    /// Tells whoever has `times` when values of this timeline are reached: before it is [published](Timeline::publish), by the one process that signals it, and
    /// once. From then on whoever publishes what is reached tells that first, and a signal of the host is told before it is made. A device that
    /// writes the page's counter itself is faster than that; then the time follows by itself.
    ///
    /// What devices have written is converted to the host's clock as their clocks' samples so far have it. This call samples each clock,
    /// and blocks for up to a second per clock while the device is busy. A thread takes later samples.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a timeline without timestamps, or that tells others already; [`Error::ClockSilent`] if a
    /// clock that has no sample yet could not be read in that second; a driver error; [`Error::Native`] if the system
    /// gives no thread.
    pub fn tell_times(&self, times: SharedTimes) -> Result<()> {
        let shared = self.shared();
        let refuse = |reason: &str| Error::Unsupported {
            object: shared.object.clone(),
            asked: "tell other processes when it is signalled".into(),
            reason: reason.into(),
        };
        let Some(here) = shared.times_here() else {
            return Err(refuse("it was made without timestamps of this process"));
        };
        let clocks = here.clocks.iter().map(|(_, clock)| clock);
        let teller = Teller::new(times, shared.refresh(), clocks)?;
        let set = here.teller.set(teller);
        set.map_err(|_| refuse("it tells them already"))
    }

    /// True if it was made with timestamps.
    #[must_use]
    pub fn is_clocked(&self) -> bool {
        self.shared().times().is_some()
    }
}

impl Point<'_> {
    /// When it was reached, on the clock of whoever made the signal that reached it: the first signal at or past its value.
    ///
    /// A signal of a submission has the time that the queue's device wrote at its position: once the work, everything before it
    /// on the queue, and lower values of the timeline were finished. One that the host makes has the time of
    /// [the host's clock](HostClock::Monotonic) at which it was made; so has one that the engine makes for a queue without a port of the timeline.
    /// Whole nanoseconds, with the error that [`Time::to_host`] and [`Time::since`] tell. Times that one device writes never go back from a value to
    /// a higher one.
    ///
    /// ```
    /// use std::time::Duration;
    /// use syncline_core::backend::{Device as _, Queue as _};
    /// use syncline_core::{QueueKind, host};
    ///
    /// # fn main() -> syncline_core::Result<()> {
    /// let device = host::Device::new();
    /// let frames = device.clocked_timeline("frames")?;
    /// let queue = device.queue(QueueKind::Compute, "worker")?;
    /// for frame in 1..=2 {
    ///     queue.submit(&[], |_| Ok(()), &[frames.signal_at(frame)])?;
    /// }
    /// frames.at(2).wait(Duration::from_secs(10))?;
    /// let took = frames.at(2).time()?.since(&frames.at(1).time()?)?;
    /// println!("{} ns, give or take {} ns, {}", took.nanoseconds, took.error, took.axis);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Of a timeline that another process signals it is a time of the host's clock, as that process tells it: what a device has written there has been converted, and the
    /// time states the [error](Time::error) of that.
    ///
    /// Never waits for a device; what it may cost is said at [`Point::is_reached`] and, where timestamps come round, at
    /// [`Fence::time`](crate::Fence::time). Any thread may ask. Contract: M6.
    ///
    /// # Errors
    /// [`Error::TimesNotEnabled`] for a timeline without timestamps, and for an empty point; [`Error::NotReached`];
    /// [`Error::Failed`] or [`Error::Cancelled`] if it never will be reached; [`Error::TimeForgotten`] for what lies before the last
    /// [`Timeline::TIMES`] signals; [`Error::TimeNotTold`] for a signal of another process whose time has not come yet; [`Error::NoTime`] if whoever reached it wrote none: for the timeline's first value, a
    /// [claim](Timeline::claim) of the application's, and signals from outside of the engine; a driver error.
    pub fn time(self) -> Result<Time> {
        let Some(of) = self.of else {
            return Err(Error::TimesNotEnabled {
                timeline: Object::new("empty point", ""),
                value: self.value,
            });
        };
        let Some(times) = of.times() else {
            return Err(Error::TimesNotEnabled {
                timeline: of.object.clone(),
                value: self.value,
            });
        };
        if !self.is_reached()? {
            return Err(Error::NotReached {
                timeline: of.object.clone(),
                value: self.value,
                reached: of.reached(),
            });
        }
        match times {
            Times::Here(times) => times.of(&of.object, self.value),
            Times::Elsewhere(times) => times.of(of, self.value),
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
            matches!(forgotten, Err(Error::TimeForgotten { oldest: told, .. }) if told == oldest),
            "{forgotten:?}"
        );
        assert!(matches!(
            line.at(11).time(),
            Err(Error::TimeForgotten { .. })
        ));
        assert!(matches!(line.at(10).time(), Err(Error::NoTime { .. })));
        let shared = line.shared();
        let signals = &shared.times_here().unwrap().kept.lock().signals;
        assert_eq!(signals.len(), Timeline::TIMES + 1);
        assert_eq!(signals.capacity(), Timeline::TIMES + 1);
    }

    #[test]
    fn what_was_signalled_before_has_no_time() {
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
        let times = line.shared().times_here().unwrap();
        let kept = Timeline::TIMES as u64;
        for value in 1..=kept {
            line.signal(value).unwrap();
        }
        for _ in 0..10 {
            times.add(
                Interval {
                    above: kept,
                    upto: kept + 1,
                },
                At::Host(0),
            );
            times.expect_no_more(kept + 1);
            times.expect_no_more(kept + 1);
        }
        assert!((1..=kept).all(|value| line.at(value).time().is_ok()));
    }
}
