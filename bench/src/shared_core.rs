//! Detects whether something else runs on the same processor core.
//!
//! A virtual machine's processor is often one of two hardware threads of a core. Code takes up to
//! twice as long while the other thread is busy, often with the work of another machine.

use std::fmt::Write as _;
use std::hint::black_box;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// How many times its shortest time the probe may take on a core that is not shared.
///
/// The frequency of a processor changes by some percent. A busy second thread of the core adds 25 %
/// or more.
const TOLERANCE: f64 = 1.15;

/// The shortest time of the probe in this process, in nanoseconds.
static SHORTEST: AtomicU64 = AtomicU64::new(u64::MAX);

/// True if the probe takes about as long as it does on a core that is not shared.
///
/// What that is follows from all probes of the process so far. The first call makes one on each
/// processor.
pub(crate) fn is_undisturbed() -> bool {
    static FIRST: Once = Once::new();
    FIRST.call_once(|| {
        let processors = sched_getaffinity(None).map_or(1, |all| all.count());
        for _ in 0..processors {
            SHORTEST.fetch_min(probe(), Ordering::Relaxed);
            move_to_next_processor();
        }
    });
    let took = probe();
    let shortest = SHORTEST.fetch_min(took, Ordering::Relaxed).min(took);
    took as f64 <= shortest as f64 * TOLERANCE
}

/// Waits until `is_undisturbed` returns true, or until `end`. Returns its last answer.
///
/// Tries one processor after the other.
pub(crate) fn wait_until(end: Instant, is_undisturbed: &mut impl FnMut() -> bool) -> bool {
    loop {
        let answer = is_undisturbed();
        if answer || Instant::now() >= end {
            return answer;
        }
        move_to_next_processor();
    }
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

/// Nanoseconds of some code that keeps the execution units of a core busy: the best of a few runs.
fn probe() -> u64 {
    const RUNS: usize = 4;
    let mut text = String::with_capacity(64);
    let mut run = || {
        let start = Instant::now();
        for number in 0..50_u32 {
            text.clear();
            // Writing to a string does not fail.
            let _ = write!(text, "{}-{number:x}", black_box(number));
            black_box(&text);
        }
        start.elapsed().as_nanos() as u64
    };
    (0..RUNS).map(|_| run()).min().unwrap_or_default()
}
