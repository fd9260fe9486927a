//! M2: samples of both clocks.

use std::thread;
use std::time::{Duration, Instant};

use syncline::Error;
use syncline::backend::Device as _;
use syncline::clock::{HostClock, Sample};

use super::{Seen, queue, sampled, sides};
use crate::blocked::join;
use crate::case::{Stop, Verdict, cases, check, check_error};
use crate::cases::time::writes_as_said;
use crate::cases::{DELAY, unless_pair};
use crate::user::Clock;
use crate::{Subject, World, patience};

cases! {
    "clocks.sampled_beside_the_host": [M2 M3] => beside;
    "clocks.always_the_same": [M2] => always_the_same;
    "clocks.sampled_in_bounded_time": [M2] => bounded;
    "clocks.as_the_capabilities_say": [M1 M2 D3 E5] => as_said;
}

/// Largest deviation that a driver states itself, in nanoseconds.
///
/// Other drivers read the clock within the call.
const STATED: i64 = 1_000_000;

/// A sample tells what both clocks showed at one moment of its call, within its deviation.
///
/// Samples do not contradict each other. The conversion is at least as accurate as the sample that
/// it was made from.
fn beside<S: Subject>(world: &World<S>) -> Verdict {
    let samples = unless_pair(world, "samples", 50, 10);
    for device in sides(world)? {
        let clock = device.clock()?;
        let host = clock.host_clock();
        let names = [HostClock::Monotonic, HostClock::MonotonicRaw].map(HostClock::name);
        check!(names.contains(&host.name()));
        let mut taken: Vec<Sample> = Vec::new();
        for _ in 0..samples {
            let (seen, told) = Seen::around(host, || sampled(&clock));
            let told = told?;
            let sample = told.sample;
            check!(
                told.host_clock == host,
                "a sample names {}, the clock {}",
                told.host_clock.name(),
                host.name()
            );
            let deviation = i64::try_from(sample.deviation).unwrap_or(i64::MAX);
            // The clock may have shown the same for its resolution, as far as few readings can
            // tell.
            let resolution = i64::try_from(clock.library().resolution()).unwrap_or(i64::MAX);
            let most = (seen.to - seen.from).saturating_add(STATED);
            check!(
                deviation <= most.saturating_add(resolution),
                "a call of {} ns stated a deviation of {deviation} ns",
                seen.to - seen.from
            );
            let at = syncline::clock::Estimate {
                nanoseconds: sample.host,
                error: sample.deviation,
            };
            seen.allows("a sample", at)?;
            check!(
                told.holds(),
                "{sample:?} was expected at {:?}",
                told.expected
            );
            let now = clock.to_host(sample.device)?;
            check!(now.error <= sample.deviation.saturating_add(2));
            check!(now.nanoseconds.abs_diff(sample.host) <= now.error + sample.deviation);
            taken.push(sample);
        }
        for (nth, early) in taken.iter().enumerate() {
            for late in &taken[nth + 1..] {
                check!(late.device >= early.device);
                let (passed, beside) = (late.device - early.device, late.host - early.host);
                // Clocks may differ by 500 parts per million.
                let room = early.deviation + late.deviation + passed.unsigned_abs() / 2000 + 2;
                check!(
                    passed.abs_diff(beside) <= room,
                    "early {early:?}, late {late:?}"
                );
            }
        }
    }
    Ok(())
}

/// All calls return the same clock for a device.
fn always_the_same<S: Subject>(world: &World<S>) -> Verdict {
    for device in sides(world)? {
        let again = device.clone();
        let others = thread::scope(|scope| {
            let asking: Vec<_> = (0..4).map(|_| scope.spawn(|| again.clock())).collect();
            let asked = asking.into_iter().map(|thread| join(thread)?);
            asked.collect::<Result<Vec<Clock<S>>, Stop>>()
        })?;
        let clock = device.clock()?;
        let queue = queue(device)?;
        let fence = device.clocked_fence("stamp")?;
        queue.record(&fence)?;
        fence.wait(patience())?;
        for other in others.into_iter().chain([fence.time()?.clock()]) {
            check!(other.library().is_same(clock.library()));
        }
        queue.idle(patience())?;
    }
    Ok(())
}

/// Accepts a sample, or the error that it could not be taken in time.
fn ended(result: syncline::Result<syncline::clock::Sampled>) -> Verdict {
    match result {
        Ok(_) => Ok(()),
        Err(Error::ClockSilent { waited, reason, .. }) => {
            check!(
                !waited.is_zero() && !reason.is_empty(),
                "silent after {waited:?}, because {reason:?}"
            );
            Ok(())
        }
        Err(other) => Err(other.into()),
    }
}

/// Sampling ends while other threads sample, while the device works, and while it is blocked.
///
/// Earlier samples still convert then.
fn bounded<S: Subject>(world: &World<S>) -> Verdict {
    let each = unless_pair(world, "samples of each thread", 5, 2);
    for device in sides(world)? {
        let (clock, queue) = (device.clock()?, queue(device)?);
        let known = sampled(&clock)?.sample;
        queue.busy(DELAY, &[])?;
        let longest = thread::scope(|scope| {
            let sample = || -> Result<Duration, Stop> {
                let mut longest = Duration::ZERO;
                for _ in 0..each {
                    let start = Instant::now();
                    ended(clock.sample())?;
                    longest = longest.max(start.elapsed());
                }
                Ok(longest)
            };
            let sampling: Vec<_> = (0..4).map(|_| scope.spawn(sample)).collect();
            let all = sampling.into_iter().map(|thread| join(thread)?);
            all.collect::<Result<Vec<_>, Stop>>()
        })?;
        let longest = longest.into_iter().max().unwrap_or_default();
        check!(longest < patience());

        let stall = device.stall()?;
        queue.block(&stall)?;
        let (in_time, last) = thread::scope(|scope| -> Result<_, Stop> {
            let sampling = scope.spawn(|| {
                let last = clock.sample();
                (
                    last,
                    clock.to_host(known.device),
                    clock.to_device(known.host),
                )
            });
            let start = Instant::now();
            while !sampling.is_finished() && start.elapsed() < patience() {
                thread::sleep(Duration::from_millis(1));
            }
            let in_time = sampling.is_finished();
            // A sample that waits for the device ends now.
            stall.release()?;
            Ok((in_time, join(sampling)?))
        })?;
        check!(in_time, "a sample waits for a device that stands still");
        let (last, to_host, to_device) = last;
        ended(last)?;
        let (to_host, to_device) = (to_host?, to_device?);
        check!(
            to_host.nanoseconds.abs_diff(known.host) <= to_host.error + known.deviation
                && to_device.nanoseconds.abs_diff(known.device)
                    <= to_device.error + known.deviation + known.deviation / 1000 + 1,
            "{known:?} became {to_host:?} and {to_device:?} while the device stood still"
        );
        queue.idle(patience())?;
        sampled(&clock)?;
    }
    Ok(())
}

/// A device has the clock that its capabilities state.
///
/// Each kind of queue either writes times on it or says why not.
fn as_said<S: Subject>(world: &World<S>) -> Verdict {
    for device in [&world.left, &world.right] {
        let can = &device.info().capabilities;
        let subject = device.subject();
        match subject.device().clock() {
            Ok(_) => check!(can.timestamp_bits > 0),
            Err(Error::Unsupported { reason, .. }) => {
                let said = can.limits.iter().any(|(what, why)| {
                    ["calibrated clock", "timestamps"].contains(what) && !why.is_empty()
                });
                check!(
                    !can.calibrated_clock && said && !reason.is_empty(),
                    "its clock is refused for {reason:?}, which its capabilities do not say"
                );
                let fence = subject.clocked_fence("refused");
                check_error!(fence, Error::Unsupported { reason, .. } if !reason.is_empty());
                continue;
            }
            Err(other) => return Err(other.into()),
        }
        for family in &can.queues {
            let queue = device.queue(family.kind, "as promised")?;
            let fence = device.clocked_fence("stamp")?;
            if writes_as_said(family, &queue, &fence)? {
                fence.wait(patience())?;
                fence.time()?;
            } else {
                check_error!(fence.time(), NotRecorded);
            }
            queue.idle(patience())?;
        }
    }
    Ok(())
}
