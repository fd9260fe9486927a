//! T5: waits for any or all points of a list.

use std::thread;
use std::time::Duration;

use syncline::Error;

use crate::blocked::{blocked, join};
use crate::case::{Stop, Verdict, cases, check, check_error};
use crate::cases::cause;
use crate::dice::Dice;
use crate::user::{Point, Timeline, wait_all, wait_any};
use crate::{Subject, World, patience};

cases! {
    "wait.any_names_the_lowest_reached": [T5] => any_lowest;
    "wait.any_prefers_reached_to_failed": [T5] => any_prefers;
    "wait.all_fails_at_the_first_failure": [T5] => all_fails;
    "wait.empty_lists": [T5] => empty_lists;
    "wait.any_wakes_for_each_index": [T5 T6] => each_index;
    "wait.ties_name_the_lowest": [T5] => ties(dice);
    "wait.duplicates_and_empty_points": [T5] => duplicates;
    "wait.current_and_lesser_values": [T6 T7] => current_and_lesser;
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
        // The first point is never reached.
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

/// Returns lines of both sides and of one, in turn.
fn some_lines<S: Subject>(world: &World<S>, count: usize) -> syncline::Result<Vec<Timeline<S>>> {
    let line = |n: usize| match n % 3 {
        0 => world.timeline(&format!("line {n}")),
        1 => world.left.timeline(&format!("line {n}")),
        _ => world.right.timeline(&format!("line {n}")),
    };
    (0..count).map(line).collect()
}

fn each_index<S: Subject>(world: &World<S>) -> Verdict {
    let lines = some_lines(world, 8)?;
    let queue = world.left_queue("left")?;
    let mut values = vec![0; lines.len()];
    for by_queue in [false, true] {
        for index in 0..lines.len() {
            let next = lines
                .iter()
                .zip(&values)
                .map(|(line, value)| line.at(value + 1));
            let points: Vec<_> = next.collect();
            thread::scope(|scope| {
                let waiter = blocked(scope, || wait_any(&points, patience()))?;
                values[index] += 1;
                if by_queue {
                    let signal = lines[index].signal_at(values[index]);
                    queue.submit(&[], |_| Ok(()), &[signal])?;
                } else {
                    lines[index].signal(values[index])?;
                }
                let named = join(waiter)??;
                check!(named == index, "{index} was signalled, {named} is named");
                Ok(())
            })?;
        }
    }
    Ok(())
}

/// One signal reaches every point of the list at once.
fn ties<S: Subject>(world: &World<S>, dice: &mut Dice) -> Verdict {
    let line = world.timeline("line")?;
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    for (round, base) in (0..12).map(|round| (round, round * 3)) {
        let mut values = vec![base + 3, base + 2, base + 1];
        if round >= 3 {
            values.extend([base + 1, base + 3]);
            dice.shuffle(&mut values);
        }
        let points: Vec<_> = values.iter().map(|&value| line.at(value)).collect();
        thread::scope(|scope| {
            let waiters = [
                blocked(scope, || wait_any(&points, patience()))?,
                blocked(scope, || wait_any(&points, patience()))?,
            ];
            match round % 3 {
                0 => line.signal(base + 3)?,
                1 => drop(left.submit(&[], |_| Ok(()), &[line.signal_at(base + 3)])?),
                _ => drop(right.submit(&[], |_| Ok(()), &[line.signal_at(base + 3)])?),
            }
            for waiter in waiters {
                let named = join(waiter)??;
                check!(
                    named == 0,
                    "of {values:?}, reached at once, {named} is named"
                );
            }
            wait_all(&points, Duration::ZERO)?;
            let named = wait_any(&points, Duration::ZERO)?;
            check!(named == 0, "of {values:?}, all reached, {named} is named");
            Ok(())
        })?;
    }
    Ok(())
}

fn duplicates<S: Subject>(world: &World<S>) -> Verdict {
    let (line, open) = (world.timeline("line")?, world.timeline("open")?);
    let queue = world.right_queue("right")?;
    for value in 1..=4 {
        let many = vec![line.at(value); 1000];
        check_error!(wait_any(&many, Duration::ZERO), Error::TimedOut { .. });
        check_error!(wait_all(&many, Duration::ZERO), Error::TimedOut { .. });
        let (signal, last) = (line.signal_at(value), value == 4);
        thread::scope(|scope| {
            let any = blocked(scope, || wait_any(&many, patience()))?;
            let all = blocked(scope, || wait_all(&many, patience()))?;
            if last {
                line.fail(cause("all of them"));
                check_error!(join(any)?, Error::Failed { .. });
                check_error!(join(all)?, Error::Failed { .. });
                return Ok(());
            }
            queue.submit(&[], |_| Ok(()), &[signal])?;
            let named = join(any)??;
            check!(named == 0, "of equal points {named} is named");
            join(all)??;
            Ok(())
        })?;
    }
    // An empty point is reached. A wait for any point names it, and a wait for all skips it.
    let empty = Point::<S>::EMPTY;
    let named = wait_any(&[open.at(1), empty, open.at(2), empty], patience())?;
    check!(named == 1, "{named} is named instead of the empty point");
    wait_all(&[empty, empty], Duration::ZERO)?;
    check_error!(
        wait_all(&[empty, open.at(1), empty], Duration::from_millis(1)),
        Error::TimedOut { value: 1, .. }
    );
    // One line at several values, some of which are reached.
    open.signal(2)?;
    let mixed = [open.at(3), open.at(2), open.at(1), open.at(0), open.at(4)];
    let named = wait_any(&mixed, Duration::ZERO)?;
    check!(named == 1, "{named} is named, but 1 is the lowest reached");
    wait_all(&mixed[1..4], Duration::ZERO)?;
    thread::scope(|scope| {
        let all = blocked(scope, || wait_all(&mixed, patience()))?;
        queue.submit(&[], |_| Ok(()), &[open.signal_at(3)])?;
        open.at(3).wait(patience())?;
        check!(!all.is_finished(), "all ended at 3 of 4");
        queue.submit(&[], |_| Ok(()), &[open.signal_at(9)])?;
        join(all)?.map_err(Stop::from)
    })
}

fn current_and_lesser<S: Subject>(world: &World<S>) -> Verdict {
    let lines = some_lines(world, 5)?;
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    for (line, value) in lines.iter().zip(3..) {
        left.submit(&[], |_| Ok(()), &[line.signal_at(value)])?;
        line.at(value).wait(patience())?;
    }
    for below in 0..4 {
        let points = lines
            .iter()
            .zip(3..)
            .map(|(line, value)| line.at(value - below));
        let mut points: Vec<_> = points.collect();
        wait_all(&points, Duration::ZERO)?;
        let named = wait_any(&points, Duration::ZERO)?;
        check!(named == 0, "of reached points {named} is named");
        points.insert(0, lines[0].at(100));
        let named = wait_any(&points, Duration::ZERO)?;
        check!(named == 1, "behind an open point {named} is named");
        for queue in [&left, &right] {
            let submitted = queue.submit(&points[1..], |_| Ok(()), &[])?;
            check!(!submitted.is_held(), "held for what was reached long ago");
            submitted.end().wait(patience())?;
        }
    }
    Ok(())
}
