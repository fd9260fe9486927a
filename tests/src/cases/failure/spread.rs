//! E2, E4: how failures spread, and how far.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use syncline::Error;

use super::super::{cause, count};
use crate::case::{Stop, Verdict, cases, check, check_error};
use crate::{Subject, World, patience};

cases! {
    "failure.chains_keep_the_original_cause": [E2] => chains;
    "failure.known_before_the_call": [E2] => known_before;
    "failure.others_go_on": [E4] => others;
    "failure.join_keeps_the_first_cause": [E2 E1] => join;
    "failure.fork_reaches_every_branch": [E2 E4] => fork;
    "failure.long_chain": [E2 Q2] => long_chain;
}

fn chains<S: Subject>(world: &World<S>) -> Verdict {
    let lines: Vec<_> = (0..5)
        .map(|i| world.timeline(&format!("line {i}")))
        .collect::<syncline::Result<_>>()?;
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    let ran = Arc::new(AtomicU32::new(0));
    for (index, pair) in lines.windows(2).enumerate() {
        let queue = if index % 2 == 0 { &right } else { &left };
        queue.submit(&[pair[0].at(1)], count::<S>(&ran), &[pair[1].signal_at(1)])?;
    }
    lines[0].fail(cause("the origin"));
    for line in &lines {
        check_error!(
            line.at(1).wait(patience()),
            Error::Failed { cause, .. } if cause.to_string() == "work failed: the origin"
        );
    }
    check!(ran.load(Ordering::SeqCst) == 0, "work behind a failure ran");
    left.idle(patience())?;
    right.idle(patience())?;
    Ok(())
}

fn known_before<S: Subject>(world: &World<S>) -> Verdict {
    let (bad, line) = (world.timeline("bad")?, world.timeline("line")?);
    bad.fail(cause("known before"));
    let queue = world.right_queue("right")?;
    let ran = Arc::new(AtomicU32::new(0));
    queue.submit(&[bad.at(1)], count::<S>(&ran), &[line.signal_at(1)])?;
    check_error!(line.at(1).wait(patience()), Error::Failed { cause, .. } if cause.to_string().contains("known before"));
    queue.idle(patience())?;
    check!(ran.load(Ordering::SeqCst) == 0, "work behind a failure ran");
    Ok(())
}

fn others<S: Subject>(world: &World<S>) -> Verdict {
    let (bad, good) = (world.timeline("bad")?, world.timeline("good")?);
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    right.submit(&[bad.at(1)], |_| Ok(()), &[])?;
    bad.fail(cause("bad"));
    left.submit(&[], |_| Ok(()), &[good.signal_at(1)])?;
    right.submit(&[good.at(1)], |_| Ok(()), &[good.signal_at(2)])?;
    good.at(2).wait(patience())?;
    // A submission that signals both timelines. The healthy one gets its signal.
    let both = world.timeline("both")?;
    let held = world.timeline("held")?;
    right.submit(
        &[held.at(1)],
        |_| Ok(()),
        &[both.signal_at(1), good.signal_at(3)],
    )?;
    both.fail(cause("meanwhile"));
    held.signal(1)?;
    good.at(3).wait(patience())?;
    Ok(())
}

/// A submission waits for three timelines. The first one that fails gives the cause.
///
/// That also holds for a submission whose turn has not come.
fn join<S: Subject>(world: &World<S>) -> Verdict {
    const ORDERS: [[usize; 3]; 6] = [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ];
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    for (round, order) in ORDERS.iter().enumerate() {
        let gate = world.timeline("gate")?;
        let lines: Vec<_> = (0..3)
            .map(|i| world.timeline(&format!("line {i}")))
            .collect::<syncline::Result<_>>()?;
        let (out, behind) = (world.timeline("out")?, world.timeline("behind")?);
        let all: Vec<_> = lines.iter().map(|line| line.at(1)).collect();
        let ran = Arc::new(AtomicU32::new(0));
        let queue = if round % 2 == 0 { &left } else { &right };
        queue.submit(&all, count::<S>(&ran), &[out.signal_at(1)])?;
        // The same join after a submission that is still held.
        let other = if round % 2 == 0 { &right } else { &left };
        other.submit(&[gate.at(1)], |_| Ok(()), &[])?;
        other.submit(&all, count::<S>(&ran), &[behind.signal_at(1)])?;
        for (nth, &index) in order.iter().enumerate() {
            lines[index].fail(cause(&format!("{index} of {order:?}")));
            let first = format!("work failed: {} of {order:?}", order[0]);
            for line in [&out, &behind] {
                check_error!(
                    line.at(1).wait(patience()),
                    Error::Failed { cause, .. } if cause.to_string() == first
                );
            }
            let own = format!("work failed: {index} of {order:?}");
            check_error!(
                lines[index].at(1).wait(patience()),
                Error::Failed { cause, .. } if cause.to_string() == own
            );
            for &later in &order[nth + 1..] {
                check!(
                    !lines[later].at(1).is_reached()?,
                    "line {later} was reached without a signal"
                );
            }
        }
        gate.signal(1)?;
        left.idle(patience())?;
        right.idle(patience())?;
        let ran = ran.load(Ordering::SeqCst);
        check!(ran == 0, "{ran} works behind a failure ran");
    }
    Ok(())
}

/// One failed timeline fails 16 consumers over four queues, and their consumers.
///
/// Between them on the same queues are as many that depend on a healthy timeline.
fn fork<S: Subject>(world: &World<S>) -> Verdict {
    const BRANCHES: usize = 16;
    let (bad, good) = (world.timeline("bad")?, world.timeline("good")?);
    let sides = [&world.left, &world.right];
    let queues = [
        world.left_queue("left 0")?,
        world.right_queue("right 0")?,
        world.left_queue("left 1")?,
        world.right_queue("right 1")?,
    ];
    let ran = Arc::new(AtomicU32::new(0));
    let (mut sick, mut healthy) = (Vec::new(), Vec::new());
    for branch in 0..BRANCHES {
        let line = |what| world.timeline(&format!("{what} {branch}"));
        let (first, second) = (line("first")?, line("second")?);
        let (filled, copied) = (line("filled")?, line("copied")?);
        let queue = &queues[branch % 4];
        // Another queue of the same side, so that it can read the buffer.
        let next = &queues[(branch + 2) % 4];
        queue.submit(&[bad.at(1)], count::<S>(&ran), &[first.signal_at(1)])?;
        let device = sides[branch % 2];
        let (from, to) = (device.buffer(8)?, device.buffer(8)?);
        let (filling, source, target) = (from.clone(), from.clone(), to.clone());
        queue.submit(
            &[good.at(1)],
            move |recorder| S::fill(recorder, &filling, branch as u32 + 1),
            &[filled.signal_at(1)],
        )?;
        next.submit(&[first.at(1)], count::<S>(&ran), &[second.signal_at(1)])?;
        next.submit(
            &[filled.at(1)],
            move |recorder| S::copy(recorder, &source, &target),
            &[copied.signal_at(1)],
        )?;
        sick.extend([first, second]);
        healthy.push((copied, to));
    }
    bad.fail(cause("the root"));
    for line in &sick {
        check_error!(
            line.at(1).wait(patience()),
            Error::Failed { cause, .. } if cause.to_string() == "work failed: the root"
        );
    }
    good.signal(1)?;
    for (branch, (copied, buffer)) in healthy.iter().enumerate() {
        copied.at(1).wait(patience())?;
        let words = S::read(buffer);
        check!(
            words.iter().all(|&word| word == branch as u32 + 1),
            "healthy branch {branch} ended with {words:?}"
        );
    }
    for queue in &queues {
        queue.idle(patience())?;
    }
    let ran = ran.load(Ordering::SeqCst);
    check!(ran == 0, "{ran} works behind a failure ran");
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
