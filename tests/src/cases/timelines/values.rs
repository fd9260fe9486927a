//! T1, T7: the values that a timeline has, and those that it can get.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use syncline::{Error, WaitMode};

use super::super::spies::{Plain, Spy};
use super::largest_step;
use crate::blocked::{Unstick, blocked, join, join_all};
use crate::case::{Verdict, cases, check, check_error};
use crate::dice::seeds;
use crate::user::{Timeline, wait_all, wait_any};
use crate::{Subject, World, patience};

cases! {
    "timeline.initial_value": [T1] => initial_value;
    "timeline.all_ones_is_no_value": [T1] => all_ones;
    "timeline.a_counter_of_all_ones_is_lost": [T1 E5] => lost;
    "timeline.monotone_under_readers": [T1 T6] => monotone;
    "timeline.host_signal_never_goes_back": [T1 T2 E5] => goes_back;
    "timeline.random_host_steps": [T1 T2 T4] => random_host_steps;
    "timeline.across_31_and_32_bits": [T1 T6] => across_bits;
    "timeline.up_to_the_largest_value": [T1 T2 T7] => up_to_the_largest;
    "timeline.far_values_are_not_reached": [T1 T7] => far;
    "timeline.difference_beyond_the_limit": [T7] => difference;
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
        check!(
            line.value()? == initial,
            "starts at {} instead of {initial}",
            line.value()?
        );
        line.at(initial).wait(std::time::Duration::ZERO)?;
        check!(
            !line.at(initial + 1).is_reached()?,
            "{} is reached from the start",
            initial + 1
        );
        left.submit(
            &[line.at(initial)],
            |_| Ok(()),
            &[line.signal_at(initial + 1)],
        )?;
        right.submit(
            &[line.at(initial + 1)],
            |_| Ok(()),
            &[line.signal_at(initial + 2)],
        )?;
        line.at(initial + 2).wait(patience())?;
        check!(
            line.value()? == initial + 2,
            "two signals on, it is at {}",
            line.value()?
        );
    }
    Ok(())
}

fn all_ones<S: Subject>(world: &World<S>) -> Verdict {
    check_error!(
        world.timeline_from("all ones", u64::MAX),
        Error::ValueOutOfRange { .. }
    );
    let line = world.timeline("line")?;
    check_error!(line.signal(u64::MAX), Error::ValueOutOfRange { .. });
    let queue = world.left_queue("left")?;
    check_error!(
        queue.submit(&[], |_| Ok(()), &[line.signal_at(u64::MAX)]),
        Error::ValueOutOfRange { .. }
    );
    check!(
        line.value()? == 0,
        "a refused signal moved the value to {}",
        line.value()?
    );
    line.signal(1)?;
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
    queue.submit(&[line.at(4)], |_| Ok(()), &[after.signal_at(1)])?;
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

fn monotone<S: Subject>(world: &World<S>) -> Verdict {
    const LAST: u64 = 200;
    let line = world.timeline("line")?;
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    thread::scope(|scope| {
        let _unstick = Unstick(&[&line]);
        let readers: Vec<_> = (0..3)
            .map(|_| scope.spawn(|| read_until(&line, LAST * 5, |value| value % 5 == 0)))
            .collect();
        for n in 1..=LAST {
            let queue = if n % 2 == 0 { &right } else { &left };
            queue.submit(&[], |_| Ok(()), &[line.signal_at(5 * n)])?;
        }
        join_all(readers)
    })
}

fn goes_back<S: Subject>(world: &World<S>) -> Verdict {
    let line = world.timeline("line")?;
    line.signal(9)?;
    for value in [0, 1, 5, 9] {
        check_error!(line.signal(value), Error::SignalNotAboveReached { asked, reached: 9, .. } if asked == value);
    }
    let queue = world.right_queue("right")?;
    check_error!(
        queue.submit(&[], |_| Ok(()), &[line.signal_at(4)]),
        Error::SignalNotAboveReached {
            asked: 4,
            reached: 9,
            ..
        }
    );
    check!(
        line.value()? == 9,
        "a refused signal moved the value to {}",
        line.value()?
    );
    queue.submit(&[line.at(9)], |_| Ok(()), &[line.signal_at(10)])?;
    line.at(10).wait(patience())?;
    Ok(())
}

/// Cyclic comparisons, or those of fewer bits, would treat a value far ahead as reached.
fn far<S: Subject>(world: &World<S>) -> Verdict {
    let limit = largest_step(world);
    for initial in [0, 5, u64::from(u32::MAX)] {
        let line = world.timeline_from("line", initial)?;
        let powers = [31, 32, 33, 63].map(|bits| 1_u64 << bits);
        let near = powers
            .iter()
            .flat_map(|&power| [power - 1, power, power + 1]);
        for ahead in near.filter(|&ahead| ahead <= limit) {
            let value = initial + ahead;
            check!(
                !line.at(value).is_reached()?,
                "{value} is reached on a timeline at {initial}"
            );
            check_error!(line.at(value).wait(Duration::ZERO), Error::TimedOut { .. });
        }
    }
    Ok(())
}

/// No available driver has a limit that a test could reach, so the port gets one.
fn difference<S: Subject>(world: &World<S>) -> Verdict {
    const LIMIT: u64 = 100;
    for initial in [0, 1 << 40] {
        let line = syncline::Timeline::new("narrow", initial, |initial| {
            let home = world.left.port(initial)?;
            Ok([home.with_max_value_difference(LIMIT)]
                .into_iter()
                .collect())
        })?;
        let line = world.left.own(line);
        let queue = world.left_queue("left")?;
        let (last, beyond) = (initial + LIMIT, initial + LIMIT + 1);
        check_error!(
            line.signal(beyond),
            Error::ValueOutOfRange { asked, reached, largest, .. }
                if (asked, reached, largest) == (beyond, initial, last)
        );
        check_error!(
            queue.submit(&[], |_| Ok(()), &[line.signal_at(beyond)]),
            Error::ValueOutOfRange { .. }
        );
        check_error!(
            queue.submit(&[line.at(beyond)], |_| Ok(()), &[]),
            Error::ValueOutOfRange { .. }
        );
        check_error!(
            line.at(beyond).wait(patience()),
            Error::ValueOutOfRange { .. }
        );
        check!(
            line.value()? == initial,
            "a refused value moved it to {}",
            line.value()?
        );
        queue.submit(&[], |_| Ok(()), &[line.signal_at(last)])?;
        line.at(last).wait(patience())?;
        // The value that was beyond the limit is within it now.
        queue.submit(&[line.at(last)], |_| Ok(()), &[line.signal_at(beyond)])?;
        line.at(beyond).wait(patience())?;
    }
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
            queue
                .submit(&[], |_| Ok(()), &[line.signal_at(beyond)])
                .map(drop),
            queue.submit(&[line.at(beyond)], |_| Ok(()), &[]).map(drop),
        ] {
            check_error!(
                refused,
                Error::ValueOutOfRange { asked, reached: 7, largest, .. }
                    if (asked, largest) == (beyond, last)
            );
        }
        check_error!(line.at(last).wait(Duration::ZERO), Error::TimedOut { .. });
        queue.submit(&[], |_| Ok(()), &[line.signal_at(last)])?;
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
            check!(
                found == value,
                "step {step}: signalled to {value}, it is at {found}"
            );
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
        check!(
            Instant::now() < deadline,
            "a reader sees {value} for ever, although {last} is signalled"
        );
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
            let held = right.submit(&[line.at(last)], |_| Ok(()), &[])?;
            check!(held.is_held(), "a wait for {last} is let go at {first}");
            for n in 1..=STEPS {
                let value = first + n;
                match n % 3 {
                    0 => line.signal(value)?,
                    1 => drop(left.submit(&[], |_| Ok(()), &[line.signal_at(value)])?),
                    _ => {
                        let next = line.signal_at(value);
                        left.submit(&[line.at(value - 1)], |_| Ok(()), &[next])?;
                    }
                }
                line.at(value).wait(patience())?;
                let found = line.value()?;
                check!(found == value, "signalled to {value}, it is at {found}");
                for above in [value + 1].iter().chain(&far) {
                    check!(
                        !line.at(*above).is_reached()?,
                        "{above} counts as reached at {value}"
                    );
                    check_error!(
                        line.at(*above).wait(Duration::ZERO),
                        Error::TimedOut { reached, .. } if reached == value
                    );
                }
                for below in [0, 1, first - 1, first, value - 1] {
                    check!(
                        line.at(below).is_reached()?,
                        "{below} counts as open at {value}"
                    );
                }
            }
            check!(right.held().count == 1, "a wait for {last} was let go");
            left.submit(&[], |_| Ok(()), &[line.signal_at(last)])?;
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
    let line = world.timeline_from("line", FIRST)?;
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    thread::scope(|scope| {
        let unstick = Unstick(&[&line]);
        let readers: Vec<_> = (0..3)
            .map(|_| scope.spawn(|| read_until(&line, LARGEST, |value| value >= FIRST)))
            .collect();
        let end = right.submit(&[line.at(LARGEST)], |_| Ok(()), &[])?.end();
        line.signal(FIRST + 1)?;
        left.submit(&[], |_| Ok(()), &[line.signal_at(FIRST + 2)])?;
        left.submit(&[], |_| Ok(()), &[line.signal_at(FIRST + 3)])?;
        check!(
            !line.at(LARGEST).is_reached()?,
            "the largest value counts as reached"
        );
        left.submit(
            &[line.at(FIRST + 3)],
            |_| Ok(()),
            &[line.signal_at(LARGEST)],
        )?;
        line.at(LARGEST).wait(patience())?;
        end.wait(patience())?;
        join_all(readers)?;
        unstick.done();
        Ok(())
    })?;
    for queue in [&left, &right] {
        for value in [0, 1, FIRST, LARGEST] {
            check_error!(
                queue.submit(&[], |_| Ok(()), &[line.signal_at(value)]),
                Error::SignalNotAboveReached { asked, reached: LARGEST, .. } if asked == value
            );
        }
        check_error!(
            queue.submit(&[], |_| Ok(()), &[line.signal_at(u64::MAX)]),
            Error::ValueOutOfRange {
                asked: u64::MAX,
                reached: LARGEST,
                largest: LARGEST,
                ..
            }
        );
        check_error!(
            queue.submit(&[line.at(u64::MAX)], |_| Ok(()), &[]),
            Error::ValueOutOfRange {
                asked: u64::MAX,
                ..
            }
        );
        queue.submit(&[line.at(LARGEST)], |_| Ok(()), &[])?;
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
    check_error!(beyond.wait(patience()), Error::ValueOutOfRange { .. });
    check_error!(
        wait_all(&[line.at(0), beyond], patience()),
        Error::ValueOutOfRange { .. }
    );
    check_error!(
        wait_any(&[beyond, beyond], patience()),
        Error::ValueOutOfRange { .. }
    );
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
                queue.submit(&[], |_| Ok(()), &[line.signal_at(start + n)])?;
            }
            let reached = start + SMALL;
            line.at(reached).wait(patience())?;
            let (last, beyond) = (reached + limit, reached + limit + 1);
            check_error!(
                queue.submit(&[], |_| Ok(()), &[line.signal_at(beyond)]),
                Error::ValueOutOfRange { asked, reached: at, largest, .. }
                    if (asked, at, largest) == (beyond, reached, last)
            );
            check_error!(line.signal(beyond), Error::ValueOutOfRange { .. });
            check_error!(
                line.at(beyond).wait(patience()),
                Error::ValueOutOfRange { .. }
            );
            queue.submit(&[], |_| Ok(()), &[line.signal_at(last)])?;
            line.at(last).wait(patience())?;
        }
        join_all(readers)
    })
}
