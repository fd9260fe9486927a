//! T2: which signaller may signal which values.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use syncline::Error;

use crate::blocked::join_all;
use crate::case::{Stop, Verdict, cases, check_eq, check_error};
use crate::dice::Dice;
use crate::user::Queue;
use crate::{Subject, World, patience};

cases! {
    "timeline.equal_signals_have_one_winner": [T2] => one_winner(dice);
    "timeline.host_signal_in_the_gap": [T2] => in_the_gap;
}

/// Four signallers, each with a thread of its own, start together at every value of one line.
fn one_winner<S: Subject>(world: &World<S>, dice: &mut Dice) -> Verdict {
    const ROUNDS: u64 = 600;
    /// Slow devices get through fewer.
    const AT_LEAST: u64 = 60;
    const LONG: Duration = Duration::from_millis(100);
    let line = world.timeline("line")?;
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    let by_queue = |queue: &Queue<S>, value: u64| {
        let signal = line.signal_at(value);
        queue.submit_empty(&[], &[signal]).map(drop)
    };
    let signallers: [&(dyn Fn(u64) -> syncline::Result<()> + Sync); 4] = [
        &|value| by_queue(&left, value),
        &|value| by_queue(&right, value),
        &|value| line.signal(value),
        &|value| line.signal(value),
    ];
    let (start, end) = (
        Barrier::new(signallers.len()),
        Barrier::new(signallers.len()),
    );
    let (wins, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let first = line.value()?;
    let began = Instant::now();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..)
            .zip(signallers)
            .map(|(nth, signal)| {
                let (line, mut dice) = (&line, dice.fork());
                let (start, end, wins, over) = (&start, &end, &wins, &over);
                scope.spawn(move || {
                    for round in 1..=ROUNDS {
                        let value = first + round;
                        start.wait();
                        // Set between the other barrier and this one, so all see the same.
                        if over.load(Ordering::SeqCst) {
                            break;
                        }
                        hesitate(&mut dice);
                        let mut ended = won(signal(value), value).map(|won| {
                            wins.fetch_add(usize::from(won), Ordering::SeqCst);
                        });
                        if ended.is_ok() {
                            ended = line.at(value).wait(patience()).map_err(Stop::from);
                        }
                        end.wait();
                        if nth == 0 {
                            let wins = wins.swap(0, Ordering::SeqCst);
                            if ended.is_ok() && wins != 1 {
                                ended = Stop::fail(format!(
                                    "{wins} of four equal signals of {value} were accepted"
                                ));
                            }
                            if round >= AT_LEAST && began.elapsed() > LONG {
                                over.store(true, Ordering::SeqCst);
                            }
                        }
                        if ended.is_err() {
                            over.store(true, Ordering::SeqCst);
                            if round < ROUNDS {
                                start.wait();
                            }
                            return ended;
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        join_all(threads)
    })
}

/// Returns whether the signal of `value`, right after the value before it, was accepted.
///
/// The error of a signal that comes too late names both values.
fn won(signalled: syncline::Result<()>, value: u64) -> Result<bool, Stop> {
    match signalled {
        Ok(()) => Ok(true),
        Err(Error::SignalNotAboveReached { asked, reached, .. })
            if (asked, reached) == (value, value) =>
        {
            Ok(false)
        }
        Err(Error::SignalOverlapsClaim {
            asked, above, upto, ..
        }) if (asked, above, upto) == (value, value - 1, value) => Ok(false),
        Err(other) => Stop::fail(format!("the loser of the race for {value} got: {other}")),
    }
}

/// Waits for a random time of up to a few microseconds.
fn hesitate(dice: &mut Dice) {
    for _ in 0..dice.below(1000) {
        std::hint::spin_loop();
    }
}

fn in_the_gap<S: Subject>(world: &World<S>) -> Verdict {
    let (gate, line) = (world.timeline("gate")?, world.timeline("line")?);
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    right.submit_empty(&[gate.at(1), line.at(10)], &[line.signal_at(20)])?;
    let refused = || {
        for value in [11, 15, 20, 21] {
            check_error!(
                line.signal(value),
                Error::SignalOverlapsClaim { asked, above: 10, upto: 20, .. } if asked == value
            );
        }
        for value in [11, 20] {
            check_error!(
                left.signal(&line, value),
                Error::SignalOverlapsClaim { asked, above: 10, upto: 20, .. } if asked == value
            );
        }
        Ok(())
    };
    refused()?;
    line.signal(4)?;
    refused()?;
    left.signal(&line, 7)?;
    line.at(7).wait(patience())?;
    line.signal(10)?;
    refused()?;
    check_eq!(line.value()?, 10);
    gate.signal(1)?;
    line.at(20).wait(patience())?;
    check_error!(line.signal(11), SignalNotAboveReached);
    line.signal(21)?;
    Ok(())
}
