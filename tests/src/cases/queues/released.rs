//! Q1–Q3: what releases held submissions, and what does not.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::blocked::join;
use crate::case::{Stop, Verdict, cases, check, check_eq};
use crate::cases::{DELAY, WORDS, filled, is_filled};
use crate::dice::Dice;
use crate::user::{Queue, Timeline};
use crate::{RecorderOf, Subject, World, patience};

cases! {
    "queue.each_value_releases_its_own": [Q2 T6] => each_value(dice);
    "queue.waits_below_the_signalled_value": [Q2 T6 T7] => below;
    "queue.host_and_device_signals_joined": [Q1 Q3] => joined;
    "queue.a_closed_gate_never_blocks_the_submitter": [Q2] => closed_gate;
}

fn each_value<S: Subject>(world: &World<S>, dice: &mut Dice) -> Verdict {
    const LAST: u64 = 8;
    let line = world.timeline("line")?;
    let left = world.left_queue("left")?;
    let mut values: Vec<u64> = (1..=LAST).collect();
    dice.shuffle(&mut values);
    let mut waiting = Vec::new();
    for value in values {
        let queue = world.right_queue(&format!("waits for {value}"))?;
        let buffer = world.right.buffer(WORDS)?;
        queue.fill(&[line.at(value)], &buffer, 1, &[])?;
        waiting.push((value, queue, buffer));
    }
    for now in 1..=LAST {
        if now % 2 == 0 {
            line.signal(now)?;
        } else {
            left.signal(&line, now)?;
            line.at(now).wait(patience())?;
        }
        for (value, queue, buffer) in &waiting {
            if *value <= now {
                queue.idle(patience())?;
            }
            let (released, held) = (*value <= now, queue.held().count == 1);
            check!(
                held != released && is_filled::<S>(buffer, released.into()),
                "at {now}, what waits for {value} is held: {held}, its buffer has {}",
                S::read(buffer)[0]
            );
        }
    }
    Ok(())
}

fn below<S: Subject>(world: &World<S>) -> Verdict {
    let line = world.timeline("line")?;
    let left = world.left_queue("left")?;
    let source = world.left.buffer(WORDS)?;
    let waiter = |value: u64| -> syncline::Result<_> {
        let queue = world.right_queue(&format!("waits for {value}"))?;
        let submitted = queue.submit_empty(&[line.at(value)], &[])?;
        let (end, held) = (submitted.end().keep(), submitted.is_held());
        Ok((value, queue, end, held))
    };
    let early = [1, 3, 6].map(waiter);
    left.fill_after(DELAY, &source, 1, &[line.signal_at(7)])?;
    // 7 may be pending or reached by now. The other values are not signalled.
    let late = [2, 5, 7].map(waiter);
    for waiter in early.into_iter().chain(late) {
        let (value, _queue, end, _) = waiter?;
        end.point().wait(patience())?;
        filled::<S>(&source, 1, format_args!("value {value}"))?;
    }
    for value in [1, 4, 6, 7] {
        let (_, _queue, end, held) = waiter(value)?;
        check!(!held, "held for {value}, although 7 is reached");
        end.point().wait(patience())?;
    }
    // What another device has seen may count for the host a moment later (Q9).
    line.at(7).wait(patience())?;
    check!(line.value()? == 7, "the value is {}", line.value()?);
    Ok(())
}

fn joined<S: Subject>(world: &World<S>) -> Verdict {
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    let at_home = [
        |world: &World<S>, label: &str| world.timeline(label),
        |world: &World<S>, label: &str| world.left.timeline(label),
        |world: &World<S>, label: &str| world.right.timeline(label),
    ];
    for (host_last, make) in [false, true]
        .into_iter()
        .flat_map(|last| at_home.map(|make| (last, make)))
    {
        let (device, host) = (make(world, "the device's")?, make(world, "the host's")?);
        let (source, target) = (world.left.buffer(WORDS)?, world.right.buffer(WORDS)?);
        let both = right.fill(&[device.at(1), host.at(1)], &target, 2, &[])?;
        let one_is_missing = |which: &str| {
            check!(
                right.held().count == 1 && is_filled::<S>(&target, 0),
                "it ran without {which}"
            );
            Ok(())
        };
        one_is_missing("either signal")?;
        if host_last {
            left.fill_after(DELAY, &source, 1, &[device.signal_at(1)])?;
            one_is_missing("the host's signal")?;
            device.at(1).wait(patience())?;
            one_is_missing("the host's signal")?;
            host.signal(1)?;
        } else {
            host.signal(1)?;
            one_is_missing("the device's signal")?;
            left.fill_after(DELAY, &source, 1, &[device.signal_at(1)])?;
        }
        both.end().wait(patience())?;
        check!(
            is_filled::<S>(&source, 1) && is_filled::<S>(&target, 2),
            "the left work left {}, the right {}",
            S::read(&source)[0],
            S::read(&target)[0]
        );
    }
    Ok(())
}

/// A timeline of the host holds all submissions, and a blocked device fills the driver's queue.
fn closed_gate<S: Subject>(world: &World<S>) -> Verdict {
    let line = world.timeline("gate")?;
    let close = |queue: &Queue<S>| queue.submit_empty(&[line.at(1)], &[]).map(|_| ());
    flood(world, close, || Ok(line.signal(1)?))?;
    let stall = world.left.stall()?;
    flood(
        world,
        |queue| queue.block(&stall).map(|_| ()),
        || Ok(stall.release()?),
    )
}

/// Thousands of submissions with work, to queues that are blocked first and released at the end.
///
/// Drivers count different things before they are full. So the first submissions have several
/// commands each, and the rest are many.
fn flood<S: Subject>(
    world: &World<S>,
    close: impl Fn(&Queue<S>) -> syncline::Result<()>,
    open: impl Fn() -> Verdict,
) -> Verdict {
    const QUEUES: usize = 4;
    let each: u32 = if world.is_pair() { 128 } else { 2048 };
    let ran = Arc::new(AtomicU32::new(0));
    let mut queues: Vec<(Queue<S>, Timeline<S>, S::Buffer)> = Vec::new();
    for n in 0..QUEUES {
        let queue = world.left_queue(&format!("closed {n}"))?;
        queues.push((queue, world.timeline("line")?, world.left.buffer(1)?));
    }
    for (queue, ..) in &queues {
        close(queue)?;
    }
    let taken = AtomicU32::new(0);
    let submit_all = || -> Verdict {
        for n in 1..=each {
            for (queue, line, buffer) in &queues {
                let (ran, buffer) = (ran.clone(), buffer.clone());
                let fills = if n <= each / 8 { 8 } else { 1 };
                let work = move |recorder: &mut RecorderOf<'_, S>| {
                    ran.fetch_add(1, Ordering::Relaxed);
                    (0..fills).try_for_each(|_| S::fill(recorder, &buffer, n))
                };
                queue.submit(&[], work, &[line.signal_at(n.into())])?;
                taken.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    };
    thread::scope(|scope| {
        let submitter = scope.spawn(submit_all);
        let (mut seen, mut since) = (0, Instant::now());
        while !submitter.is_finished() && since.elapsed() < patience() {
            thread::sleep(Duration::from_millis(1));
            let now = taken.load(Ordering::Relaxed);
            if now != seen {
                (seen, since) = (now, Instant::now());
            }
        }
        if !submitter.is_finished() {
            // Otherwise the scope would never end.
            open()?;
            return Stop::fail(format!(
                "behind a closed gate submission {} blocks its caller",
                seen + 1
            ));
        }
        join(submitter)?
    })?;
    for (queue, line, buffer) in &queues {
        check!(
            line.value()? == 0 && is_filled::<S>(buffer, 0),
            "{queue:?} is closed, but its line is at {}",
            line.value()?
        );
    }
    open()?;
    for (queue, line, buffer) in &queues {
        line.at(each.into()).wait(patience())?;
        filled::<S>(buffer, each, format_args!("queue {queue:?}"))?;
    }
    let ran = ran.load(Ordering::Relaxed);
    check_eq!(ran, each * QUEUES as u32);
    Ok(())
}
