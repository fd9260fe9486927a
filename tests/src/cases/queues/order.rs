//! Q1, Q7, Q9: waits, then work, then signals, after all earlier work of the queue.

use std::sync::mpsc;

use crate::case::{Stop, Verdict, cases, check, check_eq};
use crate::cases::{DELAY, LONG_DELAY, WORDS, copying, filled, is_filled, shows};
use crate::dice::seeds;
use crate::user::{Device, wait_all, wait_any};
use crate::{RecorderOf, Subject, World, patience};

cases! {
    "queue.work_follows_its_waits": [Q1 Q9] => follows_waits;
    "queue.without_the_wait_data_is_wrong": [Q1] => without_wait;
    "queue.empty_submissions": [Q1 Q7] => empty;
    "queue.256_waits_and_256_signals": [Q1 T3 Q9] => many_points;
    "queue.every_consumer_copies_the_data": [Q1 Q9] => consumers_copy;
    "queue.own_work_runs_in_order": [Q1 Q7] => own_order;
    "queue.position_is_of_the_call": [Q7 Q8] => position;
    "queue.a_copy_returns_before_earlier_work_ends": [Q2] => copy_returns;
}

fn follows_waits<S: Subject>(world: &World<S>) -> Verdict {
    let (ready, done) = (world.timeline("ready")?, world.timeline("done")?);
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    let (source, target) = (world.left.buffer(WORDS)?, world.right.buffer(WORDS)?);
    for round in 1..=3u32 {
        let n = u64::from(round);
        left.fill_after(DELAY, &source, round, &[ready.signal_at(n)])?;
        right.fill(&[ready.at(n)], &target, round, &[done.signal_at(n)])?;
        done.at(n).wait(patience())?;
        // The right side's work came after the left's, and the host sees both.
        filled::<S>(&source, round, "source")?;
        filled::<S>(&target, round, "target")?;
    }
    Ok(())
}

/// The control of the case above and of every other one that relies on `busy`.
fn without_wait<S: Subject>(world: &World<S>) -> Verdict {
    if !world.is_pair() && driver_queues(&world.left) == Some(1) {
        return Stop::skip("all queues share one driver queue, which keeps their order anyway");
    }
    let wrong = || {
        let (ready, done) = (world.timeline("ready")?, world.timeline("done")?);
        let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
        let source = world.left.buffer(WORDS)?;
        left.fill_after(LONG_DELAY, &source, 1, &[ready.signal_at(1)])?;
        right.signal(&done, 1)?;
        done.at(1).wait(patience())?;
        let stale = S::read(&source).contains(&0);
        ready.at(1).wait(patience())?;
        filled::<S>(&source, 1, "source")?;
        Ok(stale)
    };
    shows(
        wrong,
        "nothing went wrong without a wait: this subject cannot show a missing one",
    )
}

/// Returns how many driver queues the device has, if they are limited.
fn driver_queues<S: Subject>(device: &Device<S>) -> Option<u32> {
    device
        .info()
        .capabilities
        .queues
        .iter()
        .map(|family| family.count)
        .sum()
}

fn empty<S: Subject>(world: &World<S>) -> Verdict {
    let line = world.timeline("line")?;
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    left.submit_empty(&[], &[])?.end().wait(patience())?;
    left.signal(&line, 1)?;
    right
        .submit_empty(&[line.at(1)], &[])?
        .end()
        .wait(patience())?;
    left.idle(patience())?;
    check!(line.value()? == 1, "the value is {}", line.value()?);
    check!(left.position().is_reached()?);
    Ok(())
}

fn many_points<S: Subject>(world: &World<S>) -> Verdict {
    const LINES: usize = 256;
    let (inputs, outputs) = (
        world.numbered(LINES, "input")?,
        world.numbered(LINES, "output")?,
    );
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    let (source, target) = (world.left.buffer(WORDS)?, world.right.buffer(WORDS)?);
    let waits: Vec<_> = inputs.iter().map(|line| line.at(1)).collect();
    let signals: Vec<_> = outputs.iter().map(|line| line.signal_at(1)).collect();
    right.fill(&waits, &target, 2, &signals)?;
    // One submission signals half of them. The host signals the rest, except for the last one.
    let by_device: Vec<_> = inputs[..LINES / 2]
        .iter()
        .map(|line| line.signal_at(1))
        .collect();
    left.fill_after(DELAY, &source, 1, &by_device)?;
    for line in &inputs[LINES / 2..LINES - 1] {
        line.signal(1)?;
    }
    wait_all(&waits[..LINES - 1], patience())?;
    check!(
        is_filled::<S>(&source, 1),
        "{} signals came before the work in front of them",
        by_device.len()
    );
    check!(
        right.held().count == 1 && is_filled::<S>(&target, 0),
        "it did not wait for the last of {LINES} points"
    );
    inputs[LINES - 1].signal(1)?;
    let outputs: Vec<_> = outputs.iter().map(|line| line.at(1)).collect();
    let first = wait_any(&outputs, patience())?;
    filled::<S>(&target, 2, format_args!("first {first}"))?;
    wait_all(&outputs, patience())?;
    Ok(())
}

fn consumers_copy<S: Subject>(world: &World<S>) -> Verdict {
    const CONSUMERS: u32 = 8;
    let (line, copied) = (world.timeline("line")?, world.timeline("copied")?);
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    let source = world.left.buffer(WORDS)?;
    let mut consumers = Vec::new();
    for n in 1..=CONSUMERS {
        if n == CONSUMERS / 2 {
            left.fill_after(DELAY, &source, 5, &[line.signal_at(1)])?;
        }
        let queue = world.left_queue(&format!("consumer {n}"))?;
        let target = world.left.buffer(WORDS)?;
        queue.submit(
            &[line.at(1)],
            copying::<S>(&source, &target),
            &[copied.signal_at(n.into())],
        )?;
        consumers.push((queue, target));
    }
    // The other side's wait makes all copies visible to the host.
    right
        .submit_empty(&[copied.at(CONSUMERS.into())], &[])?
        .end()
        .wait(patience())?;
    for (queue, target) in &consumers {
        filled::<S>(target, 5, format_args!("queue {queue:?}"))?;
    }
    Ok(())
}

/// Fills and copies at random, several for each submission, without any wait.
fn own_order<S: Subject>(world: &World<S>) -> Verdict {
    const BUFFERS: usize = 6;
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    let buffers = (0..BUFFERS)
        .map(|_| world.left.buffer(WORDS))
        .collect::<syncline::Result<Vec<_>>>()?;
    seeds(2, |dice| {
        let mut model = [0; BUFFERS];
        for to in &buffers {
            left.fill(&[], to, 0, &[])?;
        }
        let mut last = left.position().keep();
        for value in 1..=200 {
            let (from, to) = (dice.index(BUFFERS), dice.index(BUFFERS));
            let (source, target) = (&buffers[from], &buffers[to]);
            let submitted = if from == to {
                model[to] = value;
                left.fill(&[], target, value, &[])?
            } else {
                (model[from], model[to]) = (value, value);
                let (source, target) = (source.clone(), target.clone());
                let work = move |recorder: &mut RecorderOf<'_, S>| {
                    S::fill(recorder, &source, value)?;
                    S::copy(recorder, &source, &target)
                };
                left.submit(&[], work, &[])?
            };
            last = submitted.end().keep();
        }
        right
            .submit_empty(&[last.point()], &[])?
            .end()
            .wait(patience())?;
        for (n, (buffer, value)) in buffers.iter().zip(model).enumerate() {
            filled::<S>(buffer, value, format_args!("n {n}"))?;
        }
        Ok(())
    })
}

/// A copy behind work that does not end returns to the thread that submits it.
fn copy_returns<S: Subject>(world: &World<S>) -> Verdict {
    let queue = world.left_queue("queue")?;
    let (from, to) = (world.left.buffer(WORDS)?, world.left.buffer(WORDS)?);
    queue.fill(&[], &from, 7, &[])?;
    let still = world.left.stall()?;
    let latch = still.latch();
    queue.submit(&[], move |recorder| latch.block(recorder), &[])?;
    let (tell, told) = mpsc::channel();
    let (returned, submitted) = std::thread::scope(|scope| {
        let submitting = scope.spawn(|| {
            let submitted = queue.submit(&[], copying::<S>(&from, &to), &[]).map(drop);
            let _ = tell.send(());
            submitted
        });
        let returned = told.recv_timeout(patience()).is_ok();
        let released = still.release();
        (returned, submitting.join().map(|end| released.and(end)))
    });
    match submitted {
        Ok(end) => end?,
        Err(_) => return Stop::fail("the thread that submits has panicked"),
    }
    check!(returned, "the copy returned once earlier work had ended");
    queue.idle(patience())?;
    check!(is_filled::<S>(&to, 7), "the copy came too early");
    Ok(())
}

fn position<S: Subject>(world: &World<S>) -> Verdict {
    const LAST: usize = 8;
    let gate = world.timeline("gate")?;
    let queue = world.right_queue("right")?;
    check!(queue.position().is_reached()?);
    let mut steps = Vec::new();
    for n in 1..=LAST {
        let buffer = world.right.buffer(WORDS)?;
        queue.fill(&[gate.at(n as u64)], &buffer, 1, &[])?;
        steps.push((buffer, queue.position().keep()));
    }
    for open in 0..=LAST {
        if open > 0 {
            gate.signal(open as u64)?;
            steps[open - 1].1.point().wait(patience())?;
        }
        for (n, (buffer, position)) in steps.iter().enumerate() {
            let reached = position.point().is_reached()?;
            check_eq!(reached, (n < open));
            filled::<S>(buffer, reached.into(), format_args!("n {n}"))?;
        }
    }
    Ok(())
}
