//! The times of points, and the errors without one. A query never blocks, and changes nothing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use syncline::backend::Device as _;
use syncline::{Error, QueueKind};

use super::{clocked, follows, tells};
use crate::blocked::join;
use crate::case::{Stop, Verdict, cases, check, check_eq, check_error};
use crate::cases::cause;
use crate::{Subject, World, patience};

cases! {
    "times.not_enabled": [M6 E5] => not_enabled;
    "times.not_reached": [M6 F3 E5] => not_reached;
    "times.passed_over": [M6 T6] => passed_over;
    "times.first_value": [M6 T1] => first_value;
    "times.points_of_any_kind": [M6 T9] => any_kind;
    "times.failed": [M6 E1] => failed;
    "times.as_the_queues_say": [M6 D3 E5] => as_said;
}

/// A timeline without timestamps has no times in any state, and reports that.
fn not_enabled<S: Subject>(world: &World<S>) -> Verdict {
    let (line, alone) = (world.timeline("line")?, world.left.timeline("alone")?);
    for line in [&line, &alone] {
        let queue = world.left_queue("queue")?;
        queue.submit(&[], |_| Ok(()), &[line.signal_at(2)])?;
        line.at(2).wait(patience())?;
        line.signal(3)?;
        check!(!line.is_clocked(), "{line:?} says that it has timestamps");
        let name = line.object();
        for asked in [0, 1, 2, 3, 4] {
            check_error!(
                line.at(asked).time(),
                Error::TimesNotEnabled { timeline, value, .. } if timeline == *name && value == asked
            );
        }
        let wait_only = line.library().wait_only();
        check_error!(wait_only.at(3).time(), TimesNotEnabled);
        line.fail(cause("over"));
        check_error!(line.at(3).keep().point().time(), TimesNotEnabled);
        queue.idle(patience())?;
        check_error!(queue.position().time(), TimesNotEnabled);
    }
    check_error!(world.left.empty_point().time(), TimesNotEnabled);
    Ok(())
}

/// A point has no time while the device is blocked before it, and while its submission is held.
///
/// For a thread that queries all the time, the time comes once, and does not change.
fn not_reached<S: Subject>(world: &World<S>) -> Verdict {
    for on in clocked(world)? {
        let (queue, line) = (&on.queue, &on.line);
        queue.submit(&[], |_| Ok(()), &[line.signal_at(1)])?;
        line.at(1).wait(patience())?;
        let first = line.at(1).time()?;
        let name = line.object();
        let none_yet = |at: u64| -> Verdict {
            check_error!(
                line.at(at).time(),
                Error::NotReached { timeline, value, reached: 1, .. } if timeline == *name && value == at
            );
            Ok(())
        };
        none_yet(2)?;

        let opens = world.timeline("opens")?;
        let stall = on.device.stall()?;
        let latch = stall.latch();
        let block = move |recorder: &mut crate::RecorderOf<'_, S>| latch.block(recorder);
        let held = queue.submit(&[opens.at(1)], block, &[line.signal_at(2)])?;
        check!(held.is_held(), "a submission is not held");
        none_yet(2)?;
        opens.signal(1)?;
        line.at(2).wait_pending(patience())?;
        // A query that blocked would hang: this thread releases the stall only later.
        none_yet(2)?;
        tells(line.at(1), &first, "while the device stood still")?;
        let opened = AtomicBool::new(false);
        thread::scope(|scope| -> Verdict {
            let asking = scope.spawn(|| -> Result<i64, Stop> {
                let end = Instant::now() + patience();
                loop {
                    let was_open = opened.load(Ordering::SeqCst);
                    match line.at(2).time() {
                        Err(Error::NotReached { .. }) if Instant::now() < end => {
                            thread::yield_now();
                        }
                        Err(other) => return Stop::fail(format!("asked all the time: {other}")),
                        Ok(_) if !was_open && !opened.load(Ordering::SeqCst) => {
                            return Stop::fail("a time exists although the device is blocked");
                        }
                        Ok(time) => return Ok(time.nanoseconds()),
                    }
                }
            });
            opened.store(true, Ordering::SeqCst);
            stall.release()?;
            line.at(2).wait(patience())?;
            let (asked, told) = (join(asking)??, line.at(2).time()?);
            check_eq!(asked, told.nanoseconds());
            follows("2 after 1", &told, &first)
        })?;
        queue.idle(patience())?;
        tells(line.at(1), &first, "at the end")?;
    }
    Ok(())
}

/// A value that was passed over has the time of the signal that passed it.
///
/// That holds for signals of queues and of the host. Later signals do not change the time.
fn passed_over<S: Subject>(world: &World<S>) -> Verdict {
    for on in clocked(world)? {
        let (queue, line) = (&on.queue, &on.line);
        // Each signal, and whether the host makes it.
        const SIGNALS: [(u64, bool); 6] = [
            (3, false),
            (7, false),
            (20, true),
            (21, true),
            (1000, false),
            (1 << 20, true),
        ];
        let mut from = 0;
        let mut times = Vec::new();
        for (value, by_host) in SIGNALS {
            if by_host {
                line.signal(value)?;
            } else {
                queue.submit(&[], |_| Ok(()), &[line.signal_at(value)])?;
            }
            line.at(value).wait(patience())?;
            times.push((from, value, line.at(value).time()?));
            from = value;
        }
        for (from, upto, time) in &times {
            for value in [from + 1, (from + upto) / 2 + 1, upto - 1, *upto] {
                let value = value.clamp(from + 1, *upto);
                tells(line.at(value), time, "asked for it or for one before it")?;
            }
        }
        check_error!(line.at(from + 1).time(), NotReached);
    }
    Ok(())
}

/// The initial value has no time, because nothing signalled it.
fn first_value<S: Subject>(world: &World<S>) -> Verdict {
    for on in clocked(world)? {
        let line = on.device.clocked_timeline_from("from five", 5)?;
        let name = line.object();
        let none = |at: u64| -> Verdict {
            check_error!(
                line.at(at).time(),
                Error::NoTime { timeline, value, reason, .. }
                    if timeline == *name && value == at && !reason.is_empty()
            );
            Ok(())
        };
        let all = || [0, 4, 5].into_iter().try_for_each(none);
        all()?;
        check_error!(line.at(6).time(), Error::NotReached { reached: 5, .. });
        on.queue.submit(&[], |_| Ok(()), &[line.signal_at(8)])?;
        line.at(8).wait(patience())?;
        let eight = line.at(8).time()?;
        tells(line.at(6), &eight, "passed over")?;
        all()?;
    }
    Ok(())
}

/// A time can be read from everything that represents a point.
///
/// Also from a view that may only wait, and after the last handle that could signal is dropped.
fn any_kind<S: Subject>(world: &World<S>) -> Verdict {
    for on in clocked(world)? {
        let line = on.device.clocked_timeline("line")?;
        on.queue.submit(&[], |_| Ok(()), &[line.signal_at(1)])?;
        let kept = line.at(1).keep();
        kept.point().wait(patience())?;
        let time = kept.point().time()?;
        let subject = on.device.subject();
        let view = line.library().wait_only();
        check!(view.is_clocked());
        let (other, next) = (line.clone(), line.at(2).keep());
        tells(other.at(1), &time, "asked by another handle")?;
        drop(other);
        let seen = subject.point_time(view.at(1))?;
        check_eq!(seen.nanoseconds(), time.nanoseconds());
        drop(line);
        tells(kept.point(), &time, "without a handle")?;
        check_error!(next.point().time(), Error::Cancelled { value: 2, .. });
        let seen = subject.point_time(view.at(1))?;
        check_eq!(seen.nanoseconds(), time.nanoseconds());
    }
    Ok(())
}

/// A failure removes no time. A value that cannot be reached after it never has one.
fn failed<S: Subject>(world: &World<S>) -> Verdict {
    for on in clocked(world)? {
        let (queue, line) = (&on.queue, &on.line);
        for value in [1, 4] {
            queue.submit(&[], |_| Ok(()), &[line.signal_at(value)])?;
        }
        line.at(4).wait(patience())?;
        let (one, four) = (line.at(1).time()?, line.at(4).time()?);
        let gate = world.timeline("gate")?;
        queue.submit(&[gate.at(1)], |_| Ok(()), &[line.signal_at(6)])?;
        line.fail(cause("stopped"));
        for _ in 0..2 {
            tells(line.at(1), &one, "after the failure")?;
            tells(line.at(3), &four, "after the failure")?;
            tells(line.at(4), &four, "after the failure")?;
            for value in [5, 6, 9] {
                let name = line.object();
                check_error!(
                    line.at(value).time(),
                    Error::Failed { timeline, cause, .. }
                        if timeline == *name && cause.to_string().contains("stopped")
                );
            }
            gate.fail(cause("another"));
            queue.idle(patience())?;
        }
    }
    Ok(())
}

/// A queue that writes no times refuses to signal a timeline with times, and states the reason.
///
/// Nothing has changed then. A device without a clock refuses the timeline in the same way.
fn as_said<S: Subject>(world: &World<S>) -> Verdict {
    for device in [&world.left, &world.right] {
        let subject = device.subject();
        let line = match subject.clocked_timeline("line", 0) {
            Ok(line) => device.own(line),
            Err(Error::Unsupported { reason, .. }) => {
                check!(!reason.is_empty(), "refused for no reason");
                let why = subject.device().clock().err();
                check!(matches!(why, Some(Error::Unsupported { .. })), "{reason}");
                continue;
            }
            Err(other) => return Err(other.into()),
        };
        let gate = world.timeline("gate")?;
        let mut next = 1;
        for family in &device.info().capabilities.queues {
            let queue = device.queue(family.kind, "as promised")?;
            for held in [false, true] {
                let waits = [gate.at(1)];
                let waits = if held && next == 1 { &waits[..] } else { &[] };
                match queue.submit(waits, |_| Ok(()), &[line.signal_at(next)]) {
                    Ok(_) => {
                        check!(family.timestamp_bits > 0);
                        if gate.frozen_value() == 0 {
                            gate.signal(1)?;
                        }
                        line.at(next).wait(patience())?;
                        line.at(next).time()?;
                    }
                    Err(Error::Unsupported { object, reason, .. }) => {
                        check!(
                            !reason.is_empty() && object == *queue.object(),
                            "{object} was refused for no reason, or the wrong queue: {reason}"
                        );
                        check!(
                            family.timestamp_bits == 0 || family.kind == QueueKind::Transfer,
                            "a {} queue with {} valid bits writes no times: {reason}",
                            family.kind,
                            family.timestamp_bits
                        );
                        check!(
                            queue.position().value() == 0 && queue.held().count == 0,
                            "a refused submission has its place on {queue:?}"
                        );
                        // The value is not claimed.
                        line.signal(next)?;
                    }
                    Err(other) => return Err(other.into()),
                }
                next += 1;
            }
            queue.idle(patience())?;
        }
    }
    Ok(())
}
