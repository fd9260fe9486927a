//! F5: the time between two fences.

use std::time::{Duration, Instant};

use syncline::Error;

use super::busy;
use crate::blocked::join;
use crate::case::{Stop, Verdict, cases, check, check_error};
use crate::cases::{DELAY, within};
use crate::{Subject, World, patience};

cases! {
    "fence.elapsed": [F5] => elapsed;
    "fence.elapsed_errors": [F5] => elapsed_errors;
    "fence.elapsed_after_recording_again": [F5 F6] => again;
    "fence.elapsed_from_many_threads": [F5] => many_threads;
}

/// The device is blocked between two times, for as long as the host says.
///
/// At least one of several rounds is undisturbed, with narrow bounds.
fn elapsed<S: Subject>(world: &World<S>) -> Verdict {
    const ROUNDS: u32 = 3;
    if world.left.info().capabilities.timestamp_bits == 0 {
        return Stop::skip("the device has no timestamps");
    }
    let left = world.left_queue("left")?;
    let (begin, end) = (
        world.left.timed_fence("begin"),
        world.left.timed_fence("end"),
    );
    for _ in 0..ROUNDS {
        let stall = world.left.stall()?;
        let before = Instant::now();
        left.record(&begin)?;
        begin.wait(patience())?;
        let between = Instant::now();
        left.block(&stall)?;
        left.record(&end)?;
        std::thread::sleep(DELAY * 2);
        let inside = between.elapsed();
        stall.release()?;
        end.wait(patience())?;
        let forward = end.elapsed_since(&begin)?;
        within(forward, inside, before.elapsed())?;
        let backward = begin.elapsed_since(&end)?;
        check!(
            backward < 0 && (backward + forward).abs() < 1_000_000,
            "{forward} ns forward, {backward} ns backward"
        );
    }
    let itself = end.elapsed_since(&end)?;
    check!(itself == 0, "a fence against itself is {itself} ns");
    Ok(())
}

fn elapsed_errors<S: Subject>(world: &World<S>) -> Verdict {
    if world.left.info().capabilities.timestamp_bits == 0 {
        return Stop::skip("the device has no timestamps");
    }
    let left = world.left_queue("left")?;
    let gate = world.timeline("gate")?;
    let (timed, plain) = (world.left.timed_fence("timed"), world.left.fence("plain"));
    let never = world.left.timed_fence("never");
    left.record(&timed)?;
    left.record(&plain)?;
    left.idle(patience())?;
    check_error!(plain.elapsed_since(&timed), Error::TimingDisabled { .. });
    check_error!(timed.elapsed_since(&never), Error::NotRecorded { .. });
    left.submit(&[gate.at(1)], |_| Ok(()), &[])?;
    let late = world.left.timed_fence("late");
    left.record(&late)?;
    check_error!(late.elapsed_since(&timed), Error::NotReady { .. });
    gate.signal(1)?;
    late.wait(patience())?;
    check!(
        late.elapsed_since(&timed)? >= 0,
        "time ran backwards along a queue"
    );
    if world.is_pair() && world.right.info().capabilities.timestamp_bits > 0 {
        let foreign = world.right.timed_fence("foreign");
        let right = world.right_queue("right")?;
        right.record(&foreign)?;
        foreign.wait(patience())?;
        check_error!(timed.elapsed_since(&foreign), Error::WrongDevice { .. });
    }
    Ok(())
}

fn again<S: Subject>(world: &World<S>) -> Verdict {
    if world.left.info().capabilities.timestamp_bits == 0 {
        return Stop::skip("the device has no timestamps");
    }
    let gate = world.timeline("gate")?;
    let left = world.left_queue("left")?;
    let (start, end) = (
        world.left.timed_fence("start"),
        world.left.timed_fence("end"),
    );
    left.record(&start)?;
    left.record(&end)?;
    end.wait(patience())?;
    let mut last = end.elapsed_since(&start)?;
    check!(last >= 0, "{last} ns along a queue");
    for round in 1..=5 {
        busy(world, &left, Duration::from_micros(300))?;
        left.submit(&[gate.at(round)], |_| Ok(()), &[])?;
        left.record(&end)?;
        // The fence's earlier record is finished, and its present one is not.
        check_error!(end.elapsed_since(&start), Error::NotReady { .. });
        check_error!(start.elapsed_since(&end), Error::NotReady { .. });
        gate.signal(round)?;
        end.wait(patience())?;
        let now = end.elapsed_since(&start)?;
        check!(
            now > last,
            "recorded again after work, the end came {now} ns after the start; before, {last} ns"
        );
        last = now;
    }
    // Now the start moves past the end.
    left.record(&start)?;
    start.wait(patience())?;
    let negative = end.elapsed_since(&start)?;
    check!(
        negative <= 0,
        "the start was recorded again behind the end, and {negative} ns lie between"
    );
    // Each wrong fence, as start and as end.
    let (plain, never) = (world.left.fence("plain"), world.left.timed_fence("never"));
    left.record(&plain)?;
    left.idle(patience())?;
    for (from, to) in [(&plain, &end), (&end, &plain), (&plain, &plain)] {
        check_error!(to.elapsed_since(from), Error::TimingDisabled { .. });
    }
    for (from, to) in [(&never, &end), (&end, &never)] {
        check_error!(to.elapsed_since(from), Error::NotRecorded { .. });
    }
    check!(
        end.elapsed_since(&start)? == negative,
        "wrong questions changed the answer to the right one"
    );
    Ok(())
}

fn many_threads<S: Subject>(world: &World<S>) -> Verdict {
    const THREADS: usize = 8;
    const FENCES: usize = 6;
    if world.left.info().capabilities.timestamp_bits == 0 {
        return Stop::skip("the device has no timestamps");
    }
    let one = |n: usize| -> Verdict {
        let queue = world.left_queue(&format!("queue {n}"))?;
        let fences: Vec<_> = (0..FENCES)
            .map(|k| world.left.timed_fence(&format!("fence {n}.{k}")))
            .collect();
        for _ in 0..10 {
            for fence in &fences {
                queue.record(fence)?;
                queue.submit(&[], |_| Ok(()), &[])?;
            }
            fences[FENCES - 1].wait(patience())?;
            let mut last = 0;
            for fence in &fences {
                let since = fence.elapsed_since(&fences[0])?;
                check!(
                    since >= last,
                    "{fence:?} was written {since} ns after the first, the one before it {last} ns"
                );
                last = since;
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|n| scope.spawn(move || one(n))).collect();
        for thread in threads {
            join(thread)??;
        }
        Ok(())
    })
}
