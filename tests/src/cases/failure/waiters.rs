//! E1, T6: a failing timeline wakes all blocked waiters, with the cause.

use std::sync::Barrier;
use std::thread;

use syncline::{Error, Result, WaitMode};

use super::super::cause;
use crate::blocked::{blocked, join};
use crate::case::{Stop, Verdict, cases, check, check_error};
use crate::user::{wait_all, wait_any};
use crate::{Subject, World, patience};

cases! {
    "failure.wakes_blocked_waiters": [E1 T6] => wakes;
    "failure.racing_causes_leave_one": [E1] => racing_causes;
}

/// A wait on a thread of its own, and whether it must end with the cause.
type Waiting<'w> = (
    &'static str,
    bool,
    Box<dyn FnOnce() -> Result<()> + Send + 'w>,
);

/// Threads are blocked in every kind of wait when the failure comes. One thread spins.
fn wakes<S: Subject>(world: &World<S>) -> Verdict {
    let (line, other) = (world.timeline("line")?, world.timeline("other")?);
    let (gate, done) = (world.timeline("gate")?, world.timeline("done")?);
    let outs = [world.timeline("left out")?, world.timeline("right out")?];
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    done.signal(1)?;
    for (queue, out) in [&left, &right].into_iter().zip(&outs) {
        queue.submit(&[line.at(2)], |_| Ok(()), &[out.signal_at(1)])?;
    }
    let fence = world.right.fence("behind");
    right.record(&fence)?;
    // Keeps a claim held.
    let holder = world.left_queue("holder")?;
    holder.submit(&[gate.at(1)], |_| Ok(()), &[line.signal_at(5)])?;
    let claim = match line.claim(9) {
        Err(Error::Unsupported { .. }) => None,
        claim => Some(claim?),
    };

    let point = |value| line.at(value);
    let list = [done.at(1), other.at(1), line.at(2)];
    let mut waits: Vec<Waiting<'_>> = vec![
        (
            "in Block",
            true,
            Box::new(|| point(3).wait_with(WaitMode::Block, patience())),
        ),
        ("in Adaptive", true, Box::new(|| point(5).wait(patience()))),
        ("of no claim", true, Box::new(|| point(77).wait(patience()))),
        (
            "until pending",
            true,
            Box::new(|| point(5).wait_pending(patience())),
        ),
        ("for all", true, Box::new(|| wait_all(&list, patience()))),
        (
            "for any",
            true,
            Box::new(|| wait_any(&[line.at(4), line.at(2)], patience()).map(drop)),
        ),
        (
            "on the left",
            true,
            Box::new(|| outs[0].at(1).wait(patience())),
        ),
        (
            "on the right",
            true,
            Box::new(|| outs[1].at(1).wait(patience())),
        ),
        ("for a fence", false, Box::new(|| fence.wait(patience()))),
        ("until idle", false, Box::new(|| right.idle(patience()))),
    ];
    if let Some(claim) = &claim {
        waits.push((
            "with a claim",
            true,
            Box::new(|| claim.wait_ready(patience())),
        ));
    }
    let ended = thread::scope(|scope| {
        let mut threads = Vec::new();
        for (how, fails, wait) in waits {
            threads.push((how, fails, blocked(scope, wait)?));
        }
        let spinning = || line.at(2).wait_with(WaitMode::Spin, patience());
        threads.push(("in Spin", true, scope.spawn(spinning)));
        for (how, _, thread) in &threads {
            check!(
                !thread.is_finished(),
                "a wait {how} ended before anything happened"
            );
        }
        line.fail(cause("while they wait"));
        let ends = threads.into_iter();
        let ends = ends.map(|(how, fails, thread)| Ok((how, fails, join(thread)?)));
        ends.collect::<Result<Vec<_>, Stop>>()
    })?;
    for (how, fails, result) in ended {
        match result {
            Ok(()) => check!(!fails, "a wait {how} ended as if nothing had failed"),
            Err(Error::Failed { cause, .. }) => check!(
                fails && cause.to_string() == "work failed: while they wait",
                "a wait {how} ended with {cause}"
            ),
            Err(error) => return Stop::fail(format!("a wait {how} ended with: {error}")),
        }
    }
    check!(
        !other.at(1).is_reached()?,
        "a timeline beside it was reached"
    );
    drop(claim);
    gate.signal(1)?;
    for queue in [&left, &right, &holder] {
        queue.idle(patience())?;
    }
    Ok(())
}

/// Many threads fail one timeline with different causes. All waiters get the same cause.
fn racing_causes<S: Subject>(world: &World<S>) -> Verdict {
    const FAILING: usize = 16;
    const WAITING: usize = 4;
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    for _ in 0..if world.is_pair() { 3 } else { 10 } {
        let line = world.timeline("line")?;
        let outs = [world.timeline("left out")?, world.timeline("right out")?];
        for (queue, out) in [&left, &right].into_iter().zip(&outs) {
            queue.submit(&[line.at(1)], |_| Ok(()), &[out.signal_at(1)])?;
        }
        let start = Barrier::new(FAILING + WAITING);
        let heard = |result: Result<()>| match result {
            Err(Error::Failed { cause, .. }) => Ok(cause.to_string()),
            Err(other) => Stop::fail(format!("a waiter was told: {other}")),
            Ok(()) => Stop::fail("a waiter was told that a failed value is reached"),
        };
        let during: Vec<Result<String, Stop>> = thread::scope(|scope| {
            let (start, line) = (&start, &line);
            for nth in 0..FAILING {
                scope.spawn(move || {
                    start.wait();
                    line.fail(cause(&format!("cause {nth}")));
                });
            }
            let waiting: Vec<_> = (0..WAITING)
                .map(|nth| {
                    scope.spawn(move || {
                        start.wait();
                        heard(line.at(1 + nth as u64).wait(patience()))
                    })
                })
                .collect();
            let join = |thread: thread::ScopedJoinHandle<'_, _>| {
                thread
                    .join()
                    .unwrap_or_else(|_| Stop::fail("a waiter panicked"))
            };
            waiting.into_iter().map(join).collect()
        });
        let first = heard(line.at(1).wait(patience()))?;
        for cause in during {
            let cause = cause?;
            check!(
                cause == first,
                "one waiter heard {cause:?}, another {first:?}"
            );
        }
        for out in &outs {
            let cause = heard(out.at(1).wait(patience()))?;
            check!(
                cause == first,
                "a queue passed {cause:?} on, the timeline says {first:?}"
            );
        }
        check_error!(
            line.signal(1),
            Error::Failed { cause, .. } if cause.to_string() == first
        );
        left.idle(patience())?;
        right.idle(patience())?;
    }
    Ok(())
}
