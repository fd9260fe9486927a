//! The times of signals that this process makes.

use std::collections::VecDeque;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::base::error::{Error, Object, Result};
use crate::base::info::DeviceId;
use crate::base::sync::Mutex;
use crate::clock::{Clock, Estimate, HostClock, SameClock, Time};
use crate::port::Stamp;
use crate::timeline::Timeline;
use crate::timeline::interval::Interval;

/// Why the initial value of a timeline has no time.
pub(super) const BEFORE_THE_FIRST: &str = "it was there before the first signal that has a time";

/// The times of signals that this process makes.
pub(crate) struct LocalTimes {
    /// The clocks of the devices that may write times.
    clocks: SmallVec<[(DeviceId, Clock); 2]>,
    /// The clock of host signals.
    host: Clock,
    /// The value that was reached before the first signal with a time.
    first: u64,
    kept: Mutex<Kept>,
}

struct Kept {
    /// Holds one more than [`Timeline::TIMES`], because the last one may still be refused.
    signals: VecDeque<TimedSignal>,
    /// The value of the last signal that was removed.
    forgotten: Option<u64>,
}

/// A signal with its time.
#[derive(Clone)]
struct TimedSignal {
    values: Interval,
    at: At,
}

#[derive(Clone)]
enum At {
    /// Written by a device, on the clock with this index in [`LocalTimes::clocks`].
    Written(usize, Arc<dyn Stamp>),
    /// Nanoseconds on the host's clock.
    Host(i64),
}

/// The next signal to publish.
pub(super) struct NextSignal {
    pub(super) values: Interval,
    /// `None` if its time is unknown.
    pub(super) at: Option<Estimate>,
}

impl LocalTimes {
    pub(super) fn new(clocks: SmallVec<[(DeviceId, Clock); 2]>, first: u64) -> Self {
        let given = clocks.iter().map(|(_, clock)| clock);
        let host = given.into_iter().find(|clock| clock.is_host_clock());
        let fresh = || Clock::new(Object::new("clock", "host"), SameClock);
        Self {
            host: host.cloned().unwrap_or_else(fresh),
            clocks,
            first,
            kept: Mutex::new(Kept {
                // The final capacity, so that no signal allocates.
                signals: VecDeque::with_capacity(Timeline::TIMES + 1),
                forgotten: None,
            }),
        }
    }

    /// The index of the clock of `device`.
    fn clock_index(&self, device: DeviceId) -> Option<usize> {
        self.clocks.iter().position(|(of, _)| *of == device)
    }

    /// Refuses a signal by `queue` of `device` if that device's clock is not among the timeline's
    /// clocks.
    pub(crate) fn require(
        &self,
        timeline: &Object,
        device: DeviceId,
        queue: &Object,
    ) -> Result<()> {
        if self.clock_index(device).is_some() {
            return Ok(());
        }
        Err(Error::unsupported(
            queue,
            format!("write when {timeline} is signalled"),
            "the timeline was made without the clock of its device",
        ))
    }

    /// Adds a signal of `values`. Its submission goes to a driver of `device` next.
    ///
    /// The device will write `stamp`.
    pub(crate) fn expect(&self, values: Interval, device: DeviceId, stamp: &Arc<dyn Stamp>) {
        if let Some(place) = self.clock_index(device) {
            self.add(values, At::Written(place, stamp.clone()));
        }
    }

    /// Removes the signal of `value`, because the driver has refused its submission.
    pub(crate) fn forget_refused(&self, value: u64) {
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
        // Not under the lock: this may drop the last reference to a queue and its device.
        drop(refused);
    }

    /// Adds a signal of the host, which is made next and cannot be refused.
    pub(super) fn add_by_host(&self, values: Interval) {
        self.add(values, At::Host(HostClock::Monotonic.now()));
    }

    /// The clocks of the devices that may write times.
    pub(super) fn clocks(&self) -> impl Iterator<Item = &Clock> {
        self.clocks.iter().map(|(_, clock)| clock)
    }

    fn add(&self, values: Interval, at: At) {
        let mut kept = self.kept.lock();
        let mut oldest = None;
        if kept.signals.len() > Timeline::TIMES {
            oldest = kept.signals.pop_front();
            kept.forgotten = oldest.as_ref().map(|oldest| oldest.values.upto);
        }
        kept.signals.push_back(TimedSignal { values, at });
        drop(kept);
        // As in `forget_refused`.
        drop(oldest);
    }

    /// When `value` of `timeline` was reached. It must be reached.
    pub(super) fn of(&self, timeline: &Object, value: u64) -> Result<Time> {
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
                    "it was signalled by a submission that the application made itself, or from outside the engine",
                ));
            }
            Some(At::Host(nanoseconds)) => return Ok(Time::new(self.host.clone(), *nanoseconds)),
            Some(At::Written(place, stamp)) => (self.clocks.get(*place), stamp.clone()),
        };
        drop(kept);
        // Not under the lock, because this may call a driver.
        match (clock, stamp.time()) {
            (Some((_, clock)), Ok(Some(nanoseconds))) => Ok(Time::new(clock.clone(), nanoseconds)),
            (_, Ok(_)) => Err(none("its device has no times on a clock")),
            // The value is reached without the submission if another process has signalled it
            // without permission.
            (_, Err(Error::NotReady { .. })) => Err(none("its device has written none")),
            (_, Err(error)) => Err(error),
        }
    }

    /// The first signal after `after` and up to `reached`, and the value up to which all are
    /// forgotten.
    ///
    /// Reads the time of the signal, which may be a driver call.
    pub(super) fn next(&self, after: u64, reached: u64) -> (Option<NextSignal>, Option<u64>) {
        let kept = self.kept.lock();
        let found = kept
            .signals
            .partition_point(|signal| signal.values.upto <= after);
        let found = kept.signals.get(found).cloned();
        let found = found.filter(|signal| signal.values.upto <= reached);
        let forgotten = kept.forgotten;
        // Not under the lock, because the next line may call a driver.
        drop(kept);
        let next = found.map(|signal| NextSignal {
            values: signal.values,
            at: self.on_host_clock(&signal.at),
        });
        (next, forgotten)
    }

    /// The time of a reached signal on the host's clock, which all processes share.
    fn on_host_clock(&self, at: &At) -> Option<Estimate> {
        match at {
            At::Host(nanoseconds) => Some(Estimate {
                nanoseconds: *nanoseconds,
                error: 0,
            }),
            At::Written(place, stamp) => {
                let (_, clock) = self.clocks.get(*place)?;
                clock.to_monotonic(stamp.time().ok()??)
            }
        }
    }

    /// The value of the last signal; 0 without one.
    #[cfg(test)]
    pub(super) fn last(&self) -> u64 {
        let kept = self.kept.lock();
        kept.signals.back().map_or(0, |last| last.values.upto)
    }

    /// The number of remembered signals, and for how many there is memory.
    #[cfg(test)]
    pub(super) fn size(&self) -> (usize, usize) {
        let kept = self.kept.lock();
        (kept.signals.len(), kept.signals.capacity())
    }
}
