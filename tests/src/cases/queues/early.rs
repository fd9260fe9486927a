//! Q1, Q7, Q8: what must not begin or end too early, however many entries a list has.

use std::time::{Duration, Instant};

use crate::case::{Verdict, cases, check, check_error};
use crate::cases::{DELAY, LONG_DELAY, WORDS, filled};
use crate::user::{wait_all, wait_any};
use crate::{Subject, World, patience};

cases! {
    "queue.nothing_ends_before_the_gate_opens": [Q7 Q8 T10 F2 F3] => nothing_ends;
    "queue.work_begins_after_its_waits": [Q1] => begins_after;
    "queue.every_wait_of_a_list_counts": [Q1 Q9] => every_wait;
}

fn nothing_ends<S: Subject>(world: &World<S>) -> Verdict {
    let stall = world.left.stall()?;
    let line = world.timeline("line")?;
    let left = world.left_queue("left")?;
    let fence = world.left.fence("fence");
    left.record(&fence)?;
    fence.wait(patience())?;
    let blocked = left.block(&stall)?;
    let last = left.signal(&line, 1)?;
    left.record(&fence)?;
    left.settle(patience())?;
    // With a port on the left device the signal is pending. Otherwise the host makes it.
    if line.devices().any(|device| device == world.left.id()) {
        line.at(1).wait_pending(patience())?;
    }
    let short = Duration::from_millis(5);
    for open in [blocked.end(), last.end(), line.at(1), left.position()] {
        check_error!(open.wait(short), TimedOut);
    }
    check_error!(left.idle(short), TimedOut);
    check!(!fence.is_complete()? && !left.position().is_reached()?);
    stall.release()?;
    left.idle(patience())?;
    check!(blocked.end().is_reached()?);
    line.at(1).wait(patience())?;
    fence.wait(patience())?;
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
    left.busy(LONG_DELAY, &[line.signal_at(1)])?;
    // Several queues, so that some have another driver queue than the left one.
    let mut right = Vec::new();
    for index in 0..4 {
        let queue = world.right_queue(&format!("right {index}"))?;
        let target = world.right.buffer(1)?;
        let submitted = queue.fill(&[line.at(1)], &target, 1, &[])?;
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
            check!(since.elapsed() < SEEN_LATER, "index {index}");
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
            ends.push(queue.submit_empty(&waits, &[])?.end().keep());
        }
        let ends: Vec<_> = ends.iter().map(|end| end.point()).collect();
        let first = wait_any(&ends, patience())?;
        filled::<S>(&buffer, 8, format_args!("first {first}"))?;
        wait_all(&ends, patience())?;
    }
    Ok(())
}
