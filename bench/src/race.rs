//! How two sides are timed: alternately, in one process, many rounds.

use std::time::{Duration, Instant};

use crate::lab::{Lab, OURS, Outcome, RAW, Side};
use crate::stats::{Summary, median};

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
        let step = side.steps();
        let whole = |count: u64| count.clamp(1, MOST).next_multiple_of(step);
        let mut count = whole(1);
        loop {
            let start = Instant::now();
            let took = side.run(count)?.as_secs_f64();
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
                let took = side.run(counts[at])?;
                if round >= WARM {
                    let iterations = counts[at] * side.many();
                    samples[at].push(took.as_nanos() as f64 / iterations as f64);
                }
            }
        }
        let of = |name| sides.iter().position(|side| side.name() == name);
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
            self.figure(&format!("{}_ns", side.name()), other);
            if let Some(own) = self.measured.ours {
                self.figure(&format!("ratio_to_{}", side.name()), own.median / other);
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

    fn median(&self, side: &str) -> Option<f64> {
        let of = |summary: Option<Summary>| summary.map(|summary| summary.median);
        match side {
            OURS => of(self.measured.ours),
            RAW => of(self.measured.raw),
            other => {
                let wanted = format!("{other}_ns");
                let mut figures = self.measured.figures.iter();
                figures.find_map(|(name, value)| (*name == wanted).then_some(*value))
            }
        }
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
    use std::cell::RefCell;

    use super::*;
    use crate::lab::Stop;

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
        let medians = [OURS, RAW, "other", "nobody"].map(|side| bench.median(side));
        assert_eq!(medians, [Some(30.0), Some(5.0), Some(60.0), None]);
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
    fn a_side_that_fails_ends_the_race() {
        let stop = Stop::Failed("no".into());
        let side = Side::ours(|_| Err(Stop::Failed("no".into())));
        assert_eq!(Bench::new(PACE).race(vec![side]), Err(stop));
    }
}
