//! Times the sides of a row: alternately, in one process, over many rounds.

use std::hint::black_box;
use std::time::{Duration, Instant};

use crate::processor::UndisturbedRounds;
use crate::side::{OURS, Outcome, RAW, Side};
use crate::stats::{Summary, median};

/// Number of rounds, and the duration of each side in a round.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Rounds. In each of them every side runs one batch.
    pub rounds: u32,
    /// Duration of a batch. The number of iterations follows from it.
    pub batch: Duration,
    /// How much longer a row may take for rounds on a core that nothing else uses.
    pub patience: Duration,
}

impl Pace {
    /// For recordings.
    pub const FULL: Self = Self {
        rounds: 30,
        batch: Duration::from_millis(3),
        patience: Duration::from_secs(5),
    };

    /// For a check that everything runs.
    pub const QUICK: Self = Self {
        rounds: 3,
        batch: Duration::from_micros(200),
        patience: Duration::ZERO,
    };

    /// True for at most as many rounds as [`Pace::QUICK`] has.
    pub(crate) const fn is_quick(&self) -> bool {
        self.rounds <= Self::QUICK.rounds
    }
}

/// The measurements of one row on one subject.
#[derive(Debug, Clone, Default)]
pub(crate) struct Measured {
    /// Nanoseconds of one iteration of ours.
    pub(crate) ours: Option<Summary>,
    /// Nanoseconds of one iteration of raw.
    pub(crate) raw: Option<Summary>,
    /// Ours divided by raw, of the two batches of each round.
    pub(crate) ratio: Option<Summary>,
    /// All other figures, by name.
    pub(crate) figures: Vec<(String, f64)>,
    /// Remarks for the reader of the figures.
    pub(crate) notes: Vec<String>,
}

/// Measures the sides that a row sets up, for a report.
#[derive(Debug)]
pub struct Lab {
    pace: Pace,
    /// The measurements so far.
    pub(crate) measured: Measured,
}

impl Lab {
    /// A lab without measurements.
    pub(crate) fn new(pace: Pace) -> Self {
        Self {
            pace,
            measured: Measured::default(),
        }
    }

    /// Measures the sides alternately. A row calls this at most once.
    pub(crate) fn race(&mut self, mut sides: Vec<Side<'_>>) -> Outcome<()> {
        /// Rounds that only warm up.
        const WARM: u32 = 2;
        let batch = self.pace.batch;
        let counts = sides.iter_mut().map(|side| Self::calibrate(side, batch));
        let counts = counts.collect::<Outcome<Vec<_>>>()?;
        for round in 0..WARM {
            Self::run_round(&mut sides, &counts, round)?;
        }
        let mut undisturbed = self.undisturbed_rounds();
        // Nanoseconds of one unit of the row, for each side and round.
        let mut samples = vec![Vec::new(); sides.len()];
        for round in 0..self.pace.rounds {
            let times = undisturbed.run(|| Self::run_round(&mut sides, &counts, round))?;
            for (samples, time) in samples.iter_mut().zip(times) {
                samples.push(time);
            }
        }
        self.measured.notes.extend(undisturbed.remark());
        self.conclude(&sides, &samples);
        Ok(())
    }

    /// Rounds for measurements outside a race.
    pub(crate) fn undisturbed_rounds(&self) -> UndisturbedRounds {
        UndisturbedRounds::new(self.pace.patience)
    }

    /// The median of a side of the race, in nanoseconds of one unit of the row.
    ///
    /// `None` before the race.
    pub(crate) fn median(&self, side: &str) -> Option<f64> {
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

    /// Number of samples to take of quantities outside a race.
    pub(crate) fn rounds(&self) -> u32 {
        self.pace.rounds
    }

    /// True for a check that everything runs.
    pub(crate) const fn is_quick(&self) -> bool {
        self.pace.is_quick()
    }

    /// Records nanoseconds of ours that were taken outside a race.
    pub(crate) fn taken(&mut self, samples: &[f64]) {
        self.measured.ours = Summary::of(samples);
    }

    /// Records a figure besides the times of the race. Its name ends in its unit, if any.
    pub(crate) fn figure(&mut self, name: &str, value: f64) {
        self.measured.figures.push((name.into(), value));
    }

    /// Records a remark for the reader of the figures.
    pub(crate) fn note(&mut self, text: String) {
        self.measured.notes.push(text);
    }

    /// Returns how many iterations of `side` take as long as `batch`.
    ///
    /// Runs the side once before, because the first run can take much longer. A driver initializes
    /// much then. With the time of that run, each sample would be a single burst.
    fn calibrate(side: &mut Side<'_>, batch: Duration) -> Outcome<u64> {
        const MOST: u64 = 1 << 24;
        let batch = batch.as_secs_f64();
        let step = side.step;
        let whole = |count: u64| count.clamp(1, MOST).next_multiple_of(step);
        let mut count = whole(1);
        (side.run)(count)?;
        loop {
            let start = Instant::now();
            let took = (side.run)(count)?.as_secs_f64();
            // The untimed part of a batch takes time as well.
            let took = took.max(start.elapsed().as_secs_f64() / 4.0);
            if took >= batch / 2.0 || count >= MOST {
                return Ok(whole((count as f64 * batch / took) as u64));
            }
            let factor = (batch / took.max(1e-9)).clamp(2.0, 10.0);
            count = whole((count as f64 * factor) as u64);
        }
    }

    /// Runs each side once. Returns nanoseconds of one iteration of each.
    fn run_round(sides: &mut [Side<'_>], counts: &[u64], round: u32) -> Outcome<Vec<f64>> {
        let mut times = vec![f64::NAN; sides.len()];
        for place in 0..sides.len() {
            let at = turn(round, place, sides.len());
            let side = &mut sides[at];
            // The same depth in a round and in the next one, which has the opposite order.
            let depth = round / 2 % DEPTHS;
            let took = deeper(depth, &mut || (side.run)(counts[at]))?;
            let iterations = counts[at] * sides[at].each;
            times[at] = took.as_nanos() as f64 / iterations as f64;
        }
        Ok(times)
    }

    /// Summarizes `samples`, which has a list for each side with a sample for each round.
    fn conclude(&mut self, sides: &[Side<'_>], samples: &[Vec<f64>]) {
        let place = |name: &str| sides.iter().position(|side| side.name == name);
        let [ours, raw] = [OURS, RAW].map(place);
        let times = |at: Option<usize>| at.and_then(|at| Summary::of(&samples[at]));
        self.measured.ours = times(ours);
        self.measured.raw = times(raw);
        if let (Some(ours), Some(raw)) = (ours, raw) {
            let pairs = samples[ours].iter().zip(&samples[raw]);
            let ratios: Vec<_> = pairs.map(|(ours, raw)| ours / raw).collect();
            self.measured.ratio = Summary::of(&ratios);
        }
        for (at, side) in sides.iter().enumerate() {
            if [ours, raw].contains(&Some(at)) {
                continue;
            }
            let other = median(&samples[at]).unwrap_or(f64::NAN);
            self.figure(&format!("{}_ns", side.name), other);
            if let Some(own) = self.measured.ours {
                self.figure(&format!("ratio_to_{}", side.name), own.median / other);
            }
        }
    }
}

/// Number of stack depths that sides are called from. Together they cover more than a page.
const DEPTHS: u32 = 64;

/// Calls `go` so many frames deeper in the stack, each of more than a cache line.
///
/// The same call takes up to 40 ns more or less with its stack elsewhere beside the heap. Without
/// this, that error would differ between processes and be the same in all rounds of one.
#[inline(never)]
fn deeper<T>(depth: u32, go: &mut dyn FnMut() -> T) -> T {
    let frame = black_box([0_u8; 64]);
    let done = match depth {
        0 => go(),
        _ => deeper(depth - 1, go),
    };
    black_box(frame);
    done
}

/// Returns which of `sides` has this place in this round.
///
/// Each second round reverses the order of the one before, so every side runs before every other
/// side equally often. After every two rounds another side begins.
const fn turn(round: u32, place: usize, sides: usize) -> usize {
    let place = if round % 2 == 1 {
        sides - 1 - place
    } else {
        place
    };
    (round as usize / 2 + place) % sides
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use rstest::rstest;

    use super::*;
    use crate::side::Stop;

    const PACE: Pace = Pace {
        rounds: 12,
        batch: Duration::from_micros(100),
        patience: Duration::ZERO,
    };

    #[test]
    fn sides_alternate_and_each_begins_some_rounds() {
        let order = RefCell::new(Vec::new());
        let side = |name: &'static str, nanoseconds: u64| {
            let order = &order;
            Side::new(name, move |n| {
                order.borrow_mut().push((name, n));
                Ok(Duration::from_nanos(n * nanoseconds))
            })
        };
        let mut lab = Lab::new(PACE);
        let sides = vec![
            side(OURS, 30).step(64),
            side(RAW, 10).each(2),
            side("other", 60),
        ];
        assert_eq!(lab.race(sides), Ok(()));
        let found = &lab.measured;
        let median = |summary: Option<Summary>| summary.map(|summary| summary.median);
        let medians = [found.ours, found.raw, found.ratio].map(median);
        assert_eq!(medians, [30.0, 5.0, 6.0].map(Some));
        let figures = [
            ("other_ns".to_owned(), 60.0),
            ("ratio_to_other".into(), 0.5),
        ];
        assert_eq!(found.figures, figures);
        let medians = [OURS, RAW, "other", "unknown"].map(|side| lab.median(side));
        assert_eq!(medians, [Some(30.0), Some(5.0), Some(60.0), None]);
        let order = order.borrow();
        let steps = order.iter().filter(|(name, _)| *name == OURS);
        assert!(steps.clone().all(|(_, n)| n % 64 == 0), "{order:?}");
        let rounds: Vec<_> = order[order.len() - 3 * PACE.rounds as usize..]
            .chunks(3)
            .map(|round| round[0].0)
            .collect();
        for name in [OURS, RAW, "other"] {
            let first = rounds.iter().filter(|first| **first == name).count();
            assert_eq!(first, 4, "{name}: {rounds:?}");
        }
    }

    /// The first iterations of a process take longest. A thread that is interrupted takes longer,
    /// so one of many attempts counts.
    #[rstest]
    #[case::each_run_as_long(0)]
    #[case::a_first_run_that_takes_longer(1_000_000)]
    fn the_number_of_iterations_follows_from_the_duration_of_a_batch(#[case] first: u64) {
        let count = || {
            let mut extra = first;
            let run = move |n| Ok(Duration::from_nanos(n * 10 + std::mem::take(&mut extra)));
            Lab::calibrate(&mut Side::new(RAW, run), PACE.batch)
        };
        assert!((0..1000).any(|_| count() == Ok(10_000)));
    }

    #[rstest]
    #[case::two(2)]
    #[case::three(3)]
    #[case::four(4)]
    fn each_side_runs_before_each_other_side_equally_often(#[case] sides: usize) {
        for two in 0..64 {
            // The place of each side in a round.
            let places = |round| -> Vec<usize> {
                let order: Vec<_> = (0..sides).map(|at| turn(round, at, sides)).collect();
                let place = |side| order.iter().position(|turn| *turn == side);
                (0..sides).filter_map(place).collect()
            };
            let (one, other) = (places(2 * two), places(2 * two + 1));
            assert_eq!((one.len(), other.len()), (sides, sides));
            for side in 0..sides {
                assert_eq!(one[side] + other[side], sides - 1, "{one:?} {other:?}");
            }
        }
    }

    #[test]
    fn a_side_that_fails_ends_the_race() {
        let stop = Stop::Failed("no".into());
        let side = Side::new(OURS, |_| Err(Stop::Failed("no".into())));
        assert_eq!(Lab::new(PACE).race(vec![side]), Err(stop));
    }
}
