//! X6: timelines of two devices that a relay on the host joins, without a native mechanism.

use std::time::Duration;

use syncline::{Error, QueueKind, Timeline as Library};

use crate::case::{Stop, Verdict, cases, check, check_eq, check_error};
use crate::cases::{DELAY, cause, filled};
use crate::footprint::grows_nothing;
use crate::subject::RecorderOf;
use crate::user::{Device, Timeline};
use crate::{Subject, World, patience};

cases! {
    "bridge.carries_signals_both_ways": [X6 Q2 Q7] => both_ways;
    "bridge.the_host_signals_any_side": [X6 T4] => from_the_host;
    "bridge.failure_on_either_side": [X6 E1 E2] => failure;
    "bridge.two_signals_of_one_value": [X6 T2 E5] => twice;
    "bridge.of_many_sides": [X6] => many;
    "bridge.says_what_it_is": [X6] => says;
    "bridge.closes_as_one": [X6 T9] => closing;
    "bridge.leaves_nothing": [X6 T9] => leftovers;
    "bridge.a_circle_over_it_is_held": [X6 Q4] => circle;
}

/// Creates a bridged timeline on each of these devices. Each device uses its own one.
fn bridged<S: Subject>(sides: &[&Device<S>], initial: u64) -> Result<Vec<Timeline<S>>, Error> {
    let ports = sides.iter().map(|side| side.port(initial));
    let made = Library::bridged("bridge", initial, ports)?;
    Ok(sides
        .iter()
        .zip(made)
        .map(|(side, line)| side.own(line))
        .collect())
}

fn pair<S: Subject>(world: &World<S>, initial: u64) -> Result<[Timeline<S>; 2], Stop> {
    let made = bridged(&[&world.left, &world.right], initial)?;
    made.try_into()
        .map_err(|made: Vec<_>| Stop::Failed(format!("{} sides", made.len())))
}

/// Each side waits for the other's last value, on its own counter.
///
/// The consumer submits first, and reads what the other side wrote before its signal.
fn both_ways<S: Subject>(world: &World<S>) -> Verdict {
    let [here, there] = pair(world, 5)?;
    let one = world.left.queue(QueueKind::Compute, "one")?;
    let other = world.right.queue(QueueKind::Compute, "other")?;
    let memory = world.left.buffer(16)?;
    for round in 0..40 {
        let value = 6 + 2 * round;
        let written = 1000 + value as u32;
        other.submit_empty(&[there.at(value)], &[there.signal_at(value + 1)])?;
        check!(!there.at(value).is_reached()?, "{value} came by itself");
        // Delayed in some rounds, so that a value which comes over too early is detected.
        let late = if round % 10 == 3 {
            DELAY
        } else {
            Duration::ZERO
        };
        let (device, to) = (world.left.clone(), memory.clone());
        let work = move |recorder: &mut RecorderOf<'_, S>| {
            if !late.is_zero() {
                device.busy(recorder, late)?;
            }
            S::fill(recorder, &to, written)
        };
        one.submit(&[here.at(value - 1)], work, &[here.signal_at(value)])?;
        there.at(value).wait(patience())?;
        filled::<S>(&memory, written, format_args!("value {value}"))?;
        here.at(value + 1).wait(patience())?;
    }
    for line in [&here, &there] {
        check!(line.value()? == 85, "one side is at {}", line.value()?);
    }
    Ok(())
}

fn from_the_host<S: Subject>(world: &World<S>) -> Verdict {
    let [here, there] = pair(world, 0)?;
    let other = world.right.queue(QueueKind::Compute, "other")?;
    other.submit_empty(&[there.at(3)], &[])?;
    here.signal(1)?;
    there.at(1).wait(patience())?;
    there.signal(2)?;
    here.at(2).wait(patience())?;
    check!(!there.at(3).is_reached()?, "3 came by itself");
    // Passes the awaited value.
    here.signal(10)?;
    other.idle(patience())?;
    there.at(10).wait(patience())?;
    check_error!(
        there.signal(10),
        Error::SignalNotAboveReached { asked: 10, .. }
    );
    Ok(())
}

fn failure<S: Subject>(world: &World<S>) -> Verdict {
    for fails_here in [true, false] {
        let [here, there] = pair(world, 0)?;
        let (failing, other, side) = match fails_here {
            true => (&here, &there, &world.right),
            false => (&there, &here, &world.left),
        };
        let behind = side.timeline("behind")?;
        let queue = side.queue(QueueKind::Compute, "waits")?;
        queue.submit_empty(&[other.at(2)], &[behind.signal_at(1)])?;
        failing.signal(1)?;
        failing.fail(cause("it broke"));
        for line in [failing, other, &behind] {
            let ended = line.at(2).wait(patience());
            check!(
                ended
                    .as_ref()
                    .is_err_and(|e| e.to_string().contains("it broke")),
                "a wait behind the failure ended with {ended:?}"
            );
        }
        // Reached values stay reached, on both sides.
        other.at(1).wait(patience())?;
        check_eq!(other.frozen_value(), 1);
    }
    Ok(())
}

/// Both sides claim one value, because neither can know the claim of the other.
///
/// No wait blocks for ever, and the error says what was asked of which side.
fn twice<S: Subject>(world: &World<S>) -> Verdict {
    let [here, there] = pair(world, 0)?;
    let gate = world.left.timeline("gate")?;
    let one = world.left.queue(QueueKind::Compute, "one")?;
    let other = world.right.queue(QueueKind::Compute, "other")?;
    one.submit_empty(&[gate.at(1)], &[here.signal_at(2)])?;
    other.signal(&there, 1)?;
    for line in [&here, &there] {
        let ended = line.at(3).wait(patience());
        let Err(Error::Failed { cause, .. }) = &ended else {
            return Stop::fail(format!("two signallers ended with {ended:?}"));
        };
        check!(
            matches!(
                **cause,
                Error::SignalOverlapsClaim { .. } | Error::SignalNotAboveReached { .. }
            ),
            "the cause is {cause}"
        );
    }
    gate.signal(1)?;
    one.idle(patience())?;
    other.idle(patience())?;
    Ok(())
}

fn many<S: Subject>(world: &World<S>) -> Verdict {
    let (left, right) = (&world.left, &world.right);
    let sides = [left, right, left, right, right];
    let lines = bridged(&sides, 100)?;
    let queues = sides
        .iter()
        .map(|side| side.queue(QueueKind::Compute, "one of many"))
        .collect::<syncline::Result<Vec<_>>>()?;
    // In a circle: each queue waits for the one before it, and the first for the host.
    let last = 100 + 4 * lines.len() as u64;
    for value in 102..=last {
        let at = value as usize % lines.len();
        queues[at].submit_empty(&[lines[at].at(value - 1)], &[lines[at].signal_at(value)])?;
    }
    lines[0].signal(101)?;
    for line in &lines {
        line.at(last).wait(patience())?;
    }
    check_error!(Library::bridged("alone", 0, [left.port(0)]), Unsupported);
    Ok(())
}

fn says<S: Subject>(world: &World<S>) -> Verdict {
    let [here, there] = pair(world, 0)?;
    let sides: Vec<u64> = here
        .library()
        .bridge()
        .map(syncline::error::Object::id)
        .collect();
    check_eq!(
        sides,
        [here.library().object().id(), there.library().object().id()]
    );
    let plain = world.left.timeline("plain")?;
    check!(plain.library().bridge().next().is_none());
    // Neither side has the other's native object.
    for (line, other) in [(&here, &world.right), (&there, &world.left)] {
        let natively = line.devices().any(|device| device == other.id());
        check!(!natively || !world.is_pair(), "one side is native to both");
    }
    Ok(())
}

/// The last handle is dropped while signals are claimed. They are still carried over.
///
/// After them nothing comes.
fn closing<S: Subject>(world: &World<S>) -> Verdict {
    let [here, there] = pair(world, 0)?;
    let gate = world.left.timeline("gate")?;
    let one = world.left.queue(QueueKind::Compute, "one")?;
    let other = world.right.queue(QueueKind::Compute, "other")?;
    other.submit_empty(&[there.at(1)], &[there.signal_at(2)])?;
    one.submit_empty(&[gate.at(1)], &[here.signal_at(1)])?;
    one.submit_empty(&[here.at(2)], &[here.signal_at(3)])?;
    let (last, beyond) = (there.at(3).keep(), there.at(4).keep());
    drop(here);
    check!(!there.at(1).is_reached()?, "1 came by itself");
    // The other side can still signal.
    check_error!(beyond.point().wait(Duration::ZERO), TimedOut);
    drop(there);
    check!(!last.point().is_reached()?, "3 came by itself");
    gate.signal(1)?;
    last.point().wait(patience())?;
    check_error!(
        beyond.point().wait(patience()),
        Error::Cancelled {
            value: 4,
            reached: 3,
            ..
        }
    );
    Ok(())
}

fn leftovers<S: Subject>(world: &World<S>) -> Verdict {
    let one = world.left.queue(QueueKind::Compute, "one")?;
    grows_nothing(|| {
        for ending in 0..3 {
            let [here, there] = pair(world, 0)?;
            one.submit_empty(&[here.at(1)], &[here.signal_at(2)])?;
            match ending {
                0 => there.signal(1)?,
                1 => there.fail(cause("it broke")),
                // The value is never signalled: the last handle is dropped.
                _ => {}
            }
        }
        one.idle(patience()).or_else(|error| match error {
            Error::Failed { .. } | Error::Cancelled { .. } => Ok(()),
            other => Err(other.into()),
        })
    })
}

/// A circle of held submissions over a bridge is not refused.
///
/// The side that is waited for has no claim, so a signal for it is still legal. A time-out says
/// where the wait ends. A failure of either side ends all waits of the circle.
fn circle<S: Subject>(world: &World<S>) -> Verdict {
    for fails_here in [true, false] {
        let [here, there] = pair(world, 0)?;
        let back = world.left.timeline("back")?;
        let one = world.left.queue(QueueKind::Compute, "one")?;
        let other = world.right.queue(QueueKind::Compute, "other")?;
        one.submit_empty(&[back.at(1)], &[here.signal_at(1)])?;
        other.submit_empty(&[there.at(1)], &[back.signal_at(1)])?;
        match back.at(1).wait(Duration::ZERO) {
            Err(Error::TimedOut { blockers, .. }) => {
                let said = blockers.to_string();
                check!(
                    said.contains("bridge") && said.contains("to be signalled to 1"),
                    "the wait that is not claimed is not told: {said}"
                );
            }
            ended => return Stop::fail(format!("a circle ended with {ended:?}")),
        }
        let failing = if fails_here { &here } else { &there };
        failing.fail(cause("it broke"));
        for line in [&here, &there, &back] {
            let ended = line.at(1).wait(patience());
            check!(
                ended
                    .as_ref()
                    .is_err_and(|e| e.to_string().contains("it broke")),
                "a wait of the circle ended with {ended:?}"
            );
        }
        one.idle(patience())?;
        other.idle(patience())?;
    }
    Ok(())
}
