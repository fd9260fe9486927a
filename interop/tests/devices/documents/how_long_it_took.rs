use std::time::Duration;
use syncline::{Queue, Stopwatch, Timeline};
use syncline::backend::Queue as _;

/// From where CUDA is now, through a frame of Vulkan's: on one clock where both are found to read one, else on the host's.
pub fn frame_time(cuda: &Queue, vulkan: &Queue, frames: &Timeline, n: u64) -> syncline::Result<()> {
    let stopwatch = Stopwatch::between(&cuda.device(), &vulkan.device(), "frame")?; // or keep one, and use it again
    stopwatch.start(cuda)?;
    cuda.submit(&[], |_| Ok(()), &[frames.signal_at(n)])?;
    vulkan.submit(&[frames.at(n)], |_| Ok(()), &[])?;
    stopwatch.stop(vulkan)?;
    let took = stopwatch.wait(Duration::from_secs(30))?;
    println!("{} ns, give or take {} ns, {}", took.nanoseconds, took.error, took.axis);
    Ok(())
}
