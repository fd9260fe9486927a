//! Keeps rounds off processors where something else would decide a verdict.
//!
//! The GPU interrupts a processor at the end of a `vkQueueSubmit`. On that processor a row of
//! Vulkan takes several times as long.
//!
//! A virtual machine's processor is often one of two hardware threads of a core. Code takes up to
//! twice as long while the other thread is busy, often with the work of another machine.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::hint::black_box;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

use crate::side::Outcome;
use crate::stats::percentile;

/// Lets the thread use the same processors as before, once it is dropped.
pub(crate) struct AffinityGuard(Option<CpuSet>);

impl AffinityGuard {
    /// Notes the interrupts so far. Later ones count for [`avoid_interrupts`].
    pub(crate) fn new() -> Self {
        interrupts_before();
        Self(sched_getaffinity(None).ok())
    }
}

impl Drop for AffinityGuard {
    fn drop(&mut self) {
        if let Some(processors) = &self.0 {
            // If the system refuses this, the thread stays where it is.
            let _ = sched_setaffinity(None, processors);
        }
    }
}

/// Keeps this thread, and those that it starts later, off processors that a GPU has interrupted.
///
/// It does nothing if fewer than eight processors would be left, which rows with threads need, or
/// if Linux does not tell.
pub(crate) fn avoid_interrupts() {
    let Ok(mut allowed) = sched_getaffinity(None) else {
        return;
    };
    for processor in grown(interrupts_before(), &interrupts()) {
        if processor < CpuSet::MAX_CPU {
            allowed.unset(processor);
        }
    }
    if allowed.count() >= 8 {
        // If the system refuses this, the thread stays where it is.
        let _ = sched_setaffinity(None, &allowed);
    }
}

/// The interrupts of GPUs on each processor.
type Interrupts = BTreeMap<usize, u64>;

/// The interrupts before the first call.
fn interrupts_before() -> &'static Interrupts {
    static BEFORE: OnceLock<Interrupts> = OnceLock::new();
    BEFORE.get_or_init(interrupts)
}

fn interrupts() -> Interrupts {
    counts(&std::fs::read_to_string("/proc/interrupts").unwrap_or_default())
}

/// The processors with more interrupts than before.
fn grown(before: &Interrupts, now: &Interrupts) -> Vec<usize> {
    let more = |of: &(&usize, &u64)| before.get(of.0).is_none_or(|before| before < of.1);
    now.iter().filter(more).map(|(at, _)| *at).collect()
}

/// The interrupts of the drivers of GPUs, from the text of `/proc/interrupts`.
fn counts(text: &str) -> Interrupts {
    const DRIVERS: [&str; 5] = ["nvidia", "nvkm", "amdgpu", "i915", "xe"];
    let mut lines = text.lines();
    let heads = lines.next().unwrap_or_default().split_whitespace();
    let processors: Vec<usize> = heads
        .filter_map(|head| head.strip_prefix("CPU")?.parse().ok())
        .collect();
    let mut counts = Interrupts::new();
    for line in lines {
        // The number of the interrupt, a count for each processor, its kind and its drivers.
        let mut words = line.split_whitespace().skip(1);
        let counted: Vec<&str> = words.by_ref().take(processors.len()).collect();
        if words.any(|word| DRIVERS.contains(&word.trim_end_matches(','))) {
            for (processor, count) in processors.iter().zip(counted) {
                *counts.entry(*processor).or_default() += count.parse::<u64>().unwrap_or(0);
            }
        }
    }
    counts
}

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
                self.counted += 1;
                self.disturbed += u32::from(!undisturbed);
                return Ok(result);
            }
            self.left = self.left.saturating_sub(start.elapsed());
        }
    }

    /// Waits until nothing else uses the core. False if there is no time left for that.
    ///
    /// Tries one processor after the other.
    pub(crate) fn wait(&mut self) -> bool {
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

    fn is_undisturbed(&mut self) -> bool {
        self.is_undisturbed.as_mut().is_none_or(|ask| ask())
    }

    /// A remark, if disturbed rounds count.
    pub(crate) fn remark(&self) -> Option<String> {
        let (disturbed, counted) = (self.disturbed, self.counted);
        (disturbed > 0).then(|| format!("{disturbed} of {counted} rounds ran on a shared core"))
    }
}

/// The result of the probe on a core that nothing else uses, as far as the tours show.
static USUAL: Mutex<f64> = Mutex::new(f64::MAX);

/// True if nothing else uses the core, as far as a probe can tell.
fn is_undisturbed() -> bool {
    /// How many times the usual result counts as undisturbed.
    ///
    /// A busy second thread of the core adds 25 % and more.
    const TOLERANCE: f64 = 1.12;
    probe() <= *USUAL.lock().unwrap_or_else(PoisonError::into_inner) * TOLERANCE
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
        let mut usual = USUAL.lock().unwrap_or_else(PoisonError::into_inner);
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

    #[test]
    fn interrupts_of_gpus_are_counted_for_each_processor() {
        let text = "
            CPU0   CPU2   CPU3
  9:       1       0      0   IO-APIC   9-fasteoi   acpi
 42:       0       0   6184   PCI-MSIX-0000:00:06.0   0-edge   nvidia
 43:       7       0      1   IR-PCI-MSI 327680-edge   amdgpu, xhci_hcd
ERR:       0
";
        let before = counts(text.trim_start());
        assert_eq!(before, Interrupts::from([(0, 7), (2, 0), (3, 6185)]));
        let now = Interrupts::from([(0, 7), (2, 1), (3, 6185), (4, 2)]);
        assert_eq!(grown(&before, &now), [2, 4]);
        assert!(counts("").is_empty());
    }

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
    fn a_thread_keeps_its_processors() {
        let processors = || {
            let all = sched_getaffinity(None).ok()?;
            let numbers = (0..CpuSet::MAX_CPU).filter(|number| all.is_set(*number));
            Some(numbers.collect::<Vec<_>>())
        };
        let before = processors();
        move_to_next_processor();
        assert_eq!(processors(), before);
        {
            let _guard = AffinityGuard::new();
            let mut first = CpuSet::new();
            first.set(before.iter().flatten().next().copied().unwrap_or(0));
            assert_eq!(sched_setaffinity(None, &first), Ok(()));
        }
        assert_eq!(processors(), before);
    }
}
