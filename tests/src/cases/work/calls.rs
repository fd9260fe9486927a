//! Q6: what work may call, and the one call that it must not make.

use syncline::Error;

use crate::case::{Verdict, cases, check_error};
use crate::cases::cause;
use crate::user::{Queue, Timeline};
use crate::{Subject, World, patience};

cases! {
    "work.same_queue_from_inside": [Q6] => reentrant;
    "work.may_call_the_engine": [Q6] => calls_engine;
}

fn reentrant<S: Subject>(world: &World<S>) -> Verdict {
    let queue = world.left_queue("left")?;
    let inner = queue.clone();
    let refused = queue.submit(&[], move |_| inner.submit_empty(&[], &[]).map(|_| ()), &[]);
    check_error!(refused, Reentrant);
    queue.submit_empty(&[], &[])?.end().wait(patience())?;
    Ok(())
}

/// Work queries, signals, fails, submits, records and drops last handles, except of its own queue.
///
/// An engine that held a lock during that would deadlock.
fn calls_engine<S: Subject>(world: &World<S>) -> Verdict {
    for held in [false, true] {
        let (gate, out) = (world.timeline("gate")?, world.timeline("out")?);
        let (asked, signalled) = (world.timeline("asked")?, world.timeline("signalled")?);
        let (failed, last) = (world.timeline("failed")?, world.timeline("last handle")?);
        let (queue, other) = (world.right_queue("right")?, world.left_queue("left")?);
        let waiting = world.right_queue("waiting")?;
        // All points that the work will settle have a waiter. The work's own queue waits for one of
        // them below.
        for point in [signalled.at(1), failed.at(1), last.at(1)] {
            waiting.submit_empty(&[point], &[])?;
        }
        let cancelled = last.at(1).keep();
        let fence = world.left.fence("inside");
        let inner = Inner {
            asked: asked.clone(),
            signalled: signalled.clone(),
            failed: failed.clone(),
            last,
            own: queue.clone(),
            other: other.clone(),
            dropped: world.right_queue("last handle")?,
            fence: fence.clone(),
        };
        let wait = if held { gate.at(1) } else { gate.at(0) };
        queue.submit(&[wait], move |_| inner.run(), &[out.signal_at(1)])?;
        // After the work on its own queue. It waits for the work's signals.
        queue.submit_empty(&[signalled.at(1), asked.at(1)], &[out.signal_at(2)])?;
        gate.signal(1)?;
        out.at(2).wait(patience())?;
        fence.wait(patience())?;
        check_error!(failed.at(1).wait(patience()), Error::Failed { cause, .. } if cause.to_string() == "work failed: from inside");
        check_error!(cancelled.point().wait(patience()), Cancelled);
        for queue in [&queue, &other, &waiting] {
            queue.idle(patience())?;
        }
    }
    Ok(())
}

/// The objects of the work of [`calls_engine`].
struct Inner<S: Subject> {
    asked: Timeline<S>,
    signalled: Timeline<S>,
    failed: Timeline<S>,
    last: Timeline<S>,
    own: Queue<S>,
    other: Queue<S>,
    dropped: Queue<S>,
    fence: crate::user::Fence<S>,
}

impl<S: Subject> Inner<S> {
    fn run(self) -> syncline::Result<()> {
        self.asked.value()?;
        self.asked.at(1).is_reached()?;
        let _ = self.own.held();
        let _ = self.own.position().is_reached()?;
        self.signalled.signal(1)?;
        self.failed.fail(cause("from inside"));
        self.other.submit_empty(&[], &[self.asked.signal_at(1)])?;
        self.other.record(&self.fence)?;
        self.dropped.submit_empty(&[], &[])?;
        drop((self.last, self.dropped, self.own));
        Ok(())
    }
}
