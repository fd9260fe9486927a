//! E2, E4: how failures spread, and how far.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use syncline::{Error, QueueKind};

use crate::case::{Stop, Verdict, cases, check, check_error};
use crate::cases::{cause, count};
use crate::user::Device;
use crate::{Subject, World, patience};

cases! {
    "failure.others_go_on": [E4] => others;
    "failure.long_chain": [E2 Q2] => long_chain;
    "failure.of_running_work": [E1 E2 Q6] => running_work;
}

fn others<S: Subject>(world: &World<S>) -> Verdict {
    let (bad, good) = (world.timeline("bad")?, world.timeline("good")?);
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    right.submit_empty(&[bad.at(1)], &[])?;
    bad.fail(cause("bad"));
    left.signal(&good, 1)?;
    right.submit_empty(&[good.at(1)], &[good.signal_at(2)])?;
    good.at(2).wait(patience())?;
    // A submission that signals both timelines. The healthy one gets its signal.
    let both = world.timeline("both")?;
    let held = world.timeline("held")?;
    right.submit_empty(&[held.at(1)], &[both.signal_at(1), good.signal_at(3)])?;
    both.fail(cause("meanwhile"));
    held.signal(1)?;
    good.at(3).wait(patience())?;
    Ok(())
}

/// A failure passes along a chain of held submissions on a thread with a small stack.
fn long_chain<S: Subject>(world: &World<S>) -> Verdict {
    const STACK: usize = 256 << 10;
    let most = if world.is_pair() { 256 } else { 4096 };
    let queues = [
        world.left_queue("left")?,
        world.right_queue("right")?,
        world.left_queue("left too")?,
    ];
    let ran = Arc::new(AtomicU32::new(0));
    let head = world.timeline("head")?;
    let mut lines = vec![head];
    // Some drivers take milliseconds to create a timeline, and more to destroy it. There the chain
    // is short.
    let start = Instant::now();
    while lines.len() <= most
        && (lines.len() <= 256 || start.elapsed() < Duration::from_millis(100))
    {
        let link = lines.len() - 1;
        let next = world.timeline("link")?;
        let wait = [lines[link].at(1)];
        queues[link % 3].submit(&wait, count::<S>(&ran), &[next.signal_at(1)])?;
        lines.push(next);
    }
    let links = lines.len() - 1;
    let failed = thread::scope(|scope| {
        thread::Builder::new()
            .stack_size(STACK)
            .spawn_scoped(scope, || lines[0].fail(cause("the origin")))
            .map(|thread| thread.join().is_ok())
    });
    match failed {
        Ok(ended) => check!(ended, "failing the head panicked"),
        Err(error) => return Stop::skip(format!("no thread to fail the head on: {error}")),
    }
    for line in [&lines[links], &lines[links / 2], &lines[1]] {
        check_error!(
            line.at(1).wait(patience()),
            Error::Failed { cause, .. } if cause.to_string() == "work failed: the origin"
        );
    }
    for queue in &queues {
        queue.idle(patience())?;
    }
    let ran = ran.load(Ordering::SeqCst);
    check!(ran == 0, "{ran} of {links} works behind a failure ran");
    Ok(())
}

/// Work that fails on the device fails its signals, and what already waits for them.
fn running_work<S: Subject>(world: &World<S>) -> Verdict {
    let mut unsupported = Ok(());
    let mut shown = false;
    let sides = [(&world.left, &world.right), (&world.right, &world.left)];
    for (here, there) in sides.into_iter().take(1 + usize::from(world.is_pair())) {
        let queue = |of: &Device<S>, label| of.queue(QueueKind::Compute, label);
        let failing = queue(here, "failing")?;
        match failing.fail_work(&[]) {
            Err(Stop::Skipped(reason)) => {
                unsupported = Err(Stop::Skipped(reason));
                continue;
            }
            submitted => submitted?,
        };
        let (waiting, beside) = (queue(here, "waiting")?, queue(there, "beside")?);
        let (line, after) = (here.timeline("line")?, here.timeline("after")?);
        // In a pair, the engine signals this for the device.
        let (relayed, behind) = (there.timeline("relayed")?, there.timeline("behind")?);
        let stall = here.stall()?;
        failing.block(&stall)?;
        failing.fail_work(&[line.signal_at(1), relayed.signal_at(1)])?;
        // The driver may have this wait before the failure.
        waiting.submit_empty(&[line.at(1)], &[after.signal_at(1)])?;
        beside.submit_empty(&[relayed.at(1)], &[behind.signal_at(1)])?;
        stall.release()?;
        for of in [&line, &relayed, &after, &behind] {
            let told = of.at(1).wait(patience());
            check!(
                matches!(&told, Err(error) if matches!(error.root(), Error::Work(_))),
                "{}: {told:?}",
                of.library().object()
            );
        }
        let next = there.timeline("next")?;
        for (value, queue) in (1..).zip([&failing, &waiting, &beside]) {
            queue.signal(&next, value)?;
            next.at(value).wait(patience())?;
        }
        shown = true;
    }
    if shown { Ok(()) } else { unsupported }
}
