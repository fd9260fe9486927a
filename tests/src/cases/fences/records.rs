//! F2, F6: a new record changes no wait that was made before.

use syncline::WaitMode;

use crate::blocked::{blocked, join};
use crate::case::{Verdict, cases, check};
use crate::{Subject, World, patience};

cases! {
    "fence.blocked_wait_keeps_its_record": [F2] => blocked_wait;
}

fn blocked_wait<S: Subject>(world: &World<S>) -> Verdict {
    for mode in [WaitMode::Block, WaitMode::Adaptive] {
        let gate = world.timeline("gate")?;
        let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
        let fence = world.left.fence("fence");
        let wait = || fence.wait_with(mode, patience());
        left.submit_empty(&[gate.at(1)], &[])?;
        left.record(&fence)?;
        std::thread::scope(|scope| {
            let first = blocked(scope, wait)?;
            right.wait(&fence)?;
            let queued = right.submit_empty(&[fence.point()?.point()], &[])?;
            left.submit_empty(&[gate.at(2)], &[])?;
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
