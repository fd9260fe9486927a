//! M3: conversions from a device's time to the host's, and back.

use std::thread;
use std::time::{Duration, Instant};

use syncline::clock::Estimate;

use super::{Seen, queue, sampled, sides};
use crate::case::{Stop, Verdict, cases, check, note};
use crate::cases::unless_pair;
use crate::user::Fence;
use crate::{Subject, World, patience};

cases! {
    "clocks.bracketed_by_the_host": [M1 M3] => bracketed;
    "clocks.calibrated_as_it_is_written": [M2 M3] => as_written;
    "clocks.holds_while_it_drifts": [M3] => holds_while_it_drifts;
}

/// The device is blocked for 1, 50 and 500 ms.
///
/// The times before and after that lie where the host saw them, on its own clock. So does the
/// interval between them.
fn bracketed<S: Subject>(world: &World<S>) -> Verdict {
    let times = if world.is_pair() {
        // Each side is also tested alone.
        note("1 and 50 ms instead of 500 ms, too".into());
        &[1, 50][..]
    } else {
        &[1, 50, 500]
    };
    for device in sides(world)? {
        let (clock, queue) = (device.clock()?, queue(device)?);
        let host = clock.host_clock();
        for &closed in times {
            let closed = Duration::from_millis(closed);
            let stall = device.stall()?;
            let (before, after) = (
                device.clocked_fence("before")?,
                device.clocked_fence("after")?,
            );
            let (first, recorded) = Seen::around(host, || -> Verdict {
                queue.record(&before)?;
                Ok(before.wait(patience())?)
            });
            recorded?;
            queue.block(&stall)?;
            queue.record(&after)?;
            thread::sleep(closed);
            // Not before the release: the device is still blocked.
            let (second, opened) = Seen::around(host, || -> Verdict {
                stall.release()?;
                Ok(after.wait(patience())?)
            });
            opened?;
            let (start, end) = (before.time()?, after.time()?);
            for (what, time, seen) in [
                ("the first stamp", &start, first),
                ("the second", &end, second),
            ] {
                seen.allows(what, time.to_host()?)?;
            }
            let between = end.since(&start)?;
            let room = between.error.cast_signed() + (second.to - first.from) / 1000;
            check!(
                between.nanoseconds + room >= second.from - first.to
                    && between.nanoseconds - room <= second.to - first.from,
                "{between:?}, but the host saw between {} and {} ns",
                second.from - first.to,
                second.to - first.from
            );
        }
        queue.idle(patience())?;
    }
    Ok(())
}

/// What the driver says of both clocks does not contradict times that queues write.
///
/// The library uses such a driver too, with other samples. This case fails there, because the
/// driver is wrong. Written times lie where the host saw them in either case.
fn as_written<S: Subject>(world: &World<S>) -> Verdict {
    let rounds = unless_pair(world, "rounds", 50, 10);
    for device in sides(world)? {
        let (clock, queue) = (device.clock()?, queue(device)?);
        let host = clock.host_clock();
        sampled(&clock)?;
        let fence = device.clocked_fence("stamp")?;
        for _ in 0..rounds {
            let (seen, recorded) = Seen::around(host, || -> Verdict {
                queue.record(&fence)?;
                Ok(fence.wait(patience())?)
            });
            recorded?;
            seen.allows("a stamp", fence.time()?.to_host()?)?;
        }
        queue.idle(patience())?;
        if let Some(reason) = clock.library().refused_calibration() {
            return Stop::fail(reason.to_owned());
        }
    }
    Ok(())
}

/// For 10 s a conversion made at the start holds without new samples.
///
/// So does one that gets new samples.
fn holds_while_it_drifts<S: Subject>(world: &World<S>) -> Verdict {
    const LONG: Duration = Duration::from_secs(10);
    const SHORT: Duration = Duration::from_millis(300);
    for device in sides(world)? {
        let (clock, queue) = (device.clock()?, queue(device)?);
        let (host, resolution) = (clock.host_clock(), clock.library().resolution());
        let first = sampled(&clock)?.sample;
        let is_host = clock.to_host(first.device)?.error == 0;
        // Each side of a pair is also tested alone. The host's own clock does not drift from
        // itself.
        let whole = if world.is_pair() || is_host {
            SHORT
        } else {
            LONG
        };
        let whole = whole.min(patience());
        if whole < LONG {
            note(format!("{whole:?} instead of {LONG:?}"));
        }
        for _ in 0..10 {
            sampled(&clock)?;
            thread::sleep(Duration::from_millis(5));
        }
        let newest = sampled(&clock)?.sample;
        let frozen = clock.library().map();
        let fence: Fence<S> = device.clocked_fence("stamp")?;
        let start = Instant::now();
        while start.elapsed() < whole {
            thread::sleep(Duration::from_millis(100));
            let told = sampled(&clock)?;
            check!(
                told.holds(),
                "after {:?} {:?} was expected at {:?}",
                start.elapsed(),
                told.sample,
                told.expected
            );
            let (seen, recorded) = Seen::around(host, || -> Verdict {
                queue.record(&fence)?;
                Ok(fence.wait(patience())?)
            });
            recorded?;
            let time = fence.time()?;
            seen.allows("a stamp", time.to_host()?)?;
            let Some(old) = frozen.to_host(time.nanoseconds()) else {
                return Stop::fail("a map with samples converts nothing");
            };
            // A map converts what the clock shows. It may have shown this for its resolution before
            // the device wrote it.
            let error = old.error.saturating_add(resolution);
            let written = Estimate { error, ..old };
            seen.allows("a stamp, by what was known at first,", written)?;
            let age = time.nanoseconds().saturating_sub(newest.device);
            let most = newest.deviation + age.unsigned_abs() / 2000 + 2;
            check!(old.error <= most, "age {age}");
        }
        queue.idle(patience())?;
    }
    Ok(())
}
