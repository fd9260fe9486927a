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
    "wait.wakes_on_any_signal_past_its_value": [T6] => past_value;
    "wait.every_thread_wakes": [T6] => every_thread;
    "wait.every_mode": [T4 F3] => every_mode;
    "wait.polling_alone_is_enough": [T1 F3] => polling;
    "wait.pending_before_reached": [T10] => pending_first;
    "wait.held_is_not_pending": [T10] => held_is_not_pending;
    "wait.others_wait_for_ever": [T4 T6] => others;
    "wait.last_handle_wakes_blocked_threads": [T9 T6] => last_handle;
}

fn past_value<S: Subject>(world: &World<S>) -> Verdict {
    let line = world.timeline("line")?;
    let queue = world.left_queue("left")?;
    thread::scope(|scope| {
        let waiters: Vec<_> = [1, 2, 6, 7]
            .map(|value| {
                scope.spawn({
                    let line = &line;
                    move || line.at(value).wait(patience())
                })
            })
            .into();
        queue.submit(&[], |_| Ok(()), &[line.signal_at(7)])?;
        for waiter in waiters {
            waiter.join().unwrap_or(Err(Error::NothingToWaitFor))?;
        }
        Ok(())
    })
}

fn every_thread<S: Subject>(world: &World<S>) -> Verdict {
    const THREADS: u64 = 16;
    const ROUNDS: u64 = 20;
    let line = world.timeline("line")?;
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    thread::scope(|scope| {
        let waiters: Vec<_> = (0..THREADS)
            .map(|offset| {
                let line = &line;
                scope.spawn(move || {
                    (1..=ROUNDS).try_for_each(|n| line.at(n * THREADS - offset).wait(patience()))
                })
            })
            .collect();
        for n in 1..=ROUNDS * THREADS {
            let queue = if n % 2 == 0 { &left } else { &right };
            queue.submit(&[], |_| Ok(()), &[line.signal_at(n)])?;
        }
        for waiter in waiters {
            waiter.join().unwrap_or(Err(Error::NothingToWaitFor))?;
        }
        Ok(())
    })
}

fn every_mode<S: Subject>(world: &World<S>) -> Verdict {
    let queue = world.left_queue("left")?;
    let told = [Duration::ZERO, DELAY / 20, Duration::MAX].map(WaitMode::SpinFor);
    let named = [WaitMode::Spin, WaitMode::Block, WaitMode::Adaptive];
    for mode in named.into_iter().chain(told) {
        let fence = world.left.fence("fence");
        let device = world.left.clone();
        let line = world.timeline("line")?;
        queue.submit(
            &[],
            move |recorder| device.busy(recorder, DELAY / 10),
            &[line.signal_at(1)],
        )?;
        queue.record(&fence)?;
        line.at(1).wait_with(mode, patience())?;
        fence.wait_with(mode, patience())?;
        check!(fence.is_complete()?, "not complete after a {mode:?} wait");
        // The value is already reached, so it needs no time at all.
        line.at(1).wait_with(mode, Duration::ZERO)?;
    }
    Ok(())
}

/// Without any wait or submission, queries alone advance the engine's state.
fn polling<S: Subject>(world: &World<S>) -> Verdict {
    let until = |what: &str, done: &dyn Fn() -> syncline::Result<bool>| {
        let deadline = Instant::now() + patience();
        while !done()? {
            check!(
                Instant::now() < deadline,
                "{what} never shows by polling alone"
            );
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
            let device = (*side).clone();
            let fence = side.fence("fence");
            queue.submit(
                &[],
                move |recorder| device.busy(recorder, DELAY / 15),
                &[line.signal_at(value)],
            )?;
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
            check!(
                !of.at(1).is_reached()?,
                "reached although the device stands still"
            );
            if native(of) {
                check!(of.at(1).is_pending()?, "with the driver, but not pending");
                of.at(1).wait_pending(Duration::ZERO)?;
                continue;
            }
            // The host has to make this signal, so it is claimed until it is reached.
            check!(
                !of.at(1).is_pending()?,
                "a signal that the host has yet to make counts as pending"
            );
            check_error!(
                of.at(1).wait_pending(Duration::from_millis(2)),
                Error::TimedOut { .. }
            );
        }
        stall.release()?;
        for of in [&line, &far] {
            of.at(1).wait(patience())?;
            of.at(1).wait_pending(Duration::ZERO)?;
        }
        Ok(())
    })
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

fn others<S: Subject>(world: &World<S>) -> Verdict {
    const VALUES: u64 = 20;
    let line = world.timeline("line")?;
    let never = [
        world.timeline("other")?,
        world.left.timeline("of the left")?,
        world.right.timeline("of the right")?,
    ];
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    let mut points: Vec<_> = never.iter().map(|other| other.at(1).keep()).collect();
    points.push(line.at(VALUES + 100).keep());
    points.push(line.at(VALUES + 1).keep());
    thread::scope(|scope| {
        let mut stuck = Vec::new();
        for point in &points {
            stuck.push(blocked(scope, || point.point().wait(Duration::MAX))?);
        }
        stuck.push(blocked(scope, || {
            let all: Vec<_> = points.iter().map(|point| point.point()).collect();
            wait_any(&all, Duration::MAX).map(|_| ())
        })?);
        let signalled = || {
            for value in 1..=VALUES {
                match value % 3 {
                    0 => line.signal(value)?,
                    1 => drop(left.submit(&[], |_| Ok(()), &[line.signal_at(value)])?),
                    _ => drop(right.submit(&[], |_| Ok(()), &[line.signal_at(value)])?),
                }
                line.at(value).wait(patience())?;
            }
            left.idle(patience())?;
            right.idle(patience())?;
            Ok::<_, Error>(())
        };
        let went_on = signalled();
        let early = stuck.iter().any(|thread| thread.is_finished());
        // The value has no signaller any more, so it is cancelled. That ends the threads in all
        // cases.
        drop((line, never));
        for thread in stuck {
            check_error!(join(thread)?, Error::Cancelled { .. });
        }
        check!(!early, "a wait for a value that was never signalled ended");
        went_on.map_err(Stop::from)
    })
}

fn last_handle<S: Subject>(world: &World<S>) -> Verdict {
    for side in [&world.left, &world.right] {
        let (line, after) = (side.timeline("line")?, world.timeline("after")?);
        let never = world.timeline("never")?;
        let point = line.at(1).keep();
        let queue: Queue<S> = world.right_queue("behind")?;
        queue.submit(&[line.at(1)], |_| Ok(()), &[after.signal_at(1)])?;
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
