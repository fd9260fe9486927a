//! Times on devices' clocks, and what lies between two of them.

use std::fmt;

use super::{Clock, Estimate};
use crate::base::error::{Error, Result};

/// A time that a device has written, on its [clock](Clock).
///
/// Whole nanoseconds: it tells the same differences however long the device has been up. Cheap to clone; it keeps the clock,
/// and so the device.
#[derive(Clone)]
pub struct Time {
    clock: Clock,
    nanoseconds: i64,
    /// How far the truth may lie from it, either way.
    error: u64,
}

/// What lies between two [`Time`]s, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Elapsed {
    /// From the earlier one asked about to the later one; negative if they come the other way round.
    pub nanoseconds: i64,
    /// The truth lies no further than this from it, either way.
    pub error: u64,
    /// Where the two were compared, which is what the error comes from.
    pub axis: Axis,
}

/// Where times of two clocks are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Axis {
    /// Both are of one clock: the error is its resolution.
    Same,
    /// Two clocks which were found to be one ([`Clock::compare`]), as CUDA's and Vulkan's of one GPU may be: the error is the
    /// resolution of both.
    One,
    /// The host's clock, to which both were converted: the error is that of both conversions.
    Host,
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
    /// The time at which `clock` shows `nanoseconds`. For backends, and for timestamps that an application has read itself.
    #[must_use]
    pub const fn new(clock: Clock, nanoseconds: i64) -> Self {
        Self::within(clock, nanoseconds, 0)
    }

    /// The same, where the clock showed `nanoseconds` no more than `error` nanoseconds before or after: for times that have been
    /// converted to this clock.
    #[must_use]
    pub const fn within(clock: Clock, nanoseconds: i64, error: u64) -> Self {
        Self {
            clock,
            nanoseconds,
            error,
        }
    }

    /// The clock that showed it.
    #[must_use]
    pub const fn clock(&self) -> &Clock {
        &self.clock
    }

    /// What the clock showed.
    #[must_use]
    pub const fn nanoseconds(&self) -> i64 {
        self.nanoseconds
    }

    /// How far the truth may lie from that, either way, in nanoseconds: 0 for what the clock's own device has written. What
    /// [`Time::to_host`] and [`Time::since`] tell contains it.
    #[must_use]
    pub const fn error(&self) -> u64 {
        self.error
    }

    /// What the host's clock showed then; see [`Clock::to_host`], also about what may block.
    ///
    /// # Errors
    /// As there.
    pub fn to_host(&self) -> Result<Estimate> {
        let told = self.clock.to_host(self.nanoseconds)?;
        Ok(Estimate {
            error: told.error.saturating_add(self.error),
            ..told
        })
    }

    /// What lies between `start` and this, which may be of different devices and APIs. Times of one clock are subtracted, and
    /// that needs no driver; so are those of two clocks [found to be one](Clock::compare). Others go through the host's
    /// clock. Where two clocks take part they may have to be sampled, in which case this takes as long as that does: a
    /// millisecond as a rule.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the two are compared with different clocks of the host; a driver error, if a clock was
    /// never sampled and cannot be.
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
            return Err(Error::Unsupported {
                object: to.object().clone(),
                asked: format!("tell the time since one of {}", from.object()),
                reason: format!(
                    "one is compared with {}, the other with {}",
                    to.host_clock().name(),
                    from.host_clock().name()
                ),
            });
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

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ns", self.nanoseconds)?;
        if self.error > 0 {
            write!(f, " ± {} ns", self.error)?;
        }
        write!(f, " of {}", self.clock.object())
    }
}
