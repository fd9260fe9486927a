//! The clocks of the host, and samples of a device's clock together with one of them.

use std::time::{Duration, Instant};

use super::estimate::Estimate;
use crate::base::error::Result;
use crate::base::info::Uuid;

/// A clock of the host with which devices' clocks are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HostClock {
    /// `CLOCK_MONOTONIC`, the clock of [`Instant`].
    ///
    /// The system's clock discipline changes its speed: `ntpd` by up to 500 parts per million,
    /// `chronyd` by much more after a large offset. The clock stands still while the machine is
    /// suspended.
    Monotonic,
    /// `CLOCK_MONOTONIC_RAW`, which the system's clock discipline does not change.
    ///
    /// It runs at another speed than the clock of [`Instant`]. So compare its times only with
    /// [`HostClock::now`] of the same clock. Used if a driver offers no other clock.
    MonotonicRaw,
}

impl HostClock {
    /// The system's name of the clock.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Monotonic => "CLOCK_MONOTONIC",
            Self::MonotonicRaw => "CLOCK_MONOTONIC_RAW",
        }
    }

    /// The present time on this clock, in nanoseconds.
    #[must_use]
    pub fn now(self) -> i64 {
        nanoseconds(rustix::time::clock_gettime(self.id()))
    }

    /// Converts a time of this clock to [`HostClock::Monotonic`].
    ///
    /// Assumes that the speeds of the two clocks differ by at most 500 parts per million.
    pub(crate) fn to_monotonic(self, time: Estimate) -> Estimate {
        if self == Self::Monotonic {
            return time;
        }
        let before = Self::Monotonic.now();
        let own = self.now();
        let read = Sample::between(before, own, Self::Monotonic.now());
        let passed = own.saturating_sub(time.nanoseconds);
        // The true time may differ by its error, and the clocks drift in that time, too.
        let drifted = passed.unsigned_abs().saturating_add(time.error) / 2_000 + 1;
        let error = time.error.saturating_add(read.deviation);
        Estimate {
            nanoseconds: read.host.saturating_sub(passed),
            error: error.saturating_add(drifted),
        }
    }

    /// The resolution that the system reports, in nanoseconds; at least 1.
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

/// The times of a device's clock and of the host's clock at one moment, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// The time of the device's clock.
    pub device: i64,
    /// The time of the host's clock at that moment, within `deviation` in both directions.
    pub host: i64,
    /// The largest distance from the true host time.
    pub deviation: u64,
}

impl Sample {
    /// A sample from one reading of the device's clock between two readings of the host's clock.
    #[must_use]
    pub fn between(before: i64, device: i64, after: i64) -> Self {
        let width = after.saturating_sub(before).max(0);
        Self {
            device,
            host: before.saturating_add(width / 2),
            // The larger half, if the width is odd.
            deviation: (width - width / 2).cast_unsigned(),
        }
    }
}

/// The limits for the samples from which the best one is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effort {
    /// No further sample begins after this time. At least one sample is taken.
    pub limit: Duration,
    /// The largest number of samples.
    pub samples: u32,
    /// A sample with at most this deviation, in nanoseconds, ends the search.
    pub enough: u64,
}

impl Effort {
    /// Takes samples with `read` and returns the one with the smallest deviation.
    ///
    /// Ends at the first sample that is good enough, or when the time or the number is used up. So
    /// a noisy clock costs accuracy and not time.
    ///
    /// # Errors
    /// The error of the first sample. A later error ends the search with the best sample so far.
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

/// Reads a device's clock together with the host's. For backends.
pub trait Sampler: Send + Sync {
    /// One sample, in bounded time. Called by one thread at a time.
    ///
    /// # Errors
    /// A driver error.
    fn sample(&self) -> Result<Sample>;

    /// A sample of a time that the device wrote, between two readings of the host's clock.
    ///
    /// The device writes it as it writes stamps. The host's clock is read before the submission,
    /// and once the time is seen written. The call gives up after `within`.
    ///
    /// A clock checks [`Sampler::sample`] with it. If the two contradict each other, the clock
    /// samples with it alone ([`Clock::refused_calibration`]). `None`, the default, if the device
    /// writes no times, if [`Sampler::sample`] itself reads them so, or if it reads, unconverted,
    /// the counter that stamps use.
    ///
    /// [`Clock::refused_calibration`]: super::Clock::refused_calibration
    fn written(&self, within: Duration) -> Option<Result<Sample>> {
        let _ = within;
        None
    }

    /// The clock of the host that [`Sampler::sample`] reads.
    fn host_clock(&self) -> HostClock {
        HostClock::Monotonic
    }

    /// True if the device's clock is that clock of the host.
    ///
    /// Conversions are then exact and take no samples.
    fn is_host_clock(&self) -> bool {
        false
    }

    /// The longest time for which the device's clock may show one value, in nanoseconds.
    ///
    /// A time that the clock writes is older by less than that. Called after a sample.
    fn resolution(&self) -> u64 {
        1
    }

    /// The GPU that the clock belongs to, if it has a UUID that other APIs know, too.
    fn gpu(&self) -> Option<Uuid> {
        None
    }
}

/// A sample with the host time that was expected for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sampled {
    /// The sample.
    pub sample: Sample,
    /// The clock of the host that was read.
    pub host_clock: HostClock,
    /// The host time that the conversion gave for the device's time before this sample.
    ///
    /// `None` for the first sample.
    pub expected: Option<Estimate>,
}

impl Sampled {
    /// True if the interval of the sample overlaps the expected interval, or there is none.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.expected.is_none_or(|expected| {
            let off = expected.nanoseconds.abs_diff(self.sample.host);
            off <= expected.error.saturating_add(self.sample.deviation)
        })
    }
}

/// The sampler of the host's own clock.
pub(crate) struct SameClock;

impl Sampler for SameClock {
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

    use rstest::rstest;

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
        crate::Error::unsupported(Object::new("clock", "test"), "show a time", "it is a test")
    }

    /// The deviation of the best sample, and the number of samples read. A `None` in `deviations`
    /// is an error.
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
    fn best_returns_the_smallest_deviation_and_ends_at_a_good_sample() {
        let noisy = [70, 50, 90, 60, 80].map(Some);
        assert_eq!(best(EFFORT, &noisy), (Some(50), 5));
        let good_second = [70, 10, 3].map(Some);
        assert_eq!(best(EFFORT, &good_second), (Some(10), 2));
        assert_eq!(best(EFFORT, &[None]), (None, 1));
        assert_eq!(best(EFFORT, &[Some(70), None]), (Some(70), 2));
    }

    #[test]
    fn best_ends_at_the_time_limit() {
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
    fn between_returns_the_middle_and_the_larger_half() {
        let sample = Sample::between(10, 5, 21);
        assert_eq!((sample.device, sample.host, sample.deviation), (5, 15, 6));
        assert_eq!(Sample::between(7, 5, 7).deviation, 0);
    }

    #[rstest]
    #[case::monotonic(HostClock::Monotonic)]
    #[case::monotonic_raw(HostClock::MonotonicRaw)]
    fn to_monotonic_returns_the_time_within_its_error(#[case] clock: HostClock) {
        let before = HostClock::Monotonic.now();
        let own = clock.now();
        let after = HostClock::Monotonic.now();
        std::thread::sleep(Duration::from_millis(5));
        let exact = Estimate {
            nanoseconds: own,
            error: 0,
        };
        let converted = clock.to_monotonic(exact);
        let earliest = converted
            .nanoseconds
            .saturating_sub_unsigned(converted.error);
        let latest = converted
            .nanoseconds
            .saturating_add_unsigned(converted.error);
        assert!(
            earliest <= after && before <= latest,
            "{converted:?}, {before} to {after}"
        );
    }

    #[test]
    fn clocks_of_the_host_have_nearly_the_same_speed() {
        let clocks = [HostClock::Monotonic, HostClock::MonotonicRaw];
        let before = clocks.map(HostClock::now);
        std::thread::sleep(Duration::from_millis(20));
        let after = clocks.map(HostClock::now);
        let [passed, raw] = [0, 1].map(|at| after[at] - before[at]);
        // The thread may be interrupted between the two readings.
        assert!(passed >= 20_000_000 && raw >= 19_900_000, "{passed} {raw}");
        assert!(clocks.iter().all(|clock| clock.resolution() >= 1));
        assert_ne!(clocks[0].name(), clocks[1].name());
    }
}
