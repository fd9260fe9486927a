//! Two clocks read together.

use std::time::{Duration, Instant};

use crate::error::Result;

/// A clock of the host that others are compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HostClock {
    /// `CLOCK_MONOTONIC`: what [`Instant`] shows. The system's clock discipline may make it up to 500 parts per million faster
    /// or slower.
    Monotonic,
}

impl HostClock {
    /// The name that the system gives it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Monotonic => "CLOCK_MONOTONIC",
        }
    }

    /// What it shows, in nanoseconds.
    #[must_use]
    pub fn now(self) -> i64 {
        let id = match self {
            Self::Monotonic => rustix::time::ClockId::Monotonic,
        };
        let now = rustix::time::clock_gettime(id);
        now.tv_sec
            .saturating_mul(1_000_000_000)
            .saturating_add(now.tv_nsec)
    }
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
}
