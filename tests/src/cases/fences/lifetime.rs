//! F6: fences that are dropped, or recorded again, while threads or queues wait for them.

use crate::blocked::{blocked, join};
use crate::case::{Verdict, cases, check};
use crate::cases::{WORDS, filled};
use crate::user::Queue;
use crate::{Subject, World, patience};

cases! {
    "fence.dropped_while_waited_for": [F6 F2] => dropped_while_waited_for;
}

/// In some rounds the fence is held by the host. In others its driver has it and is blocked.
fn dropped_while_waited_for<S: Subject>(world: &World<S>) -> Verdict {
    for round in 0..4 {
        let line = world.timeline("gate")?;
        let close = |queue: &Queue<S>| queue.submit_empty(&[line.at(1)], &[]).map(|_| ());
        drop_behind(world, round, close, || Ok(line.signal(1)?))?;
        let stall = world.left.stall()?;
        let close = |queue: &Queue<S>| queue.block(&stall).map(|_| ());
        drop_behind(world, round, close, || Ok(stall.release()?))?;
    }
    Ok(())
}

fn drop_behind<S: Subject>(
    world: &World<S>,
    round: u32,
    close: impl Fn(&Queue<S>) -> syncline::Result<()>,
    open: impl Fn() -> Verdict,
) -> Verdict {
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    let (source, target) = (world.left.buffer(WORDS)?, world.right.buffer(WORDS)?);
    let timed = round % 2 == 1 && world.left.info().capabilities.timestamp_bits > 0;
    let fence = if timed {
        world.left.timed_fence("dropped")
    } else {
        world.left.fence("dropped")
    };
    close(&left)?;
    left.fill(&[], &source, 1, &[])?;
    left.record(&fence)?;
    right.wait(&fence)?;
    let end = right.fill(&[], &target, 2, &[])?;
    let held = fence.point()?;
    std::thread::scope(|scope| {
        let waiter = {
            let fence = fence.clone();
            blocked(scope, move || {
                let ended = fence.wait(patience());
                // In some rounds this thread drops the last handle.
                drop(fence);
                ended
            })?
        };
        if round < 2 {
            // Recorded again before the drop. The waits keep their record.
            left.record(&fence)?;
        }
        drop(fence);
        check!(
            !held.point().is_reached()? && !end.end().is_reached()?,
            "reached although the gate is closed"
        );
        open()?;
        join(waiter)??;
        Ok(())
    })?;
    filled::<S>(&source, 1, "source")?;
    end.end().wait(patience())?;
    filled::<S>(&target, 2, "target")?;
    held.point().wait(patience())?;
    left.idle(patience())?;
    Ok(())
}
