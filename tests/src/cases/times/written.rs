//! Times of signals are written at their position on the queue, on the device's clock.
//!
//! Times of host signals are on the host's clock.

use std::thread;
use std::time::Duration;

use syncline::backend::Device as _;
use syncline::clock::HostClock;
use syncline::{Error, Timeline, host};

use super::{clocked, follows};
use crate::blocked::join_all;
use crate::case::{Stop, Verdict, cases, check, check_eq, check_error};
use crate::cases::clocks::{Seen, queue, sides};
use crate::cases::{DELAY, several, unless_linked};
use crate::user::Time;
use crate::{RecorderOf, Subject, World, patience};

cases! {
    "times.bracketed_by_the_host": [M6 M1 M3] => bracketed;
    "times.between_the_fences_around_it": [M6 M1 Q1] => between;
    "times.behind_lower_values": [M6 T3] => behind_lower;
    "times.along_the_values": [M6 T3] => along;
    "times.of_several_signals": [M6 Q1] => of_several;
    "times.of_the_hosts_signals": [M6 M4] => by_host;
    "times.of_signals_made_for_a_queue": [M6 Q3] => relayed;
    "times.of_what_a_bridge_carries": [M6 X6] => bridged;
    "times.of_both_sides": [M6 M4 T3] => both_sides;
}

/// Checks that the time of a point converts to one between two times of the host.
fn seen<S: Subject>(what: &str, time: &Time<S>, between: Seen) -> Verdict {
    between.allows(what, time.to_host()?)
}

/// The work of the signalling submission blocks until the host releases it. The signal comes after.
fn bracketed<S: Subject>(world: &World<S>) -> Verdict {
    for on in clocked(world)? {
        let host = on.device.clock()?.host_clock();
        for (value, closed) in (1..).zip([Duration::ZERO, DELAY, DELAY / 4]) {
            let stall = on.device.stall()?;
            let latch = stall.latch();
            let work = move |recorder: &mut RecorderOf<'_, S>| latch.block(recorder);
            on.queue.submit(&[], work, &[on.line.signal_at(value)])?;
            thread::sleep(closed);
            // Not before the release: the device is still blocked.
            let (between, ended) = Seen::around(host, || -> syncline::Result<()> {
                stall.release()?;
                on.line.at(value).wait(patience())
            });
            ended?;
            let time = on.line.at(value).time()?;
            check!(time.clock().library().is_same(on.device.clock()?.library()));
            seen("the signal", &time, between)?;
        }
    }
    Ok(())
}

/// On one queue, with fences before and after: the order is exact, because all have one clock.
fn between<S: Subject>(world: &World<S>) -> Verdict {
    for on in clocked(world)? {
        let buffer = on.device.buffer(64)?;
        let before = on.device.clocked_fence("before")?;
        let behind = on.device.clocked_fence("behind")?;
        for value in 1..=60 {
            let (device, to) = (on.device.clone(), buffer.clone());
            on.queue.record(&before)?;
            let work = move |recorder: &mut RecorderOf<'_, S>| match value % 3 {
                0 => Ok(()),
                1 => S::fill(recorder, &to, 1),
                _ => device.busy(recorder, Duration::from_micros(200)),
            };
            on.queue.submit(&[], work, &[on.line.signal_at(value)])?;
            on.queue.record(&behind)?;
            behind.wait(patience())?;
            let (from, at, to) = (before.time()?, on.line.at(value).time()?, behind.time()?);
            follows("the signal, of the fence before it", &at, &from)?;
            follows("the fence behind it, of the signal", &to, &at)?;
        }
    }
    Ok(())
}

/// A signal waits for lower values of other queues, after its own work. So does its time.
///
/// That holds for every kind of queue.
fn behind_lower<S: Subject>(world: &World<S>) -> Verdict {
    for on in clocked(world)? {
        let mut value = 0;
        for family in &on.device.info().capabilities.queues {
            let other = on.device.queue(family.kind, "other")?;
            for round in 0..4 {
                let (one, two, three) = (value + 1, value + 2, value + 3);
                let buffer = on.device.buffer(64)?;
                on.queue.busy(DELAY / 2, &[on.line.signal_at(one)])?;
                // Little or no work, so it has ended long before.
                let work = move |recorder: &mut RecorderOf<'_, S>| {
                    if round % 2 == 0 {
                        return Ok(());
                    }
                    S::fill(recorder, &buffer, 1)
                };
                match other.submit(&[], work, &[on.line.signal_at(two)]) {
                    Ok(_) => {}
                    Err(Error::Unsupported { .. }) => {
                        // Another case checks the reason.
                        value += 1;
                        break;
                    }
                    Err(other) => return Err(other.into()),
                }
                on.queue.signal(&on.line, three)?;
                on.line.at(three).wait(patience())?;
                let time = |value| on.line.at(value).time();
                follows("2 after 1", &time(two)?, &time(one)?)?;
                follows("3 after 2", &time(three)?, &time(two)?)?;
                value = three;
            }
            on.queue.idle(patience())?;
            other.idle(patience())?;
        }
    }
    Ok(())
}

/// Several threads signal by several queues of one device. Times never decrease as values grow.
///
/// Some values are held, and some are passed over.
fn along<S: Subject>(world: &World<S>) -> Verdict {
    const QUEUES: u64 = 3;
    let each = unless_linked(world, "signals of each queue", 60, 20)? as u64;
    for on in clocked(world)? {
        let line = &on.line;
        let queues = several(QUEUES as usize, |_| queue(on.device))?;
        let last = 2 * QUEUES * each;
        thread::scope(|scope| -> Verdict {
            let signalling = queues.iter().zip(0..).map(|(queue, nth)| {
                scope.spawn(move || -> Verdict {
                    for round in 0..each {
                        // Every second value, so that a wait for the one before leaves room for it.
                        let value = 2 * (round * QUEUES + nth + 1);
                        let device = on.device.clone();
                        let work = move |recorder: &mut RecorderOf<'_, S>| match round % 8 {
                            0 => device.busy(recorder, Duration::from_micros(300)),
                            _ => Ok(()),
                        };
                        queue.submit(&[line.at(value - 2)], work, &[line.signal_at(value)])?;
                    }
                    Ok(())
                })
            });
            join_all(signalling.collect::<Vec<_>>())
        })?;
        line.at(last).wait(patience())?;
        let first = last
            .saturating_sub(2 * syncline::Timeline::TIMES as u64 - 2)
            .max(1);
        let mut before = line.at(first).time()?;
        for value in first..=last {
            let time = line.at(value).time()?;
            follows("a value after the one before it", &time, &before)?;
            let same = value % 2 == 0 && value > first;
            check!(
                !same || time.nanoseconds() == before.nanoseconds(),
                "{} was passed over, at {before:?}, by the signal of {value}, at {time:?}",
                value - 1
            );
            before = time;
        }
        for queue in &queues {
            queue.idle(patience())?;
        }
    }
    Ok(())
}

/// All timelines that one submission signals have a time of it. Timelines without times have none.
fn of_several<S: Subject>(world: &World<S>) -> Verdict {
    for on in clocked(world)? {
        let (other, plain) = (
            on.device.clocked_timeline("other")?,
            on.device.timeline("plain")?,
        );
        let before = on.device.clocked_fence("before")?;
        let behind = on.device.clocked_fence("behind")?;
        on.queue.record(&before)?;
        let signals = [plain.signal_at(1), other.signal_at(5), on.line.signal_at(1)];
        on.queue.submit(&[], |_| Ok(()), &signals)?;
        on.queue.record(&behind)?;
        behind.wait(patience())?;
        for point in [other.at(5), on.line.at(1)] {
            let time = point.time()?;
            follows("the signal, of the fence before it", &time, &before.time()?)?;
            follows("the fence behind it, of the signal", &behind.time()?, &time)?;
        }
        check_error!(plain.at(1).time(), TimesNotEnabled);
    }
    Ok(())
}

/// A host signal has a time between the host's clock before the call and after it.
fn by_host<S: Subject>(world: &World<S>) -> Verdict {
    for on in clocked(world)? {
        let mut before = None;
        for value in [1, 2, 3, 10, 11] {
            let (between, signalled) = Seen::around(HostClock::Monotonic, || on.line.signal(value));
            signalled?;
            let time = on.line.at(value).time()?;
            let told = time.to_host()?;
            check!(
                told.error == 0 && time.clock().host_clock() == HostClock::Monotonic,
                "a signal of the host has the time {told:?} of {:?}",
                time.clock()
            );
            between.allows("a signal of the host", told)?;
            if let Some(before) = &before {
                follows("a signal of the host", &time, before)?;
            }
            before = Some(time);
        }
        // The same beside the signal of a device.
        let (between, ended) = Seen::around(HostClock::Monotonic, || {
            on.queue.submit(&[], |_| Ok(()), &[on.line.signal_at(20)])?;
            on.line.at(20).wait(patience())?;
            on.line.signal(21)
        });
        ended?;
        let (device, host) = (on.line.at(20).time()?, on.line.at(21).time()?);
        follows("the host's signal after the device's", &host, &device)?;
        between.allows("the host's signal", host.to_host()?)?;
    }
    Ok(())
}

/// The host makes the signals of a queue without a port. Their times are those of its signals.
///
/// The time is after the work. The queue needs no timestamps of its own.
fn relayed<S: Subject>(world: &World<S>) -> Verdict {
    let elsewhere = host::Device::new();
    for device in [&world.left, &world.right] {
        let line = device.own(elsewhere.clocked_timeline("elsewhere")?);
        check!(
            line.devices().all(|id| id != device.id()),
            "{line:?} {device:?}"
        );
        for family in &device.info().capabilities.queues {
            let queue = device.queue(family.kind, "elsewhere")?;
            let value = line.value()? + 2;
            let opens = world.timeline("opens")?;
            queue.submit(&[opens.at(1)], |_| Ok(()), &[line.signal_at(value)])?;
            let (between, ended) = Seen::around(HostClock::Monotonic, || {
                opens.signal(1)?;
                line.at(value).wait(patience())
            });
            ended?;
            let time = line.at(value - 1).time()?;
            let told = time.to_host()?;
            check_eq!(told.error, 0);
            between.allows("a signal made by the host", told)?;
            queue.idle(patience())?;
        }
    }
    Ok(())
}

/// Each side of a bridge has the time at which its own value was reached.
///
/// The signalling side takes it from its device. The other side takes it from the host, which
/// carried the signal over.
fn bridged<S: Subject>(world: &World<S>) -> Verdict {
    sides(world)?;
    let both = [&world.left, &world.right];
    let ports = both.iter().map(|side| side.port(2));
    let made = Timeline::bridged("bridge", 2, ports)?;
    let mut lines = Vec::new();
    for (side, line) in both.iter().zip(made) {
        let clock = side.clock()?.library().clone();
        lines.push(side.own(line.clocked([(side.id(), clock)])?));
    }
    let [here, there] = lines.as_slice() else {
        return Stop::fail(format!("{} sides", lines.len()));
    };
    let queue = world.left_queue("left")?;
    for value in [3, 5] {
        let (between, ended) = Seen::around(HostClock::Monotonic, || {
            queue.submit(&[], |_| Ok(()), &[here.signal_at(value)])?;
            there.at(value).wait(patience())
        });
        ended?;
        let (signalled, carried) = (here.at(value).time()?, there.at(value).time()?);
        follows("the other side after the one", &carried, &signalled)?;
        between.allows("what was carried over", carried.to_host()?)?;
    }
    queue.idle(patience())?;
    Ok(())
}

/// Left and right signal in turn. Each time is after the one before it.
///
/// All times lie within the interval that the host measured.
fn both_sides<S: Subject>(world: &World<S>) -> Verdict {
    let rounds = unless_linked(world, "rounds", 60, 15)? as u64;
    // A device without a clock returns the reason.
    sides(world)?;
    let turns = world.clocked_timeline("turns")?;
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    for round in 0..rounds {
        let turn = 2 * round;
        let (between, ended) = Seen::around(HostClock::Monotonic, || {
            let (at, signal) = (|value| [turns.at(value)], |value| [turns.signal_at(value)]);
            let device = world.left.clone();
            let work = move |recorder: &mut RecorderOf<'_, S>| {
                device.busy(recorder, Duration::from_micros(100))
            };
            left.submit(&at(turn), work, &signal(turn + 1))?;
            right.submit_empty(&at(turn + 1), &signal(turn + 2))?;
            turns.at(turn + 2).wait(patience())
        });
        ended?;
        let (first, second) = (turns.at(turn + 1).time()?, turns.at(turn + 2).time()?);
        follows("the right side after the left one", &second, &first)?;
        if turn > 0 {
            follows("a round after another", &first, &turns.at(turn).time()?)?;
        }
        for time in [&first, &second] {
            if time.clock().host_clock() == HostClock::Monotonic {
                seen("a signal in turn", time, between)?;
            }
        }
    }
    left.idle(patience())?;
    right.idle(patience())?;
    Ok(())
}
