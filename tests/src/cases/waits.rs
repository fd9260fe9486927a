//! T4, T5, T6: host threads waiting.

use std::thread;
use std::time::{Duration, Instant};

use syncline::{Error, WaitMode};

use super::{DELAY, cause};
use crate::case::{Stop, Verdict, cases, check, check_error};
use crate::user::{Point, wait_all, wait_any};
use crate::{Subject, World, patience};

cases! {
    "wait.times_out_never_early": [T4] => never_early;
    "wait.a_timed_out_wait_changes_nothing": [T4] => changes_nothing;
    "wait.wakes_on_any_signal_past_its_value": [T6] => past_value;
    "wait.every_thread_wakes": [T6] => every_thread;
    "wait.every_mode": [T4 F3] => every_mode;
    "wait.any_names_the_lowest_reached": [T5] => any_lowest;
    "wait.any_prefers_reached_to_failed": [T5] => any_prefers;
    "wait.all_fails_at_the_first_failure": [T5] => all_fails;
    "wait.empty_lists": [T5] => empty_lists;
}

fn never_early<S: Subject>(world: &World<S>) -> Verdict {
    let line = world.timeline("line")?;
    for timeout in [0, 1, 999, 1_000_000, 7_654_321].map(Duration::from_nanos) {
        for mode in [WaitMode::Spin, WaitMode::Block, WaitMode::Adaptive] {
            let start = Instant::now();
            let ended = line.at(1).wait_with(mode, timeout);
            let took = start.elapsed();
            check_error!(
                ended,
                Error::TimedOut {
                    value: 1,
                    reached: 0,
                    ..
                }
            );
            check!(
                took >= timeout,
                "{mode:?} timed out after {took:?} instead of {timeout:?}"
            );
        }
    }
    Ok(())
}

fn changes_nothing<S: Subject>(world: &World<S>) -> Verdict {
    let line = world.timeline("line")?;
    let queue = world.right_queue("right")?;
    for n in 1..=50 {
        check_error!(
            line.at(n).wait(Duration::from_micros(50)),
            Error::TimedOut { .. }
        );
        queue.submit(&[], |_| Ok(()), &[line.signal_at(n)])?;
        line.at(n).wait(patience())?;
        check!(
            line.value()? == n,
            "the value is {} after signal {n}",
            line.value()?
        );
    }
    Ok(())
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
    for mode in [WaitMode::Spin, WaitMode::Block, WaitMode::Adaptive] {
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
        // Reached already: no time at all is enough.
        line.at(1).wait_with(mode, Duration::ZERO)?;
    }
    Ok(())
}

fn any_lowest<S: Subject>(world: &World<S>) -> Verdict {
    let (a, b, c) = (
        world.timeline("a")?,
        world.timeline("b")?,
        world.timeline("c")?,
    );
    let queue = world.right_queue("right")?;
    let points = [a.at(1), b.at(1), c.at(1)];
    check_error!(wait_any(&points, Duration::ZERO), Error::TimedOut { .. });
    queue.submit(&[], |_| Ok(()), &[c.signal_at(1)])?;
    let index = wait_any(&points, patience())?;
    check!(index == 2, "index {index} is named, but only 2 is reached");
    queue.submit(&[], |_| Ok(()), &[b.signal_at(1)])?;
    b.at(1).wait(patience())?;
    let index = wait_any(&points, patience())?;
    check!(
        index == 1,
        "index {index} is named, but 1 is the lowest reached"
    );
    let twice = [a.at(1), b.at(1), b.at(1), c.at(1)];
    check!(
        wait_any(&twice, patience())? == 1,
        "a duplicate changed the answer"
    );
    check_error!(
        wait_all(&points, Duration::from_millis(1)),
        Error::TimedOut { .. }
    );
    a.signal(1)?;
    wait_all(&points, patience())?;
    Ok(())
}

fn any_prefers<S: Subject>(world: &World<S>) -> Verdict {
    let (a, b, c) = (
        world.timeline("a")?,
        world.timeline("b")?,
        world.timeline("c")?,
    );
    a.fail(cause("a failed"));
    b.fail(cause("b failed"));
    match wait_any(&[c.at(1), b.at(1), a.at(1)], patience()) {
        Err(Error::Failed { cause, .. }) if cause.to_string().contains("b failed") => {}
        other => return Stop::fail(format!("the lowest failure is b's, but: {other:?}")),
    }
    c.signal(1)?;
    let index = wait_any(&[a.at(1), b.at(1), c.at(1)], patience())?;
    check!(
        index == 2,
        "index {index} is named instead of the reached one"
    );
    check!(
        wait_any(&[a.at(0), c.at(1)], patience())? == 0,
        "a value reached before the failure is not reached"
    );
    Ok(())
}

fn all_fails<S: Subject>(world: &World<S>) -> Verdict {
    let (a, b) = (world.timeline("a")?, world.timeline("b")?);
    thread::scope(|scope| {
        // The first point stays open for ever.
        let waiter = scope.spawn(|| wait_all(&[a.at(1), b.at(1)], patience()));
        b.fail(cause("b failed"));
        let ended = waiter.join().unwrap_or(Err(Error::NothingToWaitFor));
        check_error!(ended, Error::Failed { cause, .. } if cause.to_string().contains("b failed"));
        Ok(())
    })
}

fn empty_lists<S: Subject>(world: &World<S>) -> Verdict {
    wait_all::<S>(&[], Duration::ZERO)?;
    check_error!(wait_any::<S>(&[], patience()), Error::NothingToWaitFor);
    Point::<S>::EMPTY.wait(Duration::ZERO)?;
    let queue = world.left_queue("left")?;
    queue
        .submit(&[Point::EMPTY], |_| Ok(()), &[])?
        .end()
        .wait(patience())?;
    Ok(())
}
