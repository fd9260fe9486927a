//! Used processor time.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Longer than any thread of a row polls before it sleeps.
const POLLED: Duration = Duration::from_millis(1);

/// Processor time of all threads of this process.
fn of_process() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Processor time that this process spends on `action`, and until its other threads sleep after it.
///
/// Linux adds the time of a thread that runs on another processor to the clock only at ticks, which
/// are up to 10 ms apart, and when the thread sleeps. So the clock is read while no other thread
/// runs.
pub(crate) fn spent_on<E>(action: impl FnOnce() -> Result<(), E>) -> Result<Duration, E> {
    std::thread::sleep(POLLED);
    let before = of_process();
    action()?;
    std::thread::sleep(POLLED);
    Ok(of_process() - before)
}
