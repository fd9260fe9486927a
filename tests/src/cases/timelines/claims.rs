//! T2: who may signal which values.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use syncline::Error;

use crate::case::{Verdict, cases, check, check_error};
use crate::{Subject, World, patience};

cases! {
    "timeline.equal_signals_have_one_winner": [T2] => one_winner;
    "timeline.claims_hold_while_held": [T2] => claims_while_held;
    "timeline.dropped_claim_is_withdrawn": [T2] => dropped_claim;
    "timeline.host_signal_in_the_gap": [T2] => in_the_gap;
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

fn in_the_gap<S: Subject>(world: &World<S>) -> Verdict {
    let (gate, line) = (world.timeline("gate")?, world.timeline("line")?);
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    right.submit(
        &[gate.at(1), line.at(10)],
        |_| Ok(()),
        &[line.signal_at(20)],
    )?;
    let refused = || {
        for value in [11, 15, 20, 21] {
            check_error!(
                line.signal(value),
                Error::SignalOverlapsClaim { asked, above: 10, upto: 20, .. } if asked == value
            );
        }
        for value in [11, 20] {
            check_error!(
                left.submit(&[], |_| Ok(()), &[line.signal_at(value)]),
                Error::SignalOverlapsClaim { asked, above: 10, upto: 20, .. } if asked == value
            );
        }
        Ok(())
    };
    refused()?;
    line.signal(4)?;
    refused()?;
    left.submit(&[], |_| Ok(()), &[line.signal_at(7)])?;
    line.at(7).wait(patience())?;
    line.signal(10)?;
    refused()?;
    check!(
        line.value()? == 10,
        "refused signals moved it to {}",
        line.value()?
    );
    gate.signal(1)?;
    line.at(20).wait(patience())?;
    check_error!(line.signal(11), Error::SignalNotAboveReached { .. });
    line.signal(21)?;
    Ok(())
}
