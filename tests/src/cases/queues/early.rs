//! Q1, Q7, Q8: what must not begin or end too early, however many entries a list has.

use std::time::{Duration, Instant};

use syncline::{Error, QueueKind};

use crate::case::{Verdict, cases, check, check_error};
use crate::cases::{DELAY, LONG_DELAY, WORDS, is_filled};
use crate::user::{wait_all, wait_any};
use crate::{Subject, World, patience};

cases! {
    "queue.nothing_ends_before_the_gate_opens": [Q7 Q8] => nothing_ends;
    "queue.work_begins_after_its_waits": [Q1] => begins_after;
    "queue.every_wait_of_a_list_counts": [Q1 Q9] => every_wait;
    "queue.every_signal_of_a_list_is_made": [Q1] => every_signal;
}

fn nothing_ends<S: Subject>(world: &World<S>) -> Verdict {
    let stall = world.left.stall()?;
    let left = world.left_queue("left")?;
    let blocked = left.block(&stall)?;
    let last = left.submit(&[], |_| Ok(()), &[])?;
    let short = Duration::from_millis(5);
    check_error!(blocked.end().wait(short), Error::TimedOut { .. });
    check_error!(last.end().wait(short), Error::TimedOut { .. });
    check_error!(left.idle(short), Error::TimedOut { .. });
    check!(
        !left.position().is_reached()?,
        "the queue's position is reached while its work stands still"
    );
    stall.release()?;
    left.idle(patience())?;
    check!(blocked.end().is_reached()?, "idle, but work has not ended");
    Ok(())
}

/// How much earlier the host may see a waiting device's work than the awaited value.
///
/// The value counts for the host once the memory behind it is visible.
const SEEN_LATER: Duration = Duration::from_millis(100);

/// Work without its wait begins [`LONG_DELAY`] before the value is there.
fn begins_after<S: Subject>(world: &World<S>) -> Verdict {
    let line = world.timeline("line")?;
    let left = world.left_queue("left")?;
    let device = world.left.clone();
    left.submit(
        &[],
        move |recorder| device.busy(recorder, LONG_DELAY),
        &[line.signal_at(1)],
    )?;
    // Several queues, so that some have another driver queue than the left one.
    let mut right = Vec::new();
    for index in 0..4 {
        let queue = world.right_queue(&format!("right {index}"))?;
        let target = world.right.buffer(1)?;
        let to = target.clone();
        let submitted = queue.submit(
            &[line.at(1)],
            move |recorder| S::fill(recorder, &to, 1),
            &[],
        )?;
        let end = submitted.end().keep();
        right.push((queue, target, end));
    }
    let start = Instant::now();
    let mut begun = None;
    loop {
        let now = right
            .iter()
            .position(|(_, target, _)| S::read(target)[0] != 0);
        begun = begun.or_else(|| now.map(|index| (index, Instant::now())));
        if line.at(1).is_reached()? {
            break;
        }
        if let Some((index, since)) = begun {
            check!(
                since.elapsed() < SEEN_LATER,
                "work {index} ran before its wait was reached"
            );
        }
        check!(start.elapsed() < patience(), "1 is never reached");
        std::thread::yield_now();
    }
    for (index, (_, target, end)) in right.iter().enumerate() {
        end.point().wait(patience())?;
        check!(S::read(target)[0] == 1, "work {index} was not done");
    }
    Ok(())
}

/// Each list has a wait that ends early and one that ends late. Neither is reached at submission.
///
/// Tests one order at a time, because queues that share a driver queue follow the slowest.
fn every_wait<S: Subject>(world: &World<S>) -> Verdict {
    for late_first in [false, true] {
        let (early, late) = (world.timeline("early")?, world.timeline("late")?);
        let left = world.left_queue("left")?;
        let buffer = world.left.buffer(WORDS)?;
        let device = world.left.clone();
        left.submit(
            &[],
            move |recorder| device.busy(recorder, DELAY * 3),
            &[early.signal_at(1)],
        )?;
        let (device, to) = (world.left.clone(), buffer.clone());
        left.submit(
            &[],
            move |recorder| {
                device.busy(recorder, DELAY * 3)?;
                S::fill(recorder, &to, 8)
            },
            &[late.signal_at(1)],
        )?;
        let mut ends = Vec::new();
        for index in 0..3 {
            let queue = world.right_queue(&format!("right {index}"))?;
            let mut waits = [early.at(1), late.at(1)];
            if late_first {
                waits.reverse();
            }
            ends.push(queue.submit(&waits, |_| Ok(()), &[])?.end().keep());
        }
        let ends: Vec<_> = ends.iter().map(|end| end.point()).collect();
        let first = wait_any(&ends, patience())?;
        check!(
            is_filled::<S>(&buffer, 8),
            "queue {first} did not wait for all of its list"
        );
        wait_all(&ends, patience())?;
    }
    Ok(())
}

fn every_signal<S: Subject>(world: &World<S>) -> Verdict {
    const LINES: usize = 5;
    let lines = (0..LINES)
        .map(|index| world.timeline(&format!("line {index}")))
        .collect::<syncline::Result<Vec<_>>>()?;
    for (value, side) in [(1, &world.left), (2, &world.right)] {
        let queue = side.queue(QueueKind::Compute, "signaller")?;
        let signals: Vec<_> = lines.iter().map(|line| line.signal_at(value)).collect();
        queue.submit(&[], |_| Ok(()), &signals)?;
        let points: Vec<_> = lines.iter().map(|line| line.at(value)).collect();
        wait_all(&points, patience())?;
    }
    Ok(())
}
