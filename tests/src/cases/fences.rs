//! F1–F6: fences, on every backend what CUDA events are on theirs.

use std::time::{Duration, Instant};

use syncline::Error;

use super::{DELAY, LONG_DELAY, WORDS};
use crate::case::{Stop, Verdict, cases, check, check_error};
use crate::user::Queue;
use crate::{Subject, World, patience};

cases! {
    "fence.never_recorded_is_complete": [F1] => unrecorded;
    "fence.a_queue_waits_for_what_it_holds": [F1 F2 F4] => queue_waits;
    "fence.rerecording_moves_no_wait": [F2] => rerecorded;
    "fence.query_never_blocks": [F3 F2] => query;
    "fence.of_another_device_is_refused": [F4 E5] => other_device;
    "fence.elapsed": [F5] => elapsed;
    "fence.elapsed_errors": [F5] => elapsed_errors;
    "fence.dropped_or_recorded_again_while_pending": [F6] => dropped;
}

/// Keeps the left queue busy.
fn busy<S: Subject>(world: &World<S>, queue: &Queue<S>, time: Duration) -> syncline::Result<()> {
    let device = world.left.clone();
    queue
        .submit(&[], move |recorder| device.busy(recorder, time), &[])
        .map(|_| ())
}

fn unrecorded<S: Subject>(world: &World<S>) -> Verdict {
    let fence = world.left.fence("never recorded");
    check!(
        fence.is_complete()?,
        "a fence that was never recorded is not complete"
    );
    fence.wait(Duration::ZERO)?;
    let queue = world.right_queue("right")?;
    queue
        .submit(&[fence.point()?.point()], |_| Ok(()), &[])?
        .end()
        .wait(patience())?;
    Ok(())
}

fn queue_waits<S: Subject>(world: &World<S>) -> Verdict {
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    let (gate, done) = (world.timeline("gate")?, world.timeline("done")?);
    let fence = world.left.fence("fence");
    right.wait(&fence)?;
    check!(
        right.position().value() == 0,
        "waiting for a fence that was never recorded added something to the queue"
    );
    left.submit(&[gate.at(1)], |_| Ok(()), &[])?;
    left.record(&fence)?;
    right.wait(&fence)?;
    right.submit(&[], |_| Ok(()), &[done.signal_at(1)])?;
    // Recorded again further on: what waits already is not moved.
    left.submit(&[gate.at(2)], |_| Ok(()), &[])?;
    left.record(&fence)?;
    check_error!(
        done.at(1).wait(Duration::from_millis(3)),
        Error::TimedOut { .. }
    );
    gate.signal(1)?;
    done.at(1).wait(patience())?;
    check!(
        !fence.is_complete()?,
        "the later record is complete before its queue gets there"
    );
    gate.signal(2)?;
    fence.wait(patience())?;
    Ok(())
}

fn rerecorded<S: Subject>(world: &World<S>) -> Verdict {
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    let gate = world.timeline("gate")?;
    let fence = world.left.fence("fence");
    left.record(&fence)?;
    let early = fence.point()?;
    // Behind the gate: a wait on the later record could not end.
    left.submit(&[gate.at(1)], |_| Ok(()), &[])?;
    left.record(&fence)?;
    right
        .submit(&[early.point()], |_| Ok(()), &[])?
        .end()
        .wait(patience())?;
    early.point().wait(patience())?;
    check!(
        !fence.is_complete()?,
        "the later record is complete before its queue gets there"
    );
    check_error!(fence.wait(Duration::from_millis(1)), Error::TimedOut { .. });
    gate.signal(1)?;
    fence.wait(patience())?;
    Ok(())
}

fn query<S: Subject>(world: &World<S>) -> Verdict {
    let left = world.left_queue("left")?;
    let fence = world.left.fence("fence");
    let buffer = world.left.buffer(WORDS)?;
    busy(world, &left, LONG_DELAY)?;
    let to = buffer.clone();
    left.submit(&[], move |recorder| S::fill(recorder, &to, 9), &[])?;
    left.record(&fence)?;
    // However the race between these reads goes, complete must mean done.
    let mut queries = 0_u64;
    let start = Instant::now();
    while !fence.is_complete()? {
        queries += 1;
        check!(
            start.elapsed() < patience(),
            "not complete after {queries} queries"
        );
    }
    check!(queries > 0, "complete at once, although the queue was busy");
    check!(
        S::read(&buffer).iter().all(|&word| word == 9),
        "complete before the work was done"
    );
    Ok(())
}

fn other_device<S: Subject>(world: &World<S>) -> Verdict {
    if !world.is_pair() {
        return Stop::skip("it takes two devices");
    }
    let right = world.right_queue("right")?;
    let fence = world.left.fence("left's fence");
    check_error!(right.record(&fence), Error::WrongDevice { object, .. } if object.label() == "left's fence");
    check!(fence.is_complete()?, "a refused record changed the fence");
    // Waiting from another device is legal.
    let left = world.left_queue("left")?;
    busy(world, &left, DELAY)?;
    left.record(&fence)?;
    right
        .submit(&[fence.point()?.point()], |_| Ok(()), &[])?
        .end()
        .wait(patience())?;
    check!(
        fence.is_complete()?,
        "the other device did not wait for the fence"
    );
    Ok(())
}

fn elapsed<S: Subject>(world: &World<S>) -> Verdict {
    if world.left.info().capabilities.timestamp_bits == 0 {
        return Stop::skip("the device has no timestamps");
    }
    let left = world.left_queue("left")?;
    let (begin, end) = (
        world.left.timed_fence("begin"),
        world.left.timed_fence("end"),
    );
    let gate = world.left.gate()?;
    let before = Instant::now();
    left.record(&begin)?;
    begin.wait(patience())?;
    let between = Instant::now();
    left.block(&gate)?;
    left.record(&end)?;
    std::thread::sleep(DELAY);
    let inside = between.elapsed();
    gate.open()?;
    end.wait(patience())?;
    let outside = before.elapsed();
    let forward = end.elapsed_since(&begin)?;
    // The device stood still from `between` until the gate opened, and both times were written within
    // `outside`, but for the grain of both clocks.
    let grain = Duration::from_millis(1);
    let least = (inside - inside / 50).saturating_sub(grain).as_nanos() as i64;
    let most = (outside + outside / 50 + grain).as_nanos() as i64;
    check!(
        (least..=most).contains(&forward),
        "{forward} ns between two fences, one written before and one after {inside:?}, both within {outside:?}"
    );
    let backward = begin.elapsed_since(&end)?;
    check!(
        backward < 0 && (backward + forward).abs() < 1_000_000,
        "{forward} ns forward, {backward} ns backward"
    );
    check!(
        end.elapsed_since(&end)? == 0,
        "a fence against itself is {} ns",
        end.elapsed_since(&end)?
    );
    Ok(())
}

fn elapsed_errors<S: Subject>(world: &World<S>) -> Verdict {
    if world.left.info().capabilities.timestamp_bits == 0 {
        return Stop::skip("the device has no timestamps");
    }
    let left = world.left_queue("left")?;
    let gate = world.timeline("gate")?;
    let (timed, plain) = (world.left.timed_fence("timed"), world.left.fence("plain"));
    let never = world.left.timed_fence("never");
    left.record(&timed)?;
    left.record(&plain)?;
    left.idle(patience())?;
    check_error!(plain.elapsed_since(&timed), Error::TimingDisabled { .. });
    check_error!(timed.elapsed_since(&never), Error::NotRecorded { .. });
    left.submit(&[gate.at(1)], |_| Ok(()), &[])?;
    let late = world.left.timed_fence("late");
    left.record(&late)?;
    check_error!(late.elapsed_since(&timed), Error::NotReady { .. });
    gate.signal(1)?;
    late.wait(patience())?;
    check!(
        late.elapsed_since(&timed)? >= 0,
        "time ran backwards along a queue"
    );
    if world.is_pair() && world.right.info().capabilities.timestamp_bits > 0 {
        let foreign = world.right.timed_fence("foreign");
        let right = world.right_queue("right")?;
        right.record(&foreign)?;
        foreign.wait(patience())?;
        check_error!(timed.elapsed_since(&foreign), Error::WrongDevice { .. });
    }
    Ok(())
}

fn dropped<S: Subject>(world: &World<S>) -> Verdict {
    let left = world.left_queue("left")?;
    let fence = world.left.fence("fence");
    for _ in 0..50 {
        busy(world, &left, Duration::from_micros(100))?;
        left.record(&fence)?;
        let pending = world.left.timed_fence("dropped");
        if world.left.info().capabilities.timestamp_bits > 0 {
            left.record(&pending)?;
        }
    }
    let point = fence.point()?;
    drop(fence);
    point.point().wait(patience())?;
    left.idle(patience())?;
    Ok(())
}
