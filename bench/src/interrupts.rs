//! Keeps the measuring threads away from the processors that handle a GPU's interrupts.
//!
//! The GPU interrupts a processor at the end of a `vkQueueSubmit`. On that processor a row of
//! Vulkan takes several times as long.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Drivers of GPUs, by the names of their interrupts.
const DRIVERS: [&str; 5] = ["nvidia", "nouveau", "amdgpu", "i915", "xe"];

/// The rows with threads need this many processors.
const LEAST: u32 = 8;

/// Keeps this thread, and those that it starts later, off processors that a GPU has interrupted.
///
/// It does nothing if fewer than eight processors would be left, or if Linux does not tell.
pub(crate) fn avoid_interrupts() {
    let Ok(allowed) = sched_getaffinity(None) else {
        return;
    };
    let interrupts = std::fs::read_to_string("/proc/interrupts").unwrap_or_default();
    if let Some(left) = without(allowed, &interrupted_by_gpus(&interrupts)) {
        // If the system refuses this, the thread stays where it is.
        let _ = sched_setaffinity(None, &left);
    }
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

/// The processors with interrupts of a GPU's driver, from the text of `/proc/interrupts`.
fn interrupted_by_gpus(interrupts: &str) -> Vec<usize> {
    let mut lines = interrupts.lines();
    let heads = lines.next().unwrap_or_default().split_whitespace();
    let processors: Vec<usize> = heads
        .filter_map(|head| head.strip_prefix("CPU")?.parse().ok())
        .collect();
    let mut found = Vec::new();
    for line in lines {
        // The number of the interrupt, a count for each processor, its kind and its drivers.
        let mut words = line.split_whitespace().skip(1);
        let counts: Vec<&str> = words.by_ref().take(processors.len()).collect();
        if words.any(|word| DRIVERS.contains(&word.trim_end_matches(','))) {
            let counted = processors.iter().zip(counts);
            let interrupted = counted.filter(|(_, count)| *count != "0");
            found.extend(interrupted.map(|(processor, _)| *processor));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_with_interrupts_of_a_gpu_are_found() {
        let interrupts = "
            CPU0   CPU2   CPU3
  9:       1       0      0   IO-APIC   9-fasteoi   acpi
 42:       0       0   6184   PCI-MSIX-0000:00:06.0   0-edge   nvidia
 43:       7       0      0   IR-PCI-MSI 327680-edge   xhci_hcd, amdgpu
NMI:       0       5      0   Non-maskable interrupts
ERR:       0
";
        assert_eq!(interrupted_by_gpus(interrupts.trim_start()), [3, 0]);
        assert!(interrupted_by_gpus("").is_empty());
    }

    #[test]
    fn eight_processors_are_left() {
        let mut allowed = CpuSet::new();
        (0..9).for_each(|processor| allowed.set(processor));
        let left = without(allowed, &[3, CpuSet::MAX_CPU]);
        assert!(left.is_some_and(|left| left.count() == 8 && !left.is_set(3)));
        assert!(without(allowed, &[3, 4]).is_none());
    }
}
