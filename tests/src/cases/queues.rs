//! Q1–Q3, Q7–Q9: submissions, waits before signals, and what a wait makes visible.

use std::time::Duration;

use syncline::Error;

use super::{DELAY, LONG_DELAY, WORDS};
use crate::case::{Stop, Verdict, cases, check, check_error};
use crate::user::{Device, Queue, Signal, wait_all, wait_any};
use crate::{Subject, World, patience};

cases! {
    "queue.work_follows_its_waits": [Q1 Q9] => follows_waits;
    "queue.without_the_wait_data_is_wrong": [Q1] => without_wait;
    "queue.empty_submissions": [Q1 Q7] => empty;
    "queue.consumer_before_producer": [Q2 T2] => consumer_first;
    "queue.64_waiting_queues": [Q2] => waiting_queues;
    "queue.one_to_many": [Q1 Q9] => one_to_many;
    "queue.many_to_one": [Q1 Q9] => many_to_one;
    "queue.ping_pong_submitted_backwards": [Q2 T3] => ping_pong;
    "queue.timeline_of_the_other_side": [Q3] => other_side;
    "queue.last_signal_covers_all_earlier_work": [Q7] => last_signal;
    "queue.settle_and_held": [Q8 T10] => settle;
    "queue.pending_while_the_device_stands_still": [T10 F2 F3] => stands_still;
    "queue.dropped_with_work_in_flight": [T9 Q6] => dropped;
}

/// Submits, to the left: be busy, then fill `buffer`; signal `signal`.
fn slow_fill<S: Subject>(
    world: &World<S>,
    queue: &Queue<S>,
    buffer: &S::Buffer,
    value: u32,
    signal: Signal<'_>,
) -> syncline::Result<()> {
    fill_after(DELAY, world, queue, buffer, value, signal)
}

fn fill_after<S: Subject>(
    delay: Duration,
    world: &World<S>,
    queue: &Queue<S>,
    buffer: &S::Buffer,
    value: u32,
    signal: Signal<'_>,
) -> syncline::Result<()> {
    let (device, buffer) = (world.left.clone(), buffer.clone());
    queue.submit(
        &[],
        move |recorder| {
            device.busy(recorder, delay)?;
            S::fill(recorder, &buffer, value)
        },
        &[signal],
    )?;
    Ok(())
}

fn follows_waits<S: Subject>(world: &World<S>) -> Verdict {
    let (ready, done) = (world.timeline("ready")?, world.timeline("done")?);
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    let (source, target) = (world.left.buffer(WORDS)?, world.right.buffer(WORDS)?);
    for round in 1..=3u32 {
        let n = u64::from(round);
        slow_fill(world, &left, &source, round, ready.signal_at(n))?;
        let to = target.clone();
        right.submit(
            &[ready.at(n)],
            move |recorder| S::fill(recorder, &to, round),
            &[done.signal_at(n)],
        )?;
        done.at(n).wait(patience())?;
        // The right side's work came after the left's, and the host sees both.
        check!(
            S::read(&source).iter().all(|&word| word == round),
            "the left work was not done in round {round}"
        );
        check!(
            S::read(&target).iter().all(|&word| word == round),
            "the right work was not done in round {round}"
        );
    }
    Ok(())
}

/// The control of the case above and of every other that rests on `busy`.
fn without_wait<S: Subject>(world: &World<S>) -> Verdict {
    if !world.is_pair() && driver_queues(&world.left) == Some(1) {
        return Stop::skip("all queues share one driver queue, which keeps their order anyway");
    }
    let (ready, done) = (world.timeline("ready")?, world.timeline("done")?);
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    let source = world.left.buffer(WORDS)?;
    fill_after(LONG_DELAY, world, &left, &source, 1, ready.signal_at(1))?;
    right.submit(&[], |_| Ok(()), &[done.signal_at(1)])?;
    done.at(1).wait(patience())?;
    let stale = S::read(&source).contains(&0);
    ready.at(1).wait(patience())?;
    check!(
        stale,
        "nothing went wrong without a wait: this subject cannot show a missing one"
    );
    check!(
        S::read(&source).iter().all(|&word| word == 1),
        "not even the wait made the work visible"
    );
    Ok(())
}

/// How many driver queues the device has, if they are limited.
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
    left.submit(&[], |_| Ok(()), &[])?.end().wait(patience())?;
    left.submit(&[], |_| Ok(()), &[line.signal_at(1)])?;
    right
        .submit(&[line.at(1)], |_| Ok(()), &[])?
        .end()
        .wait(patience())?;
    left.idle(patience())?;
    check!(line.value()? == 1, "the value is {}", line.value()?);
    check!(
        left.position().is_reached()?,
        "an idle queue has not reached its position"
    );
    Ok(())
}

fn consumer_first<S: Subject>(world: &World<S>) -> Verdict {
    let line = world.timeline("line")?;
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    let (source, target) = (world.left.buffer(WORDS)?, world.right.buffer(WORDS)?);
    let to = target.clone();
    let held = right.submit(
        &[line.at(1)],
        move |r| S::fill(r, &to, 2),
        &[line.signal_at(2)],
    )?;
    check!(
        held.is_held(),
        "a wait went to the driver before its signal"
    );
    check_error!(
        line.at(2).wait(Duration::from_millis(2)),
        Error::TimedOut { .. }
    );
    check!(
        S::read(&target).iter().all(|&word| word == 0),
        "the work ran before its wait"
    );
    slow_fill(world, &left, &source, 1, line.signal_at(1))?;
    line.at(2).wait(patience())?;
    check!(
        S::read(&source).iter().all(|&word| word == 1),
        "2 was reached before the work behind 1 was done"
    );
    check!(
        S::read(&target).iter().all(|&word| word == 2),
        "the held work did not run"
    );
    Ok(())
}

fn waiting_queues<S: Subject>(world: &World<S>) -> Verdict {
    const QUEUES: u32 = 64;
    let (go, done) = (world.timeline("go")?, world.timeline("done")?);
    let signaller = world.left_queue("signaller")?;
    let mut waiting = Vec::new();
    for index in 0..QUEUES {
        let queue = world.right_queue(&format!("waiting {index}"))?;
        let buffer = world.right.buffer(1)?;
        let to = buffer.clone();
        queue.submit(
            &[go.at(1)],
            move |recorder| S::fill(recorder, &to, index + 1),
            &[done.signal_at(u64::from(index) + 1)],
        )?;
        waiting.push((queue, buffer));
    }
    check!(done.value()? == 0, "something ran before the signal");
    signaller.submit(&[], |_| Ok(()), &[go.signal_at(1)])?;
    done.at(u64::from(QUEUES)).wait(patience())?;
    for (index, (_, buffer)) in waiting.iter().enumerate() {
        let word = S::read(buffer)[0];
        check!(
            word as usize == index + 1,
            "queue {index} did not do its work, it left {word}"
        );
    }
    Ok(())
}

fn one_to_many<S: Subject>(world: &World<S>) -> Verdict {
    let line = world.timeline("line")?;
    let left = world.left_queue("left")?;
    let source = world.left.buffer(WORDS)?;
    slow_fill(world, &left, &source, 5, line.signal_at(1))?;
    let mut ends = Vec::new();
    for index in 0..8 {
        let side = if index % 2 == 0 {
            &world.right
        } else {
            &world.left
        };
        let queue = side.queue(syncline::QueueKind::Compute, &format!("consumer {index}"))?;
        ends.push(queue.submit(&[line.at(1)], |_| Ok(()), &[])?.end().keep());
    }
    // The first to end tells: one that did not wait is earlier than the producer.
    let ends: Vec<_> = ends.iter().map(|end| end.point()).collect();
    let first = wait_any(&ends, patience())?;
    check!(
        S::read(&source).iter().all(|&word| word == 5),
        "consumer {first} did not wait"
    );
    wait_all(&ends, patience())?;
    Ok(())
}

fn many_to_one<S: Subject>(world: &World<S>) -> Verdict {
    let mut producers = Vec::new();
    for index in 0..6u32 {
        let line = world.timeline(&format!("line {index}"))?;
        let queue = world.left_queue(&format!("producer {index}"))?;
        let buffer = world.left.buffer(WORDS)?;
        slow_fill(world, &queue, &buffer, index + 1, line.signal_at(1))?;
        producers.push((line, queue, buffer));
    }
    let right = world.right_queue("right")?;
    let waits: Vec<_> = producers.iter().map(|(line, ..)| line.at(1)).collect();
    right
        .submit(&waits, |_| Ok(()), &[])?
        .end()
        .wait(patience())?;
    for (index, (_, _, buffer)) in producers.iter().enumerate() {
        check!(
            S::read(buffer)
                .iter()
                .all(|&word| word as usize == index + 1),
            "producer {index} was not waited for"
        );
    }
    Ok(())
}

fn ping_pong<S: Subject>(world: &World<S>) -> Verdict {
    const ROUNDS: u64 = 50;
    let line = world.timeline("line")?;
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    let buffer = world.left.buffer(1)?;
    // The whole right side first.
    for n in 1..=ROUNDS {
        right.submit(&[line.at(2 * n - 1)], |_| Ok(()), &[line.signal_at(2 * n)])?;
    }
    for n in 1..=ROUNDS {
        let to = buffer.clone();
        left.submit(
            &[line.at(2 * n - 2)],
            move |recorder| S::fill(recorder, &to, n as u32),
            &[line.signal_at(2 * n - 1)],
        )?;
    }
    line.at(2 * ROUNDS).wait(patience())?;
    check!(
        u64::from(S::read(&buffer)[0]) == ROUNDS,
        "the last round left {}",
        S::read(&buffer)[0]
    );
    check!(
        left.held().count == 0 && right.held().count == 0,
        "something is still held"
    );
    Ok(())
}

fn other_side<S: Subject>(world: &World<S>) -> Verdict {
    // At home on one side alone, used by queues of both.
    for home in [&world.left, &world.right] {
        let line = home.timeline("line")?;
        let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
        let source = world.left.buffer(WORDS)?;
        right.submit(&[line.at(1)], |_| Ok(()), &[line.signal_at(2)])?;
        slow_fill(world, &left, &source, 3, line.signal_at(1))?;
        line.at(2).wait(patience())?;
        check!(
            S::read(&source).iter().all(|&word| word == 3),
            "the right side did not wait"
        );
        // Fences live on their queue's own timeline, which the other side waits for too.
        let fence = world.left.fence("fence");
        slow_fill(world, &left, &source, 4, line.signal_at(3))?;
        left.record(&fence)?;
        let point = fence.point()?;
        right
            .submit(&[point.point()], |_| Ok(()), &[])?
            .end()
            .wait(patience())?;
        check!(
            S::read(&source).iter().all(|&word| word == 4),
            "the fence was not waited for"
        );
    }
    Ok(())
}

fn last_signal<S: Subject>(world: &World<S>) -> Verdict {
    let (early, late) = (world.timeline("early")?, world.timeline("late")?);
    let left = world.left_queue("left")?;
    let buffers = [world.left.buffer(WORDS)?, world.left.buffer(WORDS)?];
    slow_fill(world, &left, &buffers[0], 1, early.signal_at(1))?;
    slow_fill(world, &left, &buffers[1], 2, early.signal_at(2))?;
    left.submit(&[], |_| Ok(()), &[late.signal_at(1)])?;
    let right = world.right_queue("right")?;
    right
        .submit(&[late.at(1)], |_| Ok(()), &[])?
        .end()
        .wait(patience())?;
    for (index, buffer) in buffers.iter().enumerate() {
        check!(
            S::read(buffer)
                .iter()
                .all(|&word| word as usize == index + 1),
            "work {index} was not done"
        );
    }
    check!(
        early.value()? == 2,
        "an earlier signal of the queue is missing"
    );
    Ok(())
}

fn settle<S: Subject>(world: &World<S>) -> Verdict {
    let gate = world.timeline("gate")?;
    let queue = world.right_queue("right")?;
    queue.submit(&[gate.at(1)], |_| Ok(()), &[])?;
    queue.submit(&[], |_| Ok(()), &[])?;
    let fence = world.right.fence("held");
    queue.record(&fence)?;
    check!(
        queue.held().count == 3,
        "{} submissions are held instead of 3",
        queue.held().count
    );
    check!(
        !fence.is_complete()?,
        "a fence behind held work is complete"
    );
    check_error!(
        fence.point()?.point().require_pending(),
        Error::NotPending { .. }
    );
    check_error!(
        queue.settle(Duration::from_millis(1)),
        Error::TimedOut { .. }
    );
    gate.signal(1)?;
    queue.settle(patience())?;
    check!(
        queue.held().count == 0,
        "settled, but {} are held",
        queue.held().count
    );
    fence.point()?.point().require_pending()?;
    fence.wait(patience())?;
    Ok(())
}

/// The device is held up, not the host: everything is with the driver, and nothing is reached.
fn stands_still<S: Subject>(world: &World<S>) -> Verdict {
    let gate = world.left.gate()?;
    let line = world.timeline("line")?;
    let fence = world.left.fence("fence");
    let left = world.left_queue("left")?;
    left.record(&fence)?;
    fence.wait(patience())?;
    left.block(&gate)?;
    left.submit(&[], |_| Ok(()), &[line.signal_at(1)])?;
    left.record(&fence)?;
    left.settle(patience())?;
    // With a port on the left device the signal is pending; the host makes it otherwise.
    if line.devices().any(|device| device == world.left.id()) {
        line.at(1).wait_pending(patience())?;
    }
    check_error!(
        line.at(1).wait(Duration::from_millis(20)),
        Error::TimedOut { value: 1, .. }
    );
    check!(
        !fence.is_complete()?,
        "a fence behind work that stands still is complete"
    );
    gate.open()?;
    line.at(1).wait(patience())?;
    fence.wait(patience())?;
    Ok(())
}

fn dropped<S: Subject>(world: &World<S>) -> Verdict {
    let line = world.timeline("line")?;
    let gate = world.timeline("gate")?;
    let buffer = world.left.buffer(WORDS)?;
    let queue = world.left_queue("in flight")?;
    slow_fill(world, &queue, &buffer, 1, line.signal_at(1))?;
    drop(queue);
    let queue = world.left_queue("held")?;
    let to = buffer.clone();
    queue.submit(
        &[gate.at(1), line.at(1)],
        move |r| S::fill(r, &to, 2),
        &[line.signal_at(2)],
    )?;
    drop(queue);
    line.at(1).wait(patience())?;
    check!(
        S::read(&buffer).iter().all(|&word| word == 1),
        "work of a dropped queue is lost"
    );
    gate.signal(1)?;
    drop(gate);
    line.at(2).wait(patience())?;
    check!(
        S::read(&buffer).iter().all(|&word| word == 2),
        "held work of a dropped queue is lost"
    );
    Ok(())
}
