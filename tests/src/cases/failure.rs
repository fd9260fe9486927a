//! E1, E2, E4, E5: how failures spread, and how far.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use syncline::Error;

use super::cause;
use crate::case::{Verdict, cases, check, check_error};
use crate::{Subject, World, patience};

cases! {
    "failure.first_cause_is_kept": [E1] => first_cause;
    "failure.reached_values_stay_reached": [E1 T1] => frozen;
    "failure.chains_keep_the_original_cause": [E2] => chains;
    "failure.known_before_the_call": [E2] => known_before;
    "failure.others_go_on": [E4] => others;
}

fn first_cause<S: Subject>(world: &World<S>) -> Verdict {
    let line = world.timeline("line")?;
    line.fail(cause("the first"));
    line.fail(cause("the second"));
    for _ in 0..2 {
        check_error!(
            line.at(1).wait(patience()),
            Error::Failed { timeline, value: 1, cause } if timeline.label() == "line" && cause.to_string().contains("the first")
        );
    }
    check_error!(line.signal(1), Error::Failed { .. });
    check_error!(line.value(), Error::Failed { .. });
    let queue = world.left_queue("left")?;
    check_error!(
        queue.submit(&[], |_| Ok(()), &[line.signal_at(1)]),
        Error::Failed { .. }
    );
    Ok(())
}

fn frozen<S: Subject>(world: &World<S>) -> Verdict {
    let line = world.timeline("line")?;
    let queue = world.left_queue("left")?;
    queue.submit(&[], |_| Ok(()), &[line.signal_at(3)])?;
    line.at(3).wait(patience())?;
    line.fail(cause("frozen"));
    line.at(3).wait(patience())?;
    check!(
        line.at(2).is_reached()?,
        "a reached value is no longer reached"
    );
    check!(
        line.frozen_value() == 3,
        "frozen at {} instead of 3",
        line.frozen_value()
    );
    check_error!(line.at(4).wait(patience()), Error::Failed { value: 4, .. });
    queue
        .submit(&[line.at(3)], |_| Ok(()), &[])?
        .end()
        .wait(patience())?;
    Ok(())
}

fn chains<S: Subject>(world: &World<S>) -> Verdict {
    let lines: Vec<_> = (0..5)
        .map(|i| world.timeline(&format!("line {i}")))
        .collect::<syncline::Result<_>>()?;
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    let ran = Arc::new(AtomicU32::new(0));
    for (index, pair) in lines.windows(2).enumerate() {
        let queue = if index % 2 == 0 { &right } else { &left };
        let ran = ran.clone();
        queue.submit(
            &[pair[0].at(1)],
            move |_| {
                ran.fetch_add(1, Ordering::SeqCst);
                Ok(())
            },
            &[pair[1].signal_at(1)],
        )?;
    }
    lines[0].fail(cause("the origin"));
    for line in &lines {
        check_error!(
            line.at(1).wait(patience()),
            Error::Failed { cause, .. } if cause.to_string() == "work failed: the origin"
        );
    }
    check!(ran.load(Ordering::SeqCst) == 0, "work behind a failure ran");
    left.idle(patience())?;
    right.idle(patience())?;
    Ok(())
}

fn known_before<S: Subject>(world: &World<S>) -> Verdict {
    let (bad, line) = (world.timeline("bad")?, world.timeline("line")?);
    bad.fail(cause("known before"));
    let queue = world.right_queue("right")?;
    let ran = Arc::new(AtomicU32::new(0));
    let count = ran.clone();
    queue.submit(
        &[bad.at(1)],
        move |_| {
            count.fetch_add(1, Ordering::SeqCst);
            Ok(())
        },
        &[line.signal_at(1)],
    )?;
    check_error!(line.at(1).wait(patience()), Error::Failed { cause, .. } if cause.to_string().contains("known before"));
    queue.idle(patience())?;
    check!(ran.load(Ordering::SeqCst) == 0, "work behind a failure ran");
    Ok(())
}

fn others<S: Subject>(world: &World<S>) -> Verdict {
    let (bad, good) = (world.timeline("bad")?, world.timeline("good")?);
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    right.submit(&[bad.at(1)], |_| Ok(()), &[])?;
    bad.fail(cause("bad"));
    left.submit(&[], |_| Ok(()), &[good.signal_at(1)])?;
    right.submit(&[good.at(1)], |_| Ok(()), &[good.signal_at(2)])?;
    good.at(2).wait(patience())?;
    // A submission that signals both: the healthy one gets its signal.
    let both = world.timeline("both")?;
    let held = world.timeline("held")?;
    right.submit(
        &[held.at(1)],
        |_| Ok(()),
        &[both.signal_at(1), good.signal_at(3)],
    )?;
    both.fail(cause("meanwhile"));
    held.signal(1)?;
    good.at(3).wait(patience())?;
    Ok(())
}
