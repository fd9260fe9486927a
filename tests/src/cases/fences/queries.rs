//! F1, F3, F4: results of queries and waits of fences.

use std::time::{Duration, Instant};

use syncline::{Error, QueueKind};

use crate::case::{Stop, Verdict, cases, check, check_eq, check_error};
use crate::cases::{DELAY, LONG_DELAY, WORDS, filled, shows};
use crate::{Subject, World, patience};

cases! {
    "fence.never_recorded_is_complete": [F1] => unrecorded;
    "fence.query_never_blocks": [F3 F2] => query;
    "fence.of_another_device_is_refused": [F4 E5] => other_device;
    "fence.on_empty_queues_and_submissions": [F2 Q7] => empty;
}

fn unrecorded<S: Subject>(world: &World<S>) -> Verdict {
    let fence = world.left.fence("never recorded");
    check!(fence.is_complete()?);
    fence.wait(Duration::ZERO)?;
    let queue = world.right_queue("right")?;
    queue.wait(&fence)?;
    check_eq!(queue.position().value(), 0);
    queue
        .submit_empty(&[fence.point()?.point()], &[])?
        .end()
        .wait(patience())?;
    Ok(())
}

fn query<S: Subject>(world: &World<S>) -> Verdict {
    let is_incomplete_first = || {
        let left = world.left_queue("left")?;
        let fence = world.left.fence("fence");
        let buffer = world.left.buffer(WORDS)?;
        left.busy(LONG_DELAY, &[])?;
        left.fill(&[], &buffer, 9, &[])?;
        left.record(&fence)?;
        // However these reads race, a complete fence means finished work.
        let mut queries = 0_u64;
        let start = Instant::now();
        while !fence.is_complete()? {
            queries += 1;
            check!(start.elapsed() < patience(), "queries {queries}");
        }
        filled::<S>(&buffer, 9, "buffer")?;
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
    left.busy(DELAY, &[])?;
    left.record(&fence)?;
    right
        .submit_empty(&[fence.point()?.point()], &[])?
        .end()
        .wait(patience())?;
    check!(fence.is_complete()?);
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
        fresh.submit_empty(&[], &[])?;
        fresh.record(&fence)?;
        let once = fence.point()?;
        fresh.record(&fence)?;
        let twice = fence.point()?;
        right
            .submit_empty(&[twice.point(), once.point()], &[])?
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
            check!(start.elapsed() < patience());
            std::thread::yield_now();
        }
    }
    Ok(())
}
