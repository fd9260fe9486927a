//! T5: waits for any or all points of a list.

use std::thread;
use std::time::Duration;

use syncline::Error;

use crate::blocked::{blocked, join};
use crate::case::{Stop, Verdict, cases, check, check_eq, check_error};
use crate::cases::cause;
use crate::dice::Dice;
use crate::user::{wait_all, wait_any};
use crate::{Subject, World, patience};

cases! {
    "wait.ties_name_the_lowest": [T5] => ties(dice);
    "wait.duplicates_and_empty_points": [T5] => duplicates;
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
                1 => drop(left.signal(&line, base + 3)?),
                _ => drop(right.signal(&line, base + 3)?),
            }
            for waiter in waiters {
                let named = join(waiter)??;
                check_eq!(named, 0, "values {values:?}");
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
        check_error!(wait_any(&many, Duration::ZERO), TimedOut);
        check_error!(wait_all(&many, Duration::ZERO), TimedOut);
        let (signal, last) = (line.signal_at(value), value == 4);
        thread::scope(|scope| {
            let any = blocked(scope, || wait_any(&many, patience()))?;
            let all = blocked(scope, || wait_all(&many, patience()))?;
            if last {
                line.fail(cause("all of them"));
                check_error!(join(any)?, Failed);
                check_error!(join(all)?, Failed);
                return Ok(());
            }
            queue.submit_empty(&[], &[signal])?;
            let named = join(any)??;
            check!(named == 0, "of equal points {named} is named");
            join(all)??;
            Ok(())
        })?;
    }
    wait_all::<S>(&[], Duration::ZERO)?;
    check_error!(wait_any::<S>(&[], patience()), Error::NothingToWaitFor);
    // An empty point is reached. A wait for any point names it, and a wait for all skips it.
    let empty = world.left.empty_point();
    queue.submit_empty(&[empty], &[])?.end().wait(patience())?;
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
        queue.signal(&open, 3)?;
        open.at(3).wait(patience())?;
        check!(!all.is_finished(), "all ended at 3 of 4");
        queue.signal(&open, 9)?;
        join(all)?.map_err(Stop::from)
    })
}
