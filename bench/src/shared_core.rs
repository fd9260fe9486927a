//! Repeats rounds before or after which something else ran on the same processor core.
//!
//! A virtual machine's processor is often one of two hardware threads of a core. Code takes up to
//! twice as long while the other thread is busy, often with the work of another machine.

use std::fmt::Write as _;
use std::hint::black_box;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

use crate::interrupts::avoid_interrupts;
use crate::side::Outcome;
use crate::stats::percentile;

/// The rounds of a row. A round is repeated if something else used the core before or after it.
pub(crate) struct UndisturbedRounds<P = fn() -> bool> {
    /// Tells if nothing else uses the core. `None` if all rounds count.
    is_undisturbed: Option<P>,
    /// The time that may be spent on waiting and on rounds that do not count.
    left: Duration,
    counted: u32,
    /// How many of the rounds that count were disturbed.
    disturbed: u32,
}

impl UndisturbedRounds {
    /// Rounds that may take `patience` longer. After that, disturbed rounds count as well.
    ///
    /// Without patience no round is checked. Otherwise this moves the thread to other processors,
    /// and off those that a GPU has interrupted.
    pub(crate) fn new(patience: Duration) -> Self {
        let probe: fn() -> bool = is_undisturbed;
        let checks = !patience.is_zero();
        if checks {
            avoid_interrupts();
            tour();
        }
        Self::with_probe(patience, checks.then_some(probe))
    }
}

impl<P: FnMut() -> bool> UndisturbedRounds<P> {
    const fn with_probe(patience: Duration, is_undisturbed: Option<P>) -> Self {
        Self {
            is_undisturbed,
            left: patience,
            counted: 0,
            disturbed: 0,
        }
    }

    /// Runs `round` until a run of it counts, and returns the result of that run.
    ///
    /// # Errors
    /// That of `round`.
    pub(crate) fn run<T>(&mut self, mut round: impl FnMut() -> Outcome<T>) -> Outcome<T> {
        loop {
            let before = self.wait();
            let start = Instant::now();
            let result = round()?;
            let undisturbed = self.is_undisturbed() && before;
            if undisturbed || self.left.is_zero() {
                self.count(undisturbed);
                return Ok(result);
            }
            self.left = self.left.saturating_sub(start.elapsed());
        }
    }

    /// Same as [`UndisturbedRounds::run`], but the round always counts.
    ///
    /// # Errors
    /// That of `round`.
    pub(crate) fn run_once<T>(&mut self, round: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
        let before = self.wait();
        let result = round()?;
        let undisturbed = self.is_undisturbed() && before;
        self.count(undisturbed);
        Ok(result)
    }

    /// Waits until nothing else uses the core. False if there is no time left for that.
    ///
    /// Tries one processor after the other.
    fn wait(&mut self) -> bool {
        let start = Instant::now();
        while !self.is_undisturbed() {
            if start.elapsed() >= self.left {
                self.left = Duration::ZERO;
                return false;
            }
            move_to_next_processor();
        }
        self.left = self.left.saturating_sub(start.elapsed());
        true
    }

    fn count(&mut self, undisturbed: bool) {
        self.counted += 1;
        self.disturbed += u32::from(!undisturbed);
    }

    fn is_undisturbed(&mut self) -> bool {
        self.is_undisturbed.as_mut().is_none_or(|ask| ask())
    }

    /// A remark, if disturbed rounds count.
    pub(crate) fn remark(&self) -> Option<String> {
        let Self {
            counted, disturbed, ..
        } = self;
        (*disturbed > 0).then(|| format!("{disturbed} of {counted} rounds ran on a shared core"))
    }
}

/// The result of the probe on a core that nothing else uses, as far as the tours show.
static USUAL: Mutex<f64> = Mutex::new(f64::MAX);

fn usual() -> MutexGuard<'static, f64> {
    USUAL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// True if nothing else uses the core, as far as a probe can tell.
fn is_undisturbed() -> bool {
    /// How many times the usual result counts as undisturbed.
    ///
    /// A busy second thread of the core adds 25 % and more.
    const TOLERANCE: f64 = 1.12;
    probe() <= *usual() * TOLERANCE
}

/// Probes all processors. The usual result is the least tenth percentile of a tour.
///
/// So up to nine tenths of the cores may be shared, and more in some tours.
fn tour() {
    const TIMES: u32 = 2;
    const PROBES: u32 = 16;
    let processors = sched_getaffinity(None).map_or(1, |all| all.count());
    let mut results = Vec::new();
    for _ in 0..TIMES * processors {
        results.extend((0..PROBES).map(|_| probe()));
        move_to_next_processor();
    }
    results.sort_by(f64::total_cmp);
    if let Some(result) = percentile(&results, 0.1) {
        let mut usual = usual();
        *usual = usual.min(result);
    }
}

/// The time of code that keeps a core's execution units busy, divided by that of code that waits.
///
/// Only the former takes longer on a shared core. Both depend on the frequency in the same way.
fn probe() -> f64 {
    let nanoseconds = |run: &mut dyn FnMut()| {
        let start = Instant::now();
        run();
        start.elapsed().as_nanos() as f64
    };
    let mut text = String::with_capacity(64);
    let mut format_numbers = || {
        for number in 0..50_u32 {
            text.clear();
            // Writing to a string does not fail.
            let _ = write!(text, "{}-{number:x}", black_box(number));
            black_box(&text);
        }
    };
    let mut multiply = || {
        // Each multiplication waits for the one before.
        let mut product = black_box(3_u64);
        for _ in 0..1000 {
            product = product.wrapping_mul(product | 1);
        }
        black_box(product);
    };
    // The shortest of several runs, because an interrupt may lengthen some. In turns, because the
    // frequency may change.
    let (mut busy, mut waits) = (f64::MAX, f64::MAX);
    for _ in 0..4 {
        busy = busy.min(nanoseconds(&mut format_numbers));
        waits = waits.min(nanoseconds(&mut multiply));
    }
    busy / waits
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
    use std::iter::repeat;

    use rstest::rstest;

    use super::*;
    use crate::side::Stop;

    /// Runs two rounds, each of which returns the number of runs so far.
    #[rstest]
    #[case::are_repeated(Duration::from_secs(600), [2, 5], None)]
    #[case::count_when_the_time_is_over(
        Duration::ZERO,
        [1, 2],
        Some("2 of 2 rounds ran on a shared core")
    )]
    fn disturbed_rounds(
        #[case] patience: Duration,
        #[case] expected: [u32; 2],
        #[case] remark: Option<&str>,
    ) {
        // Before and after each run. Before the second run the answer is no at first.
        let answers: [&[bool]; 5] = [
            &[true, false],
            &[false, true, true],
            &[true, false],
            &[true, false],
            &[true, true],
        ];
        let mut answers = answers.concat().into_iter().chain(repeat(true));
        let probe = || answers.next() == Some(true);
        let mut rounds = UndisturbedRounds::with_probe(patience, Some(probe));
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
        let mut rounds = UndisturbedRounds::with_probe(Duration::from_secs(600), Some(|| true));
        let mut runs = 0;
        let failed: Outcome<()> = rounds.run(|| {
            runs += 1;
            Err(Stop::Failed("no".into()))
        });
        assert_eq!((failed, runs), (Err(Stop::Failed("no".into())), 1));
    }

    #[test]
    fn without_patience_no_round_is_checked() {
        assert!(
            UndisturbedRounds::new(Duration::ZERO)
                .is_undisturbed
                .is_none()
        );
    }

    #[test]
    fn a_round_that_must_not_be_repeated_counts() {
        let mut rounds = UndisturbedRounds::with_probe(Duration::ZERO, Some(|| false));
        assert_eq!(rounds.run_once(|| Ok(5)), Ok(5));
        let remark = rounds.remark();
        assert_eq!(
            remark.as_deref(),
            Some("1 of 1 rounds ran on a shared core")
        );
    }

    #[test]
    fn a_thread_that_was_moved_may_use_all_processors_again() {
        let processors = || {
            let all = sched_getaffinity(None).ok()?;
            let numbers = (0..CpuSet::MAX_CPU).filter(|number| all.is_set(*number));
            Some(numbers.collect::<Vec<_>>())
        };
        let before = processors();
        move_to_next_processor();
        assert_eq!(processors(), before);
    }

    #[test]
    fn the_probe_gives_a_positive_number() {
        let result = probe();
        assert!(result.is_finite() && result > 0.0, "{result}");
    }
}
