//! Two clocks read together.

use std::time::{Duration, Instant};

use super::Estimate;
use crate::base::error::Result;

/// A clock of the host that others are compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HostClock {
    /// `CLOCK_MONOTONIC`: what [`Instant`] shows. The system's clock discipline makes it faster or slower, by up to 500 parts per million
    /// (`ntpd`) as a rule; `chronyd` may correct a large offset by much more. It stands still while the machine is suspended.
    Monotonic,
    /// `CLOCK_MONOTONIC_RAW`: as the hardware counts, untouched by the system's clock discipline. It parts from what
    /// [`Instant`] shows, so times on it can only be compared with [`HostClock::now`] of it. Used where a driver offers no other.
    MonotonicRaw,
}

impl HostClock {
    /// The name that the system gives it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Monotonic => "CLOCK_MONOTONIC",
            Self::MonotonicRaw => "CLOCK_MONOTONIC_RAW",
        }
    }

    /// What it shows, in nanoseconds.
    #[must_use]
    pub fn now(self) -> i64 {
        nanoseconds(rustix::time::clock_gettime(self.id()))
    }

    /// What [`HostClock::Monotonic`] showed at a time of this clock. The two part by 500 parts per million at the most.
    pub(crate) fn to_monotonic(self, time: Estimate) -> Estimate {
        if self == Self::Monotonic {
            return time;
        }
        let before = Self::Monotonic.now();
        let own = self.now();
        let read = Sample::between(before, own, Self::Monotonic.now());
        let passed = own.saturating_sub(time.nanoseconds);
        let parted = passed.unsigned_abs() / 2_000 + 1;
        let error = time.error.saturating_add(read.deviation);
        Estimate {
            nanoseconds: read.host.saturating_sub(passed),
            error: error.saturating_add(parted),
        }
    }

    /// How many nanoseconds pass until it shows another time, as the system says; at least 1.
    #[must_use]
    pub fn resolution(self) -> u64 {
        let resolution = nanoseconds(rustix::time::clock_getres(self.id()));
        resolution.max(1).unsigned_abs()
    }

    const fn id(self) -> rustix::time::ClockId {
        match self {
            Self::Monotonic => rustix::time::ClockId::Monotonic,
            Self::MonotonicRaw => rustix::time::ClockId::MonotonicRaw,
        }
    }
}

fn nanoseconds(time: rustix::time::Timespec) -> i64 {
    time.tv_sec
        .saturating_mul(1_000_000_000)
        .saturating_add(time.tv_nsec)
}

/// What a device's clock and the host's have shown at the same time, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// The device's clock.
    pub device: i64,
    /// The host's clock, which stood no further than `deviation` from it, either way.
    pub host: i64,
    /// The largest deviation.
    pub deviation: u64,
}

impl Sample {
    /// The device's clock was read once, between two readings of the host's.
    #[must_use]
    pub fn between(before: i64, device: i64, after: i64) -> Self {
        let width = after.saturating_sub(before).max(0);
        Self {
            device,
            host: before.saturating_add(width / 2),
            // The larger half.
            deviation: (width - width / 2).cast_unsigned(),
        }
    }
}

/// How long to sample, and how often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effort {
    /// At least one sample is taken, and none begun after this time.
    pub limit: Duration,
    /// At most so many are taken.
    pub samples: u32,
    /// One with no larger a deviation is good enough, in nanoseconds.
    pub enough: u64,
}

impl Effort {
    /// Takes samples with `read` until one is good enough, or time or number is used up; the one with the smallest deviation
    /// counts. A clock that never settles so costs accuracy, not time.
    ///
    /// # Errors
    /// That of the first reading; a later one that fails ends it with what there is.
    pub fn best(self, mut read: impl FnMut() -> Result<Sample>) -> Result<Sample> {
        let started = Instant::now();
        let mut best = read()?;
        for _ in 1..self.samples {
            if best.deviation <= self.enough || started.elapsed() >= self.limit {
                break;
            }
            match read() {
                Ok(sample) if sample.deviation < best.deviation => best = sample,
                Ok(_) => {}
                Err(_) => break,
            }
        }
        Ok(best)
    }
}

/// The host's clock beside itself.
pub(crate) struct SameClock;

impl super::Sampler for SameClock {
    fn sample(&self) -> Result<Sample> {
        let now = self.host_clock().now();
        Ok(Sample {
            device: now,
            host: now,
            deviation: 0,
        })
    }

    fn is_host_clock(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::base::error::Object;

    const EFFORT: Effort = Effort {
        limit: Duration::from_secs(60),
        samples: 5,
        enough: 10,
    };

    fn of(deviation: u64) -> Sample {
        Sample {
            device: 0,
            host: 0,
            deviation,
        }
    }

    fn refused() -> crate::Error {
        crate::Error::Unsupported {
            object: Object::new("clock", "test"),
            asked: "show a time".into(),
            reason: "it is a test".into(),
        }
    }

    /// What is taken of readings with these deviations, `None` for an error, and how many are read.
    fn best(effort: Effort, deviations: &[Option<u64>]) -> (Option<u64>, usize) {
        let mut read = 0;
        let best = effort.best(|| {
            let deviation = deviations[read];
            read += 1;
            deviation.map(of).ok_or_else(refused)
        });
        (best.ok().map(|best| best.deviation), read)
    }

    #[test]
    fn the_best_sample_counts_and_a_good_one_is_enough() {
        let noisy = [70, 50, 90, 60, 80].map(Some);
        assert_eq!(best(EFFORT, &noisy), (Some(50), 5));
        let settles = [70, 10, 3].map(Some);
        assert_eq!(best(EFFORT, &settles), (Some(10), 2));
        assert_eq!(best(EFFORT, &[None]), (None, 1));
        assert_eq!(best(EFFORT, &[Some(70), None]), (Some(70), 2));
    }

    #[test]
    fn a_clock_that_never_settles_costs_no_time() {
        let effort = Effort {
            limit: Duration::from_millis(20),
            samples: u32::MAX,
            enough: 0,
        };
        let (started, mut deviation) = (Instant::now(), 1_000_000_000);
        let best = effort.best(|| {
            deviation -= 1;
            std::thread::sleep(Duration::from_millis(1));
            Ok(of(deviation))
        });
        assert_eq!(best.map(|best| best.deviation).ok(), Some(deviation));
        assert!(deviation >= 1_000_000_000 - 21);
        assert!(started.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn a_bracket_is_its_middle_and_its_larger_half() {
        let sample = Sample::between(10, 5, 21);
        assert_eq!((sample.device, sample.host, sample.deviation), (5, 15, 6));
        assert_eq!(Sample::between(7, 5, 7).deviation, 0);
    }

    #[test]
    fn a_time_of_another_clock_of_the_host_is_where_it_was() {
        for clock in [HostClock::Monotonic, HostClock::MonotonicRaw] {
            let before = HostClock::Monotonic.now();
            let own = clock.now();
            let after = HostClock::Monotonic.now();
            std::thread::sleep(Duration::from_millis(5));
            let exact = Estimate {
                nanoseconds: own,
                error: 0,
            };
            let told = clock.to_monotonic(exact);
            let earliest = told.nanoseconds.saturating_sub_unsigned(told.error);
            let latest = told.nanoseconds.saturating_add_unsigned(told.error);
            assert!(
                earliest <= after && before <= latest,
                "{clock:?}: {told:?}, {before} to {after}"
            );
        }
    }

    #[test]
    fn clocks_of_the_host_rise_at_nearly_the_same_speed() {
        let clocks = [HostClock::Monotonic, HostClock::MonotonicRaw];
        let before = clocks.map(HostClock::now);
        std::thread::sleep(Duration::from_millis(20));
        let after = clocks.map(HostClock::now);
        let [passed, raw] = [0, 1].map(|at| after[at] - before[at]);
        // Between the readings of the two the thread may be interrupted.
        assert!(passed >= 20_000_000 && raw >= 19_900_000, "{passed} {raw}");
        assert!(clocks.iter().all(|clock| clock.resolution() >= 1));
        assert_ne!(clocks[0].name(), clocks[1].name());
    }
}
