use std::time::Duration;
use syncline::{Queue, Stopwatch, Timeline};
use syncline::prelude::*;

/// Measures from CUDA's current position to the end of a Vulkan frame.
///
/// Uses the clock that both devices read, if they read the same one, and else the host's clock.
pub fn frame_time(
    cuda: &Queue,
    vulkan: &Queue,
    frames: &Timeline,
    n: u64,
) -> syncline::Result<()> {
    // A stopwatch can be used again.
    let stopwatch = Stopwatch::between(&cuda.device(), &vulkan.device(), "frame")?;
    stopwatch.start(cuda)?;
    cuda.submit(&[], |_| Ok(()), &[frames.signal_at(n)])?;
    vulkan.submit(&[frames.at(n)], |_| Ok(()), &[])?;
    stopwatch.stop(vulkan)?;
    let took = stopwatch.wait(Duration::from_secs(30))?;
    println!("{took}");
    Ok(())
}
