//! Dropped futures call no waker and leave nothing behind.

use std::future::IntoFuture as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Instant;

use crate::blocked::join;
use crate::case::{Verdict, cases, check, check_eq};
use crate::dice::Dice;
use crate::executor::{Count, poll};
use crate::footprint::grows_nothing;
use crate::user::{Timeline, all, any};
use crate::{Subject, Waiting, World, patience};

cases! {
    "future.dropped_leaves_nothing": [T8 H2] => leaves_nothing;
    "future.dropped_is_never_called": [T8] => never_called;
    "future.dropped_while_its_wake_is_on_the_way": [T8] => on_the_way;
    "future.dropped_against_a_signal": [T8 T6] => against_a_signal(dice);
}

/// Creates futures of every kind on one timeline, for values that it has not reached.
fn every_kind<S: Subject>(line: &Timeline<S>, value: u64) -> Vec<Waiting<()>> {
    let points = [line.at(value), line.at(value + 1), line.at(value)];
    let any = any(&points);
    vec![
        line.at(value).into_future(),
        line.at(value).keep().into_future(),
        line.at(value).pending(),
        all(&points),
        Box::pin(async move { any.await.map(|_| ()) }),
    ]
}

/// Checks that no waker of `count` is kept.
///
/// A value is visible before its wakers are called. So the thread that saw it, such as the watching
/// thread, may still hold one for a moment.
fn nothing_left(count: &Arc<Count>) -> Verdict {
    let deadline = Instant::now() + patience();
    while Arc::strong_count(count) > 1 {
        check!(
            Instant::now() < deadline,
            "{} wakers of futures that have gone are still kept",
            Arc::strong_count(count) - 1
        );
        thread::yield_now();
    }
    Ok(())
}

fn never_called<S: Subject>(world: &World<S>) -> Verdict {
    let queue = world.left_queue("left")?;
    for by_queue in [false, true] {
        let line = world.timeline("line")?;
        let (dropped, stays) = (Count::new(), Count::new());
        let mut unpolled = every_kind(&line, 1);
        let mut futures = every_kind(&line, 1);
        for future in &mut futures {
            check!(poll(future, &dropped).is_pending());
        }
        let mut witness = line.at(1).into_future();
        check!(poll(&mut witness, &stays).is_pending());
        futures.clear();
        unpolled.clear();
        let owners = Arc::strong_count(&dropped);
        check!(
            owners == 1,
            "dropped futures have left {} wakers behind",
            owners - 1
        );
        if by_queue {
            queue.signal(&line, 5)?;
        } else {
            line.signal(5)?;
        }
        // Registered last. When it is woken, wrong wakes of the others have happened.
        stays.wait_for(1)?;
        let woken = dropped.woken();
        check_eq!(woken, 0);
        // Dropped after their signal, without another poll.
        let mut futures = every_kind(&line, 6);
        for future in &mut futures {
            check!(poll(future, &dropped).is_pending());
        }
        line.signal(9)?;
        dropped.wait_for(futures.len())?;
        let woken = dropped.woken();
        check_eq!(woken, futures.len());
        futures.clear();
        line.signal(10)?;
        nothing_left(&dropped)?;
        check_eq!(dropped.woken(), woken);
    }
    Ok(())
}

/// Drops a future when it is woken.
struct Drops(Mutex<Option<Waiting<()>>>);

impl Wake for Drops {
    fn wake(self: Arc<Self>) {
        let victim = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(victim);
    }
}

/// Dropped by a waker that the same signal calls just before.
fn on_the_way<S: Subject>(world: &World<S>) -> Verdict {
    let queue = world.right_queue("right")?;
    let line = world.timeline("line")?;
    for value in 1..=20 {
        let (count, last) = (Count::new(), Count::new());
        let drops = Arc::new(Drops(Mutex::new(None)));
        let waker = Waker::from(drops.clone());
        let mut killer = line.at(value).into_future();
        let mut victim = line.at(value).into_future();
        let mut witness = line.at(value).into_future();
        check!(
            killer
                .as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
        check!(
            poll(&mut victim, &count).is_pending() && poll(&mut witness, &last).is_pending(),
            "it was never signalled"
        );
        *drops.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(victim);
        if value % 2 == 0 {
            line.signal(value)?;
        } else {
            queue.signal(&line, value)?;
        }
        last.wait_for(1)?;
        let woken = count.woken();
        check_eq!(woken, 0);
    }
    Ok(())
}

/// A drop races with a signal. After the drop at most one waker is called.
///
/// That is the waker that the signalling thread had already taken. To prevent that call too, the
/// drop would have to wait for the waker, under any lock that an executor holds then.
fn against_a_signal<S: Subject>(world: &World<S>, dice: &mut Dice) -> Verdict {
    let rounds = if world.is_pair() { 100 } else { 400 };
    let queue = world.left_queue("left")?;
    let line = world.timeline("line")?;
    let (mut woken_first, mut dropped_first) = (0, 0);
    // Delay of the drop, or of the signal if it is negative. It adapts, so that both come first
    // sometimes.
    let mut delay: i64 = 0;
    for round in 1..=rounds {
        let (go, count) = (AtomicBool::new(false), Count::new());
        let mut futures = every_kind(&line, round);
        for future in &mut futures {
            check!(poll(future, &count).is_pending(), "it was never signalled");
        }
        let spins = dice.below(2 * delay.unsigned_abs() + 1);
        let spin = || (0..spins).for_each(|_| std::hint::spin_loop());
        let by_queue = round % 4 == 0;
        let before = thread::scope(|scope| {
            let dropper = scope.spawn(|| {
                while !go.load(Ordering::Acquire) {
                    std::hint::spin_loop();
                }
                if delay > 0 {
                    spin();
                }
                drop(futures);
                count.woken()
            });
            go.store(true, Ordering::Release);
            if delay < 0 {
                spin();
            }
            if by_queue {
                queue.signal(&line, round)?;
            } else {
                line.signal(round)?;
            }
            line.at(round).wait(patience())?;
            join(dropper)
        })?;
        nothing_left(&count)?;
        let after = count.woken();
        // The submitting thread wakes waits for pending, and the watching thread the others.
        let in_hand = if by_queue { 2 } else { 1 };
        check!(
            after <= before + in_hand,
            "round {round}: wakers were called {} times after their futures were dropped",
            after - before
        );
        check!(after <= 5, "round {round}");
        let step = delay.abs() / 2 + 50;
        if before == 0 {
            dropped_first += 1;
            delay += step;
        } else {
            woken_first += 1;
            delay -= step;
        }
    }
    check!(
        woken_first > 0 && dropped_first > 0,
        "{woken_first} times the signal came first and {dropped_first} times the drop: no race"
    );
    Ok(())
}

fn leaves_nothing<S: Subject>(world: &World<S>) -> Verdict {
    let line = world.timeline("line")?;
    let open = world.timeline("never signalled")?;
    let count = Count::new();
    let mut value = 0;
    grows_nothing(|| {
        for _ in 0..4000 {
            for future in &mut every_kind(&open, 1) {
                check!(poll(future, &count).is_pending(), "it was never signalled");
            }
        }
        // Signalled, and then dropped.
        for _ in 0..100 {
            value += 1;
            let mut futures = every_kind(&line, value);
            for future in &mut futures {
                check!(poll(future, &count).is_pending(), "it was never signalled");
            }
            line.signal(value + 1)?;
            value += 1;
        }
        nothing_left(&count)
    })
}
