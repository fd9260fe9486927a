//! A clock, and times of fences and timelines.

use std::ffi::c_void;
use std::time::{Duration, Instant};

use syncline::backend::{Device as _, Queue as _};
use syncline::clock::Clock;
use syncline::{Error, QueueKind, Stopwatch};

use super::memory::PTX;
use super::{DROPPING, PATIENCE, Verdict, open, step};

/// The time limit for a sample of a clock. A busy host may be too slow for it many times.
const SAMPLING: Duration = Duration::from_secs(10);

fn sample(clock: &Clock) -> Verdict {
    let end = Instant::now() + SAMPLING;
    loop {
        match clock.sample() {
            Err(Error::ClockSilent { .. }) if Instant::now() < end => {}
            other => return Ok(other.map(drop)?),
        }
    }
}

/// The device's clock, fences and timelines with its times.
pub(super) fn clock() -> Verdict {
    let device = open()?;
    step("making the clock");
    let clock = device.clock()?;
    step("sampling the clock");
    sample(&clock)?;
    let queue = device.queue(QueueKind::Compute, "queue")?;
    let watch = Stopwatch::new(&device, "watch")?;
    let line = device.clocked_timeline("line")?;
    step("recording times");
    watch.start(&queue)?;
    let module = device.module(PTX)?;
    let function = module.function("add")?;
    let buffer = device.host_buffer(64)?;
    let to = buffer.clone();
    queue.submit(
        &[],
        move |recorder| {
            let (mut words, mut more) = (to.pointer(), 1_u32);
            let mut params = [
                (&raw mut words).cast::<c_void>(),
                (&raw mut more).cast::<c_void>(),
            ];
            // SAFETY: the kernel has these two parameters, and accesses 16 words.
            unsafe { recorder.launch(&function, [1, 1, 1], [16, 1, 1], &mut params) }
        },
        &[line.signal_at(1)],
    )?;
    watch.stop(&queue)?;
    step("waiting");
    watch.wait(PATIENCE)?;
    line.at(1).wait(PATIENCE)?;
    line.at(1).time()?;
    queue.idle(PATIENCE)?;
    device.check()?;
    step(DROPPING);
    Ok(())
}
