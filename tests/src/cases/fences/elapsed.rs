//! F5: the time between two fences.

use std::time::Duration;

use crate::case::{Stop, Verdict, cases, check, check_eq, check_error};
use crate::{Subject, World, patience};

cases! {
    "fence.elapsed_after_recording_again": [F5 F6] => again;
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
        left.busy(Duration::from_micros(300), &[])?;
        left.submit_empty(&[gate.at(round)], &[])?;
        left.record(&end)?;
        // The fence's earlier record is finished, and its present one is not.
        check_error!(end.elapsed_since(&start), NotReady);
        check_error!(start.elapsed_since(&end), NotReady);
        gate.signal(round)?;
        end.wait(patience())?;
        let now = end.elapsed_since(&start)?;
        check!(now > last);
        last = now;
    }
    // Now the start moves past the end.
    left.record(&start)?;
    start.wait(patience())?;
    let negative = end.elapsed_since(&start)?;
    check!(negative <= 0);
    // Each wrong fence, as start and as end.
    let (plain, never) = (world.left.fence("plain"), world.left.timed_fence("never"));
    left.record(&plain)?;
    left.idle(patience())?;
    for (from, to) in [(&plain, &end), (&end, &plain), (&plain, &plain)] {
        check_error!(to.elapsed_since(from), TimingDisabled);
    }
    for (from, to) in [(&never, &end), (&end, &never)] {
        check_error!(to.elapsed_since(from), NotRecorded);
    }
    check_eq!(end.elapsed_since(&start)?, negative);
    if world.is_pair() && world.right.info().capabilities.timestamp_bits > 0 {
        let foreign = world.right.timed_fence("foreign");
        let right = world.right_queue("right")?;
        right.record(&foreign)?;
        foreign.wait(patience())?;
        check_error!(end.elapsed_since(&foreign), WrongDevice);
    }
    Ok(())
}
