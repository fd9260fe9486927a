//! Stopwatches: what they measure, and what they refuse.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use syncline::Error;
use syncline::clock::Axis;

use crate::case::{Verdict, cases, check, check_eq, check_error};
use crate::cases::{DELAY, cause, count, within};
use crate::subject::FAILING_WORK;
use crate::user::Stopwatch;
use crate::{Subject, World, patience};

cases! {
    "stopwatch.times_a_submission": [M1 M3 M5] => submission;
    "stopwatch.from_queue_to_queue": [M4] => across;
    "stopwatch.errors": [F5 E2 E5] => errors;
}

/// The work is measured, and the waits before it are not, however long they take.
fn submission<S: Subject>(world: &World<S>) -> Verdict {
    let (device, queue) = (&world.left, world.left_queue("timed")?);
    let stopwatch = Stopwatch::between(device, device, "stopwatch")?;
    let opens = world.timeline("opens")?;
    let line = world.timeline("line")?;
    for round in 1..=3 {
        let busy = device.clone();
        let work = move |recorder: &mut crate::RecorderOf<'_, S>| busy.busy(recorder, DELAY);
        stopwatch.time(&queue, &[opens.at(round)], work, &[line.signal_at(round)])?;
        check_error!(stopwatch.elapsed(), NotReady);
        thread::sleep(DELAY * 2);
        let opened = Instant::now();
        opens.signal(round)?;
        let took = stopwatch.wait(patience())?;
        check!(took.axis == Axis::Same, "{took:?} on one queue");
        // `busy` takes about that long, or less on a driver that was slow when it was measured.
        within(took.nanoseconds, DELAY / 20, opened.elapsed())?;
        line.at(round).wait(patience())?;
    }
    // What the signal releases comes after the stop, also if it shares a driver queue.
    let waiting = world.left_queue("waiting")?;
    let released = Stopwatch::between(device, device, "released")?;
    let busy = device.clone();
    let work = move |recorder: &mut crate::RecorderOf<'_, S>| busy.busy(recorder, DELAY);
    released.time(&waiting, &[line.at(4)], work, &[])?;
    stopwatch.time(&queue, &[], |_| Ok(()), &[line.signal_at(4)])?;
    released.wait(patience())?;
    stopwatch.wait(patience())?;
    let between = released.start_time()?.since(&stopwatch.stop_time()?)?;
    check!(
        between.nanoseconds + between.error.cast_signed() >= 0,
        "{between:?}"
    );
    // The same without a wait.
    stopwatch.time(&queue, &[], |_| Ok(()), &[])?;
    let took = stopwatch.wait(patience())?;
    check!(took.nanoseconds >= 0, "{took:?}");
    Ok(())
}

/// Measures from a position of the left side to one of the right side and back, with work between.
///
/// Also measures to a position that comes before.
fn across<S: Subject>(world: &World<S>) -> Verdict {
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    let there = Stopwatch::between(&world.left, &world.right, "there")?;
    let back = Stopwatch::between(&world.right, &world.left, "back")?;
    let line = world.timeline("line")?;
    for round in 0..3 {
        let start = Instant::now();
        there.start(&left)?;
        let signal = line.signal_at(2 * round + 1);
        left.busy(DELAY, &[signal])?;
        right.submit_empty(&[line.at(2 * round + 1)], &[])?;
        there.stop(&right)?;
        back.start(&right)?;
        right.signal(&line, 2 * round + 2)?;
        left.submit_empty(&[line.at(2 * round + 2)], &[])?;
        back.stop(&left)?;
        for (stopwatch, least) in [(&there, DELAY / 20), (&back, Duration::ZERO)] {
            let took = stopwatch.wait(patience())?;
            let error = took.error.cast_signed();
            check!(took.nanoseconds + error >= least.as_nanos() as i64);
            within(
                took.nanoseconds.max(error) - error,
                Duration::ZERO,
                start.elapsed(),
            )?;
            check!(
                world.is_pair() != (took.axis == Axis::Same),
                "left {left:?}, right {right:?}"
            );
        }
    }
    let opens = world.timeline("opens")?;
    left.submit_empty(&[opens.at(1)], &[])?;
    there.start(&left)?;
    there.stop(&right)?;
    right.idle(patience())?;
    thread::sleep(DELAY);
    opens.signal(1)?;
    let took = there.wait(patience())?;
    check!(
        took.nanoseconds - took.error.cast_signed() <= -(DELAY.as_nanos() as i64),
        "{took:?}, but it stopped {DELAY:?} before it started, or more"
    );
    Ok(())
}

fn errors<S: Subject>(world: &World<S>) -> Verdict {
    let (device, queue) = (&world.left, world.left_queue("timed")?);
    let timed = Stopwatch::between(device, device, "stopwatch")?;
    let nothing = |when: &str| -> Verdict {
        check_error!(timed.elapsed(), NotRecorded);
        let waited = timed.wait(patience());
        check!(
            matches!(waited, Err(Error::NotRecorded { .. })),
            "{when} a wait gave {waited:?}"
        );
        Ok(())
    };
    nothing("never started")?;
    timed.start(&queue)?;
    nothing("not stopped")?;
    timed.stop(&queue)?;
    check!(timed.wait(patience())?.nanoseconds >= 0);
    // The next start discards the result.
    timed.start(&queue)?;
    nothing("started again")?;

    let opens = world.timeline("opens")?;
    queue.submit_empty(&[opens.at(1)], &[])?;
    timed.stop(&queue)?;
    check_error!(timed.elapsed(), NotReady);
    check_error!(timed.wait(Duration::ZERO), TimedOut);
    opens.signal(1)?;
    timed.wait(patience())?;

    // Nothing runs after a failure, and the queue goes on.
    let (fails, ran) = (world.timeline("fails")?, Arc::new(AtomicU32::new(0)));
    fails.fail(cause("never"));
    timed.time(&queue, &[fails.at(1)], count::<S>(&ran), &[])?;
    queue.idle(patience())?;
    check_eq!(ran.load(Ordering::SeqCst), 0);
    check_error!(timed.elapsed(), NotRecorded);

    // Work that is refused leaves the result. If it was held, there is none.
    timed.time(&queue, &[], |_| Ok(()), &[])?;
    let took = timed.wait(patience())?;
    let refused = timed.time(&queue, &[], |_| Err(cause("refused")), &[]);
    check!(matches!(refused, Err(Error::Work(_))));
    check_eq!(timed.elapsed()?.nanoseconds, took.nanoseconds);
    let on = device.subject().clone();
    let fails_to_run = move |recorder: &mut crate::RecorderOf<'_, S>| on.fail_work(recorder);
    timed.time(&queue, &[opens.at(2)], |_| Err(cause("late")), &[])?;
    opens.signal(2)?;
    queue.idle(patience())?;
    check_error!(timed.elapsed(), NotRecorded);
    // Nor is there one of work that fails while the device runs it.
    match timed.time(&queue, &[], fails_to_run, &[]) {
        Err(Error::Unsupported { asked, .. }) if asked == FAILING_WORK => {}
        submitted => {
            submitted?;
            queue.idle(patience())?;
            check_error!(timed.elapsed(), NotRecorded);
            check_error!(timed.wait(patience()), NotRecorded);
        }
    }

    if world.is_pair() {
        let right = world.right_queue("right")?;
        check_error!(timed.start(&right), WrongDevice);
        check_error!(timed.stop(&right), WrongDevice);
    }
    Ok(())
}
