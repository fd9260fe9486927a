//! F1, F3, F4: results of queries and waits of fences.

use std::time::{Duration, Instant};

use syncline::{Error, QueueKind};

use super::busy;
use crate::blocked::{blocked, join};
use crate::case::{Stop, Verdict, cases, check, check_error};
use crate::cases::{DELAY, LONG_DELAY, WORDS, is_filled, shows};
use crate::user::{Point, wait_all, wait_any};
use crate::{Subject, World, patience};

cases! {
    "fence.never_recorded_is_complete": [F1] => unrecorded;
    "fence.query_never_blocks": [F3 F2] => query;
    "fence.of_another_device_is_refused": [F4 E5] => other_device;
    "fence.many_waited_together": [F3 T5] => together;
    "fence.on_empty_queues_and_submissions": [F2 Q7] => empty;
}

fn unrecorded<S: Subject>(world: &World<S>) -> Verdict {
    let fence = world.left.fence("never recorded");
    check!(
        fence.is_complete()?,
        "a fence that was never recorded is not complete"
    );
    fence.wait(Duration::ZERO)?;
    let queue = world.right_queue("right")?;
    queue
        .submit(&[fence.point()?.point()], |_| Ok(()), &[])?
        .end()
        .wait(patience())?;
    Ok(())
}

fn query<S: Subject>(world: &World<S>) -> Verdict {
    let is_incomplete_first = || {
        let left = world.left_queue("left")?;
        let fence = world.left.fence("fence");
        let buffer = world.left.buffer(WORDS)?;
        busy(world, &left, LONG_DELAY)?;
        let to = buffer.clone();
        left.submit(&[], move |recorder| S::fill(recorder, &to, 9), &[])?;
        left.record(&fence)?;
        // However these reads race, a complete fence means finished work.
        let mut queries = 0_u64;
        let start = Instant::now();
        while !fence.is_complete()? {
            queries += 1;
            check!(
                start.elapsed() < patience(),
                "not complete after {queries} queries"
            );
        }
        check!(
            is_filled::<S>(&buffer, 9),
            "complete before the work was done"
        );
        Ok(queries > 0)
    };
    shows(
        is_incomplete_first,
        "complete at once, although the queue was busy",
    )
}

fn other_device<S: Subject>(world: &World<S>) -> Verdict {
    if !world.is_pair() {
        return Stop::skip("it takes two devices");
    }
    let right = world.right_queue("right")?;
    let fence = world.left.fence("left's fence");
    check_error!(right.record(&fence), Error::WrongDevice { object, .. } if object.label() == "left's fence");
    check!(fence.is_complete()?, "a refused record changed the fence");
    // Waiting from another device is legal.
    let left = world.left_queue("left")?;
    busy(world, &left, DELAY)?;
    left.record(&fence)?;
    right
        .submit(&[fence.point()?.point()], |_| Ok(()), &[])?
        .end()
        .wait(patience())?;
    check!(
        fence.is_complete()?,
        "the other device did not wait for the fence"
    );
    Ok(())
}

/// Half of the fences are held.
fn together<S: Subject>(world: &World<S>) -> Verdict {
    const FENCES: usize = 64;
    const QUEUES: usize = 4;
    let gate = world.timeline("gate")?;
    let mut queues = Vec::new();
    for n in 0..QUEUES {
        let queue = world.left_queue(&format!("queue {n}"))?;
        if n < QUEUES / 2 {
            queue.submit(&[gate.at(1)], |_| Ok(()), &[])?;
        }
        queues.push(queue);
    }
    let is_gated = |n: usize| n % QUEUES < QUEUES / 2;
    let mut fences = Vec::new();
    for n in 0..FENCES {
        let fence = world.left.fence(&format!("fence {n}"));
        queues[n % QUEUES].record(&fence)?;
        fences.push(fence);
    }
    let kept = fences.iter().map(|fence| fence.point());
    let kept = kept.collect::<syncline::Result<Vec<_>>>()?;
    let of = |which: &dyn Fn(usize) -> bool| -> Vec<Point<'_, S>> {
        (0..FENCES)
            .filter(|&n| which(n))
            .map(|n| kept[n].point())
            .collect()
    };
    let (all, gated, free) = (of(&|_| true), of(&is_gated), of(&|n| !is_gated(n)));
    wait_all(&free, patience())?;
    let first = wait_any(&all, patience())?;
    check!(
        first == QUEUES / 2,
        "of the fences, {first} is named instead of {}, the first complete one",
        QUEUES / 2
    );
    for (n, fence) in fences.iter().enumerate() {
        let complete = fence.is_complete()?;
        check!(
            complete != is_gated(n),
            "fence {n} is complete: {complete}, behind the gate: {}",
            is_gated(n)
        );
    }
    check_error!(wait_any(&gated, Duration::ZERO), Error::TimedOut { .. });
    check_error!(
        wait_all(&all, Duration::from_millis(2)),
        Error::TimedOut { .. }
    );
    // A fence that was never recorded counts as complete, for any and for all.
    let never = world.right.fence("never recorded").point()?;
    let with_never = |points: &[Point<'_, S>]| {
        let mut points: Vec<_> = points.iter().map(|point| point.keep()).collect();
        points.push(never.clone());
        points
    };
    let some = with_never(&gated);
    let some: Vec<_> = some.iter().map(|point| point.point()).collect();
    let named = wait_any(&some, Duration::ZERO)?;
    check!(
        named == gated.len(),
        "{named} is named instead of the one never recorded"
    );
    let some = with_never(&free);
    let some: Vec<_> = some.iter().map(|point| point.point()).collect();
    wait_all(&some, Duration::ZERO)?;
    std::thread::scope(|scope| {
        let waiter = blocked(scope, || wait_all(&all, patience()))?;
        check!(
            !waiter.is_finished(),
            "a wait for all fences ended before the gate was open"
        );
        gate.signal(1)?;
        join(waiter)??;
        Ok(())
    })?;
    for (n, fence) in fences.iter().enumerate() {
        check!(fence.is_complete()?, "fence {n} is not complete after all");
    }
    Ok(())
}

fn empty<S: Subject>(world: &World<S>) -> Verdict {
    for kind in [QueueKind::Compute, QueueKind::Transfer] {
        let fence = world.left.fence("fence");
        let right = world.right_queue("right")?;
        // Nothing is submitted after the record, so it must go to the driver by itself.
        let fresh = world.left.queue(kind, "fresh")?;
        fresh.record(&fence)?;
        fence.wait(patience())?;
        fresh.submit(&[], |_| Ok(()), &[])?;
        fresh.record(&fence)?;
        let once = fence.point()?;
        fresh.record(&fence)?;
        let twice = fence.point()?;
        right
            .submit(&[twice.point(), once.point()], |_| Ok(()), &[])?
            .end()
            .wait(patience())?;
        check!(
            fence.is_complete()? && once.point().is_reached()?,
            "waited for by the other side, but not complete"
        );
        // The same by polling alone.
        let polled = world.left.queue(kind, "polled")?;
        polled.record(&fence)?;
        let start = Instant::now();
        while !fence.is_complete()? {
            check!(
                start.elapsed() < patience(),
                "polling never saw it complete"
            );
            std::thread::yield_now();
        }
    }
    Ok(())
}
