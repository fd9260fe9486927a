//! Repeats rounds during which something else ran on the same processor core.
//!
//! A virtual machine's processor is often one of two hardware threads of a core. Code takes up to
//! twice as long while the other thread is busy, often with the work of another machine.

use std::fmt::Write as _;
use std::hint::black_box;
use std::sync::{Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

use crate::side::Outcome;

/// The rounds of a row. A round is repeated if something else used the core during it.
pub(crate) struct UndisturbedRounds<P = fn() -> bool> {
    is_undisturbed: P,
    /// From then on all rounds count.
    end: Instant,
    counted: u32,
    /// How many of the rounds that count were disturbed.
    disturbed: u32,
}

impl UndisturbedRounds {
    /// Rounds that are repeated for `patience`. After that, disturbed rounds count as well.
    pub(crate) fn new(patience: Duration) -> Self {
        Self::with_probe(patience, is_undisturbed)
    }
}

impl<P: FnMut() -> bool> UndisturbedRounds<P> {
    /// Same as [`UndisturbedRounds::new`], with a function that tells if the core is not shared.
    fn with_probe(patience: Duration, is_undisturbed: P) -> Self {
        Self {
            is_undisturbed,
            end: Instant::now() + patience,
            counted: 0,
            disturbed: 0,
        }
    }

    /// Runs `round` until a run of it counts, and returns the result of that run.
    ///
    /// Waits for a processor whose core is not shared, and tries one after the other.
    ///
    /// # Errors
    /// That of `round`.
    pub(crate) fn run<T>(&mut self, mut round: impl FnMut() -> Outcome<T>) -> Outcome<T> {
        loop {
            while !(self.is_undisturbed)() && Instant::now() < self.end {
                move_to_next_processor();
            }
            let result = round()?;
            let disturbed = !(self.is_undisturbed)();
            if !disturbed || Instant::now() >= self.end {
                self.counted += 1;
                self.disturbed += u32::from(disturbed);
                return Ok(result);
            }
        }
    }

    /// A remark, if disturbed rounds count.
    pub(crate) fn remark(&self) -> Option<String> {
        let Self {
            counted, disturbed, ..
        } = self;
        (*disturbed > 0).then(|| {
            format!(
                "{disturbed} of {counted} rounds ran on a core that something else used as well"
            )
        })
    }
}

/// True if nothing else uses the core, as far as a probe can tell.
///
/// Compares with the least result of all probes of the process. The first call makes one on each
/// processor.
fn is_undisturbed() -> bool {
    /// How many times the least result counts as undisturbed. A busy second thread adds 25 % and
    /// more.
    const TOLERANCE: f64 = 1.12;
    static FIRST: Once = Once::new();
    static LEAST: Mutex<f64> = Mutex::new(f64::MAX);
    let note = |result: f64| {
        let mut least = LEAST.lock().unwrap_or_else(PoisonError::into_inner);
        *least = least.min(result);
        *least
    };
    FIRST.call_once(|| {
        let processors = sched_getaffinity(None).map_or(1, |all| all.count());
        for _ in 0..processors {
            note(probe());
            move_to_next_processor();
        }
    });
    let result = probe();
    result <= note(result) * TOLERANCE
}

/// The time of code that keeps a core's execution units busy, divided by that of code that waits.
///
/// Only the former takes longer on a shared core. Both depend on the frequency in the same way.
fn probe() -> f64 {
    let mut text = String::with_capacity(64);
    let busy = shortest(|| {
        for number in 0..50_u32 {
            text.clear();
            // Writing to a string does not fail.
            let _ = write!(text, "{}-{number:x}", black_box(number));
            black_box(&text);
        }
    });
    let waiting = shortest(|| {
        // Each multiplication waits for the one before.
        let mut product = black_box(3_u64);
        for _ in 0..1000 {
            product = product.wrapping_mul(product | 1);
        }
        black_box(product);
    });
    busy / waiting
}

/// Nanoseconds of the shortest of four runs, of which an interrupt may lengthen some.
fn shortest(mut run: impl FnMut()) -> f64 {
    let mut time = || {
        let start = Instant::now();
        run();
        start.elapsed().as_nanos() as f64
    };
    (0..4).map(|_| time()).fold(f64::MAX, f64::min)
}

/// Moves this thread to the next processor that it may use.
///
/// Afterwards it may use all of them again.
fn move_to_next_processor() {
    let Ok(all) = sched_getaffinity(None) else {
        return;
    };
    let now = sched_getcpu();
    let mut others = (1..CpuSet::MAX_CPU).map(|further| (now + further) % CpuSet::MAX_CPU);
    if let Some(next) = others.find(|other| all.is_set(*other)) {
        let mut only = CpuSet::new();
        only.set(next);
        // If the system refuses this, the thread stays where it is.
        let _ = sched_setaffinity(None, &only);
        let _ = sched_setaffinity(None, &all);
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::side::Stop;

    /// Runs two rounds, each of which returns the number of runs so far.
    #[rstest]
    #[case::are_repeated(Duration::from_secs(600), [2, 5], None)]
    #[case::count_when_the_time_is_over(
        Duration::ZERO,
        [1, 2],
        Some("1 of 2 rounds ran on a core that something else used as well")
    )]
    fn disturbed_rounds(
        #[case] patience: Duration,
        #[case] expected: [u32; 2],
        #[case] remark: Option<&str>,
    ) {
        // Before and after each run. Before the fifth run it is asked twice.
        let answers = [
            [true, false],
            [true, true],
            [true, false],
            [true, false],
            [false, true],
            [true, true],
        ];
        let mut answers = answers.into_iter().flatten();
        let mut rounds = UndisturbedRounds::with_probe(patience, || answers.next() == Some(true));
        let mut runs = 0;
        let mut run = || {
            runs += 1;
            Ok(runs)
        };
        assert_eq!([(); 2].map(|()| rounds.run(&mut run)), expected.map(Ok));
        assert_eq!(rounds.remark().as_deref(), remark);
    }

    #[test]
    fn a_round_that_fails_is_not_repeated() {
        let mut rounds = UndisturbedRounds::with_probe(Duration::from_secs(600), || true);
        let mut runs = 0;
        let failed: Outcome<()> = rounds.run(|| {
            runs += 1;
            Err(Stop::Failed("no".into()))
        });
        assert_eq!((failed, runs), (Err(Stop::Failed("no".into())), 1));
    }

    #[test]
    fn the_probe_gives_a_positive_number_on_every_processor() {
        for _ in 0..4 {
            let result = probe();
            assert!(result.is_finite() && result > 0.0, "{result}");
            move_to_next_processor();
        }
    }
}
