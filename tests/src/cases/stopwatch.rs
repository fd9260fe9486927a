//! Stopwatches: what they time, and what they refuse.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use syncline::clock::Axis;
use syncline::{Error, Stopwatch};

use super::{DELAY, cause, count, within};
use crate::case::{Verdict, cases, check, check_error};
use crate::user::Device;
use crate::{Stop, Subject, World, patience};

cases! {
    "stopwatch.times_a_submission": [M3 M5] => submission;
    "stopwatch.from_queue_to_queue": [M4] => across;
    "stopwatch.errors": [F5 E5] => errors;
}

/// A stopwatch from one device to another, if both have clocks.
fn stopwatch<S: Subject>(from: &Device<S>, to: &Device<S>) -> Result<Stopwatch, Stop> {
    // Who has none says why.
    from.clocked_fence("start")?;
    to.clocked_fence("stop")?;
    Ok(Stopwatch::between(
        from.library(),
        to.library(),
        "stopwatch",
    )?)
}

/// The work counts, and the waits before it do not, however long they take.
fn submission<S: Subject>(world: &World<S>) -> Verdict {
    let (device, queue) = (&world.left, world.left_queue("timed")?);
    let stopwatch = stopwatch(device, device)?;
    let opens = world.timeline("opens")?;
    let line = world.timeline("line")?;
    for round in 1..=3 {
        let busy = device.clone();
        let work = move |recorder: &mut crate::RecorderOf<'_, S>| busy.busy(recorder, DELAY);
        stopwatch.time(
            queue.library(),
            &[opens.library().at(round)],
            work,
            &[line.library().signal_at(round)],
        )?;
        check_error!(stopwatch.elapsed(), Error::NotReady { .. });
        thread::sleep(DELAY * 2);
        let opened = Instant::now();
        opens.signal(round)?;
        let took = stopwatch.wait(patience())?;
        check!(took.axis == Axis::Same, "{took:?} on one queue");
        // Being busy takes about that long, less on a driver that was slow when it was measured.
        within(took.nanoseconds, DELAY / 20, opened.elapsed())?;
        line.at(round).wait(patience())?;
    }
    // Without a wait, too.
    stopwatch.time(queue.library(), &[], |_| Ok(()), &[])?;
    let took = stopwatch.wait(patience())?;
    check!(took.nanoseconds >= 0, "{took:?}");
    Ok(())
}

/// From a position of the left side to one of the right side, and back, with work in between.
fn across<S: Subject>(world: &World<S>) -> Verdict {
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    let there = stopwatch(&world.left, &world.right)?;
    let back = stopwatch(&world.right, &world.left)?;
    let line = world.timeline("line")?;
    for round in 0..3 {
        let start = Instant::now();
        there.start(left.library())?;
        let busy = world.left.clone();
        let signal = line.signal_at(2 * round + 1);
        left.submit(&[], move |recorder| busy.busy(recorder, DELAY), &[signal])?;
        right.submit(&[line.at(2 * round + 1)], |_| Ok(()), &[])?;
        there.stop(right.library())?;
        back.start(right.library())?;
        right.submit(&[], |_| Ok(()), &[line.signal_at(2 * round + 2)])?;
        left.submit(&[line.at(2 * round + 2)], |_| Ok(()), &[])?;
        back.stop(left.library())?;
        for (stopwatch, least) in [(&there, DELAY / 20), (&back, Duration::ZERO)] {
            let took = stopwatch.wait(patience())?;
            let error = took.error.cast_signed();
            check!(
                took.nanoseconds + error >= least.as_nanos() as i64,
                "{took:?}, where the work in between took {least:?} at least"
            );
            within(
                took.nanoseconds.max(error) - error,
                Duration::ZERO,
                start.elapsed(),
            )?;
            check!(
                world.is_pair() != (took.axis == Axis::Same),
                "{took:?} between {left:?} and {right:?}"
            );
        }
    }
    Ok(())
}

fn errors<S: Subject>(world: &World<S>) -> Verdict {
    let (device, queue) = (&world.left, world.left_queue("timed")?);
    let timed = stopwatch(device, device)?;
    let nothing = |when: &str| -> Verdict {
        check_error!(timed.elapsed(), Error::NotRecorded { .. });
        let waited = timed.wait(patience());
        check!(
            matches!(waited, Err(Error::NotRecorded { .. })),
            "{when} a wait gave {waited:?}"
        );
        Ok(())
    };
    nothing("never started")?;
    timed.start(queue.library())?;
    nothing("not stopped")?;
    timed.stop(queue.library())?;
    check!(
        timed.wait(patience())?.nanoseconds >= 0,
        "time ran backwards"
    );
    // What it told is gone with the next start.
    timed.start(queue.library())?;
    nothing("started again")?;

    let opens = world.timeline("opens")?;
    queue.submit(&[opens.at(1)], |_| Ok(()), &[])?;
    timed.stop(queue.library())?;
    check_error!(timed.elapsed(), Error::NotReady { .. });
    check_error!(timed.wait(Duration::ZERO), Error::TimedOut { .. });
    opens.signal(1)?;
    timed.wait(patience())?;

    // Behind a failure nothing runs, and the queue goes on.
    let (fails, ran) = (world.timeline("fails")?, Arc::new(AtomicU32::new(0)));
    fails.fail(cause("never"));
    timed.time(
        queue.library(),
        &[fails.library().at(1)],
        count::<S>(&ran),
        &[],
    )?;
    queue.idle(patience())?;
    check!(
        ran.load(Ordering::SeqCst) == 0,
        "work ran behind a wait that failed"
    );

    if world.is_pair() {
        let right = world.right_queue("right")?;
        check_error!(timed.start(right.library()), Error::WrongDevice { .. });
        check_error!(timed.stop(right.library()), Error::WrongDevice { .. });
    }
    Ok(())
}
