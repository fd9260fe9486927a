//! The GPU's clock.

use crate::cuda::*;
use crate::harness::*;
use crate::kit::*;

pub(crate) fn list(all: &mut Probes) {
    all.family("clock", QUESTIONS);
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

fn divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { divisor(b, a % b) }
}

const QUESTIONS: Questions = &[
    ("host_clock", || {
        let (words, stream, readings) = (Words::new(), stream(), kernel(c"readings"));
        for (name, clock) in [
            ("monotonic", libc::CLOCK_MONOTONIC),
            ("monotonic_raw", libc::CLOCK_MONOTONIC_RAW),
            ("realtime", libc::CLOCK_REALTIME),
            ("boottime", libc::CLOCK_BOOTTIME),
        ] {
            let before = host(clock);
            check(launch(readings, stream, &[words.at(0), 1]));
            check(stream_synchronize(stream));
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
    }),
    ("step", || {
        let (words, stream, readings) = (Words::new(), stream(), kernel(c"readings"));
        check(launch(readings, stream, &[words.at(0), 1000]));
        check(stream_synchronize(stream));
        let readings: Vec<_> = (0..1000).map(|index| words.load(index)).collect();
        let steps: Vec<_> = readings
            .windows(2)
            .map(|two| two[1].wrapping_sub(two[0]))
            .collect();
        let divisor = steps.iter().copied().fold(0, divisor);
        let least = steps.iter().min().copied().unwrap_or(0);
        answer(format!("~least {least} ns, all multiples of {divisor} ns"));
    }),
];
