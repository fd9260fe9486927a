//! The sides of a row, and what they are handed to.

use std::fmt;
use std::time::{Duration, Instant};

use syncline::Error;

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

/// Something, or why there is none.
pub type Outcome<T> = Result<T, Stop>;

/// What a side is called that goes through Syncline.
pub const OURS: &str = "ours";
/// What a side is called that is written by hand.
pub const RAW: &str = "raw";
/// What a side is called that is written by hand, too, and does the least that keeps the contract:
/// what nobody can go below who keeps it.
pub const FLOOR: &str = "floor";

/// What a side does: so many iterations, and how long those took. It decides by itself what of it
/// is timed: what only prepares a batch, or lets it end, mostly is not.
type Run<'a> = Box<dyn FnMut(u64) -> Outcome<Duration> + 'a>;

/// One of the sides of a row.
pub struct Side<'a> {
    name: &'static str,
    each: u64,
    /// Batches are whole multiples of so many iterations.
    step: u64,
    run: Run<'a>,
}

impl<'a> Side<'a> {
    /// A side of any name.
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

    /// The side that is written by hand.
    pub fn raw(run: impl FnMut(u64) -> Outcome<Duration> + 'a) -> Self {
        Self::new(RAW, run)
    }

    /// The least that keeps the contract, by hand.
    pub fn floor(run: impl FnMut(u64) -> Outcome<Duration> + 'a) -> Self {
        Self::new(FLOOR, run)
    }

    /// It goes in [`bursts`] of `step`: batches are whole bursts, as the first of a burst costs
    /// more than the last.
    #[must_use]
    pub fn step(mut self, step: u64) -> Self {
        self.step = step.max(1);
        self
    }

    /// Of how many iterations batches are whole multiples.
    #[must_use]
    pub const fn steps(&self) -> u64 {
        self.step
    }

    /// What it is called.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// How many of what the row counts one iteration is.
    #[must_use]
    pub const fn many(&self) -> u64 {
        self.each
    }

    /// Runs so many iterations; how long those took.
    ///
    /// # Errors
    /// Its own.
    pub fn run(&mut self, iterations: u64) -> Outcome<Duration> {
        (self.run)(iterations)
    }

    /// One iteration is `each` of what the row counts.
    #[must_use]
    pub fn each(mut self, each: u64) -> Self {
        self.each = each.max(1);
        self
    }
}

/// Who measures what a row sets up: [`Bench`](crate::race::Bench) for reports, criterion for
/// development.
pub trait Lab {
    /// Measures the sides, alternately. At most once for a subject.
    ///
    /// # Errors
    /// A side's.
    fn race(&mut self, sides: Vec<Side<'_>>) -> Outcome<()>;

    /// As [`Lab::race`], with very many rounds of a few calls each, more of them where the
    /// difference is not known well enough: for differences that are small beside what both sides
    /// take, so that what drifts meanwhile is the same for both. All sides do the same number of
    /// iterations.
    ///
    /// # Errors
    /// A side's.
    fn race_finely(&mut self, sides: Vec<Side<'_>>) -> Outcome<()> {
        self.race(sides)
    }

    /// The median of a side of the race, in nanoseconds of one of what the row counts; `None` where
    /// that is not known yet, or to somebody else.
    fn median(&self, side: &str) -> Option<f64>;

    /// How many samples to take of what is no race.
    fn rounds(&self) -> u32;

    /// Gives times of a side ([`OURS`], [`RAW`] or [`FLOOR`]) that were taken otherwise than in a
    /// race, in nanoseconds.
    fn taken(&mut self, side: &'static str, samples: &[f64]);

    /// Notes a figure besides the times of the race. Its name ends in its unit, if it has one.
    fn figure(&mut self, name: &str, value: f64);

    /// Notes something to be read beside the figures.
    fn note(&mut self, text: String);
}

/// Times `n` iterations in bursts of `burst` at the most: `go` is timed, `drain` after each burst
/// is not. So no more is outstanding at a time on one side than on the other.
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

/// As [`bursts`], with something to be done before each, which is not timed either: a gate to be
/// closed that `drain` opens.
///
/// # Errors
/// Those of what it calls. After one of `go`, `drain` is called all the same: a gate must not stay
/// closed.
pub fn gated_bursts(
    n: u64,
    burst: u64,
    mut prepare: impl FnMut(u64) -> Outcome<()>,
    mut go: impl FnMut(u64) -> Outcome<()>,
    mut drain: impl FnMut() -> Outcome<()>,
) -> Outcome<Duration> {
    let mut left = n;
    let mut total = Duration::ZERO;
    while left > 0 {
        let now = left.min(burst);
        prepare(now)?;
        let start = Instant::now();
        let gone = go(now);
        total += start.elapsed();
        let drained = drain();
        gone.and(drained)?;
        left -= now;
    }
    Ok(total)
}

/// Times all of it.
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
    fn bursts_are_bounded_and_only_their_going_is_timed() {
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
