//! The sides of a row, and why a row gives no figures.

use std::fmt;
use std::time::{Duration, Instant};

use syncline::Error;

use crate::stats::median;

/// Why a row gives no figures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// This machine cannot run it, for this reason.
    Skipped(String),
    /// Something that has to work did not.
    Failed(String),
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Skipped(reason) | Self::Failed(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for Stop {}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<std::io::Error> for Stop {
    fn from(error: std::io::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

/// A value, or the reason why a row gives no figures.
pub type Outcome<T> = Result<T, Stop>;

/// Name of the side that goes through Syncline.
pub const OURS: &str = "ours";
/// Name of the side that makes the driver's calls by hand.
pub const RAW: &str = "raw";
/// Name of the side that does by hand the least work that keeps the contract.
pub const FLOOR: &str = "floor";

/// Runs so many iterations and returns how long they took.
///
/// The closure chooses which part it times. Preparation and the end of a batch are mostly untimed.
type Run<'a> = Box<dyn FnMut(u64) -> Outcome<Duration> + 'a>;

/// One of the sides of a row.
pub struct Side<'a> {
    name: &'static str,
    each: u64,
    /// Batches are whole multiples of this many iterations.
    step: u64,
    run: Run<'a>,
}

impl<'a> Side<'a> {
    /// A side with any name.
    pub fn new(name: &'static str, run: impl FnMut(u64) -> Outcome<Duration> + 'a) -> Self {
        Self {
            name,
            each: 1,
            step: 1,
            run: Box::new(run),
        }
    }

    /// The side that goes through Syncline.
    pub fn ours(run: impl FnMut(u64) -> Outcome<Duration> + 'a) -> Self {
        Self::new(OURS, run)
    }

    /// The side that makes the driver's calls by hand.
    pub fn raw(run: impl FnMut(u64) -> Outcome<Duration> + 'a) -> Self {
        Self::new(RAW, run)
    }

    /// The side that does by hand the least work that keeps the contract.
    pub fn floor(run: impl FnMut(u64) -> Outcome<Duration> + 'a) -> Self {
        Self::new(FLOOR, run)
    }

    /// Makes batches whole multiples of `step` iterations.
    ///
    /// For sides that run in [`bursts`], because the first iteration of a burst takes longest.
    #[must_use]
    pub fn step(mut self, step: u64) -> Self {
        self.step = step.max(1);
        self
    }

    /// Batches are whole multiples of this many iterations.
    #[must_use]
    pub const fn steps(&self) -> u64 {
        self.step
    }

    /// The name of the side.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Number of units of the row in one iteration.
    #[must_use]
    pub const fn many(&self) -> u64 {
        self.each
    }

    /// Runs so many iterations and returns how long they took.
    ///
    /// # Errors
    /// That of the closure.
    pub fn run(&mut self, iterations: u64) -> Outcome<Duration> {
        (self.run)(iterations)
    }

    /// Declares that one iteration is `each` units of the row. Times are per unit.
    #[must_use]
    pub fn each(mut self, each: u64) -> Self {
        self.each = each.max(1);
        self
    }
}

/// Times `n` iterations in bursts of at most `burst`.
///
/// `go` is timed. `drain` after each burst is not. So all sides have the same number of operations
/// outstanding.
///
/// Returns the time of `n` iterations at the speed of the median burst. So an interrupt does not
/// count: one of a GPU takes up to 80 µs, as long as a burst.
///
/// # Errors
/// Those of `go` and `drain`.
pub fn bursts(
    n: u64,
    burst: u64,
    go: impl FnMut(u64) -> Outcome<()>,
    drain: impl FnMut() -> Outcome<()>,
) -> Outcome<Duration> {
    gated_bursts(n, burst, |_| Ok(()), go, drain)
}

/// As [`bursts`], and calls `prepare` untimed before each burst.
///
/// `prepare` may close a gate that `drain` opens.
///
/// # Errors
/// Those of the closures. `drain` is also called after an error of `go`, so that no gate stays
/// closed.
pub fn gated_bursts(
    n: u64,
    burst: u64,
    mut prepare: impl FnMut(u64) -> Outcome<()>,
    mut go: impl FnMut(u64) -> Outcome<()>,
    mut drain: impl FnMut() -> Outcome<()>,
) -> Outcome<Duration> {
    let mut left = n;
    let mut seconds = Vec::with_capacity(usize::try_from(n.div_ceil(burst)).unwrap_or(0));
    while left > 0 {
        let now = left.min(burst);
        prepare(now)?;
        let start = Instant::now();
        let gone = go(now);
        seconds.push(start.elapsed().as_secs_f64() / now as f64);
        let drained = drain();
        gone.and(drained)?;
        left -= now;
    }
    let typical = median(&seconds).unwrap_or(0.0);
    Ok(Duration::from_secs_f64(typical * n as f64))
}

/// Times one call of `go`.
///
/// # Errors
/// That of `go`.
pub fn timed(go: impl FnOnce() -> Outcome<()>) -> Outcome<Duration> {
    let start = Instant::now();
    go()?;
    Ok(start.elapsed())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn bursts_are_bounded_and_draining_is_not_timed() {
        let (outstanding, most, all) = (Cell::new(0), Cell::new(0), Cell::new(0));
        let took = bursts(
            25,
            10,
            |count| {
                outstanding.set(outstanding.get() + count);
                most.set(most.get().max(outstanding.get()));
                all.set(all.get() + count);
                Ok(())
            },
            || {
                std::thread::sleep(Duration::from_millis(20));
                outstanding.set(0);
                Ok(())
            },
        );
        assert!(took.is_ok_and(|took| took < Duration::from_millis(60)));
        assert_eq!((most.get(), all.get()), (10, 25));
    }
}
