//! Clocks, and times on them.

use std::fmt;

use syncline::Result;
use syncline::clock::{Elapsed, Estimate, HostClock, Sampled};

use crate::Subject;

/// [`syncline::clock::Clock`].
#[derive(Clone)]
pub struct Clock<S> {
    on: S,
    library: syncline::clock::Clock,
}

impl<S: Subject> Clock<S> {
    pub(super) fn new(on: &S, library: syncline::clock::Clock) -> Self {
        let on = on.clone();
        Self { on, library }
    }

    /// The library's clock.
    #[must_use]
    pub const fn library(&self) -> &syncline::clock::Clock {
        &self.library
    }

    /// [`syncline::clock::Clock::host_clock`].
    #[must_use]
    pub fn host_clock(&self) -> HostClock {
        self.library.host_clock()
    }

    /// [`syncline::clock::Clock::sample`].
    pub fn sample(&self) -> Result<Sampled> {
        self.library.sample()
    }

    /// [`syncline::clock::Clock::to_host`].
    pub fn to_host(&self, device: i64) -> Result<Estimate> {
        self.on.to_host(&self.library, device)
    }

    /// [`syncline::clock::Clock::to_device`].
    pub fn to_device(&self, host: i64) -> Result<Estimate> {
        self.on.to_device(&self.library, host)
    }
}

impl<S> fmt::Debug for Clock<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.library, f)
    }
}

/// [`syncline::clock::Time`].
#[derive(Clone)]
pub struct Time<S> {
    on: S,
    library: syncline::clock::Time,
}

impl<S: Subject> Time<S> {
    pub(super) fn new(on: &S, library: syncline::clock::Time) -> Self {
        let on = on.clone();
        Self { on, library }
    }

    /// [`syncline::clock::Time::clock`].
    #[must_use]
    pub fn clock(&self) -> Clock<S> {
        Clock::new(&self.on, self.library.clock().clone())
    }

    /// [`syncline::clock::Time::nanoseconds`].
    #[must_use]
    pub const fn nanoseconds(&self) -> i64 {
        self.library.nanoseconds()
    }

    /// [`syncline::clock::Time::to_host`].
    pub fn to_host(&self) -> Result<Estimate> {
        self.on.time_to_host(&self.library)
    }

    /// [`syncline::clock::Time::since`].
    pub fn since(&self, start: &Self) -> Result<Elapsed> {
        self.on.since(&start.library, &self.library)
    }
}

impl<S> fmt::Debug for Time<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.library, f)
    }
}
