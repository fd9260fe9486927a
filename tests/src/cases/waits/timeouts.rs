//! T4: the end of waits whose value is never reached.

use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use syncline::{Error, WaitMode};

use super::Behind;
use crate::blocked::{Unstick, blocked, join};
use crate::case::{Stop, Verdict, cases, check, check_error};
use crate::cases::cause;
use crate::dice::Dice;
use crate::user::{wait_all, wait_any};
use crate::{Subject, World, patience};

cases! {
    "wait.signals_below_prolong_nothing": [T4] => signals_below;
    "wait.longest_timeouts_saturate": [T4] => longest;
    "wait.timeouts_race_with_signals": [T4 T6] => race(dice);
    "wait.time_out_says_what_it_saw": [T4 E5] => says_what_it_saw;
}

/// Signals below its value may wake a waiting thread, but they do not restart its time.
///
/// That time is so long that even on a busy machine there are several signals in it.
fn signals_below<S: Subject>(world: &World<S>) -> Verdict {
    const FAR: u64 = 1 << 30;
    let short = Duration::from_millis(100);
    for mode in [WaitMode::Spin, WaitMode::Block, WaitMode::Adaptive] {
        let line = world.timeline("line")?;
        let waiting = &line;
        let (ended, in_time) = thread::scope(|scope| {
            let waiter = scope.spawn(move || waiting.at(FAR).wait_with(mode, short));
            let start = Instant::now();
            let mut passed = 0;
            while !waiter.is_finished() && start.elapsed() < patience() {
                passed += 1;
                line.signal(passed)?;
                thread::sleep(Duration::from_millis(1));
            }
            let in_time = waiter.is_finished();
            // Ends a wait that does not end by itself.
            line.signal(FAR)?;
            Ok::<_, Stop>((join(waiter)?, in_time))
        })?;
        check!(
            in_time,
            "{mode:?}: a wait of {short:?} goes on for as long as there are signals below its value"
        );
        check_error!(ended, Error::TimedOut { value: FAR, .. });
    }
    Ok(())
}

fn longest<S: Subject>(world: &World<S>) -> Verdict {
    let longest = [
        Duration::MAX,
        Duration::from_nanos(u64::MAX),
        Duration::from_secs(u32::MAX.into()),
        // Just beyond the largest deadline of seconds in 64 bits.
        Duration::from_secs(i64::MAX as u64),
    ];
    for timeout in longest {
        let behind = Behind::new(world)?;
        let mut waits = behind.parking();
        thread::scope(|scope| {
            let _unstick = Unstick(&[&behind.gate]);
            let mut threads = Vec::new();
            for (name, wait) in waits.drain(..) {
                threads.push((name, blocked(scope, move || wait(timeout))?));
            }
            let (name, wait) = behind.spinning();
            threads.push((name, scope.spawn(move || wait(timeout))));
            if let Some((name, thread)) = threads
                .iter()
                .position(|(_, t)| t.is_finished())
                .map(|at| threads.swap_remove(at))
            {
                let ended = join(thread)?;
                return Stop::fail(format!("{name} for {timeout:?} ended at once: {ended:?}"));
            }
            behind.gate.signal(1)?;
            for (name, thread) in threads {
                join(thread)?
                    .map_err(|error| Stop::Failed(format!("{name} for {timeout:?}: {error}")))?;
            }
            behind.queue.idle(patience())?;
            Ok(())
        })?;
    }
    Ok(())
}

/// Time-outs race with signals.
///
/// A time-out that was too short makes the next one longer, and one that was not makes it shorter.
/// So both results occur again and again.
fn race<S: Subject>(world: &World<S>, dice: &mut Dice) -> Verdict {
    let by_queue = if world.is_pair() { 100 } else { 500 };
    for (rounds, by_queue) in [(1500, false), (by_queue, true)] {
        let line = world.timeline("line")?;
        let queue = world.left_queue("left")?;
        let (mut in_time, mut late) = (0, 0);
        thread::scope(|scope| {
            let (ask, asked) = channel::<u64>();
            let signaller = scope.spawn({
                let (line, queue) = (&line, &queue);
                move || {
                    for value in asked {
                        if by_queue {
                            queue.signal(line, value)?;
                        } else {
                            line.signal(value)?;
                        }
                    }
                    Ok::<_, Error>(())
                }
            });
            let mut dice = dice.fork();
            let mut usual = 20_000;
            for value in 1..=rounds {
                let mode = [WaitMode::Spin, WaitMode::Block, WaitMode::Adaptive][dice.index(3)];
                let timeout = Duration::from_nanos(dice.below(2 * usual));
                if ask.send(value).is_err() {
                    break;
                }
                match line.at(value).wait_with(mode, timeout) {
                    Ok(()) => {
                        in_time += 1;
                        usual = usual * 3 / 4 + 10;
                        check!(line.at(value).is_reached()?);
                    }
                    Err(Error::TimedOut {
                        value: asked,
                        reached,
                        ..
                    }) => {
                        late += 1;
                        usual = usual * 4 / 3 + 100;
                        check!(
                            asked == value && reached < value,
                            "a wait for {value} timed out for {asked} at {reached}"
                        );
                        line.at(value).wait(patience())?;
                    }
                    Err(other) => return Err(other.into()),
                }
            }
            drop(ask);
            join(signaller)??;
            Ok(())
        })?;
        check!(
            in_time > 0 && late > 0,
            "{in_time} waits ended in time and {late} did not: this shows nothing"
        );
    }
    Ok(())
}

fn says_what_it_saw<S: Subject>(world: &World<S>) -> Verdict {
    const ASKED: Duration = Duration::from_millis(1);
    let behind = Behind::new(world)?;
    let mut waits = behind.parking();
    waits.push(behind.spinning());
    for asked in [0, 1, 999, 1_000_000, 3_654_321].map(Duration::from_nanos) {
        for (name, wait) in &waits {
            let start = Instant::now();
            let ended = wait(asked);
            let took = start.elapsed();
            let Err(error) = ended else {
                return Stop::fail(format!("{name} ended before its gate was open"));
            };
            check!(error.is_timeout(), "{name} gave {error}");
            check!(took >= asked, "{name} timed out after {took:?}");
            let text = error.to_string();
            check_error!(
                Err::<(), _>(error),
                Error::TimedOut { object, value, reached: 0, pending, waited, .. }
                    if value > pending
                        && waited >= asked
                        && [object.to_string(), value.to_string(), "\"gate\"".into()]
                            .iter()
                            .all(|word| text.contains(word))
            );
        }
    }
    // Of a list, the first point that is not reached.
    let (a, b) = (world.timeline_from("a", 4)?, world.timeline("b")?);
    let list = [a.at(4), a.at(3), b.at(2), a.at(9)];
    for ended in [
        wait_all(&list, ASKED),
        wait_any(&list[2..], ASKED).map(|_| ()),
    ] {
        check_error!(
            ended,
            Error::TimedOut { object, value: 2, reached: 0, pending: 0, waited, .. }
                if &object == b.object() && waited >= ASKED
        );
    }
    a.fail(cause("failed"));
    match a.at(9).wait(ASKED) {
        Err(error @ Error::Failed { .. }) if !error.is_timeout() => {}
        other => return Stop::fail(format!("a failure is no time-out, but: {other:?}")),
    }
    behind.gate.signal(1)?;
    behind.queue.idle(patience())?;
    Ok(())
}
