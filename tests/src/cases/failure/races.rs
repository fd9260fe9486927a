//! E1, T1: a failure and a signal at the same time.

use std::sync::Barrier;
use std::thread;

use syncline::Error;

use crate::case::{Stop, Verdict, cases, check};
use crate::cases::cause;
use crate::dice::{Dice, seeds};
use crate::user::{Queue, Timeline};
use crate::{Subject, World, patience};

cases! {
    "failure.races_with_a_signal": [E1 T1] => against_signal;
}

/// A signal races with a failure. The value is reached or failed for ever, for all observers.
fn against_signal<S: Subject>(world: &World<S>) -> Verdict {
    let rounds = if world.is_pair() { 20 } else { 100 };
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    seeds(rounds, |dice| {
        let line = world.timeline("line")?;
        let by_host = dice.one_in(2);
        let start = Barrier::new(2);
        let mut failing = dice.fork();
        let signalled = thread::scope(|scope| {
            let (start, line) = (&start, &line);
            scope.spawn(move || {
                start.wait();
                hesitate(&mut failing);
                line.fail(cause("at the same time"));
            });
            start.wait();
            hesitate(dice);
            if by_host {
                line.signal(1)
            } else {
                left.signal(line, 1).map(drop)
            }
        });
        let reached = match (&signalled, by_host) {
            (Ok(()), true) => {
                check!(line.at(1).is_reached().unwrap_or(false));
                true
            }
            // The queue's signal may have come too late.
            (Ok(()), false) => line.at(1).wait(patience()).is_ok(),
            (Err(Error::Failed { .. }), _) => false,
            (Err(other), _) => return Stop::fail(format!("a signal was refused: {other}")),
        };
        let frozen = line.frozen_value();
        check!(
            frozen == u64::from(reached),
            "{}, but frozen at {frozen}",
            if reached { "reached" } else { "failed" }
        );
        left.idle(patience())?;
        for queue in [&left, &right] {
            check_seen(world, &line, queue, reached)?;
        }
        Ok(())
    })
}

/// Waits for some nanoseconds to some microseconds.
fn hesitate(dice: &mut Dice) {
    for _ in 0..dice.below(3000) {
        std::hint::spin_loop();
    }
}

/// Checks that host and `queue` see 1 as reached, or as failed.
fn check_seen<S: Subject>(
    world: &World<S>,
    line: &Timeline<S>,
    queue: &Queue<S>,
    reached: bool,
) -> Verdict {
    let after = world.timeline("after")?;
    queue.submit_empty(&[line.at(1)], &[after.signal_at(1)])?;
    for (how, result) in [
        ("a wait", line.at(1).wait(patience())),
        ("a queue", after.at(1).wait(patience())),
        ("a query", line.at(1).is_reached().map(drop)),
    ] {
        match result {
            Ok(()) => check!(reached, "{how} takes a failed value for reached"),
            Err(Error::Failed { cause, .. }) => check!(
                !reached && cause.to_string() == "work failed: at the same time",
                "{how} fails with {cause} though the value was reached"
            ),
            Err(other) => return Stop::fail(format!("{how} ends with: {other}")),
        }
    }
    Ok(())
}
