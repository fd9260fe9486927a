//! Used processor time.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

fn read(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Processor time of this thread.
#[cfg(feature = "vulkan")]
pub(crate) fn of_thread() -> Duration {
    read(ClockId::ThreadCPUTime)
}

/// Processor time of all threads of this process.
pub(crate) fn of_process() -> Duration {
    read(ClockId::ProcessCPUTime)
}
