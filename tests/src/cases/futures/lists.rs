//! Futures for any or all points of a list.

use std::task::Poll;
use std::time::Duration;

use syncline::Error;
use syncline::backend::Device as _;

use crate::case::{Stop, Verdict, cases, check, check_error};
use crate::cases::cause;
use crate::dice::seeds;
use crate::executor::{Count, block_on, poll};
use crate::user::{Point, Timeline, all, any, wait_all, wait_any};
use crate::{Subject, World};

cases! {
    "future.any_and_all_of_both_sides": [T8 T5] => both_sides;
    "future.any_wakes_for_each_index": [T8 T5 T6] => each_index;
}

/// The result of a non-blocking wait, or of a future that is polled once.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Reached(usize),
    Failed(u64),
    Open,
}

fn said(answer: syncline::Result<usize>) -> Result<Said, Stop> {
    match answer {
        Ok(index) => Ok(Said::Reached(index)),
        Err(Error::TimedOut { .. }) => Ok(Said::Open),
        Err(Error::Failed { timeline, .. }) => Ok(Said::Failed(timeline.id())),
        Err(other) => Stop::fail(format!("an answer of no kind that was due: {other}")),
    }
}

fn polled(answer: Poll<syncline::Result<usize>>) -> Result<Said, Stop> {
    match answer {
        Poll::Ready(answer) => said(answer),
        Poll::Pending => Ok(Said::Open),
    }
}

/// Creates timelines with every home: both sides, each side, and a device of the host.
fn lines<S: Subject>(world: &World<S>) -> syncline::Result<Vec<Timeline<S>>> {
    let host = syncline::host::Device::new();
    Ok(vec![
        world.timeline("of both")?,
        world.left.timeline("of the left")?,
        world.right.timeline("of the right")?,
        world.left.own(host.timeline("of the host")?),
    ])
}

/// Random lists. Futures give the same results as waits of threads.
fn both_sides<S: Subject>(world: &World<S>) -> Verdict {
    seeds(3, |dice| {
        let lines = lines(world)?;
        let mut values = vec![0; lines.len()];
        let count = Count::new();
        for step in 0..60 {
            let which = dice.index(lines.len());
            let (line, value) = (&lines[which], &mut values[which]);
            if step == 50 {
                line.fail(cause("one of them"));
                *value = u64::MAX;
            } else if *value < u64::MAX {
                *value += 1 + dice.below(2);
                line.signal(*value)?;
            }
            let mut points = Vec::new();
            for _ in 0..1 + dice.below(6) {
                let which = dice.index(lines.len());
                let around = lines[which].frozen_value() + dice.below(3);
                points.push(lines[which].at(around.saturating_sub(1)));
                if dice.one_in(8) {
                    points.push(Point::EMPTY);
                }
                if dice.one_in(4) {
                    points.push(points[0]);
                }
            }
            let expected = said(wait_any(&points, Duration::ZERO))?;
            let found = polled(poll(&mut any(&points), &count))?;
            check!(
                found == expected,
                "any of {points:?} is {found:?}, but {expected:?} for a thread"
            );
            let expected = said(wait_all(&points, Duration::ZERO).map(|()| 0))?;
            let found = polled(poll(&mut all(&points), &count).map_ok(|()| 0))?;
            check!(
                found == expected,
                "all of {points:?} is {found:?}, but {expected:?} for a thread"
            );
        }
        check!(count.woken() == 0, "dropped futures were woken");
        Ok(())
    })
}

fn each_index<S: Subject>(world: &World<S>) -> Verdict {
    let lines = lines(world)?;
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    let mut values = vec![0; lines.len()];
    for how in 0..3 {
        for index in 0..lines.len() {
            // Each point twice. The lowest index counts.
            let next = lines
                .iter()
                .zip(&values)
                .map(|(line, value)| line.at(value + 1));
            let mut points: Vec<_> = next.collect();
            points.extend(points.clone());
            let (early, late) = (Count::new(), Count::new());
            let (mut one, mut every) = (any(&points), all(&points));
            check!(
                poll(&mut one, &early).is_pending() && poll(&mut every, &late).is_pending(),
                "ready before any signal"
            );
            let signal = |which: usize, value: u64| {
                let line = &lines[which];
                match how {
                    0 => line.signal(value),
                    1 => left
                        .submit(&[], |_| Ok(()), &[line.signal_at(value)])
                        .map(drop),
                    _ => right
                        .submit(&[], |_| Ok(()), &[line.signal_at(value)])
                        .map(drop),
                }
            };
            values[index] += 1;
            signal(index, values[index])?;
            early.wait_for(1)?;
            let named = block_on(one)??;
            check!(named == index, "{index} was signalled, {named} is named");
            check!(
                poll(&mut every, &late).is_pending(),
                "all is ready after one of {}",
                lines.len()
            );
            for other in (0..lines.len()).filter(|&other| other != index) {
                values[other] += 1;
                signal(other, values[other])?;
            }
            block_on(every)??;
        }
    }
    // Of failed points the lowest index counts. A future of all fails with the first that is seen.
    for line in &lines[..2] {
        line.fail(cause("both"));
    }
    let points = [lines[2].at(1000), lines[1].at(1000), lines[0].at(1000)];
    check_error!(
        block_on(any(&points))?,
        Error::Failed { timeline, .. } if &timeline == lines[1].object()
    );
    check_error!(
        block_on(all(&points))?,
        Error::Failed { timeline, .. } if &timeline == lines[1].object()
    );
    Ok(())
}
