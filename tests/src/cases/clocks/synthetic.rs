//! M2, M3, M5 for synthetic clocks, of which the truth is known, through the public interface.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use syncline::clock::{Axis, Clock, HostClock, Sample, Time};
use syncline::{Error, Result, error::Object, info::Uuid};
use syncline_core::backend::Sampler;

use crate::case::{Verdict, cases, check};
use crate::cases::unless_pair;
use crate::dice::Dice;
use crate::{Subject, World};

cases! {
    "clocks.bounds_hold_under_noise": [M2 M3] => noise(dice);
    "clocks.times_of_two_clocks_compare": [M4] => two(dice);
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
    /// Whether it has answered once.
    answered: AtomicBool,
    gpu: Option<Uuid>,
}

impl Sampler for Noisy {
    fn gpu(&self) -> Option<Uuid> {
        self.gpu
    }

    fn sample(&self) -> Result<Sample> {
        let answered = self.answered.swap(true, Ordering::SeqCst);
        let mut dice = lock(&self.dice);
        let odd = dice.one_in(3);
        if answered && odd && self.mood == Mood::Gaps {
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

/// Creates a clock of a GPU with this truth, read in this mood.
fn clock(gpu: Option<Uuid>, mood: Mood, truth: Truth, dice: Dice) -> Clock {
    let sampler = Noisy {
        truth,
        mood,
        dice: Mutex::new(dice),
        answered: AtomicBool::new(false),
        gpu,
    };
    Clock::new(Object::new("clock", "noisy"), sampler)
}

/// Conversions hold within their stated error, in both directions, however the clock is read.
///
/// The error stays small enough to be useful.
fn noise<S: Subject>(world: &World<S>, dice: &mut Dice) -> Verdict {
    let rounds = unless_pair(world, "rounds", 30, 10);
    for mood in [Mood::Calm, Mood::Spikes, Mood::Gaps] {
        for ppm in [-450, -20, 0, 450] {
            let truth = truth(ppm);
            let clock = clock(None, mood, truth, dice.fork());
            let clock = world.left.own_clock(clock);
            for round in 0..rounds {
                match clock.sample() {
                    Ok(told) => check!(told.holds(), "mood {mood:?}, ppm {ppm}"),
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
                            "mood {mood:?}, ppm {ppm}, round {round}, away {away}"
                        );
                    }
                    let most = 10_000_000 + (away.unsigned_abs() + 1_000_000_000) / 2000;
                    check!(there.error <= most, "mood {mood:?}, ppm {ppm}, away {away}");
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
        let left = clock(first, Mood::Calm, early, dice.fork());
        let right = clock(second, Mood::Calm, late, dice.fork());
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
