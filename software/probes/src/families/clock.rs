//! The GPU's clock.

use crate::cuda::cu;
use crate::harness::{Probe, family, line};
use crate::kit::{Answer, Words, check, context, kernel, launch, stream, yes};

pub(crate) fn list() -> Vec<Probe> {
    family!["clock"; host_clock, step]
}

fn host(clock: libc::clockid_t) -> i128 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes one `timespec`.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec)
}

fn host_clock() -> Answer {
    context()?;
    let (words, stream, readings) = (Words::new()?, stream()?, kernel(c"readings")?);
    for (name, clock) in [
        ("monotonic", libc::CLOCK_MONOTONIC),
        ("monotonic_raw", libc::CLOCK_MONOTONIC_RAW),
        ("realtime", libc::CLOCK_REALTIME),
        ("boottime", libc::CLOCK_BOOTTIME),
    ] {
        let before = host(clock);
        check(
            "cuLaunchKernel",
            launch(readings, stream, &[words.at(0), 1]),
        )?;
        check("cuStreamSynchronize", cu().stream_synchronize(stream))?;
        let after = host(clock);
        let gpu = i128::from(words.load(0));
        let far = if gpu < before {
            before - gpu
        } else {
            (gpu - after).max(0)
        };
        line(
            name,
            format!("~same: {}, off by {} us", yes(far < 1_000_000), far / 1000),
        );
    }
    Ok(String::new())
}

fn step() -> Answer {
    context()?;
    let (words, stream, readings) = (Words::new()?, stream()?, kernel(c"readings")?);
    check(
        "cuLaunchKernel",
        launch(readings, stream, &[words.at(0), 1000]),
    )?;
    check("cuStreamSynchronize", cu().stream_synchronize(stream))?;
    let readings: Vec<_> = (0..1000).map(|index| words.load(index)).collect();
    let steps: Vec<_> = readings
        .windows(2)
        .map(|two| two[1].wrapping_sub(two[0]))
        .collect();
    let divisor = steps.iter().copied().fold(0, divisor);
    let least = steps.iter().min().copied().unwrap_or(0);
    Ok(format!("~least {least} ns, all multiples of {divisor} ns"))
}

fn divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { divisor(b, a % b) }
}
