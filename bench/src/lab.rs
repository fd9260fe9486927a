//! How two sides are timed: alternately, in one process, many rounds.

use std::fmt;
use std::time::{Duration, Instant};

use syncline::Error;

use crate::stats::{Summary, median};

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

/// What a side does: so many iterations, and how long those took. It decides by itself what of it is timed: what only
/// prepares a batch, or lets it end, mostly is not.
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

    /// It goes in [`bursts`] of `step`: batches are whole bursts, as the first of a burst costs more than the last.
    #[must_use]
    pub fn step(mut self, step: u64) -> Self {
        self.step = step.max(1);
        self
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

/// Who measures what a row sets up: [`Bench`] for reports, criterion for development.
pub trait Lab {
    /// Measures the sides, alternately. At most once for a subject.
    ///
    /// # Errors
    /// A side's.
    fn race(&mut self, sides: Vec<Side<'_>>) -> Outcome<()>;

    /// As [`Lab::race`], with many more and as much shorter rounds: for differences that are small beside what both sides
    /// take, so that what drifts meanwhile is the same for both. All sides do the same number of iterations.
    ///
    /// # Errors
    /// A side's.
    fn race_finely(&mut self, sides: Vec<Side<'_>>) -> Outcome<()> {
        self.race(sides)
    }

    /// How many samples to take of what is no race.
    fn rounds(&self) -> u32;

    /// Gives times of a side ([`OURS`] or [`RAW`]) that were taken otherwise than in a race, in nanoseconds.
    fn taken(&mut self, side: &'static str, samples: &[f64]);

    /// Notes a figure besides the times of the race. Its name ends in its unit, if it has one.
    fn figure(&mut self, name: &str, value: f64);

    /// Notes something to be read beside the figures.
    fn note(&mut self, text: String);
}

/// Times `n` iterations in bursts of `burst` at the most: `go` is timed, `drain` after each burst is not. So no more is
/// outstanding at a time on one side than on the other.
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

/// As [`bursts`], with something to be done before each, which is not timed either: a gate to be closed that `drain` opens.
///
/// # Errors
/// Those of what it calls. After one of `go`, `drain` is called all the same: a gate must not stay closed.
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

/// How long a side is run for in each round, and how often.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Rounds; each is one batch of each side.
    pub rounds: u32,
    /// As many iterations make a batch as take this long.
    pub batch: Duration,
}

impl Pace {
    /// For figures to be kept.
    pub const FULL: Self = Self {
        rounds: 30,
        batch: Duration::from_millis(3),
    };

    /// To see that it runs.
    pub const QUICK: Self = Self {
        rounds: 3,
        batch: Duration::from_micros(200),
    };
}

/// What was measured of one row on one subject.
#[derive(Debug, Clone, Default)]
pub struct Measured {
    /// Nanoseconds of one iteration of ours.
    pub ours: Option<Summary>,
    /// Nanoseconds of one iteration of raw.
    pub raw: Option<Summary>,
    /// Ours by raw, of the two batches of each round.
    pub ratio: Option<Summary>,
    /// Ours less raw, of the two batches of each round, in nanoseconds of one iteration.
    pub over: Option<Summary>,
    /// Everything else, by name.
    pub figures: Vec<(String, f64)>,
    /// To be read beside it.
    pub notes: Vec<String>,
}

/// A lab that collects.
#[derive(Debug)]
pub struct Bench {
    pace: Pace,
    /// What it has by now.
    pub measured: Measured,
}

impl Bench {
    /// A fresh one.
    #[must_use]
    pub fn new(pace: Pace) -> Self {
        Self {
            pace,
            measured: Measured::default(),
        }
    }

    /// How many iterations of `side` take as long as a `batch` is to take. Warms up, too.
    fn calibrate(side: &mut Side<'_>, batch: Duration) -> Outcome<u64> {
        const MOST: u64 = 1 << 24;
        let batch = batch.as_secs_f64();
        let whole = |count: u64| count.clamp(1, MOST).next_multiple_of(side.step);
        let mut count = whole(1);
        loop {
            let start = Instant::now();
            let took = (side.run)(count)?.as_secs_f64();
            // What is not timed takes time, too.
            let took = took.max(start.elapsed().as_secs_f64() / 4.0);
            if took >= batch / 2.0 || count >= MOST {
                return Ok(whole((count as f64 * batch / took) as u64));
            }
            let factor = (batch / took.max(1e-9)).clamp(2.0, 10.0);
            count = whole((count as f64 * factor) as u64);
        }
    }

    /// `alike`: every side does as many iterations as the slowest.
    fn run(&mut self, mut sides: Vec<Side<'_>>, pace: Pace, alike: bool) -> Outcome<()> {
        /// Rounds that only warm up.
        const WARM: usize = 2;
        let mut counts = sides
            .iter_mut()
            .map(|side| Self::calibrate(side, pace.batch))
            .collect::<Outcome<Vec<_>>>()?;
        if alike {
            let least = counts.iter().min().copied().unwrap_or(1);
            counts.fill(least);
        }
        let mut samples: Vec<Vec<f64>> = sides.iter().map(|_| Vec::new()).collect();
        for round in 0..WARM + pace.rounds as usize {
            for place in 0..sides.len() {
                // Nobody always comes first.
                let at = (round + place) % sides.len();
                let side = &mut sides[at];
                let took = (side.run)(counts[at])?;
                if round >= WARM {
                    let iterations = counts[at] * side.each;
                    samples[at].push(took.as_nanos() as f64 / iterations as f64);
                }
            }
        }
        let of = |name| sides.iter().position(|side| side.name == name);
        let (ours, raw) = (of(OURS), of(RAW));
        self.measured.ours = ours.and_then(|at| Summary::of(&samples[at]));
        self.measured.raw = raw.and_then(|at| Summary::of(&samples[at]));
        if let Some((ours, raw)) = ours.zip(raw) {
            let pairs = || samples[ours].iter().zip(&samples[raw]);
            let ratios: Vec<_> = pairs().map(|(ours, raw)| ours / raw).collect();
            let over: Vec<_> = pairs().map(|(ours, raw)| ours - raw).collect();
            self.measured.ratio = Summary::of(&ratios);
            self.measured.over = Summary::of(&over);
        }
        for (at, side) in sides.iter().enumerate() {
            if Some(at) == ours || Some(at) == raw {
                continue;
            }
            let other = median(&samples[at]).unwrap_or(f64::NAN);
            self.figure(&format!("{}_ns", side.name), other);
            if let Some(own) = self.measured.ours {
                self.figure(&format!("ratio_to_{}", side.name), own.median / other);
            }
        }
        Ok(())
    }
}

impl Lab for Bench {
    fn race(&mut self, sides: Vec<Side<'_>>) -> Outcome<()> {
        self.run(sides, self.pace, false)
    }

    fn race_finely(&mut self, sides: Vec<Side<'_>>) -> Outcome<()> {
        const FINER: u32 = 16;
        let finer = Pace {
            rounds: self.pace.rounds.saturating_mul(FINER),
            batch: self.pace.batch / FINER,
        };
        self.run(sides, finer, true)
    }

    fn rounds(&self) -> u32 {
        self.pace.rounds
    }

    fn taken(&mut self, side: &'static str, samples: &[f64]) {
        let place = if side == RAW {
            &mut self.measured.raw
        } else {
            &mut self.measured.ours
        };
        *place = Summary::of(samples);
    }

    fn figure(&mut self, name: &str, value: f64) {
        self.measured.figures.push((name.into(), value));
    }

    fn note(&mut self, text: String) {
        self.measured.notes.push(text);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    const PACE: Pace = Pace {
        rounds: 10,
        batch: Duration::from_micros(100),
    };

    #[test]
    fn sides_alternate_and_each_comes_first_as_often() {
        let order = RefCell::new(Vec::new());
        let side = |name: &'static str, nanoseconds: u64| {
            let order = &order;
            Side::new(name, move |n| {
                order.borrow_mut().push((name, n));
                Ok(Duration::from_nanos(n * nanoseconds))
            })
        };
        let mut bench = Bench::new(PACE);
        let done = bench.race(vec![
            side(OURS, 30),
            side(RAW, 10).each(2),
            side("other", 60),
        ]);
        assert_eq!(done, Ok(()));
        let found = &bench.measured;
        let median = |summary: Option<Summary>| summary.map(|summary| summary.median);
        assert_eq!(median(found.ours), Some(30.0));
        assert_eq!(median(found.raw), Some(5.0));
        assert_eq!(median(found.ratio), Some(6.0));
        assert_eq!(median(found.over), Some(25.0));
        assert_eq!(
            found.figures,
            [
                ("other_ns".to_owned(), 60.0),
                ("ratio_to_other".into(), 0.5)
            ]
        );
        let order = order.borrow();
        let rounds: Vec<_> = order[order.len() - 3 * PACE.rounds as usize..]
            .chunks(3)
            .map(|round| round[0].0)
            .collect();
        for name in [OURS, RAW, "other"] {
            let first = rounds.iter().filter(|first| **first == name).count();
            assert!(first >= 3, "{name} comes first {first} times: {rounds:?}");
        }
        // Batches take about as long as is asked.
        let batch = |name| order.iter().rev().find(|(side, _)| *side == name);
        assert_eq!(batch(RAW).map(|(_, n)| *n), Some(10_000));
    }

    #[test]
    fn batches_are_whole_steps_and_fine_races_are_alike() {
        let counts = RefCell::new(Vec::new());
        let side = |name: &'static str, nanoseconds: u64| {
            let counts = &counts;
            let run = move |n| {
                counts.borrow_mut().push((name, n));
                Ok(Duration::from_nanos(n * nanoseconds))
            };
            Side::new(name, run).step(64)
        };
        let mut bench = Bench::new(PACE);
        assert_eq!(
            bench.race_finely(vec![side(OURS, 10), side(RAW, 30)]),
            Ok(())
        );
        let counts = counts.borrow();
        assert!(counts.iter().all(|(_, n)| n % 64 == 0), "{counts:?}");
        let last = |name| counts.iter().rev().find(|(side, _)| *side == name);
        assert_eq!(last(OURS).map(|(_, n)| n), last(RAW).map(|(_, n)| n));
    }

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

    #[test]
    fn a_side_that_fails_ends_the_race() {
        let stop = Stop::Failed("no".into());
        let side = Side::ours(|_| Err(Stop::Failed("no".into())));
        assert_eq!(Bench::new(PACE).race(vec![side]), Err(stop));
    }
}
