//! T1, T2, T3, T7, T9: values, claims, order and lifetime.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use syncline::Error;

use super::{DELAY, WORDS};
use crate::case::{Verdict, cases, check, check_error};
use crate::{Subject, World, patience};

cases! {
    "timeline.initial_value": [T1 X2] => initial_value;
    "timeline.all_ones_is_no_value": [T1] => all_ones;
    "timeline.monotone_under_readers": [T1 T6] => monotone;
    "timeline.host_signal_never_goes_back": [T1 T2 E5] => goes_back;
    "timeline.equal_signals_have_one_winner": [T2] => one_winner;
    "timeline.claims_hold_while_held": [T2] => claims_while_held;
    "timeline.dropped_claim_is_withdrawn": [T2] => dropped_claim;
    "timeline.signals_complete_in_value_order": [T3 Q7] => value_order;
    "timeline.difference_beyond_the_limit": [T7] => difference;
    "timeline.last_handle_cancels_uncovered_waits": [T9] => last_handle;
    "timeline.last_handle_keeps_covered_waits": [T9] => covered;
}

fn initial_value<S: Subject>(world: &World<S>) -> Verdict {
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
        let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
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

fn monotone<S: Subject>(world: &World<S>) -> Verdict {
    const LAST: u64 = 200;
    let line = world.timeline("line")?;
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    thread::scope(|scope| {
        let readers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let mut last = 0;
                    while last < LAST * 5 {
                        let value = line.value()?;
                        check!(value >= last, "the value went back from {last} to {value}");
                        check!(value % 5 == 0, "nobody signalled {value}");
                        last = value;
                        thread::yield_now();
                    }
                    Ok(())
                })
            })
            .collect();
        for n in 1..=LAST {
            let queue = if n % 2 == 0 { &right } else { &left };
            if let Err(error) = queue.submit(&[], |_| Ok(()), &[line.signal_at(5 * n)]) {
                line.fail(error.clone());
                return Err(error.into());
            }
        }
        for reader in readers {
            reader
                .join()
                .unwrap_or_else(|_| crate::case::Stop::fail("a reader panicked"))?;
        }
        Ok(())
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

fn one_winner<S: Subject>(world: &World<S>) -> Verdict {
    for _ in 0..20 {
        let line = world.timeline("line")?;
        let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
        let wins = AtomicUsize::new(0);
        let won = |result: syncline::Result<()>| match result {
            Ok(()) => {
                wins.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => drop(error),
        };
        thread::scope(|scope| {
            scope.spawn(|| {
                won(left
                    .submit(&[], |_| Ok(()), &[line.signal_at(1)])
                    .map(|_| ()))
            });
            scope.spawn(|| {
                won(right
                    .submit(&[], |_| Ok(()), &[line.signal_at(1)])
                    .map(|_| ()))
            });
            scope.spawn(|| won(line.signal(1)));
        });
        let wins = wins.into_inner();
        check!(wins == 1, "{wins} of three equal signals were accepted");
        line.at(1).wait(patience())?;
    }
    Ok(())
}

fn claims_while_held<S: Subject>(world: &World<S>) -> Verdict {
    let gate = world.timeline("gate")?;
    let line = world.timeline("line")?;
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    left.submit(&[gate.at(1)], |_| Ok(()), &[line.signal_at(5)])?;
    check_error!(
        line.signal(3),
        Error::SignalOverlapsClaim {
            asked: 3,
            above: 0,
            upto: 5,
            ..
        }
    );
    check_error!(
        right.submit(&[], |_| Ok(()), &[line.signal_at(5)]),
        Error::SignalOverlapsClaim { asked: 5, .. }
    );
    right.submit(&[], |_| Ok(()), &[line.signal_at(8)])?;
    check!(
        line.value()? == 0,
        "held signals moved the value to {}",
        line.value()?
    );
    gate.signal(1)?;
    line.at(8).wait(patience())?;
    line.signal(9)?;
    Ok(())
}

fn dropped_claim<S: Subject>(world: &World<S>) -> Verdict {
    let line = world.timeline("line")?;
    let claim = match line.claim(4, 0) {
        Err(Error::Unsupported { .. }) => {
            return crate::case::Stop::skip("no driver signals this timeline");
        }
        claim => claim?,
    };
    check_error!(
        line.signal(2),
        Error::SignalOverlapsClaim {
            asked: 2,
            above: 0,
            upto: 4,
            ..
        }
    );
    drop(claim);
    line.signal(2)?;
    let queue = world.right_queue("right")?;
    queue.submit(&[], |_| Ok(()), &[line.signal_at(4)])?;
    line.at(4).wait(patience())?;
    Ok(())
}

fn value_order<S: Subject>(world: &World<S>) -> Verdict {
    let line = world.timeline("line")?;
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    let buffer = world.left.buffer(WORDS)?;
    let (device, target) = (world.left.clone(), buffer.clone());
    left.submit(
        &[],
        move |recorder| {
            device.busy(recorder, DELAY)?;
            S::fill(recorder, &target, 7)
        },
        &[line.signal_at(1)],
    )?;
    // No wait, nothing to do: still its signal comes after the left one's.
    right.submit(&[], |_| Ok(()), &[line.signal_at(2)])?;
    line.at(2).wait(patience())?;
    let words = S::read(&buffer);
    check!(
        words.iter().all(|&word| word == 7),
        "2 was reached before the work behind 1 was done"
    );
    Ok(())
}

/// No driver at hand has a limit that a test could reach, so the port is given one.
fn difference<S: Subject>(world: &World<S>) -> Verdict {
    const LIMIT: u64 = 100;
    for initial in [0, 1 << 40] {
        let line = syncline::Timeline::new("narrow", initial, |initial| {
            let mut home = world.left.port(initial)?;
            home.max_value_difference = home.max_value_difference.min(LIMIT);
            Ok([home].into_iter().collect())
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
        // What was beyond the limit is within it now.
        queue.submit(&[line.at(last)], |_| Ok(()), &[line.signal_at(beyond)])?;
        line.at(beyond).wait(patience())?;
    }
    Ok(())
}

fn last_handle<S: Subject>(world: &World<S>) -> Verdict {
    let line = world.timeline("line")?;
    let after = world.timeline("after")?;
    let queue = world.right_queue("right")?;
    queue.submit(&[line.at(1)], |_| Ok(()), &[after.signal_at(1)])?;
    let point = line.at(1).keep();
    drop(line);
    check_error!(
        point.point().wait(patience()),
        Error::Cancelled {
            value: 1,
            reached: 0,
            ..
        }
    );
    check_error!(after.at(1).wait(patience()), Error::Failed { cause, .. } if matches!(*cause, Error::Cancelled { .. }));
    queue.idle(patience())?;
    Ok(())
}

fn covered<S: Subject>(world: &World<S>) -> Verdict {
    let gate = world.timeline("gate")?;
    let line = world.timeline("line")?;
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    left.submit(&[gate.at(1)], |_| Ok(()), &[line.signal_at(1)])?;
    right.submit(&[], |_| Ok(()), &[line.signal_at(2)])?;
    let points = [line.at(1).keep(), line.at(2).keep()];
    drop(line);
    check!(
        !points[0].point().is_reached()?,
        "reached although its signal is held"
    );
    gate.signal(1)?;
    for point in &points {
        point.point().wait(patience())?;
    }
    Ok(())
}
