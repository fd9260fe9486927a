use std::sync::Arc;

use rstest::rstest;

use super::*;

fn far() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

fn counter() -> Arc<Counter> {
    Arc::new(Counter::make(0).unwrap().0)
}

fn sleepers(counter: &Counter) -> u32 {
    counter.page().sleepers.load(Ordering::SeqCst)
}

/// A sleeper as on a system without futex_waitv(2).
fn without_waitv() -> Sleeper {
    Sleeper {
        has_waitv: AtomicBool::new(false),
        ..Sleeper::new()
    }
}

#[rstest]
#[case::with_waitv(Sleeper::new())]
#[case::without_waitv(without_waitv())]
fn nudge_ends_the_present_or_the_next_sleep(#[case] sleeper: Sleeper) {
    let counter = counter();
    sleeper.nudge();
    sleeper.sleep(&[(&counter, 1)], far());
    std::thread::scope(|scope| {
        scope.spawn(|| sleeper.nudge());
        sleeper.sleep(&[(&counter, 1)], far());
    });
}

/// Two threads signal in turn, and each sleeps until the other has signalled.
///
/// A lost wakeup fails the test after 20 s. `beside` is the number of other counters that each
/// thread sleeps on.
fn ping_pong(sleeper: fn() -> Sleeper, rounds: u64, beside: usize) {
    let counter = counter();
    let others: Vec<_> = (0..beside).map(|_| self::counter()).collect();
    let side = |first: u64| {
        let sleeper = sleeper();
        let mut on: Vec<_> = others.iter().map(|other| (&**other, 1)).collect();
        for round in 0..rounds {
            let awaited = 2 * round + first;
            on.push((&counter, awaited));
            while awaited > 0 && counter.value().unwrap() < awaited {
                let until = far();
                sleeper.sleep(&on, until);
                assert!(Instant::now() < until, "no wakeup for {awaited}");
            }
            on.pop();
            counter.signal(awaited + 1).unwrap();
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| side(1));
        side(0);
    });
    assert_eq!(counter.value().unwrap(), 2 * rounds);
}

#[test]
fn no_wakeup_is_lost() {
    ping_pong(Sleeper::new, 20_000, 0);
}

#[test]
fn no_wakeup_is_lost_with_many_pages() {
    ping_pong(Sleeper::new, 2_000, 20);
}

#[test]
fn more_pages_than_waitv_takes_are_polled() {
    ping_pong(Sleeper::new, 50, MAX_WORDS);
}

#[test]
fn threads_poll_without_waitv() {
    ping_pong(without_waitv, 200, 1);
}

/// A quiet signal, such as that of a stream of a GPU, only stores the value.
#[rstest]
#[case::announced_before_the_sleep(false)]
#[case::announced_during_the_sleep(true)]
fn sleeping_threads_see_quiet_signals(#[case] late: bool) {
    let counter = counter();
    let sleeper = Sleeper::new();
    if !late {
        counter.expect_quiet_signals();
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while sleepers(&counter) == 0 {
                std::thread::yield_now();
            }
            if late {
                counter.expect_quiet_signals();
            }
            counter.announce(1).unwrap();
            counter.page().reached.store(1, Ordering::SeqCst);
        });
        let until = far();
        sleeper.sleep(&[(&counter, 1)], until);
        assert!(Instant::now() < until, "no poll saw the signal");
    });
    assert_eq!(counter.value().unwrap(), 1);
}

#[rstest]
#[case::failure(true)]
#[case::corruption(false)]
fn a_failure_or_corruption_ends_a_sleep(#[case] fails: bool) {
    let counter = counter();
    let sleeper = Sleeper::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while sleepers(&counter) == 0 {
                std::thread::yield_now();
            }
            if fails {
                counter.fail(0, 1, "it broke");
            } else {
                counter.page().reached.store(9, Ordering::SeqCst);
                counter.wake_all();
            }
        });
        let until = far();
        sleeper.sleep(&[(&counter, 10)], until);
        assert!(Instant::now() < until, "the sleep was not ended");
    });
    assert!(counter.value().is_err());
}

#[test]
fn signals_wake_only_if_a_thread_sleeps() {
    let counter = counter();
    for value in 1..100 {
        counter.signal(value).unwrap();
    }
    assert_eq!(counter.page().wakes.load(Ordering::SeqCst), 0);
    // A thread that never comes back, such as a killed one, costs one wake.
    assert_eq!(set_sleepers(&[(&*counter, 1000)])[0], 0);
    for value in 100..200 {
        counter.signal(value).unwrap();
    }
    assert_eq!(counter.page().wakes.load(Ordering::SeqCst), 1);
    assert_eq!(sleepers(&counter), 0);
}

/// One wake wakes all threads. Those whose value is not reached set `sleepers` again.
#[test]
fn threads_that_go_on_sleeping_are_woken_again() {
    let counter = counter();
    std::thread::scope(|scope| {
        let sleeps = |value: u64| {
            let counter = counter.clone();
            move || {
                let until = far();
                Sleeper::new().sleep(&[(&counter, value)], until);
                assert!(Instant::now() < until, "no wakeup for {value}");
                assert!(counter.value().unwrap() >= value);
            }
        };
        let all: Vec<_> = (1..=8).map(|value| scope.spawn(sleeps(value))).collect();
        for (value, sleeper) in (1..).zip(all) {
            while sleepers(&counter) == 0 {
                std::thread::yield_now();
            }
            counter.signal(value).unwrap();
            sleeper.join().unwrap();
        }
    });
}

/// No thread sleeps if `wakes` has changed since it read it.
#[test]
fn wake_just_before_the_sleep_is_not_missed() {
    let (first, second) = (counter(), counter());
    let on = [(&*first, 1), (&*second, 1)];
    for woken in [&first, &second] {
        let wakes = set_sleepers(&on);
        woken.wake_all();
        let begun = Instant::now();
        let left = Duration::from_secs(20);
        Sleeper::new().sleep_on_words(&on, &wakes, left);
        assert!(
            begun.elapsed() < left,
            "it slept although `wakes` had changed"
        );
    }
}
