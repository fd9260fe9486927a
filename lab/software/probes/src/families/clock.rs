//! The GPU's clock beside the host's.

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

const QUESTIONS: Questions = &[("host_clock", || {
    let (words, stream, read_clock) = (Words::new(), stream(), kernel(c"read_clock"));
    for (name, clock) in [
        ("monotonic", libc::CLOCK_MONOTONIC),
        ("monotonic_raw", libc::CLOCK_MONOTONIC_RAW),
        ("realtime", libc::CLOCK_REALTIME),
        ("boottime", libc::CLOCK_BOOTTIME),
    ] {
        let before = host(clock);
        check(launch(read_clock, stream, &[words.at(0)]));
        check(stream_synchronize(stream));
        let gpu = i128::from(words.load(0));
        let far = (before - gpu).max(gpu - host(clock)).max(0) / 1000;
        let same = yes(far < 1000);
        line(name, format!("~same: {same}, off by {far} us"));
    }
})];
