//! T1, T7: the values that a timeline has, and those that it can get.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use syncline::{Error, WaitMode};

use super::super::spies::{Plain, Spy};
use super::largest_step;
use crate::blocked::{Unstick, blocked, join, join_all};
use crate::case::{Verdict, cases, check, check_eq, check_error};
use crate::dice::seeds;
use crate::user::{Timeline, wait_all, wait_any};
use crate::{Subject, World, patience};

cases! {
    "timeline.initial_value": [T1] => initial_value;
    "timeline.a_counter_of_all_ones_is_lost": [T1 E5] => lost;
    "timeline.random_host_steps": [T1 T2 T4] => random_host_steps;
    "timeline.across_31_and_32_bits": [T1 T6 T7] => across_bits;
    "timeline.up_to_the_largest_value": [T1 T2 T7 E5] => up_to_the_largest;
    "timeline.the_smallest_limit_of_its_ports": [T7] => smallest_limit;
    "timeline.jumps_by_the_limit_under_readers": [T7 T1] => jumps_by_the_limit;
}

fn initial_value<S: Subject>(world: &World<S>) -> Verdict {
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    for initial in [
        0,
        1,
        u64::from(u32::MAX),
        1 << 32,
        (1 << 63) + 7,
        u64::MAX - 3,
    ] {
        let line = world.timeline_from("initial", initial)?;
        check_eq!(line.value()?, initial);
        line.at(initial).wait(std::time::Duration::ZERO)?;
        check!(!line.at(initial + 1).is_reached()?);
        left.submit_empty(&[line.at(initial)], &[line.signal_at(initial + 1)])?;
        right.submit_empty(&[line.at(initial + 1)], &[line.signal_at(initial + 2)])?;
        line.at(initial + 2).wait(patience())?;
        check_eq!(line.value()?, initial + 2);
    }
    Ok(())
}

/// Reached values stay. Waits, queries and signals fail with a lost device.
///
/// The value that means a lost device is never reported.
fn lost<S: Subject>(world: &World<S>) -> Verdict {
    let spy = Arc::new(Spy::default());
    let (line, after) = (spy.timeline(world, true)?, world.timeline("after")?);
    let queue = world.right_queue("right")?;
    line.signal(3)?;
    queue.submit_empty(&[line.at(4)], &[after.signal_at(1)])?;
    thread::scope(|scope| {
        let _unstick = Unstick(&[&line]);
        // This thread polls itself, because this port is not watched.
        let waiter = scope.spawn(|| line.at(5).wait_with(WaitMode::Spin, patience()));
        let parked = blocked(scope, || line.at(6).wait_with(WaitMode::Block, patience()))?;
        spy.lose();
        for ended in [
            join(waiter)?,
            join(parked)?,
            line.value().map(drop),
            line.at(4).is_reached().map(drop),
            line.at(40).wait(patience()),
            line.signal(4),
            after.at(1).wait(patience()),
        ] {
            check_error!(
                ended,
                Error::Failed { cause, .. } if matches!(&*cause, Error::DeviceLost { .. })
            );
        }
        Ok(())
    })?;
    line.at(3).wait(Duration::ZERO)?;
    let frozen = line.frozen_value();
    check!(frozen == 3, "it froze at {frozen} instead of 3");
    queue.idle(patience())?;
    Ok(())
}

/// Two ports have different limits, and each of them is the home once.
fn smallest_limit<S: Subject>(world: &World<S>) -> Verdict {
    const LIMITS: [u64; 2] = [100, 40];
    for (home, other) in [(0, 1), (1, 0)] {
        let line = syncline::Timeline::new("narrow", 7, |initial| {
            let first = world.left.port(initial)?;
            let first = first.with_max_value_difference(LIMITS[home]);
            let second = Plain::second_port(initial, LIMITS[other]);
            Ok([first, second].into_iter().collect())
        })?;
        let line = world.left.own(line);
        let queue = world.left_queue("left")?;
        let (last, beyond) = (7 + LIMITS[1], 8 + LIMITS[1]);
        for refused in [
            line.signal(beyond),
            line.at(beyond).wait(Duration::ZERO),
            queue.signal(&line, beyond).map(drop),
            queue.submit_empty(&[line.at(beyond)], &[]).map(drop),
        ] {
            check_error!(
                refused,
                Error::ValueOutOfRange { asked, reached: 7, largest, .. }
                    if (asked, largest) == (beyond, last)
            );
        }
        check_error!(line.at(last).wait(Duration::ZERO), TimedOut);
        queue.signal(&line, last)?;
        line.at(last).wait(patience())?;
    }
    Ok(())
}

fn random_host_steps<S: Subject>(world: &World<S>) -> Verdict {
    let limit = largest_step(world);
    seeds(3, |dice| {
        let mut value = dice.below(1000);
        let line = world.timeline_from("line", value)?;
        for step in 0..100 {
            value += match dice.below(4) {
                0 => 1,
                1 => 1 + dice.below(limit.min(1 << 40)),
                _ => 1 + dice.below(1000),
            };
            line.signal(value)?;
            let found = line.value()?;
            check_eq!(found, value, "step {step}");
            line.at(value).wait(Duration::ZERO)?;
            line.at(value - 1).wait(Duration::ZERO)?;
            check_error!(
                line.at(value + 1).wait(Duration::ZERO),
                Error::TimedOut { value: asked, reached, .. }
                    if (asked, reached) == (value + 1, value)
            );
        }
        Ok(())
    })
}

/// Reads the value until it is `last`. It never decreases, and `signalled` accepts every value.
fn read_until<S: Subject>(
    line: &Timeline<S>,
    last: u64,
    signalled: impl Fn(u64) -> bool,
) -> Verdict {
    let mut before = 0;
    let mut deadline = Instant::now() + patience();
    while before < last {
        let value = line.value()?;
        check!(value >= before, "it went back from {before} to {value}");
        check!(signalled(value), "{value} was never signalled");
        if value > before {
            deadline = Instant::now() + patience();
        }
        check!(Instant::now() < deadline, "value {value}, last {last}");
        before = value;
        thread::yield_now();
    }
    Ok(())
}

fn across_bits<S: Subject>(world: &World<S>) -> Verdict {
    const STEPS: u64 = 6;
    let limit = largest_step(world);
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    for border in [1_u64 << 31, 1 << 32, 1 << 63] {
        let first = border - 3;
        let steps_end = first + STEPS;
        let last = steps_end + limit.min((1 << 32) + 5);
        let line = world.timeline_from("across", first)?;
        // Comparisons that are too narrow, or cyclic, treat these as reached.
        let far: Vec<u64> = [
            1_u64 << 31,
            (1 << 31) + 1,
            (1 << 32) - STEPS,
            1 << 32,
            1 << 62,
        ]
        .into_iter()
        .filter(|&distance| STEPS + distance <= limit)
        .map(|distance| steps_end + distance)
        .chain([last])
        .collect();
        thread::scope(|scope| {
            let _unstick = Unstick(&[&line]);
            let line = &line;
            let mut threads: Vec<_> = (0..4)
                .map(|_| {
                    let signalled =
                        move |value| value == last || (first..=steps_end).contains(&value);
                    scope.spawn(move || read_until(line, last, signalled))
                })
                .collect();
            for value in (1..=STEPS).map(|n| first + n).chain([last]) {
                threads.push(blocked(scope, move || {
                    line.at(value).wait(patience())?;
                    let found = line.value()?;
                    check!(found >= value, "woken for {value} at {found}");
                    Ok(())
                })?);
            }
            let held = right.submit_empty(&[line.at(last)], &[])?;
            check!(held.is_held(), "a wait for {last} is let go at {first}");
            for n in 1..=STEPS {
                let value = first + n;
                match n % 3 {
                    0 => line.signal(value)?,
                    1 => drop(left.signal(line, value)?),
                    _ => {
                        let next = line.signal_at(value);
                        left.submit_empty(&[line.at(value - 1)], &[next])?;
                    }
                }
                line.at(value).wait(patience())?;
                let found = line.value()?;
                check!(found == value, "signalled to {value}, it is at {found}");
                for above in [value + 1].iter().chain(&far) {
                    check!(!line.at(*above).is_reached()?, "value {value}");
                    check_error!(
                        line.at(*above).wait(Duration::ZERO),
                        Error::TimedOut { reached, .. } if reached == value
                    );
                }
                for below in [0, 1, first - 1, first, value - 1] {
                    check!(line.at(below).is_reached()?, "value {value}");
                }
            }
            check!(right.held().count == 1, "a wait for {last} was let go");
            left.signal(line, last)?;
            right.idle(patience())?;
            line.at(last).wait(patience())?;
            join_all(threads)
        })?;
    }
    Ok(())
}

fn up_to_the_largest<S: Subject>(world: &World<S>) -> Verdict {
    const LARGEST: u64 = u64::MAX - 1;
    const FIRST: u64 = LARGEST - 4;
    check_error!(world.timeline_from("all ones", u64::MAX), ValueOutOfRange);
    let line = world.timeline_from("line", FIRST)?;
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    thread::scope(|scope| {
        let unstick = Unstick(&[&line]);
        let readers: Vec<_> = (0..3)
            .map(|_| scope.spawn(|| read_until(&line, LARGEST, |value| value >= FIRST)))
            .collect();
        let end = right.submit_empty(&[line.at(LARGEST)], &[])?.end();
        line.signal(FIRST + 1)?;
        left.signal(&line, FIRST + 2)?;
        left.signal(&line, FIRST + 3)?;
        check!(!line.at(LARGEST).is_reached()?);
        left.submit_empty(&[line.at(FIRST + 3)], &[line.signal_at(LARGEST)])?;
        line.at(LARGEST).wait(patience())?;
        end.wait(patience())?;
        join_all(readers)?;
        unstick.done();
        Ok(())
    })?;
    for queue in [&left, &right] {
        for value in [0, 1, FIRST, LARGEST] {
            check_error!(
                queue.signal(&line, value),
                Error::SignalNotAboveReached { asked, reached: LARGEST, .. } if asked == value
            );
        }
        check_error!(
            queue.signal(&line, u64::MAX),
            Error::ValueOutOfRange {
                asked: u64::MAX,
                reached: LARGEST,
                largest: LARGEST,
                ..
            }
        );
        check_error!(
            queue.submit_empty(&[line.at(u64::MAX)], &[]),
            Error::ValueOutOfRange {
                asked: u64::MAX,
                ..
            }
        );
        queue.submit_empty(&[line.at(LARGEST)], &[])?;
        queue.idle(patience())?;
    }
    check_error!(
        line.signal(LARGEST),
        Error::SignalNotAboveReached {
            asked: LARGEST,
            reached: LARGEST,
            ..
        }
    );
    check_error!(
        line.signal(u64::MAX),
        Error::ValueOutOfRange {
            asked: u64::MAX,
            reached: LARGEST,
            largest: LARGEST,
            ..
        }
    );
    let beyond = line.at(u64::MAX);
    check_error!(beyond.wait(patience()), ValueOutOfRange);
    check_error!(wait_all(&[line.at(0), beyond], patience()), ValueOutOfRange);
    check_error!(wait_any(&[beyond, beyond], patience()), ValueOutOfRange);
    let found = line.value()?;
    check!(found == LARGEST, "refused signals moved it to {found}");
    Ok(())
}

/// If no driver has a limit that can be reached, the port gets one.
fn jumps_by_the_limit<S: Subject>(world: &World<S>) -> Verdict {
    const NARROW: u64 = 100;
    let narrow = syncline::Timeline::new("narrow", 0, |initial| {
        let home = world.left.port(initial)?;
        Ok([home.with_max_value_difference(NARROW)]
            .into_iter()
            .collect())
    })?;
    jump(world, &world.left.own(narrow), NARROW, 40)?;
    let own = largest_step(world);
    if own < 1 << 58 {
        jump(world, &world.timeline("as the device has it")?, own, 10)?;
    }
    Ok(())
}

fn jump<S: Subject>(world: &World<S>, line: &Timeline<S>, limit: u64, rounds: u64) -> Verdict {
    const SMALL: u64 = 10;
    let queue = world.left_queue("left")?;
    let round_length = SMALL + limit;
    thread::scope(|scope| {
        let _unstick = Unstick(&[line]);
        let signalled = move |value| value % round_length <= SMALL;
        let readers: Vec<_> = (0..2)
            .map(|_| scope.spawn(move || read_until(line, rounds * round_length, signalled)))
            .collect();
        for start in (0..rounds).map(|round| round * round_length) {
            for n in 1..=SMALL {
                queue.signal(line, start + n)?;
            }
            let reached = start + SMALL;
            line.at(reached).wait(patience())?;
            let (last, beyond) = (reached + limit, reached + limit + 1);
            check_error!(
                queue.signal(line, beyond),
                Error::ValueOutOfRange { asked, reached: at, largest, .. }
                    if (asked, at, largest) == (beyond, reached, last)
            );
            check_error!(line.signal(beyond), ValueOutOfRange);
            check_error!(line.at(beyond).wait(patience()), ValueOutOfRange);
            queue.signal(line, last)?;
            line.at(last).wait(patience())?;
        }
        join_all(readers)
    })
}
