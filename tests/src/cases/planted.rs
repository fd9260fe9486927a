//! Cases that only planted bugs showed to be missing: see `tests/tests/mutants`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use syncline::backend::Device as _;
use syncline::{Error, QueueKind};

use super::{DELAY, LONG_DELAY, WORDS};
use crate::case::{Stop, Verdict, cases, check, check_error};
use crate::user::{wait_all, wait_any};
use crate::{Subject, World, patience};

cases! {
    "queue.nothing_ends_before_the_gate_opens": [Q7 Q8] => nothing_ends;
    "queue.work_begins_after_its_waits": [Q1] => begins_after;
    "queue.every_wait_of_a_list_counts": [Q1 Q9] => every_wait;
    "queue.every_signal_of_a_list_is_made": [Q1] => every_signal;
    "work.is_done_once": [Q6] => done_once;
    "work.keeps_until_it_is_done": [Q6] => keeps;
    "timeline.far_values_are_not_reached": [T1 T7] => far;
    "wait.held_is_not_pending": [T10] => held_is_not_pending;
    "fence.elapsed_is_in_nanoseconds": [F5] => nanoseconds;
}

fn nothing_ends<S: Subject>(world: &World<S>) -> Verdict {
    let gate = world.left.gate()?;
    let left = world.left_queue("left")?;
    let blocked = left.block(&gate)?;
    let last = left.submit(&[], |_| Ok(()), &[])?;
    let short = Duration::from_millis(5);
    check_error!(blocked.end().wait(short), Error::TimedOut { .. });
    check_error!(last.end().wait(short), Error::TimedOut { .. });
    check_error!(left.idle(short), Error::TimedOut { .. });
    check!(
        !left.position().is_reached()?,
        "the queue's position is reached while its work stands still"
    );
    gate.open()?;
    left.idle(patience())?;
    check!(blocked.end().is_reached()?, "idle, but work has not ended");
    Ok(())
}

/// Whatever is read before the wait is reached was read before the work may begin.
fn begins_after<S: Subject>(world: &World<S>) -> Verdict {
    let line = world.timeline("line")?;
    let left = world.left_queue("left")?;
    let device = world.left.clone();
    left.submit(
        &[],
        move |recorder| device.busy(recorder, LONG_DELAY),
        &[line.signal_at(1)],
    )?;
    // Several, so that some are on another driver queue than the left one.
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
    loop {
        let begun = right
            .iter()
            .position(|(_, target, _)| S::read(target)[0] != 0);
        if line.at(1).is_reached()? {
            break;
        }
        if let Some(index) = begun {
            return Stop::fail(format!("work {index} ran before its wait was reached"));
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

/// Each list has one wait that ends early and one that ends late, and neither is reached when the list is
/// submitted. One order at a time: queues that share a driver queue follow the slowest.
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
            S::read(&buffer).iter().all(|&word| word == 8),
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

/// A shift through three buffers: done twice, the first word is in the last.
fn done_once<S: Subject>(world: &World<S>) -> Verdict {
    for side in [&world.left, &world.right] {
        let queue = side.queue(QueueKind::Compute, "shifting")?;
        let buffers = [side.buffer(1)?, side.buffer(1)?, side.buffer(1)?];
        let [a, b, c] = buffers.clone();
        queue.submit(&[], move |recorder| S::fill(recorder, &a, 5), &[])?;
        let [a, ..] = buffers.clone();
        queue.submit(
            &[],
            move |recorder| {
                S::copy(recorder, &b, &c)?;
                S::copy(recorder, &a, &b)
            },
            &[],
        )?;
        queue.idle(patience())?;
        let words = buffers.each_ref().map(|buffer| S::read(buffer)[0]);
        check!(words == [5, 5, 0], "a shift of [5, 0, 0] left {words:?}");
    }
    Ok(())
}

fn keeps<S: Subject>(world: &World<S>) -> Verdict {
    let gate = world.left.gate()?;
    let left = world.left_queue("left")?;
    let (latch, kept) = (gate.latch(), Arc::new(()));
    let object = kept.clone();
    left.submit(
        &[],
        move |recorder| {
            S::keep(recorder, object);
            latch.block(recorder)
        },
        &[],
    )?;
    left.settle(patience())?;
    // Others come and go meanwhile.
    left.submit(&[], |_| Ok(()), &[])?;
    check!(
        Arc::strong_count(&kept) == 2,
        "what work asked to keep is gone while the device works"
    );
    gate.open()?;
    left.idle(patience())?;
    check!(
        Arc::strong_count(&kept) == 1,
        "what work asked to keep is not dropped once it is done"
    );
    Ok(())
}

/// Comparisons that are cyclic, or of fewer bits, take a value far ahead for one that is past.
fn far<S: Subject>(world: &World<S>) -> Verdict {
    let limit = |device: &S::Device| device.info().capabilities.max_value_difference;
    let limit = limit(world.left.library()).min(limit(world.right.library()));
    for initial in [0, 5, u64::from(u32::MAX)] {
        let line = world.timeline_from("line", initial)?;
        let powers = [31, 32, 33, 63].map(|bits| 1_u64 << bits);
        let near = powers
            .iter()
            .flat_map(|&power| [power - 1, power, power + 1]);
        for ahead in near.filter(|&ahead| ahead <= limit) {
            let value = initial + ahead;
            check!(
                !line.at(value).is_reached()?,
                "{value} is reached on a timeline at {initial}"
            );
            check_error!(line.at(value).wait(Duration::ZERO), Error::TimedOut { .. });
        }
    }
    Ok(())
}

fn held_is_not_pending<S: Subject>(world: &World<S>) -> Verdict {
    let (go, line) = (world.timeline("go")?, world.timeline("line")?);
    let queue = world.right_queue("right")?;
    let held = queue.submit(&[go.at(1)], |_| Ok(()), &[line.signal_at(1)])?;
    for point in [line.at(1), held.end(), queue.position()] {
        check!(!point.is_pending()?, "{point:?} is pending, but held");
        check_error!(
            point.wait_pending(Duration::from_millis(1)),
            Error::TimedOut { .. }
        );
    }
    go.signal(1)?;
    held.end().wait_pending(patience())?;
    line.at(1).wait(patience())?;
    for point in [line.at(1), held.end(), queue.position()] {
        point.wait(patience())?;
        check!(point.is_pending()?, "{point:?} is reached, but not pending");
    }
    Ok(())
}

/// The device stands still between two times, for as long as the host says: bounds from both sides,
/// with no more room than the two clocks need. One round that the machine leaves alone is enough.
fn nanoseconds<S: Subject>(world: &World<S>) -> Verdict {
    const ROUNDS: u32 = 5;
    if world.left.info().capabilities.timestamp_bits == 0 {
        return Stop::skip("the device has no timestamps");
    }
    let left = world.left_queue("left")?;
    let (begin, end) = (
        world.left.timed_fence("begin"),
        world.left.timed_fence("end"),
    );
    for round in 0..ROUNDS {
        let gate = world.left.gate()?;
        let before = Instant::now();
        left.record(&begin)?;
        begin.wait(patience())?;
        let between = Instant::now();
        left.block(&gate)?;
        left.record(&end)?;
        std::thread::sleep(DELAY * 2);
        let inside = between.elapsed();
        gate.open()?;
        end.wait(patience())?;
        let outside = before.elapsed();
        let elapsed = end.elapsed_since(&begin)?;
        // Clocks differ by less than one part in a thousand, and are read in steps.
        let room = |time: Duration| time / 1000 + Duration::from_micros(100);
        let least = inside.saturating_sub(room(inside)).as_nanos() as i64;
        let most = (outside + room(outside)).as_nanos() as i64;
        check!(
            (least..=most).contains(&elapsed),
            "round {round}: {elapsed} ns, but the host saw between {inside:?} and {outside:?}"
        );
    }
    Ok(())
}
