//! T6, T9, T10: what wakes a thread, and what does not.

use std::thread;
use std::time::{Duration, Instant};

use syncline::{Error, WaitMode};

use crate::blocked::{Unstick, blocked, join};
use crate::case::{Stop, Verdict, cases, check, check_error};
use crate::cases::DELAY;
use crate::user::{Queue, Timeline, wait_all, wait_any};
use crate::{Subject, World, patience};

cases! {
    "wait.polling_alone_is_enough": [T1 F3] => polling;
    "wait.pending_before_reached": [T10] => pending_first;
    "wait.last_handle_wakes_blocked_threads": [T9 T6] => last_handle;
}

/// Without any wait or submission, queries alone advance the engine's state.
fn polling<S: Subject>(world: &World<S>) -> Verdict {
    let until = |what: &str, done: &dyn Fn() -> syncline::Result<bool>| {
        let deadline = Instant::now() + patience();
        while !done()? {
            check!(Instant::now() < deadline, "what {what}");
            thread::yield_now();
        }
        Ok(())
    };
    let homes = [
        ("both sides", world.timeline("of both")?),
        ("the left side", world.left.timeline("of the left")?),
        ("the right side", world.right.timeline("of the right")?),
    ];
    let queues = [
        (&world.left, world.left_queue("left")?),
        (&world.right, world.right_queue("right")?),
    ];
    for (home, line) in &homes {
        for ((side, queue), value) in queues.iter().zip([1, 2]) {
            let fence = side.fence("fence");
            queue.busy(DELAY / 15, &[line.signal_at(value)])?;
            queue.record(&fence)?;
            if value == 1 {
                until(&format!("a signal of a line of {home}"), &|| {
                    line.at(value).is_reached()
                })?;
            } else {
                until(&format!("a value of a line of {home}"), &|| {
                    Ok(line.value()? == value)
                })?;
            }
            until("the end of a fence", &|| fence.is_complete())?;
        }
        thread::scope(|scope| {
            let signaller = scope.spawn(|| line.signal(3));
            let shown = until(&format!("a host signal of a line of {home}"), &|| {
                line.at(3).is_reached()
            });
            join(signaller)??;
            shown
        })?;
    }
    Ok(())
}

fn pending_first<S: Subject>(world: &World<S>) -> Verdict {
    let stall = world.left.stall()?;
    let (gate, line) = (world.timeline("gate")?, world.timeline("line")?);
    let far = world.right.timeline("of the right")?;
    let queue = world.left_queue("left")?;
    let block = stall.latch();
    queue.submit(
        &[gate.at(1)],
        move |recorder| block.block(recorder),
        &[line.signal_at(1), far.signal_at(1)],
    )?;
    check!(!line.at(1).is_pending()?, "a held signal counts as pending");
    let here = world.left.id();
    let native = |of: &Timeline<S>| of.devices().any(|device| device == here);
    thread::scope(|scope| {
        let _unstick = Unstick(&[&gate]);
        let mut waiters = Vec::new();
        for of in [&line, &far] {
            if native(of) {
                waiters.push(blocked(scope, || of.at(1).wait_pending(patience()))?);
            }
        }
        if waiters.iter().any(|waiter| waiter.is_finished()) {
            return Stop::fail("a wait for pending ended while the submission was held");
        }
        gate.signal(1)?;
        // The device is blocked all the time.
        for waiter in waiters {
            join(waiter)??;
        }
        queue.settle(patience())?;
        for of in [&line, &far] {
            check!(!of.at(1).is_reached()?);
            if native(of) {
                check!(of.at(1).is_pending()?, "with the driver, but not pending");
                of.at(1).wait_pending(Duration::ZERO)?;
                continue;
            }
            // The host has to make this signal, so it is claimed until it is reached.
            check!(!of.at(1).is_pending()?);
            check_error!(of.at(1).wait_pending(Duration::from_millis(2)), TimedOut);
        }
        stall.release()?;
        for of in [&line, &far] {
            of.at(1).wait(patience())?;
            of.at(1).wait_pending(Duration::ZERO)?;
        }
        Ok(())
    })
}

fn last_handle<S: Subject>(world: &World<S>) -> Verdict {
    for side in [&world.left, &world.right] {
        let (line, after) = (side.timeline("line")?, world.timeline("after")?);
        let never = world.timeline("never")?;
        let point = line.at(1).keep();
        let queue: Queue<S> = world.right_queue("behind")?;
        queue.submit_empty(&[line.at(1)], &[after.signal_at(1)])?;
        thread::scope(|scope| {
            let mut waiters = Vec::new();
            for mode in [WaitMode::Block, WaitMode::Adaptive] {
                let point = point.point();
                waiters.push(blocked(scope, move || {
                    point.wait_with(mode, Duration::MAX)
                })?);
            }
            let one = [point.point()];
            waiters.push(blocked(scope, move || wait_all(&one, Duration::MAX))?);
            let list = [never.at(1), point.point()];
            waiters.push(blocked(scope, move || {
                wait_any(&list, Duration::MAX).map(|_| ())
            })?);
            waiters.push(blocked(scope, || {
                point.point().wait_pending(Duration::MAX)
            })?);
            let behind = blocked(scope, || after.at(1).wait(Duration::MAX))?;
            let idle = blocked(scope, || queue.idle(Duration::MAX))?;
            let another = line.clone();
            drop(line);
            let early = waiters.iter().any(|waiter| waiter.is_finished());
            drop(another);
            check!(!early, "cancelled although there was a handle");
            for waiter in waiters {
                check_error!(
                    join(waiter)?,
                    Error::Cancelled {
                        value: 1,
                        reached: 0,
                        ..
                    }
                );
            }
            check_error!(
                join(behind)?,
                Error::Failed { cause, .. } if matches!(*cause, Error::Cancelled { .. })
            );
            join(idle)??;
            Ok(())
        })?;
    }
    Ok(())
}
