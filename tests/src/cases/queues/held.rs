//! Q2, Q3, Q8: submissions that stay on the host until a driver may have their waits.

use std::time::Duration;

use crate::case::{Verdict, cases, check, check_eq, check_error};
use crate::cases::{DELAY, WORDS, filled, is_filled};
use crate::{Subject, World, patience};

cases! {
    "queue.consumer_before_producer": [Q2 T2] => consumer_first;
    "queue.timeline_of_the_other_side": [Q3] => other_side;
    "queue.settle_and_held": [Q8 T10] => settle;
    "queue.dropped_with_work_in_flight": [T9 Q6] => dropped;
}

fn consumer_first<S: Subject>(world: &World<S>) -> Verdict {
    let line = world.timeline("line")?;
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    let (source, target) = (world.left.buffer(WORDS)?, world.right.buffer(WORDS)?);
    let held = right.fill(&[line.at(1)], &target, 2, &[line.signal_at(2)])?;
    check!(held.is_held());
    check_error!(line.at(2).wait(Duration::from_millis(2)), TimedOut);
    check!(is_filled::<S>(&target, 0), "the work ran before its wait");
    left.fill_after(DELAY, &source, 1, &[line.signal_at(1)])?;
    line.at(2).wait(patience())?;
    filled::<S>(&source, 1, "source")?;
    check!(is_filled::<S>(&target, 2), "the held work did not run");
    Ok(())
}

fn other_side<S: Subject>(world: &World<S>) -> Verdict {
    // A timeline of one side, which queues of both sides use.
    for home in [&world.left, &world.right] {
        let line = home.timeline("line")?;
        let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
        let source = world.left.buffer(WORDS)?;
        right.submit_empty(&[line.at(1)], &[line.signal_at(2)])?;
        left.fill_after(DELAY, &source, 3, &[line.signal_at(1)])?;
        line.at(2).wait(patience())?;
        check!(is_filled::<S>(&source, 3), "the right side did not wait");
        // Fences live on their queue's own timeline, which the other side waits for too.
        let fence = world.left.fence("fence");
        left.fill_after(DELAY, &source, 4, &[line.signal_at(3)])?;
        left.record(&fence)?;
        let point = fence.point()?;
        right
            .submit_empty(&[point.point()], &[])?
            .end()
            .wait(patience())?;
        check!(is_filled::<S>(&source, 4), "the fence was not waited for");
    }
    Ok(())
}

fn settle<S: Subject>(world: &World<S>) -> Verdict {
    let gate = world.timeline("gate")?;
    let queue = world.right_queue("right")?;
    let line = world.timeline("line")?;
    let held = queue.submit_empty(&[gate.at(1)], &[line.signal_at(1)])?;
    queue.submit_empty(&[], &[])?;
    for point in [line.at(1), held.end(), queue.position()] {
        check!(!point.is_pending()?);
        check_error!(point.wait_pending(Duration::from_millis(1)), TimedOut);
    }
    let fence = world.right.fence("held");
    queue.record(&fence)?;
    check_eq!(queue.held().count, 3);
    check!(!fence.is_complete()?);
    check_error!(fence.point()?.point().require_pending(), NotPending);
    check_error!(queue.settle(Duration::from_millis(1)), TimedOut);
    gate.signal(1)?;
    queue.settle(patience())?;
    check_eq!(queue.held().count, 0);
    fence.point()?.point().require_pending()?;
    fence.wait(patience())?;
    Ok(())
}

fn dropped<S: Subject>(world: &World<S>) -> Verdict {
    let line = world.timeline("line")?;
    let gate = world.timeline("gate")?;
    let buffer = world.left.buffer(WORDS)?;
    let queue = world.left_queue("in flight")?;
    queue.fill_after(DELAY, &buffer, 1, &[line.signal_at(1)])?;
    drop(queue);
    let queue = world.left_queue("held")?;
    queue.fill(&[gate.at(1), line.at(1)], &buffer, 2, &[line.signal_at(2)])?;
    drop(queue);
    line.at(1).wait(patience())?;
    filled::<S>(&buffer, 1, "buffer")?;
    gate.signal(1)?;
    drop(gate);
    line.at(2).wait(patience())?;
    filled::<S>(&buffer, 2, "buffer")?;
    Ok(())
}
