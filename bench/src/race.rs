//! How two sides are timed: alternately, in one process, many rounds.

use std::hint::black_box;
use std::time::{Duration, Instant};

use crate::lab::{FLOOR, Lab, OURS, Outcome, RAW, Side};
use crate::stats::{Estimate, Summary, median};

/// How long a side is run for in each round, and how often.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Rounds; each is one batch of each side.
    pub rounds: u32,
    /// As many iterations make a batch as take this long.
    pub batch: Duration,
    /// A fine race that does not tell the difference well enough goes on, up to so many times as
    /// long.
    pub longest: u32,
}

impl Pace {
    /// For figures to be kept.
    pub const FULL: Self = Self {
        rounds: 30,
        batch: Duration::from_millis(3),
        longest: 16,
    };

    /// To see that it runs.
    pub const QUICK: Self = Self {
        rounds: 3,
        batch: Duration::from_micros(200),
        longest: 1,
    };
}

/// A fine race has so many times the rounds of another, each as much shorter: a few calls of each
/// side, within microseconds of the other's.
const FINER: u32 = 192;

/// So well, in nanoseconds, a fine race is to tell the difference.
const SURE: f64 = 1.0;

/// How much longer the floor takes than raw, in nanoseconds, and between which bounds that lies (99
/// %): of rows that are raced finely.
pub(crate) const FLOOR_OVER: &str = "floor_over_ns";
pub(crate) const FLOOR_OVER_LOW: &str = "floor_over_low_ns";
pub(crate) const FLOOR_OVER_HIGH: &str = "floor_over_high_ns";

/// What was measured of one row on one subject.
#[derive(Debug, Clone, Default)]
pub struct Measured {
    /// Nanoseconds of one iteration of ours.
    pub ours: Option<Summary>,
    /// Nanoseconds of one iteration of raw.
    pub raw: Option<Summary>,
    /// Nanoseconds of one iteration of the floor.
    pub floor: Option<Summary>,
    /// Ours by raw, of the two batches of each round.
    pub ratio: Option<Summary>,
    /// The floor by raw, likewise.
    pub floor_ratio: Option<Summary>,
    /// Ours by the floor, likewise.
    pub ratio_to_floor: Option<Summary>,
    /// Ours less raw, of the two batches of each round, in nanoseconds of one iteration.
    pub over: Option<Summary>,
    /// Where the middle of that lies.
    pub difference: Option<Estimate>,
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

    /// Runs the sides in turns, so many rounds, and keeps what one iteration took.
    fn rounds(
        sides: &mut [Side<'_>],
        counts: &[u64],
        rounds: u32,
        samples: &mut [Vec<f64>],
    ) -> Outcome<()> {
        for round in 0..rounds {
            for place in 0..sides.len() {
                let at = turn(round, place, sides.len());
                let side = &mut sides[at];
                // The same for both rounds of two.
                let steps = round / 2 % STEPS;
                let took = lower(steps, &mut || side.run(counts[at]))?;
                let iterations = counts[at] * sides[at].many();
                samples[at].push(took.as_nanos() as f64 / iterations as f64);
            }
        }
        Ok(())
    }

    /// How many iterations each side does in a batch.
    fn counts(sides: &mut [Side<'_>], batch: Duration) -> Outcome<Vec<u64>> {
        let counts = sides.iter_mut().map(|side| Self::calibrate(side, batch));
        counts.collect()
    }

    /// What these samples, round by round, say of the sides.
    fn conclude(&mut self, sides: &[Side<'_>], samples: &[Vec<f64>]) {
        let [ours, raw, floor] = [OURS, RAW, FLOOR].map(|name| place_of(sides, name));
        let times = |at: Option<usize>| at.and_then(|at| Summary::of(&samples[at]));
        let ratios = |one: Option<usize>, other: Option<usize>| {
            let pairs = samples[one?].iter().zip(&samples[other?]);
            let ratios: Vec<_> = pairs.map(|(one, other)| one / other).collect();
            Summary::of(&ratios)
        };
        self.measured.ours = times(ours);
        self.measured.raw = times(raw);
        self.measured.floor = times(floor);
        self.measured.ratio = ratios(ours, raw);
        self.measured.floor_ratio = ratios(floor, raw);
        self.measured.ratio_to_floor = ratios(ours, floor);
        if let Some(over) = overs(sides, samples, OURS) {
            self.measured.over = Summary::of(&over);
            self.measured.difference = difference(&over);
        }
        for (at, side) in sides.iter().enumerate() {
            if [ours, raw, floor].contains(&Some(at)) {
                continue;
            }
            let other = median(&samples[at]).unwrap_or(f64::NAN);
            self.figure(&format!("{}_ns", side.name()), other);
            if let Some(own) = self.measured.ours {
                self.figure(&format!("ratio_to_{}", side.name()), own.median / other);
            }
        }
    }
}

/// From so many places on the stack sides are called: over more than a page of it.
const STEPS: u32 = 64;

/// Calls `go` so many steps further down the stack, each of somewhat more than a cache line. Where
/// a stack lies, beside what is on the heap, makes the same call up to forty nanoseconds faster or
/// slower, which was different in each process and for each side, and the same in every round of
/// one: so all rounds together would have been wrong in the same way.
#[inline(never)]
fn lower<T>(steps: u32, go: &mut dyn FnMut() -> T) -> T {
    let room = black_box([0_u8; 64]);
    let done = match steps {
        0 => go(),
        _ => lower(steps - 1, go),
    };
    black_box(room);
    done
}

fn place_of(sides: &[Side<'_>], name: &str) -> Option<usize> {
    sides.iter().position(|side| side.name() == name)
}

/// A side less raw, round by round; `None` where one of them is missing.
fn overs(sides: &[Side<'_>], samples: &[Vec<f64>], side: &str) -> Option<Vec<f64>> {
    let (side, raw) = (place_of(sides, side)?, place_of(sides, RAW)?);
    let pairs = samples[side].iter().zip(&samples[raw]);
    Some(pairs.map(|(side, raw)| side - raw).collect())
}

/// Where the middle of the differences of these rounds lies. Whoever comes first in one round comes
/// second in the next, and what that costs is in neither's favour where two rounds are taken
/// together.
fn difference(over: &[f64]) -> Option<Estimate> {
    let twos = over.chunks_exact(2);
    let both: Vec<_> = twos.map(|two| f64::midpoint(two[0], two[1])).collect();
    Estimate::of(&both)
}

/// Which of `sides` has this place in this round. Each second round has the order of the one before
/// backwards, and which of both orders comes first changes from two to two, from four to four and
/// so on (the sequence of Thue and Morse): so of any two sides each comes before the other as
/// often, in every two rounds, and nothing that comes back every so many rounds meets the same side
/// each time. Of more than two sides another one begins after every two rounds.
const fn turn(round: u32, place: usize, sides: usize) -> usize {
    let backwards = round.count_ones() % 2 == 1;
    let place = if backwards { sides - 1 - place } else { place };
    let begins = if sides > 2 { round as usize / 2 } else { 0 };
    (begins + place) % sides
}

impl Lab for Bench {
    fn race(&mut self, mut sides: Vec<Side<'_>>) -> Outcome<()> {
        /// Rounds that only warm up.
        const WARM: u32 = 2;
        let counts = Self::counts(&mut sides, self.pace.batch)?;
        let mut samples = vec![Vec::new(); sides.len()];
        Self::rounds(&mut sides, &counts, WARM, &mut samples)?;
        samples.iter_mut().for_each(Vec::clear);
        Self::rounds(&mut sides, &counts, self.pace.rounds, &mut samples)?;
        self.conclude(&sides, &samples);
        Ok(())
    }

    fn race_finely(&mut self, mut sides: Vec<Side<'_>>) -> Outcome<()> {
        let mut counts = Self::counts(&mut sides, self.pace.batch / FINER)?;
        let least = counts.iter().min().copied().unwrap_or(1);
        counts.fill(least);
        let mut samples = vec![Vec::new(); sides.len()];
        let many = self.pace.rounds.saturating_mul(FINER);
        Self::rounds(&mut sides, &counts, many / 16, &mut samples)?;
        samples.iter_mut().for_each(Vec::clear);
        for _ in 0..self.pace.longest {
            Self::rounds(&mut sides, &counts, many, &mut samples)?;
            // How far it may be off decides, and never what it says: to go on until one likes the
            // answer would make it wrong.
            let known = overs(&sides, &samples, OURS).and_then(|over| difference(&over));
            if known.is_none_or(|known| known.uncertainty() <= SURE) {
                break;
            }
        }
        self.conclude(&sides, &samples);
        let floor = overs(&sides, &samples, FLOOR).and_then(|over| difference(&over));
        if let Some(floor) = floor {
            self.figure(FLOOR_OVER, floor.value);
            if floor.uncertainty().is_finite() {
                self.figure(FLOOR_OVER_LOW, floor.low);
                self.figure(FLOOR_OVER_HIGH, floor.high);
            }
        }
        Ok(())
    }

    fn median(&self, side: &str) -> Option<f64> {
        let of = |summary: Option<Summary>| summary.map(|summary| summary.median);
        match side {
            OURS => of(self.measured.ours),
            RAW => of(self.measured.raw),
            FLOOR => of(self.measured.floor),
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
        let place = match side {
            RAW => &mut self.measured.raw,
            FLOOR => &mut self.measured.floor,
            _ => &mut self.measured.ours,
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
        longest: 3,
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
            side(FLOOR, 15),
        ]);
        assert_eq!(done, Ok(()));
        let found = &bench.measured;
        let median = |summary: Option<Summary>| summary.map(|summary| summary.median);
        assert_eq!(median(found.ours), Some(30.0));
        assert_eq!(median(found.raw), Some(5.0));
        assert_eq!(median(found.ratio), Some(6.0));
        assert_eq!(median(found.over), Some(25.0));
        assert_eq!(median(found.floor), Some(15.0));
        assert_eq!(median(found.floor_ratio), Some(3.0));
        assert_eq!(median(found.ratio_to_floor), Some(2.0));
        assert_eq!(
            found.figures,
            [
                ("other_ns".to_owned(), 60.0),
                ("ratio_to_other".into(), 0.5)
            ]
        );
        let order = order.borrow();
        let rounds: Vec<_> = order[order.len() - 4 * PACE.rounds as usize..]
            .chunks(4)
            .map(|round| round[0].0)
            .collect();
        for name in [OURS, RAW, "other", FLOOR] {
            let first = rounds.iter().filter(|first| **first == name).count();
            assert!(first >= 2, "{name} comes first {first} times: {rounds:?}");
        }
        let medians = [OURS, RAW, "other", FLOOR, "nobody"].map(|side| bench.median(side));
        let expected = [Some(30.0), Some(5.0), Some(60.0), Some(15.0), None];
        assert_eq!(medians, expected);
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
    fn of_two_sides_each_comes_first_as_often_and_never_in_step() {
        let order: Vec<usize> = (0..64).map(|round| turn(round, 0, 2)).collect();
        assert_eq!(order[..8], [0, 1, 1, 0, 1, 0, 0, 1]);
        for period in [2, 4, 8] {
            for start in 0..period {
                let each = order.iter().skip(start).step_by(period);
                let second = each.clone().sum::<usize>();
                assert_eq!(
                    2 * second,
                    each.count(),
                    "every {period} rounds from {start}"
                );
            }
        }
    }

    #[test]
    fn of_more_sides_each_comes_before_each_other_as_often_in_every_two_rounds() {
        for sides in 3..=5 {
            for two in 0..64 {
                let places = |round| -> Vec<usize> {
                    let order: Vec<_> = (0..sides).map(|at| turn(round, at, sides)).collect();
                    let place = |side| order.iter().position(|turn| *turn == side);
                    (0..sides).filter_map(place).collect()
                };
                let (one, other) = (places(2 * two), places(2 * two + 1));
                assert_eq!(
                    (one.len(), other.len()),
                    (sides, sides),
                    "each has its turn"
                );
                for side in 0..sides {
                    assert_eq!(one[side] + other[side], sides - 1, "{one:?} {other:?}");
                }
            }
            let first: Vec<_> = (0..60).map(|round| turn(round, 0, sides)).collect();
            for side in 0..sides {
                let count = first.iter().filter(|first| **first == side).count();
                assert!(count >= 60 / sides - 4, "{side} of {sides}: {first:?}");
            }
        }
    }

    /// A machine whose calls take up to a fifth longer or shorter, and longer and longer, and on
    /// which who comes first pays for it: a difference of a thousandth is found, and none where
    /// there is none.
    #[test]
    fn a_fine_race_finds_a_small_difference_on_a_noisy_machine() {
        for truth in [0.0, 2.0] {
            let now = RefCell::new((0_u64, 9_u64));
            let side = |name: &'static str, more: f64| {
                let now = &now;
                Side::new(name, move |n| {
                    let (call, dice) = &mut *now.borrow_mut();
                    *call += 1;
                    *dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let noise = (*dice >> 33) as f64 / f64::from(1_u32 << 31) * 800.0;
                    let drift = *call as f64 / 100.0;
                    let first = if *call % 2 == 1 { 300.0 } else { 0.0 };
                    let each = 2000.0 + more + noise + drift + first;
                    Ok(Duration::from_nanos((n as f64 * each) as u64))
                })
                .step(8)
            };
            let mut bench = Bench::new(Pace {
                longest: 40,
                ..PACE
            });
            let sides = vec![side(OURS, truth), side(RAW, 0.0)];
            assert_eq!(bench.race_finely(sides), Ok(()));
            let found = bench.measured.difference.expect("both sides");
            assert!(
                found.low <= truth && truth <= found.high && found.uncertainty() < 5.0,
                "{truth}: {found:?}"
            );
        }
    }

    #[test]
    fn a_fine_race_ends_when_it_knows_enough_and_else_after_its_longest() {
        let race = |noise: u64| {
            let state = RefCell::new((0_u64, 9_u64));
            let side = |name| {
                Side::new(name, |n| {
                    let (calls, dice) = &mut *state.borrow_mut();
                    *calls += 1;
                    *dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let each = 1000 + (*dice >> 33) % (noise + 1);
                    Ok(Duration::from_nanos(n * each))
                })
            };
            let sides = vec![side(OURS), side(RAW)];
            assert_eq!(Bench::new(PACE).race_finely(sides), Ok(()));
            state.into_inner().0 / 2 / u64::from(PACE.rounds * FINER)
        };
        assert_eq!(race(0), 1);
        assert_eq!(race(10_000), u64::from(PACE.longest));
    }

    #[test]
    fn a_side_that_fails_ends_the_race() {
        let stop = Stop::Failed("no".into());
        let side = Side::ours(|_| Err(Stop::Failed("no".into())));
        assert_eq!(Bench::new(PACE).race(vec![side]), Err(stop));
    }
}
