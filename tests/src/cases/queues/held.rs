//! Q2, Q3, Q8: submissions that stay on the host until a driver may have their waits.

use std::time::Duration;

use syncline::Error;

use super::slow_fill;
use crate::case::{Verdict, cases, check, check_error};
use crate::cases::{WORDS, is_filled};
use crate::{Subject, World, patience};

cases! {
    "queue.consumer_before_producer": [Q2 T2] => consumer_first;
    "queue.timeline_of_the_other_side": [Q3] => other_side;
    "queue.settle_and_held": [Q8 T10] => settle;
    "queue.pending_while_the_device_stands_still": [T10 F2 F3] => stands_still;
    "queue.dropped_with_work_in_flight": [T9 Q6] => dropped;
}

fn consumer_first<S: Subject>(world: &World<S>) -> Verdict {
    let line = world.timeline("line")?;
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    let (source, target) = (world.left.buffer(WORDS)?, world.right.buffer(WORDS)?);
    let to = target.clone();
    let held = right.submit(
        &[line.at(1)],
        move |r| S::fill(r, &to, 2),
        &[line.signal_at(2)],
    )?;
    check!(
        held.is_held(),
        "a wait went to the driver before its signal"
    );
    check_error!(
        line.at(2).wait(Duration::from_millis(2)),
        Error::TimedOut { .. }
    );
    check!(is_filled::<S>(&target, 0), "the work ran before its wait");
    slow_fill(world, &left, &source, 1, line.signal_at(1))?;
    line.at(2).wait(patience())?;
    check!(
        is_filled::<S>(&source, 1),
        "2 was reached before the work behind 1 was done"
    );
    check!(is_filled::<S>(&target, 2), "the held work did not run");
    Ok(())
}

fn other_side<S: Subject>(world: &World<S>) -> Verdict {
    // A timeline of one side, which queues of both sides use.
    for home in [&world.left, &world.right] {
        let line = home.timeline("line")?;
        let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
        let source = world.left.buffer(WORDS)?;
        right.submit(&[line.at(1)], |_| Ok(()), &[line.signal_at(2)])?;
        slow_fill(world, &left, &source, 3, line.signal_at(1))?;
        line.at(2).wait(patience())?;
        check!(is_filled::<S>(&source, 3), "the right side did not wait");
        // Fences live on their queue's own timeline, which the other side waits for too.
        let fence = world.left.fence("fence");
        slow_fill(world, &left, &source, 4, line.signal_at(3))?;
        left.record(&fence)?;
        let point = fence.point()?;
        right
            .submit(&[point.point()], |_| Ok(()), &[])?
            .end()
            .wait(patience())?;
        check!(is_filled::<S>(&source, 4), "the fence was not waited for");
    }
    Ok(())
}

fn settle<S: Subject>(world: &World<S>) -> Verdict {
    let gate = world.timeline("gate")?;
    let queue = world.right_queue("right")?;
    queue.submit(&[gate.at(1)], |_| Ok(()), &[])?;
    queue.submit(&[], |_| Ok(()), &[])?;
    let fence = world.right.fence("held");
    queue.record(&fence)?;
    check!(
        queue.held().count == 3,
        "{} submissions are held instead of 3",
        queue.held().count
    );
    check!(
        !fence.is_complete()?,
        "a fence behind held work is complete"
    );
    check_error!(
        fence.point()?.point().require_pending(),
        Error::NotPending { .. }
    );
    check_error!(
        queue.settle(Duration::from_millis(1)),
        Error::TimedOut { .. }
    );
    gate.signal(1)?;
    queue.settle(patience())?;
    check!(
        queue.held().count == 0,
        "settled, but {} are held",
        queue.held().count
    );
    fence.point()?.point().require_pending()?;
    fence.wait(patience())?;
    Ok(())
}

/// The device is blocked and the host is not: the driver has everything, and nothing is reached.
fn stands_still<S: Subject>(world: &World<S>) -> Verdict {
    let stall = world.left.stall()?;
    let line = world.timeline("line")?;
    let fence = world.left.fence("fence");
    let left = world.left_queue("left")?;
    left.record(&fence)?;
    fence.wait(patience())?;
    left.block(&stall)?;
    left.submit(&[], |_| Ok(()), &[line.signal_at(1)])?;
    left.record(&fence)?;
    left.settle(patience())?;
    // With a port on the left device the signal is pending. Otherwise the host makes it.
    if line.devices().any(|device| device == world.left.id()) {
        line.at(1).wait_pending(patience())?;
    }
    check_error!(
        line.at(1).wait(Duration::from_millis(20)),
        Error::TimedOut { value: 1, .. }
    );
    check!(
        !fence.is_complete()?,
        "a fence behind work that stands still is complete"
    );
    stall.release()?;
    line.at(1).wait(patience())?;
    fence.wait(patience())?;
    Ok(())
}

fn dropped<S: Subject>(world: &World<S>) -> Verdict {
    let line = world.timeline("line")?;
    let gate = world.timeline("gate")?;
    let buffer = world.left.buffer(WORDS)?;
    let queue = world.left_queue("in flight")?;
    slow_fill(world, &queue, &buffer, 1, line.signal_at(1))?;
    drop(queue);
    let queue = world.left_queue("held")?;
    let to = buffer.clone();
    queue.submit(
        &[gate.at(1), line.at(1)],
        move |r| S::fill(r, &to, 2),
        &[line.signal_at(2)],
    )?;
    drop(queue);
    line.at(1).wait(patience())?;
    check!(
        is_filled::<S>(&buffer, 1),
        "work of a dropped queue is lost"
    );
    gate.signal(1)?;
    drop(gate);
    line.at(2).wait(patience())?;
    check!(
        is_filled::<S>(&buffer, 2),
        "held work of a dropped queue is lost"
    );
    Ok(())
}
