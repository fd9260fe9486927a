//! Times that one process tells others: by who signals the timeline, and as those have it who wait for it there.

use std::collections::VecDeque;

use super::page::{ROOM, SharedTimes, Told};
use super::sampling::Sampling;
use super::{At, Here, Signalled};
use crate::base::error::{Error, Object, Result};
use crate::base::sync::Mutex;
use crate::clock::{Clock, Estimate, HostClock, SameClock, Time};
use crate::timeline::state::{Interval, Shared};

/// What tells other processes when values were reached. What is known to be reached is told by whoever has noticed that, before he says it to them;
/// a signal of the host is told before it is made.
pub(super) struct Teller {
    page: SharedTimes,
    told: Mutex<Progress>,
    /// Unless all clocks are the host's.
    sampling: Option<Sampling>,
}

/// How far one is with that.
struct Progress {
    /// How many signals were told.
    count: u64,
    /// Of no value up to this is there any more to tell.
    upto: u64,
    /// Nothing is told any more of values up to this.
    forgotten: u64,
    /// When the last one was made, as it was told.
    last: i64,
    /// The values of those that stand on the page, the oldest first.
    standing: VecDeque<u64>,
}

/// What is told next.
struct Next {
    values: Interval,
    /// `None` if nobody wrote it.
    at: Option<Estimate>,
}

impl Teller {
    /// For a timeline that is at `reached`. Samples the clocks once, and so takes as long as that does.
    ///
    /// # Errors
    /// A driver error of a clock; [`Error::Native`] if the system gives no thread.
    pub(super) fn new<'c>(
        page: SharedTimes,
        reached: u64,
        clocks: impl Iterator<Item = &'c Clock>,
    ) -> Result<Self> {
        page.settle(reached);
        let others = clocks.filter(|clock| !clock.is_the_hosts());
        Ok(Self {
            sampling: Sampling::of(others.map(Clock::keeping_nobody).collect())?,
            page,
            told: Mutex::new(Progress {
                count: 0,
                upto: reached,
                forgotten: 0,
                last: i64::MIN,
                // All that there ever will be.
                standing: VecDeque::with_capacity(ROOM),
            }),
        })
    }

    /// Work is on its way, whose time will be converted soon.
    pub(super) fn prepare(&self) {
        if let Some(sampling) = &self.sampling {
            sampling.refresh();
        }
    }

    /// Tells of all signals up to `reached`, as `times` has them; each once, whoever comes. Asks drivers for times that they have written.
    pub(super) fn tell(&self, times: &Here, reached: u64) {
        loop {
            let after = self.told.lock().upto;
            if after >= reached {
                return;
            }
            // Not under the lock: a driver may be asked.
            let (next, forgotten) = times.next(after, reached);
            let next = next.map(|signal| Next {
                values: signal.values,
                at: times.on_every_host(&signal.at),
            });
            let mut told = self.told.lock();
            if told.upto == after {
                self.page_in(&mut told, next, forgotten, reached);
            }
        }
    }

    fn page_in(
        &self,
        told: &mut Progress,
        next: Option<Next>,
        forgotten: Option<u64>,
        reached: u64,
    ) {
        if let Some(forgotten) = forgotten.filter(|forgotten| *forgotten > told.upto) {
            // More were on their way than are remembered.
            self.forget(told, forgotten);
        }
        match next {
            None => told.upto = reached,
            Some(Next { values, at }) => {
                told.upto = values.upto;
                if let Some(at) = at {
                    let oldest = match told.standing.len() {
                        ROOM => told.standing.pop_front(),
                        _ => None,
                    };
                    if let Some(oldest) = oldest {
                        self.forget(told, oldest);
                    }
                    // Times never go back as values grow, and none is told of what has yet to come.
                    let at = at.at_most(HostClock::Monotonic.now()).at_least(told.last);
                    told.last = at.nanoseconds;
                    told.standing.push_back(values.upto);
                    self.page.write(told.count, values, at);
                    told.count += 1;
                }
            }
        }
        self.page.settle(told.upto);
    }

    fn forget(&self, told: &mut Progress, upto: u64) {
        if upto > told.forgotten {
            told.forgotten = upto;
            self.page.forget(upto);
        }
    }
}

impl Here {
    /// The signal that is the first behind `after`, if it is none above `reached`, and up to where all is forgotten.
    fn next(&self, after: u64, reached: u64) -> (Option<Signalled>, Option<u64>) {
        let kept = self.kept.lock();
        let found = kept
            .signals
            .partition_point(|signal| signal.values.upto <= after);
        let found = kept.signals.get(found).cloned();
        let found = found.filter(|signal| signal.values.upto <= reached);
        (found, kept.forgotten)
    }

    /// When a signal was made that is reached, on the clock that every process has.
    fn on_every_host(&self, at: &At) -> Option<Estimate> {
        match at {
            At::Host(nanoseconds) => Some(Estimate {
                nanoseconds: *nanoseconds,
                error: 0,
            }),
            At::Written(place, stamp) => {
                let (_, clock) = self.clocks.get(*place)?;
                clock.on_every_host(stamp.time().ok()??)
            }
        }
    }
}

/// The times of a timeline that another process signals.
pub(crate) struct Elsewhere {
    page: SharedTimes,
    /// The host's.
    clock: Clock,
    /// What was reached when there were none yet.
    first: u64,
}

impl Elsewhere {
    pub(super) fn new(page: SharedTimes, first: u64) -> Self {
        Self {
            page,
            clock: Clock::new(Object::new("clock", "host"), SameClock),
            first,
        }
    }

    /// When `value` of `of` was reached, which it is.
    pub(super) fn of(&self, of: &Shared, value: u64) -> Result<Time> {
        let none = |reason: &str| Error::NoTime {
            timeline: of.object.clone(),
            value,
            reason: reason.into(),
        };
        if value <= self.first {
            return Err(none(super::BEFORE_THE_FIRST));
        }
        // In this order: who signals tells times before he says that it has failed.
        let is_over = of.is_failed();
        match self.page.of(value) {
            Told::At(at) => Ok(Time::within(self.clock.clone(), at.nanoseconds, at.error)),
            Told::Forgotten { oldest } => Err(Error::TimeForgotten {
                timeline: of.object.clone(),
                value,
                kept: crate::timeline::Timeline::TIMES,
                oldest,
            }),
            Told::Nobody => Err(none("the process that signals it knows of none")),
            Told::NotYet if is_over => Err(none(
                "it has failed, and the process that signals it had not told by then",
            )),
            Told::NotYet => Err(Error::TimeNotTold {
                timeline: of.object.clone(),
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
    use crate::base::info::DeviceId;
    use crate::clock::{Sample, Sampler};
    use crate::port::Stamp;

    /// A clock that shows the host's time, a second late, and is read to a microsecond: 700 ns off, always to the same side.
    struct Late;

    impl Sampler for Late {
        fn sample(&self) -> Result<Sample> {
            let now = HostClock::Monotonic.now();
            Ok(Sample {
                device: now - 1_000_000_000,
                host: now + 700,
                deviation: 1_000,
            })
        }
    }

    /// What a device has written, on that clock.
    struct Written(AtomicI64);

    impl Stamp for Written {
        fn nanoseconds_since(&self, _: &dyn Stamp) -> Result<i64> {
            Ok(0)
        }

        fn time(&self) -> Result<Option<i64>> {
            match self.0.load(Ordering::Relaxed) {
                0 => Err(Error::NotReady {
                    fence: Object::new("stamp", "unwritten"),
                }),
                at => Ok(Some(at)),
            }
        }
    }

    struct Bench {
        device: DeviceId,
        here: Here,
        teller: Teller,
        page: SharedTimes,
    }

    fn bench() -> Bench {
        let device = crate::host::Device::new().id();
        let clock = Clock::new(Object::new("clock", "late"), Late);
        let page = SharedTimes::new().unwrap();
        Bench {
            device,
            here: Here::new(smallvec![(device, clock.clone())], 0),
            teller: Teller::new(page.clone(), 0, [&clock].into_iter()).unwrap(),
            page,
        }
    }

    impl Bench {
        /// The device is to write this for the values that end with `upto`.
        fn expect(&self, above: u64, upto: u64, written: i64) {
            let stamp: Arc<dyn Stamp> = Arc::new(Written(written.into()));
            self.here
                .expect(Interval { above, upto }, self.device, &stamp);
        }

        fn at(&self, value: u64) -> Estimate {
            match self.page.of(value) {
                Told::At(at) => at,
                other => panic!("of {value} it is told: {other:?}"),
            }
        }
    }

    #[test]
    fn a_devices_time_is_told_on_the_hosts_clock() {
        let bench = bench();
        for value in 1..50 {
            let now = HostClock::Monotonic.now();
            bench.expect(value - 1, value, now - 1_000_000_000);
            bench.teller.tell(&bench.here, value);
            let at = bench.at(value);
            assert!(at.nanoseconds.abs_diff(now) <= at.error, "{at:?} of {now}");
            // The clock, its resolution, and what the two may have parted by in so short a time.
            assert!(at.error < 1_000_000, "{at:?}");
        }
    }

    /// What is reached is told and no more; once, in order, and what nobody wrote is known to have no time.
    #[test]
    fn what_is_reached_is_told() {
        let bench = bench();
        let past = HostClock::Monotonic.now() - 2_000_000_000;
        bench.expect(0, 3, past);
        bench.expect(3, 4, 0);
        bench.expect(6, 9, past + 100);
        for reached in [2, 3, 3, 4, 6, 8] {
            bench.teller.tell(&bench.here, reached);
        }
        assert_eq!(bench.at(1), bench.at(3));
        for value in [4, 5, 6] {
            assert_eq!(bench.page.of(value), Told::Nobody, "{value}");
        }
        assert_eq!(bench.page.of(9), Told::NotYet);
        bench.teller.tell(&bench.here, 9);
        assert_eq!(bench.at(9).nanoseconds - bench.at(3).nanoseconds, 100);
        assert_eq!(bench.at(9), bench.at(7));
    }

    /// Each by what its samples say, two times may come to be told in the wrong order, or in the future.
    #[test]
    fn times_never_go_back_nor_ahead() {
        let bench = bench();
        let now = HostClock::Monotonic.now() - 1_000_000_000;
        bench.expect(0, 1, now);
        bench.expect(1, 2, now - 5_000_000);
        bench.expect(2, 3, now + 60_000_000_000);
        bench.teller.tell(&bench.here, 3);
        let [one, two, three] = [1, 2, 3].map(|value| bench.at(value));
        assert!(one.nanoseconds <= two.nanoseconds && two.nanoseconds <= three.nanoseconds);
        assert!(two.error >= 5_000_000, "{two:?} hides that it was moved");
        assert!(three.nanoseconds <= HostClock::Monotonic.now());
    }

    /// More on their way than are remembered: the first are forgotten before they are reached, as in this process.
    #[test]
    fn what_is_not_remembered_here_is_not_told() {
        let bench = bench();
        let many = 3 * ROOM as u64;
        let past = HostClock::Monotonic.now() - 2_000_000_000;
        for value in 1..=many {
            bench.expect(value - 1, value, past + value.cast_signed());
        }
        bench.teller.tell(&bench.here, 5);
        assert!(matches!(bench.page.of(5), Told::Forgotten { .. }));
        bench.teller.tell(&bench.here, many);
        assert!(matches!(bench.page.of(7), Told::Forgotten { .. }));
        for value in many - ROOM as u64 + 1..=many {
            bench.at(value);
        }
    }

    /// However many threads tell, each signal is told once, in order.
    #[test]
    fn all_may_tell() {
        let bench = bench();
        let many = 20_000;
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for reached in 1..=many {
                        let last = bench.here.last();
                        bench.teller.tell(&bench.here, reached.min(last));
                        // It may have been told of, or not yet, or be long forgotten.
                        let told = bench.page.of(last);
                        assert!(last == 0 || told != Told::Nobody, "{told:?} of {last}");
                    }
                });
            }
            for value in 1..=many {
                let at = HostClock::Monotonic.now();
                let values = Interval {
                    above: value - 1,
                    upto: value,
                };
                bench.here.add(values, At::Host(at));
                bench.teller.tell(&bench.here, value);
                assert!(bench.at(value).nanoseconds >= at);
            }
        });
        assert_eq!(bench.teller.told.lock().count, many);
    }

    impl Here {
        fn last(&self) -> u64 {
            let kept = self.kept.lock();
            kept.signals.back().map_or(0, |last| last.values.upto)
        }
    }
}
