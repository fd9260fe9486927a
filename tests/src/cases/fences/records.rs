//! F2, F6: a new record changes no wait that was made before.

use std::time::Duration;

use syncline::{Error, WaitMode};

use crate::blocked::{blocked, join};
use crate::case::{Verdict, cases, check, check_error};
use crate::{Subject, World, patience};

cases! {
    "fence.a_queue_waits_for_what_it_holds": [F1 F2 F4] => queue_waits;
    "fence.rerecording_moves_no_wait": [F2] => rerecorded;
    "fence.blocked_wait_keeps_its_record": [F2] => blocked_wait;
    "fence.rerecorded_behind_a_gate": [F2 F6] => behind_a_gate;
}

fn queue_waits<S: Subject>(world: &World<S>) -> Verdict {
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    let (gate, done) = (world.timeline("gate")?, world.timeline("done")?);
    let fence = world.left.fence("fence");
    right.wait(&fence)?;
    check!(
        right.position().value() == 0,
        "waiting for a fence that was never recorded added something to the queue"
    );
    left.submit(&[gate.at(1)], |_| Ok(()), &[])?;
    left.record(&fence)?;
    right.wait(&fence)?;
    right.submit(&[], |_| Ok(()), &[done.signal_at(1)])?;
    // Recorded again later. Existing waits keep their record.
    left.submit(&[gate.at(2)], |_| Ok(()), &[])?;
    left.record(&fence)?;
    check_error!(
        done.at(1).wait(Duration::from_millis(3)),
        Error::TimedOut { .. }
    );
    gate.signal(1)?;
    done.at(1).wait(patience())?;
    check!(
        !fence.is_complete()?,
        "the later record is complete before its queue gets there"
    );
    gate.signal(2)?;
    fence.wait(patience())?;
    Ok(())
}

fn rerecorded<S: Subject>(world: &World<S>) -> Verdict {
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    let gate = world.timeline("gate")?;
    let fence = world.left.fence("fence");
    left.record(&fence)?;
    let early = fence.point()?;
    // Held, so a wait on the later record could not end.
    left.submit(&[gate.at(1)], |_| Ok(()), &[])?;
    left.record(&fence)?;
    right
        .submit(&[early.point()], |_| Ok(()), &[])?
        .end()
        .wait(patience())?;
    early.point().wait(patience())?;
    check!(
        !fence.is_complete()?,
        "the later record is complete before its queue gets there"
    );
    check_error!(fence.wait(Duration::from_millis(1)), Error::TimedOut { .. });
    gate.signal(1)?;
    fence.wait(patience())?;
    Ok(())
}

fn blocked_wait<S: Subject>(world: &World<S>) -> Verdict {
    for mode in [WaitMode::Block, WaitMode::Adaptive] {
        let gate = world.timeline("gate")?;
        let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
        let fence = world.left.fence("fence");
        let wait = || fence.wait_with(mode, patience());
        left.submit(&[gate.at(1)], |_| Ok(()), &[])?;
        left.record(&fence)?;
        std::thread::scope(|scope| {
            let first = blocked(scope, wait)?;
            right.wait(&fence)?;
            let queued = right.submit(&[fence.point()?.point()], |_| Ok(()), &[])?;
            left.submit(&[gate.at(2)], |_| Ok(()), &[])?;
            left.record(&fence)?;
            let second = blocked(scope, wait)?;
            check!(
                !first.is_finished() && !second.is_finished(),
                "a wait ended although its record is behind a closed gate"
            );
            gate.signal(1)?;
            // The second record's gate stays closed.
            join(first)??;
            queued.end().wait(patience())?;
            check!(
                !second.is_finished() && !fence.is_complete()?,
                "the second record is complete although its gate is closed"
            );
            gate.signal(2)?;
            join(second)??;
            Ok(())
        })?;
        check!(fence.is_complete()?, "waited for, but not complete");
    }
    Ok(())
}

fn behind_a_gate<S: Subject>(world: &World<S>) -> Verdict {
    let records: u64 = if world.is_pair() { 150 } else { 1000 };
    let gate = world.timeline("gate")?;
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    let fence = world.left.fence("fence");
    let mut points = Vec::new();
    for value in 1..=records {
        left.submit(&[gate.at(value)], |_| Ok(()), &[])?;
        left.record(&fence)?;
        points.push(fence.point()?);
        if value % 10 == 0 {
            right.submit(&[fence.point()?.point()], |_| Ok(()), &[])?;
        }
    }
    let mut open = 0;
    while open < records {
        // Mostly one at a time, sometimes several.
        open = (open + 1 + (open % 7) / 6 * 4).min(records);
        gate.signal(open)?;
        points[open as usize - 1].point().wait(patience())?;
        if let Some(next) = points.get(open as usize) {
            check!(
                !next.point().is_reached()? && !fence.is_complete()?,
                "the gate is at {open}, and record {} or the last one is reached",
                open + 1
            );
        }
    }
    fence.wait(Duration::ZERO)?;
    right.idle(patience())?;
    for (nth, point) in points.iter().enumerate() {
        check!(
            point.point().is_reached()?,
            "record {} is not reached",
            nth + 1
        );
    }
    Ok(())
}
