//! M4: comparing times of several queues and devices. M5: exact intervals.

use std::thread;
use std::time::{Duration, Instant};

use syncline::clock::Axis;

use super::{queue, sides};
use crate::case::{Verdict, cases, check};
use crate::cases::unless_linked;
use crate::user::{Fence, Time};
use crate::{Subject, World, patience};

cases! {
    "clocks.ordered_across_queues": [M4] => across;
    "clocks.intervals_have_a_sign_and_an_axis": [M4] => signs;
    "clocks.intervals_are_exact": [M5 F5 M1] => exact;
}

/// Times of left, right and left in turn are in this order.
///
/// No step takes longer than the host saw all of them take.
fn across<S: Subject>(world: &World<S>) -> Verdict {
    let rounds = unless_linked(world, "rounds", 100, 20)?;
    // A device without a clock returns the reason.
    world.right.clock()?;
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    let stamps = [
        world.left.clocked_fence("first")?,
        world.right.clocked_fence("second")?,
        world.left.clocked_fence("third")?,
    ];
    let turns = world.timeline("turns")?;
    let mut turn = 0;
    for round in 0..rounds {
        let start = Instant::now();
        if round % 10 == 0 {
            // Without its wait the right side would be first.
            let long = Duration::from_millis(2);
            left.busy(long, &[])?;
        }
        left.record(&stamps[0])?;
        left.signal(&turns, turn + 1)?;
        right.submit_empty(&[turns.at(turn + 1)], &[])?;
        right.record(&stamps[1])?;
        right.signal(&turns, turn + 2)?;
        left.submit_empty(&[turns.at(turn + 2)], &[])?;
        left.record(&stamps[2])?;
        for stamp in &stamps {
            stamp.wait(patience())?;
        }
        turn += 2;
        let whole = i64::try_from(start.elapsed().as_nanos()).unwrap_or(i64::MAX);
        for (from, to) in [(0, 1), (1, 2), (0, 2)] {
            let between = stamps[to].time()?.since(&stamps[from].time()?)?;
            let room = between.error.cast_signed();
            check!(
                between.nanoseconds >= -room,
                "round {round}: step {to} came {} ns before step {from}, with an error of {room} ns {}",
                -between.nanoseconds,
                between.axis
            );
            // Clocks differ by less than one part in a thousand.
            check!(
                between.nanoseconds - room <= whole + whole / 1000 + 1000,
                "round {round}, from {from}, to {to}"
            );
        }
    }
    left.idle(patience())?;
    right.idle(patience())?;
    Ok(())
}

fn stamps<S: Subject>(world: &World<S>, each: usize) -> Result<Vec<Fence<S>>, crate::Stop> {
    let mut stamps = Vec::new();
    for device in sides(world)? {
        let queue = queue(device)?;
        for _ in 0..each {
            let fence = device.clocked_fence("stamp")?;
            queue.record(&fence)?;
            stamps.push(fence);
        }
        queue.idle(patience())?;
    }
    Ok(stamps)
}

/// The interval from a time to itself is zero, and the reverse interval is as long.
///
/// The way over a third time is as long, within the errors. The axis of the comparison is stated
/// correctly.
fn signs<S: Subject>(world: &World<S>) -> Verdict {
    let fences = stamps(world, 2)?;
    let times: Vec<Time<S>> = fences.iter().map(Fence::time).collect::<Result<_, _>>()?;
    let gpus = [&world.left, &world.right].map(|side| side.info().uuid);
    let one_gpu = gpus[0].is_some() && gpus[0] == gpus[1];
    let wrong = |one: i64, other: i64, errors: u64| one.abs_diff(other) > errors;
    for (nth, start) in times.iter().enumerate() {
        let itself = start.since(start)?;
        check!(
            itself.nanoseconds == 0 && itself.axis == Axis::Same,
            "from a time to itself there are {itself:?}"
        );
        for (mth, end) in times.iter().enumerate() {
            let there = end.since(start)?;
            let same = start.clock().library().is_same(end.clock().library());
            check!(
                same == (there.axis == Axis::Same) && (one_gpu || there.axis != Axis::One),
                "{there:?} between {start:?} and {end:?}, of {}",
                if same { "one clock" } else { "two" }
            );
            check!(
                there.axis != Axis::Host || there.error > 0,
                "{there:?} between clocks of which one has to be converted"
            );
            if there.axis == Axis::One {
                let found = start.clock().library().compare(end.clock().library())?;
                check!(found.are_one());
            }
            let back = start.since(end)?;
            let errors = if same { 0 } else { there.error + back.error };
            check!(!wrong(back.nanoseconds, -there.nanoseconds, errors));
            if same {
                let least = end.clock().library().resolution();
                check!(
                    there.error >= least
                        && there.nanoseconds == end.nanoseconds() - start.nanoseconds(),
                    "{there:?} between {start:?} and {end:?}, of a clock that steps by {least} ns"
                );
            }
            for over in &times {
                let (first, second) = (over.since(start)?, end.since(over)?);
                let errors = first.error + second.error + there.error;
                check!(
                    !wrong(
                        there.nanoseconds,
                        first.nanoseconds + second.nanoseconds,
                        errors
                    ),
                    "from {nth} to {mth} there are {there:?}, and over another {first:?} and {second:?}"
                );
            }
        }
    }
    Ok(())
}

/// Steps along a queue are whole nanoseconds, and none is negative.
///
/// Their sum is the interval from the first to the last. All threads get the same result.
fn exact<S: Subject>(world: &World<S>) -> Verdict {
    const STAMPS: usize = 60;
    for device in sides(world)? {
        let queue = queue(device)?;
        let mut fences = Vec::new();
        for nth in 0..STAMPS {
            if nth == STAMPS / 2 {
                // From here on, milliseconds in 32 bits would have steps of at least 15 ns.
                queue.idle(patience())?;
                thread::sleep(Duration::from_millis(140));
            }
            let fence = device.clocked_fence("stamp")?;
            queue.record(&fence)?;
            fences.push(fence);
        }
        queue.idle(patience())?;
        let between = |start: &Fence<S>, end: &Fence<S>| -> Result<i64, crate::Stop> {
            let elapsed = end.elapsed_since(start)?;
            let (from, to) = (start.time()?, end.time()?);
            let said = to.since(&from)?.nanoseconds;
            check!(
                elapsed == said && said == to.nanoseconds() - from.nanoseconds(),
                "{elapsed} ns elapsed, from {from:?} to {to:?} there are {said} ns"
            );
            let back = start.elapsed_since(end)?;
            check!(elapsed == -back, "{elapsed} ns forward, {back} ns back");
            Ok(elapsed)
        };
        let mut sum = 0;
        for pair in fences.windows(2) {
            let step = between(&pair[0], &pair[1])?;
            check!(step >= 0, "time ran {step} ns along a queue");
            sum += step;
        }
        for nth in 1..STAMPS {
            between(&fences[0], &fences[nth])?;
        }
        let whole = between(&fences[0], &fences[STAMPS - 1])?;
        check!(
            whole == sum && whole > 100_000_000,
            "{whole} ns from first to last, {sum} ns in steps"
        );
    }
    Ok(())
}
