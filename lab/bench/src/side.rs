//! The sides of a row, and why a row gives no figures.

use std::fmt;
use std::ops::Range;
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
pub(crate) const OURS: &str = "ours";
/// Name of the side that makes the driver's calls by hand.
pub(crate) const RAW: &str = "raw";

/// Runs so many iterations and returns how long they took.
///
/// The closure chooses which part it times. Preparation and the end of a batch are mostly untimed.
type Run<'a> = Box<dyn FnMut(u64) -> Outcome<Duration> + 'a>;

/// One of the sides of a row.
pub(crate) struct Side<'a> {
    /// The name of the side.
    pub(crate) name: &'static str,
    /// Number of units of the row in one iteration. Times are per unit.
    pub(crate) each: u64,
    /// Batches are whole multiples of this many iterations.
    pub(crate) step: u64,
    /// Runs so many iterations.
    pub(crate) run: Run<'a>,
}

impl<'a> Side<'a> {
    /// A side that times itself.
    pub(crate) fn new(name: &'static str, run: impl FnMut(u64) -> Outcome<Duration> + 'a) -> Self {
        Self {
            name,
            each: 1,
            step: 1,
            run: Box::new(run),
        }
    }

    /// A side whose iterations are all timed.
    pub(crate) fn timed(
        name: &'static str,
        mut iteration: impl FnMut() -> Outcome<()> + 'a,
    ) -> Self {
        Self::new(name, move |n| {
            timed(|| (0..n).try_for_each(|_| iteration()))
        })
    }

    /// A side that counts values up from 1, one for each iteration, at most `burst` at a time.
    ///
    /// `go` is timed. `drain`, which gets the last value of a burst, is not. So all sides have the
    /// same number of operations outstanding.
    #[cfg(any(feature = "cuda", feature = "vulkan"))]
    pub(crate) fn values(
        name: &'static str,
        burst: u64,
        go: impl FnMut(u64) -> Outcome<()> + 'a,
        drain: impl FnMut(u64) -> Outcome<()> + 'a,
    ) -> Self {
        Self::gated(name, burst, |_| Ok(()), go, drain)
    }

    /// As [`Side::values`]. Before each burst it calls `prepare` untimed, with the values.
    #[cfg(any(feature = "cuda", feature = "vulkan"))]
    pub(crate) fn gated(
        name: &'static str,
        burst: u64,
        prepare: impl FnMut(Range<u64>) -> Outcome<()> + 'a,
        mut go: impl FnMut(u64) -> Outcome<()> + 'a,
        drain: impl FnMut(u64) -> Outcome<()> + 'a,
    ) -> Self {
        let all = move |mut values: Range<u64>| values.try_for_each(&mut go);
        Self::bursts(name, burst, prepare, all, drain)
    }

    /// As `gated`, but one call of `go` does a whole burst.
    ///
    /// The time is that of the median burst. So an interrupt does not count: one of a GPU takes up
    /// to 80 µs, as long as a burst. `drain` is also called after an error of `go`, so that no gate
    /// stays closed.
    pub(crate) fn bursts(
        name: &'static str,
        burst: u64,
        mut prepare: impl FnMut(Range<u64>) -> Outcome<()> + 'a,
        mut go: impl FnMut(Range<u64>) -> Outcome<()> + 'a,
        mut drain: impl FnMut(u64) -> Outcome<()> + 'a,
    ) -> Self {
        let mut next: u64 = 1;
        let run = move |n| {
            let (mut seconds, end): (_, u64) = (Vec::new(), next + n);
            while next < end {
                let values = next..end.min(next + burst);
                prepare(values.clone())?;
                let start = Instant::now();
                let gone = go(values.clone());
                let took = start.elapsed();
                let drained = drain(values.end - 1);
                gone.and(drained)?;
                seconds.push(took.as_secs_f64() / (values.end - values.start) as f64);
                next = values.end;
            }
            let typical = median(&seconds).unwrap_or(0.0);
            Ok(Duration::from_secs_f64(typical * n as f64))
        };
        Self::new(name, run).step(burst)
    }

    /// Declares that one iteration is `each` units of the row.
    pub(crate) fn each(mut self, each: u64) -> Self {
        self.each = each.max(1);
        self
    }

    /// Makes batches whole multiples of `step` iterations.
    pub(crate) fn step(mut self, step: u64) -> Self {
        self.step = step.max(1);
        self
    }
}

/// Times one call of `go`.
pub(crate) fn timed(go: impl FnOnce() -> Outcome<()>) -> Outcome<Duration> {
    let start = Instant::now();
    go()?;
    Ok(start.elapsed())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn values_go_up_in_bursts_and_draining_is_not_timed() {
        let calls = RefCell::new(Vec::new());
        let mut side = Side::bursts(
            OURS,
            10,
            |_| Ok(()),
            |values| {
                calls.borrow_mut().push((values.start, values.end));
                Ok(())
            },
            |last| {
                calls.borrow_mut().push((last, last));
                std::thread::sleep(Duration::from_millis(50));
                Ok(())
            },
        );
        assert_eq!(side.step, 10);
        let took = (side.run)(25).map(|took| took < Duration::from_millis(100));
        assert_eq!(took, Ok(true));
        assert!((side.run)(5).is_ok());
        drop(side);
        let expected = [
            (1, 11),
            (10, 10),
            (11, 21),
            (20, 20),
            (21, 26),
            (25, 25),
            (26, 31),
            (30, 30),
        ];
        assert_eq!(calls.into_inner(), expected);
    }
}
