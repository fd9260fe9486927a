//! M1: timestamps, through timed fences: written where the queue is, and read without waiting.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use syncline::{Error, QueueKind, info::QueueFamily};

use crate::blocked::join;
use crate::case::{Stop, Verdict, cases, check, check_eq, check_error};
use crate::cases::{DELAY, within};
use crate::footprint::grows_nothing;
use crate::user::{Device, Fence, Queue, Stall};
use crate::{Subject, World, patience};

cases! {
    "time.bracketed_by_the_host": [M1 F5] => bracketed;
    "time.ordered_along_a_queue": [M1 F5] => ordered;
    "time.not_ready_until_written": [M1 F3 F5] => not_ready;
    "time.as_the_capabilities_say": [M1 D3 E5] => as_said;
    "time.stamps_are_used_again": [M1 F6 H2] => used_again;
}

/// The sides that have timestamps.
fn sides<S: Subject>(world: &World<S>) -> Result<Vec<&Device<S>>, Stop> {
    let mut sides = vec![&world.left];
    if world.is_pair() {
        sides.push(&world.right);
    }
    sides.retain(|side| side.info().capabilities.timestamp_bits > 0);
    if sides.is_empty() {
        return Stop::skip("the device has no timestamps");
    }
    Ok(sides)
}

fn queue<S: Subject>(device: &Device<S>) -> syncline::Result<Queue<S>> {
    device.queue(QueueKind::Compute, "timed")
}

/// The device is blocked for different times. Each stamp lies between the times at which the host
/// looked before and after it.
fn bracketed<S: Subject>(world: &World<S>) -> Verdict {
    for device in sides(world)? {
        let queue = queue(device)?;
        let mut stamps: Vec<(Fence<S>, Instant, Instant)> = Vec::new();
        for closed in [Duration::ZERO, DELAY, DELAY / 4, DELAY / 2] {
            let stall = device.stall()?;
            let fence = device.timed_fence("stamp");
            queue.block(&stall)?;
            queue.record(&fence)?;
            thread::sleep(closed);
            // Not before the release: the device is still blocked.
            let from = Instant::now();
            stall.release()?;
            fence.wait(patience())?;
            stamps.push((fence, from, Instant::now()));
        }
        for (at, (early, early_from, early_to)) in stamps.iter().enumerate() {
            for (late, late_from, late_to) in &stamps[at + 1..] {
                let (least, most) = (
                    late_from.duration_since(*early_to),
                    late_to.duration_since(*early_from),
                );
                within(late.elapsed_since(early)?, least, most)?;
            }
        }
    }
    Ok(())
}

/// Along a queue time does not decrease, and the two intervals between three stamps add up.
fn ordered<S: Subject>(world: &World<S>) -> Verdict {
    const STAMPS: usize = 100;
    for device in sides(world)? {
        let queue = queue(device)?;
        let buffer = device.buffer(64)?;
        let mut fences = Vec::new();
        for nth in 0..STAMPS {
            match nth % 4 {
                0 => {}
                1 => drop(queue.submit_empty(&[], &[])?),
                2 => {
                    let work = Duration::from_micros(100);
                    queue.busy(work, &[])?;
                }
                _ => {
                    queue.fill(&[], &buffer, nth as u32, &[])?;
                }
            }
            let fence = device.timed_fence("stamp");
            queue.record(&fence)?;
            fences.push(fence);
        }
        queue.idle(patience())?;
        let mut sum = 0;
        for pair in fences.windows(2) {
            let (forward, back) = (
                pair[1].elapsed_since(&pair[0])?,
                pair[0].elapsed_since(&pair[1])?,
            );
            check!(forward >= 0, "time ran {forward} ns along a queue");
            check!((forward + back).abs() <= 1000);
            sum += forward;
        }
        let whole = fences[STAMPS - 1].elapsed_since(&fences[0])?;
        // Backends with milliseconds in 32 bits round each of them.
        let grain = 1000 * STAMPS as i64;
        check!((whole - sum).abs() <= grain);
        check!(whole > 0, "{STAMPS} stamps and their work took {whole} ns");
    }
    Ok(())
}

/// A stamp is not ready while the device is blocked before it, or while its submission is held.
///
/// A query says so at once. Times that exist already do not change.
fn not_ready<S: Subject>(world: &World<S>) -> Verdict {
    for device in sides(world)? {
        let queue = queue(device)?;
        let stamp = |label| {
            let fence = device.timed_fence(label);
            queue.record(&fence).map(|()| fence)
        };
        let (first, second) = (stamp("first")?, stamp("second")?);
        queue.idle(patience())?;
        let known = second.elapsed_since(&first)?;
        let unchanged = |when: &str| -> Verdict {
            let now = second.elapsed_since(&first)?;
            check!(now == known, "{known} ns became {now} ns {when}");
            Ok(())
        };
        let asked = |late: &Fence<S>| -> Verdict {
            for (from, to) in [(&first, late), (late, &second)] {
                let name = late.object();
                check_error!(to.elapsed_since(from), Error::NotReady { fence, .. } if fence == *name);
            }
            check_error!(late.elapsed_since(late), NotReady);
            Ok(())
        };

        let gate = world.timeline("gate")?;
        queue.submit_empty(&[gate.at(1)], &[])?;
        let held = stamp("held")?;
        asked(&held)?;
        unchanged("behind a held submission")?;
        gate.signal(1)?;
        held.wait(patience())?;
        check!(held.elapsed_since(&second)? >= 0, "time ran backwards");

        let stall = device.stall()?;
        queue.block(&stall)?;
        let blocked = stamp("blocked")?;
        // A query that blocked would hang: this thread releases the stall only later.
        asked(&blocked)?;
        unchanged("while the device stood still")?;
        let told = comes_once(&stall, &blocked, || blocked.elapsed_since(&second))?;
        check_eq!(blocked.elapsed_since(&second)?, told);
        unchanged("at the end")?;
        queue.idle(patience())?;
    }
    Ok(())
}

/// Releases the device, and returns the time that `ask` gives to a thread that asks all the time.
///
/// The answer changes once from 'not ready' to a time, and not before the release.
pub(super) fn comes_once<S: Subject>(
    stall: &Stall<S>,
    late: &Fence<S>,
    ask: impl Fn() -> syncline::Result<i64> + Sync,
) -> Result<i64, Stop> {
    let opened = AtomicBool::new(false);
    thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let end = Instant::now() + patience();
            loop {
                let was_open = opened.load(Ordering::SeqCst);
                match ask() {
                    Err(Error::NotReady { .. }) if Instant::now() < end => thread::yield_now(),
                    Err(other) => return Stop::fail(format!("asked all the time: {other}")),
                    Ok(_) if !was_open && !opened.load(Ordering::SeqCst) => {
                        return Stop::fail("a time exists although the device is blocked");
                    }
                    Ok(time) => return Ok(time),
                }
            }
        });
        opened.store(true, Ordering::SeqCst);
        stall.release()?;
        late.wait(patience())?;
        join(asking)?
    })
}

/// Every kind of queue writes times if it has valid bits, and states the reason otherwise.
fn as_said<S: Subject>(world: &World<S>) -> Verdict {
    for device in [&world.left, &world.right] {
        let can = &device.info().capabilities;
        let fewest = can.queues.iter().map(|family| family.timestamp_bits);
        let fewest = fewest.filter(|&bits| bits > 0).min().unwrap_or(0);
        check_eq!(can.timestamp_bits, fewest);
        check!(
            fewest == 0 || ((32..=64).contains(&fewest) && can.timestamp_period_ns > 0.0),
            "{fewest} bits of {} ns",
            can.timestamp_period_ns
        );
        check!(
            fewest > 0 || can.limits.iter().any(|(what, _)| *what == "timestamps"),
            "no timestamps, and no reason for it"
        );
        for family in &can.queues {
            let queue = device.queue(family.kind, "as promised")?;
            let (begin, end) = (device.timed_fence("begin"), device.timed_fence("end"));
            if writes_as_said(family, &queue, &begin)? {
                queue.record(&end)?;
                end.wait(patience())?;
                check!(end.elapsed_since(&begin)? >= 0, "time ran backwards");
            } else {
                check_error!(begin.elapsed_since(&begin), NotRecorded);
            }
            queue.idle(patience())?;
        }
    }
    Ok(())
}

/// Records `fence`, which takes times, on a queue of this family, and returns whether it was done.
///
/// If the queue cannot write times, it must state the reason.
pub(super) fn writes_as_said<S: Subject>(
    family: &QueueFamily,
    queue: &Queue<S>,
    fence: &Fence<S>,
) -> Result<bool, Stop> {
    match queue.record(fence) {
        Ok(()) => {
            check!(
                family.timestamp_bits > 0,
                "a {} queue without valid bits writes times",
                family.kind
            );
            Ok(true)
        }
        Err(Error::Unsupported { reason, .. }) => {
            check!(!reason.is_empty(), "refused for no reason");
            // There may be one more condition than valid bits. A queue that only transfers may
            // refuse.
            check!(
                family.timestamp_bits == 0 || family.kind == QueueKind::Transfer,
                "a {} queue with {} valid bits writes no times: {reason}",
                family.kind,
                family.timestamp_bits
            );
            check!(fence.is_complete()?, "a refused record changed the fence");
            Ok(false)
        }
        Err(other) => Err(other.into()),
    }
}

fn used_again<S: Subject>(world: &World<S>) -> Verdict {
    for device in sides(world)? {
        let queue = queue(device)?;
        let start = device.timed_fence("start");
        queue.record(&start)?;
        let fence = |label: &str| Ok(device.timed_fence(label));
        use_again(world, &queue, fence, |again| again.elapsed_since(&start))?;
    }
    Ok(())
}

/// Memory for times comes from pools. Fences are recorded repeatedly, and dropped in between.
///
/// They return new times, and nothing grows.
pub(super) fn use_again<S: Subject>(
    world: &World<S>,
    queue: &Queue<S>,
    fence: impl Fn(&str) -> Result<Fence<S>, Stop>,
    told: impl Fn(&Fence<S>) -> syncline::Result<i64>,
) -> Verdict {
    let each = if world.is_pair() { 200 } else { 1000 };
    let again = fence("again")?;
    let (mut first, mut last) = (None, i64::MIN);
    grows_nothing(|| {
        for nth in 0..each {
            queue.record(&again)?;
            // Dropped while its time is not written yet.
            let dropped = fence("dropped")?;
            queue.record(&dropped)?;
            drop(dropped);
            if nth % 50 == 0 {
                again.wait(patience())?;
                let now = told(&again)?;
                check!(now >= last, "recorded anew at {now} ns, after {last} ns");
                first.get_or_insert(now);
                last = now;
            }
        }
        queue.idle(patience())?;
        Ok(())
    })?;
    check!(
        first.is_some_and(|first| last > first),
        "all tell the same time"
    );
    Ok(())
}
