//! What wakes a future, and how often.

use std::future::IntoFuture as _;
use std::sync::Arc;
use std::task::Poll;
use std::thread;

use syncline::Error;

use crate::blocked::{Unstick, join_all};
use crate::case::{Stop, Verdict, cases, check, check_eq, check_error};
use crate::cases::cause;
use crate::executor::{Count, block_on, poll};
use crate::user::{all, any};
use crate::{Subject, Waiting, World, patience};

cases! {
    "future.ready_at_once": [T8 T5] => ready_at_once;
    "future.woken_by_every_kind_of_signal": [T8 T6] => every_kind;
    "future.none_is_lost_between_threads": [T8 T6] => none_is_lost;
    "future.pending_before_reached": [T8 T10] => pending_first;
    "future.the_latest_waker_is_called": [T8] => latest_waker;
}

/// Returns the result of a future that must be ready.
fn ready<T>(mut future: Waiting<T>, count: &Arc<Count>) -> Result<syncline::Result<T>, Stop> {
    match poll(&mut future, count) {
        Poll::Ready(done) => Ok(done),
        Poll::Pending => Stop::fail("a future with nothing to wait for is not ready"),
    }
}

fn ready_at_once<S: Subject>(world: &World<S>) -> Verdict {
    let line = world.timeline_from("line", 4)?;
    let (bad, lone) = (world.timeline("bad")?, world.timeline("lone")?);
    let queue = world.right_queue("right")?;
    queue.signal(&line, 6)?;
    line.at(6).wait(patience())?;
    bad.fail(cause("bad"));
    let orphan = lone.at(1).keep();
    drop(lone);
    let count = Count::new();
    for value in [0, 4, 5, 6] {
        ready(line.at(value).into_future(), &count)??;
        ready(line.at(value).keep().into_future(), &count)??;
        ready(line.at(value).pending(), &count)??;
    }
    let empty = world.left.empty_point();
    ready(empty.into_future(), &count)??;
    ready(empty.pending(), &count)??;
    ready(all::<S>(&[]), &count)??;
    check_error!(ready(any::<S>(&[]), &count)?, Error::NothingToWaitFor);
    let named = ready(any(&[line.at(7), line.at(6), empty]), &count)??;
    check!(named == 1, "{named} is named, but 1 is the lowest reached");
    for future in [bad.at(1).into_future(), bad.at(1).pending()] {
        check_error!(ready(future, &count)?, Error::Failed { value: 1, .. });
    }
    for future in [orphan.point().into_future(), orphan.point().pending()] {
        check_error!(ready(future, &count)?, Error::Cancelled { value: 1, .. });
    }
    check_error!(
        ready(line.at(u64::MAX).into_future(), &count)?,
        ValueOutOfRange
    );
    check!(
        count.woken() == 0 && Arc::strong_count(&count) == 1,
        "a future that was ready at once has called or kept the waker"
    );
    Ok(())
}

fn every_kind<S: Subject>(world: &World<S>) -> Verdict {
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    let homes = [
        world.timeline("of both")?,
        world.left.timeline("of the left")?,
        world.right.timeline("of the right")?,
    ];
    for home in &homes {
        let line = home;
        let gate = world.timeline("gate")?;
        // A queue of either side, the host, and a held submission that is released.
        for (value, how) in [(2, "left"), (4, "right"), (6, "host"), (8, "held")] {
            let count = Count::new();
            // Signalled past the value of one, and exactly to the value of the other.
            let mut futures = [
                line.at(value - 1).into_future(),
                line.at(value).into_future(),
            ];
            for future in &mut futures {
                if poll(future, &count).is_ready() {
                    return Stop::fail(format!("{line:?}: ready before its signal by {how}"));
                }
            }
            match how {
                "left" => drop(left.signal(line, value)?),
                "right" => drop(right.signal(line, value)?),
                "host" => line.signal(value)?,
                _ => {
                    left.submit_empty(&[gate.at(1)], &[line.signal_at(value)])?;
                    check!(count.woken() == 0, "woken by a claim");
                    gate.signal(1)?;
                }
            }
            count.wait_for(2)?;
            for future in &mut futures {
                match poll(future, &count) {
                    Poll::Ready(done) => done?,
                    Poll::Pending => {
                        return Stop::fail(format!("{line:?}: woken by {how}, but not ready"));
                    }
                }
            }
            check_eq!(count.woken(), 2, "line {line:?}, how {how}");
        }
    }
    // The two bad ends: failed and cancelled.
    let [failed, cancelled, other] = homes;
    let count = Count::new();
    let mut futures = [
        failed.at(100).into_future(),
        all(&[other.at(100), cancelled.at(100)]),
        failed.at(100).pending(),
    ];
    for future in &mut futures {
        check!(poll(future, &count).is_pending(), "it was never signalled");
    }
    failed.fail(cause("for the future"));
    drop(cancelled);
    count.wait_for(3)?;
    let [failed, cancelled, pending] = futures;
    for future in [failed, pending] {
        check_error!(
            ready(future, &count)?,
            Error::Failed { cause, .. } if cause.to_string().contains("for the future")
        );
    }
    check_error!(
        ready(cancelled, &count)?,
        Error::Cancelled { value: 100, .. }
    );
    Ok(())
}

fn none_is_lost<S: Subject>(world: &World<S>) -> Verdict {
    let by_queue = if world.is_pair() { 50 } else { 200 };
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    for (rounds, by_queue) in [(1000, false), (by_queue, true)] {
        let (ping, pong) = (world.timeline("ping")?, world.timeline("pong")?);
        thread::scope(|scope| {
            let _unstick = Unstick(&[&ping, &pong]);
            let other = scope.spawn(|| {
                for n in 1..=rounds {
                    block_on(async { ping.at(n).await })??;
                    if by_queue {
                        right.signal(&pong, n)?;
                    } else {
                        pong.signal(n)?;
                    }
                }
                Ok(())
            });
            for n in 1..=rounds {
                if by_queue {
                    left.signal(&ping, n)?;
                } else {
                    ping.signal(n)?;
                }
                block_on(async { pong.at(n).await })??;
            }
            join_all([other])
        })?;
    }
    Ok(())
}

fn pending_first<S: Subject>(world: &World<S>) -> Verdict {
    let stall = world.left.stall()?;
    let (gate, line) = (world.timeline("gate")?, world.left.timeline("line")?);
    let queue = world.left_queue("left")?;
    let block = stall.latch();
    queue.submit(
        &[gate.at(1)],
        move |recorder| block.block(recorder),
        &[line.signal_at(1)],
    )?;
    let (early, late) = (Count::new(), Count::new());
    let (mut pending, mut reached) = (line.at(1).pending(), line.at(1).into_future());
    check!(
        poll(&mut pending, &early).is_pending() && poll(&mut reached, &late).is_pending(),
        "ready although its submission is held"
    );
    gate.signal(1)?;
    early.wait_for(1)?;
    ready(pending, &early)??;
    check!(
        late.woken() == 0 && poll(&mut reached, &late).is_pending(),
        "reached although the device stands still"
    );
    stall.release()?;
    late.wait_for(1)?;
    ready(reached, &late)??;
    queue.idle(patience())?;
    Ok(())
}

fn latest_waker<S: Subject>(world: &World<S>) -> Verdict {
    let line = world.timeline("line")?;
    let queue = world.left_queue("left")?;
    for value in [1, 2] {
        let mut future = line.at(value).into_future();
        let counts = [Count::new(), Count::new(), Count::new()];
        for count in &counts {
            check!(poll(&mut future, count).is_pending());
        }
        for old in &counts[..2] {
            let owners = Arc::strong_count(old);
            check!(owners == 1, "a waker that was replaced is still kept");
        }
        if value == 1 {
            line.signal(value)?;
        } else {
            queue.signal(&line, value)?;
        }
        counts[2].wait_for(1)?;
        let woken = counts.each_ref().map(|count| count.woken());
        check_eq!(woken, [0, 0, 1]);
        // Polled with another waker, which is not called, because the future is ready.
        ready(future, &counts[0])??;
        check_eq!(counts[0].woken(), 0);
    }
    Ok(())
}
