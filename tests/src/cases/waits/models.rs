//! T5, T6: random lists, and waits of many threads at once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use syncline::Error;

use crate::blocked::{Unstick, join_all};
use crate::case::{Stop, Verdict, cases, check, check_eq};
use crate::cases::cause;
use crate::dice::{Dice, seeds};
use crate::user::{Timeline, wait_all, wait_any};
use crate::{Subject, World, patience};

cases! {
    "wait.random_lists_against_a_model": [T5] => random_lists;
    "wait.overlapping_lists_from_many_threads": [T5 T6] => overlapping(dice);
}

/// The expected end of a wait with no time.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Ok(usize),
    Failed(u64),
    TimedOut(u64),
}

impl End {
    fn of(ended: syncline::Result<usize>) -> Result<Self, Stop> {
        match ended {
            Ok(index) => Ok(Self::Ok(index)),
            Err(Error::Failed { timeline, .. }) => Ok(Self::Failed(timeline.id())),
            Err(Error::TimedOut { object, .. }) => Ok(Self::TimedOut(object.id())),
            Err(other) => Stop::fail(format!("neither reached, failed nor timed out: {other}")),
        }
    }
}

/// A line and what the host has done with it.
struct Known<S> {
    line: Timeline<S>,
    reached: u64,
    failed: bool,
}

fn random_lists<S: Subject>(world: &World<S>) -> Verdict {
    const LINES: usize = 32;
    const STEPS: usize = 250;
    seeds(3, |dice| {
        let mut known = Vec::new();
        for n in 0..LINES {
            let line = match n % 3 {
                0 => world.timeline("of both")?,
                1 => world.left.timeline("of the left")?,
                _ => world.right.timeline("of the right")?,
            };
            known.push(Known {
                line,
                reached: 0,
                failed: false,
            });
        }
        for step in 0..STEPS {
            let one = &mut known[dice.index(LINES)];
            if !one.failed {
                one.reached += 1 + dice.below(3);
                one.line.signal(one.reached)?;
                if dice.one_in(20) {
                    one.failed = true;
                    one.line.fail(cause("thrown"));
                }
            }
            let list: Vec<(&Known<S>, u64)> = (0..=dice.below(8))
                .map(|_| {
                    let one = &known[dice.index(LINES)];
                    (one, (one.reached + dice.below(4)).saturating_sub(2))
                })
                .collect();
            let points: Vec<_> = list
                .iter()
                .map(|&(one, value)| one.line.at(value))
                .collect();
            let is_reached = |&(one, value): &(&Known<S>, u64)| value <= one.reached;
            let id = |(one, _): &(&Known<S>, u64)| one.line.object().id();
            let failed = list
                .iter()
                .find(|point| point.0.failed && !is_reached(point));
            let open = list.iter().find(|point| !is_reached(point));
            let rest = || match (failed, open) {
                (Some(point), _) => End::Failed(id(point)),
                (None, Some(point)) => End::TimedOut(id(point)),
                (None, None) => End::Ok(0),
            };
            let any = list.iter().position(is_reached).map_or_else(rest, End::Ok);
            let found = End::of(wait_any(&points, Duration::ZERO))?;
            check_eq!(found, any, "step {step}, points {points:?}");
            let all = rest();
            let found = End::of(wait_all(&points, Duration::ZERO).map(|()| 0))?;
            check_eq!(found, all, "step {step}, points {points:?}");
        }
        Ok(())
    })
}

fn overlapping<S: Subject>(world: &World<S>, dice: &mut Dice) -> Verdict {
    const LINES: usize = 8;
    const THREADS: usize = 16;
    let rounds = if world.is_pair() { 10 } else { 50 };
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    let lines = world.numbered(LINES, "line")?;
    let through = AtomicUsize::new(0);
    thread::scope(|scope| {
        let all: Vec<_> = lines.iter().collect();
        let _unstick = Unstick(&all);
        let waiters: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (lines, through) = (&lines, &through);
                let mut dice = dice.fork();
                scope.spawn(move || {
                    for round in 1..=rounds {
                        let mut points: Vec<_> = lines.iter().map(|line| line.at(round)).collect();
                        dice.shuffle(&mut points);
                        points.truncate(1 + dice.index(LINES));
                        if thread % 2 == 0 {
                            wait_all(&points, patience())?;
                            for point in &points {
                                check!(point.is_reached()?, "all ended before {point:?}");
                            }
                        } else {
                            let named = points[wait_any(&points, patience())?];
                            check!(named.is_reached()?, "any named {named:?}");
                        }
                        through.fetch_add(1, Ordering::SeqCst);
                    }
                    Ok(())
                })
            })
            .collect();
        for round in 1..=rounds {
            let mut order: Vec<_> = lines.iter().collect();
            dice.shuffle(&mut order);
            for line in order {
                match dice.below(3) {
                    0 => line.signal(round)?,
                    1 => drop(left.signal(line, round)?),
                    _ => drop(right.signal(line, round)?),
                }
            }
            // Otherwise the last rounds would be over before the first waits have begun.
            let everybody = round as usize * THREADS;
            while through.load(Ordering::SeqCst) < everybody {
                if waiters.iter().all(|waiter| waiter.is_finished()) {
                    break;
                }
                thread::yield_now();
            }
        }
        join_all(waiters)
    })
}
