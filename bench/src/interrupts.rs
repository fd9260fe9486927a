//! Keeps the measuring threads off the processors that a GPU interrupts.
//!
//! The GPU interrupts a processor at the end of a `vkQueueSubmit`. On that processor a row of
//! Vulkan takes several times as long.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Drivers of GPUs, by the names of their interrupts.
const DRIVERS: [&str; 5] = ["nvidia", "nvkm", "amdgpu", "i915", "xe"];

/// The rows with threads need this many processors.
const LEAST: u32 = 8;

/// The interrupts of GPUs on each processor.
type Counts = BTreeMap<usize, u64>;

/// Lets the thread use the same processors as before, once it is dropped.
pub(crate) struct AffinityGuard(Option<CpuSet>);

impl AffinityGuard {
    /// Notes the interrupts so far. Later ones count for [`avoid_interrupts`].
    pub(crate) fn new() -> Self {
        counts_before();
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
/// It does nothing if fewer than eight processors would be left, or if Linux does not tell.
pub(crate) fn avoid_interrupts() {
    let Ok(allowed) = sched_getaffinity(None) else {
        return;
    };
    if let Some(left) = without(allowed, &more(counts_before(), &counts_now())) {
        // If the system refuses this, the thread stays where it is.
        let _ = sched_setaffinity(None, &left);
    }
}

/// The interrupts before the first call.
fn counts_before() -> &'static Counts {
    static BEFORE: OnceLock<Counts> = OnceLock::new();
    BEFORE.get_or_init(counts_now)
}

fn counts_now() -> Counts {
    counts(&std::fs::read_to_string("/proc/interrupts").unwrap_or_default())
}

/// The processors with more interrupts than before.
fn more(before: &Counts, now: &Counts) -> Vec<usize> {
    let grown = now
        .iter()
        .filter(|(processor, count)| before.get(processor).is_none_or(|before| before < count));
    grown.map(|(processor, _)| *processor).collect()
}

/// The processors of `allowed` that are not among `avoided`. `None` if they are too few.
fn without(mut allowed: CpuSet, avoided: &[usize]) -> Option<CpuSet> {
    for &processor in avoided {
        if processor < CpuSet::MAX_CPU {
            allowed.unset(processor);
        }
    }
    (allowed.count() >= LEAST).then_some(allowed)
}

/// The interrupts of the drivers of GPUs, from the text of `/proc/interrupts`.
fn counts(interrupts: &str) -> Counts {
    let mut lines = interrupts.lines();
    let heads = lines.next().unwrap_or_default().split_whitespace();
    let processors: Vec<usize> = heads
        .filter_map(|head| head.strip_prefix("CPU")?.parse().ok())
        .collect();
    let mut counts = Counts::new();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_of_gpus_are_counted_for_each_processor() {
        let interrupts = "
            CPU0   CPU2   CPU3
  9:       1       0      0   IO-APIC   9-fasteoi   acpi
 42:       0       0   6184   PCI-MSIX-0000:00:06.0   0-edge   nvidia
 43:       7       0      1   IR-PCI-MSI 327680-edge   amdgpu, xhci_hcd
NMI:       0       5      0   Non-maskable interrupts
ERR:       0
";
        let counted = counts(interrupts.trim_start());
        assert_eq!(counted, Counts::from([(0, 7), (2, 0), (3, 6185)]));
        assert!(counts("").is_empty());
    }

    #[test]
    fn only_new_interrupts_matter() {
        let before = Counts::from([(0, 7), (2, 0), (3, 9)]);
        let now = Counts::from([(0, 7), (2, 1), (3, 9), (4, 2)]);
        assert_eq!(more(&before, &now), [2, 4]);
    }

    #[test]
    fn eight_processors_are_left() {
        let mut allowed = CpuSet::new();
        (0..9).for_each(|processor| allowed.set(processor));
        let left = without(allowed, &[3, CpuSet::MAX_CPU]);
        assert!(left.is_some_and(|left| left.count() == 8 && !left.is_set(3)));
        assert!(without(allowed, &[3, 4]).is_none());
    }

    #[test]
    fn the_processors_of_a_thread_are_restored() {
        let processors = || sched_getaffinity(None).map(|all| all.count());
        let before = processors();
        {
            let _guard = AffinityGuard::new();
            let mut first = CpuSet::new();
            let all = sched_getaffinity(None).unwrap_or_default();
            let found = (0..CpuSet::MAX_CPU).find(|processor| all.is_set(*processor));
            first.set(found.unwrap_or(0));
            assert_eq!(sched_setaffinity(None, &first), Ok(()));
            assert_eq!(processors(), Ok(1));
        }
        assert_eq!(processors(), before);
    }
}
