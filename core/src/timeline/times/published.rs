//! Publication of times to other processes: the signalling side and the waiting side.

use std::collections::VecDeque;

use super::local::{BEFORE_THE_FIRST, LocalTimes, NextSignal};
use super::page::{ENTRIES, Lookup, SharedTimes};
use super::sampling::Sampling;
use crate::base::error::{Error, Object, Result};
use crate::base::sync::Mutex;
use crate::clock::{Clock, HostClock, SameClock, Time};
use crate::timeline::state::Shared;

/// Publishes when values were reached (M6).
///
/// A thread that sees a value reached publishes its time before it publishes the value. The time of
/// a host signal is published before the signal is made.
pub(crate) struct TimePublisher {
    page: SharedTimes,
    progress: Mutex<Progress>,
    /// Samples the device clocks. `None` if the host's clock is the only one.
    sampling: Option<Sampling>,
}

/// What has been published so far.
struct Progress {
    /// The number of published signals.
    count: u64,
    /// Everything known about values up to this is on the page.
    upto: u64,
    /// Values up to this have been forgotten.
    forgotten: u64,
    /// The published time of the last signal.
    last: i64,
    /// The values of the signals on the page, oldest first.
    on_page: VecDeque<u64>,
}

impl TimePublisher {
    /// For a timeline that is at `reached`. Samples each clock once, which may block.
    ///
    /// # Errors
    /// A driver error of a clock; [`Error::Native`] if no thread can be started.
    pub(super) fn new<'c>(
        page: SharedTimes,
        reached: u64,
        clocks: impl Iterator<Item = &'c Clock>,
    ) -> Result<Self> {
        let others = clocks.filter(|clock| !clock.is_host_clock());
        let sampling = Sampling::of(others.map(Clock::without_owner).collect())?;
        page.set_upto(reached);
        Ok(Self {
            sampling,
            page,
            progress: Mutex::new(Progress {
                count: 0,
                upto: reached,
                forgotten: 0,
                last: i64::MIN,
                // The final capacity, so that publication does not allocate.
                on_page: VecDeque::with_capacity(ENTRIES),
            }),
        })
    }

    /// Refreshes the clock samples, because the time of submitted work is converted soon.
    pub(super) fn prepare(&self) {
        if let Some(sampling) = &self.sampling {
            sampling.refresh();
        }
    }

    /// Publishes each signal of `times` up to `reached` once.
    ///
    /// Reads device times, which may be a driver call.
    pub(super) fn publish(&self, times: &LocalTimes, reached: u64) {
        loop {
            let after = self.progress.lock().upto;
            if after >= reached {
                return;
            }
            // Not under the lock, because this may call a driver.
            let (next, forgotten) = times.next(after, reached);
            let mut progress = self.progress.lock();
            if progress.upto == after {
                self.write_next(&mut progress, next, forgotten, reached);
            }
        }
    }

    fn write_next(
        &self,
        progress: &mut Progress,
        next: Option<NextSignal>,
        forgotten: Option<u64>,
        reached: u64,
    ) {
        if let Some(forgotten) = forgotten.filter(|forgotten| *forgotten > progress.upto) {
            // More signals were on their way than are remembered.
            self.forget(progress, forgotten);
        }
        match next {
            None => progress.upto = reached,
            Some(NextSignal { values, at }) => {
                progress.upto = values.upto;
                if let Some(at) = at {
                    let oldest = match progress.on_page.len() {
                        ENTRIES => progress.on_page.pop_front(),
                        _ => None,
                    };
                    if let Some(oldest) = oldest {
                        self.forget(progress, oldest);
                    }
                    // Times never go back as values grow, and none lies in the future.
                    let at = at
                        .at_most(HostClock::Monotonic.now())
                        .at_least(progress.last);
                    progress.last = at.nanoseconds;
                    progress.on_page.push_back(values.upto);
                    self.page.write(progress.count, values, at);
                    progress.count += 1;
                }
            }
        }
        self.page.set_upto(progress.upto);
    }

    fn forget(&self, progress: &mut Progress, upto: u64) {
        if upto > progress.forgotten {
            progress.forgotten = upto;
            self.page.forget(upto);
        }
    }
}

/// The times of a timeline that another process signals.
pub(crate) struct RemoteTimes {
    page: SharedTimes,
    /// The host's clock.
    clock: Clock,
    /// The value that was reached before the first time was published.
    first: u64,
}

impl RemoteTimes {
    pub(super) fn new(page: SharedTimes, first: u64) -> Self {
        Self {
            page,
            clock: Clock::new(Object::new("clock", "host"), SameClock),
            first,
        }
    }

    /// When `value` of `of` was reached. It must be reached.
    pub(super) fn of(&self, of: &Shared, value: u64) -> Result<Time> {
        let none = |reason: &str| Error::NoTime {
            timeline: of.object().clone(),
            value,
            reason: reason.into(),
        };
        if value <= self.first {
            return Err(none(BEFORE_THE_FIRST));
        }
        // In this order: the signalling process publishes times before it publishes a failure.
        let is_over = of.is_failed();
        match self.page.of(value) {
            Lookup::At(at) => Ok(Time::within(self.clock.clone(), at.nanoseconds, at.error)),
            Lookup::Forgotten { oldest } => Err(Error::TimeForgotten {
                timeline: of.object().clone(),
                value,
                kept: crate::timeline::Timeline::TIMES,
                oldest,
            }),
            Lookup::Untimed => Err(none("the process that signals it knows of none")),
            Lookup::NotYet if is_over => Err(none(
                "it has failed, and the process that signals it had not published the time by then",
            )),
            Lookup::NotYet => Err(Error::TimeNotTold {
                timeline: of.object().clone(),
                value,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicI64, Ordering};

    use smallvec::smallvec;

    use super::*;
    use crate::api::Device as _;
    use crate::backend::Sampler;
    use crate::base::info::DeviceId;
    use crate::clock::Estimate;
    use crate::clock::Sample;
    use crate::port::Stamp;
    use crate::timeline::interval::Interval;

    /// A clock one second behind the host's, with a deviation of 1 µs and a constant error of 700
    /// ns.
    struct LateClock;

    impl Sampler for LateClock {
        fn sample(&self) -> Result<Sample> {
            let now = HostClock::Monotonic.now();
            Ok(Sample {
                device: now - 1_000_000_000,
                host: now + 700,
                deviation: 1_000,
            })
        }
    }

    /// A time that a device has written on that clock; 0 if it is not written yet.
    struct Written(AtomicI64);

    impl Stamp for Written {
        fn nanoseconds_since(&self, _: &dyn Stamp) -> Result<i64> {
            Ok(0)
        }

        fn time(&self) -> Result<Option<i64>> {
            match self.0.load(Ordering::Relaxed) {
                0 => Err(Error::not_ready(Object::new("stamp", "unwritten"))),
                at => Ok(Some(at)),
            }
        }
    }

    struct Setup {
        device: DeviceId,
        times: LocalTimes,
        publisher: TimePublisher,
        page: SharedTimes,
    }

    fn setup() -> Setup {
        let device = crate::host::Device::new().id();
        let clock = Clock::new(Object::new("clock", "late"), LateClock);
        let page = SharedTimes::new().unwrap();
        Setup {
            device,
            times: LocalTimes::new(smallvec![(device, clock.clone())], 0),
            publisher: TimePublisher::new(page.clone(), 0, [&clock].into_iter()).unwrap(),
            page,
        }
    }

    impl Setup {
        /// Expects a device to write `written` for the values above `above` and up to `upto`.
        fn expect(&self, above: u64, upto: u64, written: i64) {
            let stamp: Arc<dyn Stamp> = Arc::new(Written(written.into()));
            self.times
                .expect(Interval { above, upto }, self.device, &stamp);
        }

        fn at(&self, value: u64) -> Estimate {
            match self.page.of(value) {
                Lookup::At(at) => at,
                other => panic!("{value}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_device_time_is_published_on_the_host_clock() {
        let setup = setup();
        for value in 1..50 {
            let now = HostClock::Monotonic.now();
            setup.expect(value - 1, value, now - 1_000_000_000);
            setup.publisher.publish(&setup.times, value);
            let at = setup.at(value);
            assert!(at.nanoseconds.abs_diff(now) <= at.error, "{at:?} of {now}");
            // The clock's deviation, its resolution, and the drift in so short a time.
            assert!(at.error < 1_000_000, "{at:?}");
        }
    }

    /// Exactly the reached signals are published, once and in order. A signal without a time is
    /// untimed.
    #[test]
    fn reached_signals_are_published() {
        let setup = setup();
        let past = HostClock::Monotonic.now() - 2_000_000_000;
        setup.expect(0, 3, past);
        setup.expect(3, 4, 0);
        setup.expect(6, 9, past + 100);
        for reached in [2, 3, 3, 4, 6, 8] {
            setup.publisher.publish(&setup.times, reached);
        }
        assert_eq!(setup.at(1), setup.at(3));
        for value in [4, 5, 6] {
            assert_eq!(setup.page.of(value), Lookup::Untimed, "{value}");
        }
        assert_eq!(setup.page.of(9), Lookup::NotYet);
        setup.publisher.publish(&setup.times, 9);
        assert_eq!(setup.at(9).nanoseconds - setup.at(3).nanoseconds, 100);
        assert_eq!(setup.at(9), setup.at(7));
    }

    /// Two times may convert to the wrong order, or to the future.
    #[test]
    fn times_never_go_back_nor_ahead() {
        let setup = setup();
        let now = HostClock::Monotonic.now() - 1_000_000_000;
        setup.expect(0, 1, now);
        setup.expect(1, 2, now - 5_000_000);
        setup.expect(2, 3, now + 60_000_000_000);
        setup.publisher.publish(&setup.times, 3);
        let [one, two, three] = [1, 2, 3].map(|value| setup.at(value));
        assert!(one.nanoseconds <= two.nanoseconds && two.nanoseconds <= three.nanoseconds);
        assert!(two.error >= 5_000_000, "{two:?} hides that it was moved");
        assert!(three.nanoseconds <= HostClock::Monotonic.now());
    }

    /// With more signals on their way than are remembered, the first are forgotten before they are
    /// reached.
    #[test]
    fn a_forgotten_signal_is_not_published() {
        let setup = setup();
        let count = 3 * ENTRIES as u64;
        let past = HostClock::Monotonic.now() - 2_000_000_000;
        for value in 1..=count {
            setup.expect(value - 1, value, past + value.cast_signed());
        }
        setup.publisher.publish(&setup.times, 5);
        assert!(matches!(setup.page.of(5), Lookup::Forgotten { .. }));
        setup.publisher.publish(&setup.times, count);
        assert!(matches!(setup.page.of(7), Lookup::Forgotten { .. }));
        for value in count - ENTRIES as u64 + 1..=count {
            setup.at(value);
        }
    }

    /// Each signal is published once and in order by any number of threads.
    #[test]
    fn each_signal_is_published_once_by_many_threads() {
        let setup = setup();
        let count = 20_000;
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for reached in 1..=count {
                        let last = setup.times.last();
                        setup.publisher.publish(&setup.times, reached.min(last));
                        // It may be published already, or not yet, or be forgotten.
                        let found = setup.page.of(last);
                        assert!(last == 0 || found != Lookup::Untimed, "{found:?} of {last}");
                    }
                });
            }
            for value in 1..=count {
                let at = HostClock::Monotonic.now();
                let values = Interval {
                    above: value - 1,
                    upto: value,
                };
                setup.times.add_by_host(values);
                setup.publisher.publish(&setup.times, value);
                assert!(setup.at(value).nanoseconds >= at);
            }
        });
        assert_eq!(setup.publisher.progress.lock().count, count);
    }
}
