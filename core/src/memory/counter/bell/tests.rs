use std::sync::Arc;

use super::*;

fn far() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

fn counter() -> Arc<Counter> {
    Arc::new(Counter::make(0).unwrap().0)
}

fn sleepers(counter: &Counter) -> u32 {
    counter.page.sleepers.load(Ordering::SeqCst)
}

/// As on a system without futex_waitv(2).
fn without_waitv() -> Sleeper {
    Sleeper {
        waits_for_many: AtomicBool::new(false),
        ..Sleeper::new()
    }
}

#[test]
fn a_nudge_ends_the_present_sleep_or_the_next() {
    for sleeper in [Sleeper::new(), without_waitv()] {
        let counter = counter();
        sleeper.nudge();
        sleeper.sleep(&[(&counter, 1)], far());
        std::thread::scope(|scope| {
            scope.spawn(|| sleeper.nudge());
            sleeper.sleep(&[(&counter, 1)], far());
        });
    }
}

/// Each side sleeps until the other has signalled; a wakeup that is lost ends the sleep after 20 s, with nothing there.
fn to_and_fro(sleeper: fn() -> Sleeper, rounds: u64, beside: usize) {
    let counter = counter();
    let others: Vec<_> = (0..beside).map(|_| self::counter()).collect();
    let side = |odd: u64| {
        let sleeper = sleeper();
        let mut on: Vec<_> = others.iter().map(|other| (&**other, 1)).collect();
        for round in 0..rounds {
            let mine = 2 * round + odd;
            on.push((&counter, mine));
            while mine > 0 && counter.value().unwrap() < mine {
                let until = far();
                sleeper.sleep(&on, until);
                assert!(Instant::now() < until, "nobody rang for {mine}");
            }
            on.pop();
            counter.signal(mine + 1).unwrap();
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
    to_and_fro(Sleeper::new, 20_000, 0);
}

#[test]
fn no_wakeup_is_lost_among_many_pages() {
    to_and_fro(Sleeper::new, 2_000, 20);
}

#[test]
fn more_pages_than_one_sleep_can_have_are_looked_at() {
    to_and_fro(Sleeper::new, 50, MOST);
}

#[test]
fn without_waitv_threads_look_by_themselves() {
    to_and_fro(without_waitv, 200, 1);
}

/// As a stream of a GPU does: it stores, and rings no bell.
#[test]
fn a_quiet_signal_is_seen() {
    for late in [false, true] {
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
                counter.page.reached.store(1, Ordering::SeqCst);
            });
            let until = far();
            sleeper.sleep(&[(&counter, 1)], until);
            assert!(Instant::now() < until, "nobody looked");
        });
        assert_eq!(counter.value().unwrap(), 1);
    }
}

#[test]
fn a_failure_and_a_corruption_end_a_sleep() {
    for fails in [true, false] {
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
                    counter.page.reached.store(9, Ordering::SeqCst);
                    counter.ring();
                }
            });
            let until = far();
            sleeper.sleep(&[(&counter, 10)], until);
            assert!(Instant::now() < until, "nobody was told");
        });
        assert!(counter.value().is_err());
    }
}

#[test]
fn who_signals_rings_only_if_somebody_sleeps() {
    let counter = counter();
    for value in 1..100 {
        counter.signal(value).unwrap();
    }
    assert_eq!(counter.page.bell.load(Ordering::SeqCst), 0);
    // One that is never seen again, killed perhaps, costs one ring.
    assert_eq!(mark(&[(&*counter, 1000)])[0], 0);
    for value in 100..200 {
        counter.signal(value).unwrap();
    }
    assert_eq!(counter.page.bell.load(Ordering::SeqCst), 1);
    assert_eq!(sleepers(&counter), 0);
}

/// One ring wakes all, and those whose value has not come mark the page again.
#[test]
fn a_thread_that_goes_on_sleeping_is_rung_again() {
    let counter = counter();
    std::thread::scope(|scope| {
        let sleeps = |value: u64| {
            let counter = counter.clone();
            move || {
                let until = far();
                Sleeper::new().sleep(&[(&counter, value)], until);
                assert!(Instant::now() < until, "nobody rang for {value}");
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

/// A bell that has been rung since it was looked at lets nobody sleep.
#[test]
fn a_ring_before_the_sleep_is_not_missed() {
    let (first, second) = (counter(), counter());
    let on = [(&*first, 1), (&*second, 1)];
    for rung in [&first, &second] {
        let bells = mark(&on);
        rung.ring();
        let begun = Instant::now();
        let left = Duration::from_secs(20);
        Sleeper::new().on_bells(&on, &bells, left);
        assert!(
            begun.elapsed() < left,
            "it slept although the bell had rung"
        );
    }
}
