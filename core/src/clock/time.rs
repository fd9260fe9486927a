//! Times on devices' clocks, and the interval between two of them.

use std::fmt;

use super::device_clock::Clock;
use super::estimate::Estimate;
use crate::base::error::{Error, Result};

/// A time that a device has written, on its [clock](Clock), in nanoseconds.
///
/// An integer, so that differences stay exact however long the device has been running. A clone is
/// cheap. The value keeps the clock alive, and so the device.
#[derive(Clone)]
pub struct Time {
    clock: Clock,
    nanoseconds: i64,
    /// The largest distance from the true time, in both directions.
    error: u64,
}

/// The interval between two [`Time`]s, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Elapsed {
    /// The time from the start to the end. Negative if the end was earlier.
    pub nanoseconds: i64,
    /// The largest distance from the true interval, in both directions.
    pub error: u64,
    /// The clock on which the two times were compared. It determines the error.
    pub axis: Axis,
}

/// The clock on which two times are compared.
///
/// The errors of the times themselves ([`Time::error`]) add to the error given for each variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Axis {
    /// Both times are of one clock. The error is the clock's resolution.
    Same,
    /// Two clocks that were found to be one ([`Clock::compare`]). The error is the sum of both
    /// resolutions.
    ///
    /// The clocks of CUDA and Vulkan on one GPU can be one clock.
    One,
    /// The host's clock, to which both were converted.
    ///
    /// The error is the sum of the errors of both conversions ([`Time::to_host`]).
    Host,
}

/// The interval with its error and axis, such as `1.25ms ± 31ns, on one clock`.
impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            nanoseconds,
            error,
            axis,
        } = *self;
        write!(f, "{}, {axis}", Estimate { nanoseconds, error })
    }
}

impl fmt::Display for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Same => "on one clock",
            Self::One => "on two clocks found to be one",
            Self::Host => "on the host's clock",
        })
    }
}

impl Time {
    /// The time at which `clock` shows `nanoseconds`.
    ///
    /// For backends, and for timestamps that an application has read itself.
    #[must_use]
    pub const fn new(clock: Clock, nanoseconds: i64) -> Self {
        Self::within(clock, nanoseconds, 0)
    }

    /// A time at which `clock` shows `nanoseconds`, with an error in both directions.
    ///
    /// For times that were converted to this clock.
    #[must_use]
    pub const fn within(clock: Clock, nanoseconds: i64, error: u64) -> Self {
        Self {
            clock,
            nanoseconds,
            error,
        }
    }

    /// The clock of the time.
    #[must_use]
    pub const fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The value that the clock showed, in nanoseconds.
    #[must_use]
    pub const fn nanoseconds(&self) -> i64 {
        self.nanoseconds
    }

    /// The largest distance from the true time in nanoseconds, in both directions.
    ///
    /// 0 for times that the clock's own device has written. The errors of [`Time::to_host`] and
    /// [`Time::since`] include it.
    #[must_use]
    pub const fn error(&self) -> u64 {
        self.error
    }

    /// This time on the host's clock. May sample the clock, as [`Clock::to_host`] does.
    ///
    /// The error includes the [resolution](Clock::resolution) of the clock.
    ///
    /// # Errors
    /// Same errors as [`Clock::to_host`].
    pub fn to_host(&self) -> Result<Estimate> {
        let converted = self.clock.to_host(self.nanoseconds)?;
        Ok(self.clock.as_written(Estimate {
            error: converted.error.saturating_add(self.error),
            ..converted
        }))
    }

    /// The interval from `start` to this time. The two may be of different devices and APIs.
    ///
    /// Times of one clock are subtracted, without a driver call. Times of two clocks that were
    /// [found to be one](Clock::compare) are subtracted, too. Times of other clocks are converted
    /// to the host's clock first. With two clocks, this may have to sample them, which usually
    /// takes about a millisecond.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the two clocks are compared with different clocks of the host. A
    /// driver error if a clock was never sampled and cannot be sampled now.
    pub fn since(&self, start: &Self) -> Result<Elapsed> {
        let (from, to) = (&start.clock, &self.clock);
        let resolutions = from.resolution().saturating_add(to.resolution());
        let direct = |axis, error| Elapsed {
            nanoseconds: self.nanoseconds.saturating_sub(start.nanoseconds),
            error: u64::saturating_add(error, self.error.saturating_add(start.error)),
            axis,
        };
        if from.is_same(to) {
            return Ok(direct(Axis::Same, to.resolution()));
        }
        if from.host_clock() != to.host_clock() {
            return Err(Error::unsupported(
                to.object(),
                format!("tell the time since one of {}", from.object()),
                format!(
                    "one is compared with {}, the other with {}",
                    to.host_clock().name(),
                    from.host_clock().name()
                ),
            ));
        }
        if from.compared(to, false).is_ok_and(|found| found.are_one()) {
            return Ok(direct(Axis::One, resolutions));
        }
        let (before, after) = (start.to_host()?, self.to_host()?);
        Ok(Elapsed {
            nanoseconds: after.nanoseconds.saturating_sub(before.nanoseconds),
            error: before.error.saturating_add(after.error),
            axis: Axis::Host,
        })
    }
}

/// The value of the clock with its error, such as `81.3s ± 0ns`.
impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            nanoseconds, error, ..
        } = *self;
        Estimate { nanoseconds, error }.fmt(f)
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ns", self.nanoseconds)?;
        if self.error > 0 {
            write!(f, " ± {} ns", self.error)?;
        }
        write!(f, " of {}", self.clock.object())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;
    use crate::backend::Sampler;
    use crate::base::error::Object;
    use crate::clock::Sample;

    /// A clock that shows each value for a microsecond, 500 ns behind the host's.
    struct Coarse;

    impl Sampler for Coarse {
        fn sample(&self) -> Result<Sample> {
            Ok(Sample {
                device: 7_000,
                host: 7_500,
                deviation: 0,
            })
        }

        fn resolution(&self) -> u64 {
            1_000
        }
    }

    /// The device may have written the value just before the clock showed the next one.
    #[test]
    fn the_error_of_a_written_time_covers_the_resolution_of_its_clock() {
        let coarse = || Clock::new(Object::new("clock", "coarse"), Coarse);
        let clock = coarse();
        let time = Time::within(clock.clone(), 7_000, 20);
        let (shown, written) = (clock.to_host(7_000).unwrap(), time.to_host().unwrap());
        assert_eq!(written.nanoseconds, shown.nanoseconds);
        assert_eq!(written.error, shown.error + 20 + 1_000);
        let other = Time::new(coarse(), 7_000);
        let between = time.since(&other).unwrap();
        assert_eq!(between.axis, Axis::Host);
        assert!(between.error >= 2 * 1_000 + 20, "{between:?}");
    }
}
