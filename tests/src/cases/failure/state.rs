//! E1, E5: what a failed timeline reports. The first cause counts.

use std::error::Error as _;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use syncline::Error;

use crate::blocked::{blocked, join};
use crate::case::{Stop, Verdict, cases, check, check_eq, check_error};
use crate::cases::{DELAY, WORDS, cause, count, filled};
use crate::user::Queue;
use crate::{Subject, World, patience};

/// Time limit of a wait that must time out.
const SHORT: Duration = Duration::from_millis(1);

cases! {
    "failure.first_cause_is_kept": [E1] => first_cause;
    "failure.reached_values_stay_reached": [E1 T1] => frozen;
    "failure.after_the_driver_has_it": [E1 E2] => under_way;
    "failure.queue_position_still_advances": [E2 F2] => position;
    "failure.skipped_submission_tells_its_cause": [E2 T10 E5] => skipped;
    "failure.cause_chain_reaches_the_root": [E5 E2] => chain_of_sources;
}

fn first_cause<S: Subject>(world: &World<S>) -> Verdict {
    let line = world.timeline("line")?;
    line.fail(cause("the first"));
    line.fail(cause("the second"));
    for _ in 0..2 {
        check_error!(
            line.at(1).wait(patience()),
            Error::Failed { timeline, value: 1, cause, .. } if timeline.label() == "line" && cause.to_string().contains("the first")
        );
    }
    check_error!(line.signal(1), Failed);
    check_error!(line.value(), Failed);
    let queue = world.left_queue("left")?;
    check_error!(queue.signal(&line, 1), Failed);
    Ok(())
}

fn frozen<S: Subject>(world: &World<S>) -> Verdict {
    let line = world.timeline("line")?;
    let queue = world.left_queue("left")?;
    queue.signal(&line, 3)?;
    line.at(3).wait(patience())?;
    line.fail(cause("frozen"));
    line.at(3).wait(patience())?;
    check!(line.at(2).is_reached()?);
    check_eq!(line.frozen_value(), 3);
    check_error!(line.at(4).wait(patience()), Error::Failed { value: 4, .. });
    queue
        .submit_empty(&[line.at(3)], &[])?
        .end()
        .wait(patience())?;
    Ok(())
}

/// A timeline fails while the driver has the work that signals it.
///
/// The work ends and its queue goes on, but the timeline stays where it was.
fn under_way<S: Subject>(world: &World<S>) -> Verdict {
    let line = world.timeline("line")?;
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    let buffer = world.left.buffer(WORDS)?;
    left.signal(&line, 1)?;
    line.at(1).wait(patience())?;
    let stall = world.left.stall()?;
    left.block(&stall)?;
    let to = buffer.clone();
    let end = left.fill(&[], &to, 5, &[line.signal_at(2)])?;
    line.fail(cause("meanwhile"));
    // No wait depends on the device, which is blocked.
    check_error!(
        line.at(2).wait(patience()),
        Error::Failed { cause, .. } if cause.to_string() == "work failed: meanwhile"
    );
    stall.release()?;
    end.end().wait(patience())?;
    filled::<S>(&buffer, 5, "buffer")?;
    let frozen = line.frozen_value();
    check!(frozen == 1, "a failed timeline moved from 1 to {frozen}");
    check_error!(line.at(2).wait(patience()), Error::Failed { value: 2, .. });
    check_error!(line.value(), Failed);
    for queue in [&left, &right] {
        let after = world.timeline("after")?;
        queue.submit(
            &[line.at(2)],
            |_| Err(cause("ran behind a failure")),
            &[after.signal_at(1)],
        )?;
        check_error!(
            after.at(1).wait(patience()),
            Error::Failed { cause, .. } if cause.to_string() == "work failed: meanwhile"
        );
        queue.submit_empty(&[line.at(1)], &[])?;
        queue.idle(patience())?;
    }
    Ok(())
}

/// A timeline fails before or after the submission that waits for it, on both sides.
///
/// The queue goes on after the skipped submission. Later fences and times are valid.
fn position<S: Subject>(world: &World<S>) -> Verdict {
    for (device, label) in [(&world.left, "left"), (&world.right, "right")] {
        let queue = device.queue(syncline::QueueKind::Compute, label)?;
        let timed = device.info().capabilities.timestamp_bits > 0;
        let fence = |label| match timed {
            true => device.timed_fence(label),
            false => device.fence(label),
        };
        for known in [false, true] {
            let (bad, out) = (world.timeline("bad")?, world.timeline("out")?);
            let (begin, plain, end) = (fence("begin"), device.fence("plain"), fence("end"));
            let buffer = device.buffer(WORDS)?;
            queue.record(&begin)?;
            if known {
                bad.fail(cause("bad"));
            }
            let passed = queue
                .submit(
                    &[bad.at(1)],
                    |_| Err(cause("ran behind a failure")),
                    &[out.signal_at(1)],
                )?
                .end()
                .keep();
            queue.record(&plain)?;
            let last = queue.fill_after(DELAY, &buffer, 9, &[])?.end().keep();
            queue.record(&end)?;
            if !known {
                bad.fail(cause("bad"));
            }
            check_error!(
                out.at(1).wait(patience()),
                Error::Failed { cause, .. } if cause.to_string() == "work failed: bad"
            );
            passed.point().wait(patience())?;
            plain.wait(patience())?;
            last.point().wait(patience())?;
            filled::<S>(&buffer, 9, "buffer")?;
            queue.idle(patience())?;
            check!(end.is_complete()?, "idle, but a fence is not complete");
            if timed {
                let time = end.elapsed_since(&begin)?;
                check!(time > 0, "{time} ns between two fences around a failure");
            }
            let held = queue.held().count;
            check!(held == 0, "idle, but {held} are held");
        }
    }
    Ok(())
}

/// A queue's position passes skipped submissions. Only the submission tells that it did not run.
fn skipped<S: Subject>(world: &World<S>) -> Verdict {
    let tells = |ended: syncline::Result<()>, queue: &Queue<S>, cause: &str| -> Verdict {
        let Err(error) = ended else {
            return Stop::fail("a submission that was skipped counts as submitted");
        };
        let text = error.to_string();
        for part in [cause, &queue.object().to_string()] {
            check!(text.contains(part), "{part:?} is not in: {text}");
        }
        let is_root = matches!(error.root(), Error::Work(own) if own.to_string() == cause);
        check!(is_root, "the cause is not the original one: {error:?}");
        let named =
            matches!(&error, Error::Skipped { queue: named, .. } if named == queue.object());
        check!(named, "not told as skipped by {queue:?}: {error:?}");
        Ok(())
    };
    let ran = Arc::new(AtomicU32::new(0));
    let queue = world.right_queue("right")?;
    queue
        .submit(&[], count::<S>(&ran), &[])?
        .wait_submitted(patience())?;
    // The submission has no signal that could tell.
    for known in [true, false] {
        let bad = world.timeline("bad")?;
        if known {
            bad.fail(cause("bad"));
        }
        let submitted = queue.submit(&[bad.at(1)], count::<S>(&ran), &[])?;
        if !known {
            check_error!(submitted.wait_submitted(SHORT), TimedOut);
            bad.fail(cause("bad"));
        }
        tells(submitted.wait_submitted(patience()), &queue, "bad")?;
        submitted.end().wait_pending(patience())?;
        submitted.end().wait(patience())?;
        tells(submitted.wait_submitted(Duration::ZERO), &queue, "bad")?;
    }
    // The submission is held, and a thread waits for it. The thread gets the failure at once.
    let [gate, bad, late] = world.timelines(["gate", "bad", "late"])?;
    let first = queue.submit(&[gate.at(1)], count::<S>(&ran), &[])?;
    let second = queue.submit(&[bad.at(1)], count::<S>(&ran), &[])?;
    let third = queue.submit(&[late.at(1)], |_| Err(cause("refused")), &[])?;
    let told = std::thread::scope(|scope| {
        let waiting = blocked(scope, || second.wait_submitted(patience()))?;
        bad.fail(cause("bad"));
        join(waiting)
    })?;
    tells(told, &queue, "bad")?;
    check_error!(first.wait_submitted(SHORT), TimedOut);
    gate.signal(1)?;
    first.wait_submitted(patience())?;
    // The work refuses at its release.
    check_error!(third.wait_submitted(SHORT), TimedOut);
    late.signal(1)?;
    tells(third.wait_submitted(patience()), &queue, "refused")?;
    let last = queue.submit(&[], count::<S>(&ran), &[])?;
    last.wait_submitted(patience())?;
    tells(second.wait_submitted(patience()), &queue, "bad")?;
    queue.idle(patience())?;
    let ran = ran.load(Ordering::SeqCst);
    check!(ran == 3, "{ran} submissions ran, and 3 are to");
    Ok(())
}

/// The error of the application's own work.
#[derive(Debug)]
struct Shortage {
    missing: u32,
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} buffers are missing", self.missing)
    }
}

impl std::error::Error for Shortage {}

/// A failure that passed through three timelines leads to the application's error as its source.
///
/// The error text appears once.
fn chain_of_sources<S: Subject>(world: &World<S>) -> Verdict {
    let gate = world.timeline("gate")?;
    let lines = world.timelines(["origin", "second hand", "third hand"])?;
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    left.submit(
        &[gate.at(1)],
        |_| Err(Error::work(Shortage { missing: 7 })),
        &[lines[0].signal_at(1)],
    )?;
    right.submit_empty(&[lines[0].at(1)], &[lines[1].signal_at(1)])?;
    left.submit_empty(&[lines[1].at(1)], &[lines[2].signal_at(4)])?;
    gate.signal(1)?;
    let Err(error) = lines[2].at(4).wait(patience()) else {
        return Stop::fail("a timeline behind a failure was reached");
    };
    let text = error.to_string();
    let third = lines[2].object();
    for part in [
        "third hand",
        &format!("#{}", third.id()),
        "4",
        "7 buffers are missing",
    ] {
        check!(text.contains(part), "{part:?} is not in: {text}");
    }
    let Error::Work(own) = error.root() else {
        return Stop::fail(format!("the root is not what the work returned: {error:?}"));
    };
    let found = own.downcast_ref::<Shortage>();
    check!(
        found.is_some_and(|shortage| shortage.missing == 7),
        "the application's own error is not found by its type: {error:?}"
    );
    let chain = std::iter::successors(error.source(), |&source| source.source());
    for source in chain {
        let source = source.to_string();
        check!(!text.contains(&source), "{source:?} is told twice: {text}");
    }
    let inside =
        matches!(&error, Error::Failed { cause, .. } if matches!(&**cause, Error::Work(_)));
    check!(inside, "the cause is not the original one: {error:?}");
    let shared = |line: &crate::user::Timeline<S>| match line.at(1).wait(patience()) {
        Err(Error::Failed { cause, .. }) => Some(cause),
        _ => None,
    };
    let (first, second) = (shared(&lines[0]), shared(&lines[1]));
    check!(
        first.zip(second).is_some_and(|(a, b)| Arc::ptr_eq(&a, &b)),
        "two timelines of one failure have two causes"
    );
    left.idle(patience())?;
    right.idle(patience())?;
    Ok(())
}
