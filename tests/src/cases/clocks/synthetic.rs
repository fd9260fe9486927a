//! M2, M3, M5 for synthetic clocks, of which the truth is known, through the public interface.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use syncline::clock::{
    Axis, Clock, Effort, Estimate, HostClock, Map, Rounds, Sample, Sampler, Time, TimestampCounter,
};
use syncline::{Error, Result, error::Object, info::Uuid};

use crate::case::{Stop, Verdict, cases, check, check_error};
use crate::cases::unless_pair;
use crate::dice::Dice;
use crate::{Subject, World};

cases! {
    "clocks.bounds_hold_under_noise": [M2 M3] => noise(dice);
    "clocks.times_of_two_clocks_compare": [M4] => two(dice);
    "clocks.a_silent_clock_costs_no_time": [M2 M3] => silence;
    "clocks.a_clock_that_never_settles_is_sampled": [M2] => never_settles;
    "clocks.counters_come_round": [M1 M5] => come_round(dice);
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A synthetic clock and the host's clock: the true relation.
#[derive(Clone, Copy, Debug)]
struct Truth {
    host: i64,
    device: i64,
    /// Nanoseconds of the device per second of the host.
    rate: i64,
}

impl Truth {
    /// Returns what the clock shows.
    fn device(self, host: i64) -> i64 {
        let passed = i128::from(host - self.host) * i128::from(self.rate);
        self.device + passed.div_euclid(1_000_000_000) as i64
    }

    /// Returns when the clock shows that, except for the last nanosecond.
    fn host(self, device: i64) -> i64 {
        let passed = i128::from(device - self.device) * 1_000_000_000;
        self.host + passed.div_euclid(i128::from(self.rate)) as i64
    }
}

/// How reading the clock goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    /// A few microseconds between two readings of the host's clock.
    Calm,
    /// Milliseconds every third time.
    Spikes,
    /// No answer every third time.
    Gaps,
}

/// How long the clock does not answer.
const SILENCE: Duration = Duration::from_millis(3);

struct Noisy {
    truth: Truth,
    mood: Mood,
    dice: Mutex<Dice>,
    /// Number of readings. From a given one on they fail.
    asked: Arc<AtomicU32>,
    silent_from: u32,
    gpu: Option<Uuid>,
}

impl Sampler for Noisy {
    fn gpu(&self) -> Option<Uuid> {
        self.gpu
    }

    fn sample(&self) -> Result<Sample> {
        let nth = self.asked.fetch_add(1, Ordering::SeqCst);
        let mut dice = lock(&self.dice);
        let odd = dice.one_in(3);
        if nth >= self.silent_from || (odd && self.mood == Mood::Gaps && nth > 0) {
            thread::sleep(SILENCE);
            return Err(Error::clock_silent(
                Object::new("clock", "noisy"),
                SILENCE,
                "the case says so",
            ));
        }
        let now = self.host_clock().now();
        let deviation = if odd && self.mood == Mood::Spikes {
            dice.within(1_000_000..10_000_000)
        } else {
            dice.within(500..3_000)
        };
        // Up to the largest allowed deviation.
        let off = match dice.below(3) {
            0 => deviation.cast_signed(),
            1 => -deviation.cast_signed(),
            _ => dice.below(2 * deviation).cast_signed() - deviation.cast_signed(),
        };
        Ok(Sample {
            device: self.truth.device(now),
            host: now + off,
            // The clock may have shown the same for one of its nanoseconds.
            deviation: deviation + 2,
        })
    }
}

/// Creates a clock that is `ppm` faster than the host's, and that began earlier.
fn truth(ppm: i64) -> Truth {
    Truth {
        host: HostClock::Monotonic.now(),
        device: 1_700_000_000_123_456_789,
        rate: 1_000_000_000 + ppm * 1_000,
    }
}

/// Creates a clock with this truth, read in this mood.
fn clock(mood: Mood, truth: Truth, silent_from: u32, dice: Dice) -> (Clock, Arc<AtomicU32>) {
    clock_of(None, mood, truth, silent_from, dice)
}

/// The same for a clock of a GPU.
fn clock_of(
    gpu: Option<Uuid>,
    mood: Mood,
    truth: Truth,
    silent_from: u32,
    dice: Dice,
) -> (Clock, Arc<AtomicU32>) {
    let asked = Arc::new(AtomicU32::new(0));
    let sampler = Noisy {
        truth,
        mood,
        dice: Mutex::new(dice),
        asked: asked.clone(),
        silent_from,
        gpu,
    };
    let clock = Clock::new(Object::new("clock", "noisy"), sampler);
    (clock, asked)
}

/// Conversions hold within their stated error, in both directions, however the clock is read.
///
/// The error stays small enough to be useful.
fn noise<S: Subject>(world: &World<S>, dice: &mut Dice) -> Verdict {
    let rounds = unless_pair(world, "rounds", 30, 10);
    for mood in [Mood::Calm, Mood::Spikes, Mood::Gaps] {
        for ppm in [-450, -20, 0, 450] {
            let truth = truth(ppm);
            let (clock, _) = clock(mood, truth, u32::MAX, dice.fork());
            let clock = world.left.own_clock(clock);
            for round in 0..rounds {
                match clock.sample() {
                    Ok(told) => check!(
                        told.holds(),
                        "{mood:?}, {ppm} ppm: {told:?} was not expected"
                    ),
                    Err(Error::ClockSilent { .. }) if mood == Mood::Gaps => {}
                    Err(other) => return Err(other.into()),
                }
                let now = HostClock::Monotonic.now();
                // Before the first reading, recently, and soon.
                for away in [-5_000_000_000, -1_000_000, 0, 20_000_000] {
                    let host = now + away + dice.below(1_000).cast_signed();
                    let device = truth.device(host);
                    let (there, back) = (clock.to_host(device)?, clock.to_device(host)?);
                    for (told, is) in [(there, truth.host(device)), (back, device)] {
                        check!(
                            told.nanoseconds.abs_diff(is) <= told.error + 2,
                            "{mood:?}, {ppm} ppm, round {round}, {away} ns from now: {told:?}, but it is {is}"
                        );
                    }
                    let most = 10_000_000 + (away.unsigned_abs() + 1_000_000_000) / 2000;
                    check!(
                        there.error <= most,
                        "{mood:?}, {ppm} ppm: {away} ns from now the error is {} ns",
                        there.error
                    );
                }
                thread::sleep(Duration::from_micros(dice.below(300)));
            }
        }
    }
    Ok(())
}

/// Intervals between times of two clocks hold within their stated error.
///
/// They go through the host's clock. They are direct only if both clocks are of one GPU *and* show
/// the same: being of one GPU is not enough.
fn two<S: Subject>(world: &World<S>, dice: &mut Dice) -> Verdict {
    let [one, other] = [Some(Uuid([7; 16])), Some(Uuid([8; 16]))];
    let slow = truth(-300);
    let ahead = Truth {
        device: slow.device + 200_000,
        ..slow
    };
    let fast = truth(40);
    let pairs = [
        (one, slow, one, slow, Axis::One),
        (one, slow, one, ahead, Axis::Host),
        (one, slow, other, slow, Axis::Host),
        (one, slow, None, slow, Axis::Host),
        (None, slow, None, slow, Axis::Host),
        (None, fast, None, slow, Axis::Host),
    ];
    for (first, early, second, late, axis) in pairs {
        let (left, _) = clock_of(first, Mood::Calm, early, u32::MAX, dice.fork());
        let (right, _) = clock_of(second, Mood::Calm, late, u32::MAX, dice.fork());
        for _ in 0..10 {
            let from = HostClock::Monotonic.now() - dice.below(1_000_000).cast_signed();
            let to = from + dice.below(2_000_000).cast_signed();
            let start = Time::new(left.clone(), early.device(from));
            let end = Time::new(right.clone(), late.device(to));
            let there = world.left.subject().since(&start, &end)?;
            let back = world.left.subject().since(&end, &start)?;
            // A direct interval is in the clocks' own nanoseconds, which differ from the host's.
            let passed = match axis {
                Axis::Host => to - from,
                _ => late.device(to) - early.device(from),
            };
            for (told, is) in [(there, passed), (back, -passed)] {
                check!(
                    told.axis == axis && told.nanoseconds.abs_diff(is) <= told.error + 2,
                    "{told:?}, where it is {is} ns, to be compared {axis}"
                );
            }
        }
    }
    Ok(())
}

/// A clock that stops answering costs accuracy only.
///
/// Conversions hold, and wait for it at most a tenth of the time. A clock that never answered
/// converts nothing.
fn silence<S: Subject>(world: &World<S>) -> Verdict {
    const MANY: u32 = 2_000;
    let truth = truth(300);
    let (known, asked) = clock(Mood::Calm, truth, 1, Dice::new(1));
    let known = world.left.own_clock(known);
    let first = known.sample()?.sample;
    let start = Instant::now();
    let mut before = 0;
    for nth in 0..MANY {
        // Further and further from the only sample.
        let host = first.host + i64::from(nth) * 10_000_000;
        let told = known.to_host(truth.device(host))?;
        let is = truth.host(truth.device(host));
        check!(
            told.nanoseconds.abs_diff(is) <= told.error + 2,
            "{told:?} with one sample, but it is {is}"
        );
        check!(
            told.error >= before,
            "an error of {} ns after one of {before} ns, further from the only sample",
            told.error
        );
        before = told.error;
    }
    let tries = u128::from(asked.load(Ordering::SeqCst) - 1);
    let most = 1 + start.elapsed().as_nanos() / (10 * SILENCE.as_nanos());
    check!(
        tries <= most,
        "{MANY} conversions asked a silent clock {tries} times in {:?}",
        start.elapsed()
    );
    let (never, asked) = clock(Mood::Calm, truth, 0, Dice::new(2));
    let never = world.left.own_clock(never);
    for _ in 0..5 {
        check_error!(never.to_host(0), Error::ClockSilent { .. });
        check_error!(never.to_device(0), Error::ClockSilent { .. });
    }
    check_error!(never.sample(), Error::ClockSilent { .. });
    let tries = asked.load(Ordering::SeqCst);
    check!((1..12).contains(&tries), "it was asked {tries} times");
    Ok(())
}

/// A clock that never gives a good reading is read for the allowed time. The best reading counts.
fn never_settles<S: Subject>(world: &World<S>) -> Verdict {
    struct Restless(Mutex<Dice>, Arc<Mutex<Vec<u64>>>);
    const EACH: Duration = Duration::from_millis(1);
    const EFFORT: Effort = Effort {
        limit: Duration::from_millis(8),
        samples: u32::MAX,
        enough: 0,
    };
    impl Sampler for Restless {
        fn sample(&self) -> Result<Sample> {
            EFFORT.best(|| {
                thread::sleep(EACH);
                let host = self.host_clock().now();
                let deviation = lock(&self.0).within(1_000..1_000_000);
                lock(&self.1).push(deviation);
                Ok(Sample {
                    device: host,
                    host,
                    deviation,
                })
            })
        }
    }
    let readings = Arc::new(Mutex::new(Vec::new()));
    let restless = Restless(Mutex::new(Dice::new(3)), readings.clone());
    let clock = Clock::new(Object::new("clock", "restless"), restless);
    let clock = world.left.own_clock(clock);
    for _ in 0..5 {
        let told = clock.sample()?.sample;
        let read = std::mem::take(&mut *lock(&readings));
        // Each reading takes at least a millisecond, and none begins after the limit.
        let most = (EFFORT.limit.as_millis() / EACH.as_millis()) as usize + 1;
        check!(
            (1..=most).contains(&read.len()),
            "{} readings in {:?}",
            read.len(),
            EFFORT.limit
        );
        check!(
            Some(&told.deviation) == read.iter().min(),
            "of deviations of {read:?} ns the one of {} ns was taken",
            told.deviation
        );
    }
    Ok(())
}

/// Counters that wrap are unwrapped exactly, and convert to the time at which they were read.
///
/// Covers half a day, in which a counter of 36 bits wraps hundreds of times. The counters are read
/// often and rarely.
fn come_round<S: Subject>(_: &World<S>, dice: &mut Dice) -> Verdict {
    const HALF_A_DAY: i64 = 43_200_000_000_000;
    for (bits, halves) in [(36, 2), (36, 105), (40, 1), (48, 2), (64, 2)] {
        // Multiples of half nanoseconds, so that the truth is an integer.
        let period = f64::from(halves) / 2.0;
        let Some(counter) = TimestampCounter::new(bits, period) else {
            return Stop::fail(format!("{bits} bits of {period} ns are no counter"));
        };
        let valid = u64::MAX >> (64 - bits);
        // Close to the end of its range, with arbitrary bits above the valid ones.
        let begin = valid - dice.below(1_000_000);
        let ticks = |host: i64| i128::from(host) * 2 / i128::from(halves);
        let shown = |host: i64, junk: u64| {
            let all = i128::from(begin) + ticks(host);
            (all as u64 & valid) | (junk & !valid)
        };
        let (mut rounds, mut map) = (Rounds::new(counter), Map::default());
        let origin = rounds.follow(shown(0, dice.roll()), 0);
        let passed = |host: i64| (ticks(host) * i128::from(halves) / 2) as i64;
        let (mut host, mut before) = (0, 0);
        while host < HALF_A_DAY {
            host += if dice.one_in(4) {
                dice.within(1_000_000_000..2_000_000_000_000).cast_signed()
            } else {
                dice.within(1..1_000_000_000).cast_signed()
            };
            let reading = shown(host, dice.roll());
            let told = rounds.follow(reading, host);
            let (since, is) = (told - origin, passed(host));
            check!(
                since.abs_diff(is) <= 1 && since >= before,
                "{bits} bits of {period} ns: {since} ns after its first reading, after {before} ns, but it is {is} ns"
            );
            before = since;
            map.add(Sample {
                device: told,
                host,
                deviation: 60,
            });
            let Some(Estimate { nanoseconds, error }) = map.to_host(told) else {
                return Stop::fail("a map with samples converts nothing");
            };
            check!(
                nanoseconds.abs_diff(host) <= error && error <= 62,
                "{bits} bits of {period} ns: {nanoseconds} ± {error} ns, but it is {host} ns"
            );
            // A time from shortly before, on either side of the wrap.
            let ago = dice
                .below(counter.wraps_after().min(1_000_000_000) / 4)
                .cast_signed();
            let earlier = rounds.time_of(shown((host - ago).max(0), dice.roll()));
            let then = passed((host - ago).max(0));
            check!(
                earlier.is_some_and(|earlier| (earlier - origin).abs_diff(then) <= 1),
                "{ago} ns before, {earlier:?} from {origin}, but it is {then} ns"
            );
            // A record that was made now, and whose time is written within the round.
            let later = dice
                .below(counter.wraps_after().min(100_000_000_000) / 2)
                .cast_signed();
            let written = rounds.time_after(shown(host + later, dice.roll()), host);
            let then = passed(host + later);
            check!(
                written.is_some_and(|written| (written - origin).abs_diff(then) <= 1),
                "{later} ns later, {written:?} from {origin}, but it is {then} ns"
            );
        }
    }
    Ok(())
}
