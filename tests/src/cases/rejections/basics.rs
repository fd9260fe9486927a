//! Q5, T2: a submission that is refused, and its effects.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use syncline::Error;

use super::super::{WORDS, cause, count, is_filled};
use crate::case::{Verdict, cases, check, check_error};
use crate::{Subject, World, patience};

cases! {
    "rejected.claims_are_withdrawn": [Q5] => claims_withdrawn;
    "rejected.one_bad_signal_of_several": [Q5 T2] => one_bad_signal;
    "rejected.after_it_has_recorded": [Q5 Q6] => after_recording;
    "rejected.held_fails_its_signals": [Q5] => held;
    "rejected.its_signals_stay_away": [Q5] => stay_away;
    "rejected.signal_twice_in_one_submission": [T2 E5] => twice;
    "rejected.signal_behind_own_wait": [Q4 T2] => behind_own_wait;
}

fn claims_withdrawn<S: Subject>(world: &World<S>) -> Verdict {
    let line = world.timeline("line")?;
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    let refused = left.submit(&[], |_| Err(cause("refused")), &[line.signal_at(1)]);
    check_error!(refused, Error::Work(_));
    check!(
        line.value()? == 0,
        "a rejected submission signalled {}",
        line.value()?
    );
    right.submit(&[], |_| Ok(()), &[line.signal_at(1)])?;
    left.submit(&[line.at(1)], |_| Ok(()), &[line.signal_at(2)])?;
    line.at(2).wait(patience())?;
    left.idle(patience())?;
    Ok(())
}

/// The counter of the device does not get the signal of a refused submission.
///
/// The next signal makes the engine read the counter.
fn stay_away<S: Subject>(world: &World<S>) -> Verdict {
    let line = world.timeline("line")?;
    let queue = world.left_queue("left")?;
    let refused = queue.submit(&[], |_| Err(cause("refused")), &[line.signal_at(5)]);
    check_error!(refused, Error::Work(_));
    queue.submit(&[], |_| Ok(()), &[])?;
    queue.idle(patience())?;
    queue.submit(&[], |_| Ok(()), &[line.signal_at(1)])?;
    line.at(1).wait(patience())?;
    let shown = line.value()?;
    check!(shown == 1, "the counter is at {shown} after a signal of 1");
    Ok(())
}

fn one_bad_signal<S: Subject>(world: &World<S>) -> Verdict {
    let (good, bad) = (world.timeline("good")?, world.timeline("bad")?);
    bad.signal(5)?;
    let queue = world.left_queue("left")?;
    let ran = Arc::new(AtomicU32::new(0));
    let refused = queue.submit(
        &[],
        count::<S>(&ran),
        &[good.signal_at(1), bad.signal_at(3)],
    );
    check_error!(
        refused,
        Error::SignalNotAboveReached {
            asked: 3,
            reached: 5,
            ..
        }
    );
    queue.idle(patience())?;
    check!(
        ran.load(Ordering::SeqCst) == 0,
        "work of a refused submission ran"
    );
    check!(
        good.value()? == 0,
        "half of a refused submission was signalled"
    );
    good.signal(1)?;
    Ok(())
}

fn after_recording<S: Subject>(world: &World<S>) -> Verdict {
    let line = world.timeline("line")?;
    let queue = world.left_queue("left")?;
    let buffer = world.left.buffer(WORDS)?;
    let to = buffer.clone();
    let refused = queue.submit(
        &[],
        move |recorder| {
            S::fill(recorder, &to, 1)?;
            Err(cause("after recording"))
        },
        &[line.signal_at(1)],
    );
    check_error!(refused, Error::Work(_));
    let to = buffer.clone();
    queue.submit(
        &[],
        move |recorder| S::fill(recorder, &to, 2),
        &[line.signal_at(1)],
    )?;
    line.at(1).wait(patience())?;
    check!(
        is_filled::<S>(&buffer, 2),
        "later work on the queue is wrong"
    );
    Ok(())
}

fn held<S: Subject>(world: &World<S>) -> Verdict {
    let (gate, line) = (world.timeline("gate")?, world.timeline("line")?);
    let queue = world.right_queue("right")?;
    queue.submit(
        &[gate.at(1)],
        |_| Err(cause("rejected at its release")),
        &[line.signal_at(1)],
    )?;
    let other = world.timeline("other")?;
    queue.submit(&[], |_| Ok(()), &[other.signal_at(1)])?;
    gate.signal(1)?;
    check_error!(
        line.at(1).wait(patience()),
        Error::Failed { cause, .. } if cause.to_string().contains("rejected at its release")
    );
    other.at(1).wait(patience())?;
    queue.idle(patience())?;
    Ok(())
}

fn twice<S: Subject>(world: &World<S>) -> Verdict {
    let line = world.timeline("line")?;
    let queue = world.left_queue("left")?;
    check_error!(
        queue.submit(&[], |_| Ok(()), &[line.signal_at(1), line.signal_at(2)]),
        Error::DuplicateSignal { asked: 2, .. }
    );
    line.signal(1)?;
    Ok(())
}

fn behind_own_wait<S: Subject>(world: &World<S>) -> Verdict {
    let line = world.timeline("line")?;
    let queue = world.left_queue("left")?;
    for waited in [3, 4] {
        check_error!(
            queue.submit(&[line.at(waited)], |_| Ok(()), &[line.signal_at(3)]),
            Error::SignalBehindOwnWait { asked: 3, waited: w, .. } if w == waited
        );
    }
    line.signal(3)?;
    Ok(())
}
