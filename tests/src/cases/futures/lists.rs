//! Futures for any or all points of a list.

use std::task::Poll;
use std::time::Duration;

use syncline::Error;
use syncline::backend::Device as _;

use crate::case::{Stop, Verdict, cases, check, check_eq};
use crate::cases::cause;
use crate::dice::seeds;
use crate::executor::{Count, poll};
use crate::user::{Timeline, all, any, wait_all, wait_any};
use crate::{Subject, World};

cases! {
    "future.any_and_all_of_both_sides": [T8 T5 T6] => both_sides;
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
                    points.push(world.left.empty_point());
                }
                if dice.one_in(4) {
                    points.push(points[0]);
                }
            }
            let expected = said(wait_any(&points, Duration::ZERO))?;
            let found = polled(poll(&mut any(&points), &count))?;
            check_eq!(found, expected, "points {points:?}");
            let expected = said(wait_all(&points, Duration::ZERO).map(|()| 0))?;
            let found = polled(poll(&mut all(&points), &count).map_ok(|()| 0))?;
            check_eq!(found, expected, "points {points:?}");
        }
        check!(count.woken() == 0, "dropped futures were woken");
        Ok(())
    })
}
