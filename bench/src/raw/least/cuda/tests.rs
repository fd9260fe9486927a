//! The floor over a driver in memory.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::super::Budget;
use super::timeline::Found;
use super::*;
use crate::raw::cuda::emulated::{calls, driver, stream};
use crate::side::{Outcome, Stop};

/// The driver and its log exist once. Work numbers from here on belong to a test of their own.
const APART: u64 = 1 << 32;

const LONG: Duration = Duration::from_secs(60);

/// Calls `what` while the driver executes its streams.
fn going_on<T>(what: impl FnOnce() -> T) -> T {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Acquire) {
                if !driver().step() {
                    thread::yield_now();
                }
            }
        });
        let done = what();
        over.store(true, Ordering::Release);
        done
    })
}

#[test]
fn an_event_with_another_reference_is_not_recorded_again() {
    let (calls, stream) = (calls(), stream(100));
    let (queue, timeline) = (
        Queue::new(&calls, stream, &Arc::default()),
        Timeline::new(&calls),
    );
    let signal = |value| {
        let submitted = queue.submit(&[], |_, _| Ok(0), &[(&timeline, value)]);
        assert_eq!(submitted, Ok(()));
        match timeline.event(value) {
            Found::Event(mark, _) => mark,
            _ => panic!("{value} is not pending"),
        }
    };
    // The ring of the timeline still has the event of 1, because no thread has queried the value.
    let first = Arc::as_ptr(&signal(1));
    assert_eq!(going_on(|| queue.idle(LONG)), Ok(()));
    assert_eq!(queue.free(), 2);
    let second = signal(2);
    assert_ne!(
        Arc::as_ptr(&second),
        first,
        "the event of 1 is still in the ring"
    );
    // Now only the queue has it.
    assert_eq!(going_on(|| timeline.wait(2, LONG)), Ok(()));
    assert_eq!(going_on(|| queue.idle(LONG)), Ok(()));
    assert_eq!(Arc::as_ptr(&signal(3)), first);
}

#[test]
fn a_refused_claim_changes_nothing() {
    let (calls, stream) = (calls(), stream(101));
    let queue = Queue::new(&calls, stream, &Arc::default());
    let (one, other) = (Timeline::new(&calls), Timeline::new(&calls));
    let submit = |signals: &[(&Arc<Timeline>, u64)]| queue.submit(&[], |_, _| Ok(0), signals);
    assert_eq!(submit(&[(&one, 3)]), Ok(()));
    assert!(submit(&[(&other, 1), (&one, 3)]).is_err());
    assert!(submit(&[(&other, 1), (&one, u64::MAX)]).is_err());
    assert!(one.signal(4).is_err(), "a queue's signal is outstanding");
    assert_eq!(submit(&[(&other, 1), (&one, 4)]), Ok(()));
    assert_eq!(
        going_on(|| one.wait(4, LONG).and(other.wait(1, LONG))),
        Ok(())
    );
    assert_eq!(one.signal(5), Ok(()));
    let missing = one.wait(6, Duration::from_millis(5));
    assert!(missing.is_err_and(|stop| stop.to_string() == "timed out"));
}

/// Queues in a circle, each driven by a thread of its own.
///
/// Each step of a queue waits for the same step of the queue before it, mostly before that is
/// submitted.
#[test]
fn queues_that_wait_for_each_other_run_in_order_and_reuse_events() {
    const QUEUES: u64 = 4;
    const STEPS: u64 = 3000;
    let (calls, budget) = (calls(), Arc::new(Budget::default()));
    let queues: Vec<_> = (1..=QUEUES)
        .map(|number| Queue::new(&calls, stream(number as usize), &budget))
        .collect();
    let timelines: Vec<_> = (0..QUEUES).map(|_| Timeline::new(&calls)).collect();
    let go = Timeline::new(&calls);
    let threads = || {
        thread::scope(|scope| {
            let submitting: Vec<_> = (0..QUEUES)
                .map(|number| {
                    let (queues, timelines, go) = (&queues, &timelines, &go);
                    scope.spawn(move || -> Outcome<()> {
                        let before = (number + QUEUES - 1) % QUEUES;
                        for step in 1..=STEPS {
                            let wait = match (number, step) {
                                (0, 1) => (go, 1),
                                (0, _) => (&timelines[before as usize], step - 1),
                                _ => (&timelines[before as usize], step),
                            };
                            let mark = step * QUEUES + number;
                            queues[number as usize].submit(
                                &[wait],
                                move |_, stream| {
                                    driver().work(stream, mark);
                                    Ok(1)
                                },
                                &[(&timelines[number as usize], step)],
                            )?;
                            if step.is_multiple_of(100) {
                                // No thread is more than 160 steps ahead of the driver, so that the
                                // test ends on a slow machine.
                                timelines[number as usize].wait(step - 60, LONG)?;
                            }
                        }
                        timelines[number as usize].wait(STEPS, LONG)
                    })
                })
                .collect();
            thread::sleep(Duration::from_millis(5));
            let opened = go.signal(1);
            let ended = submitting
                .into_iter()
                .map(|thread| thread.join().expect("no panic"))
                .fold(opened, Outcome::and);
            ended.and(queues.iter().try_for_each(|queue| queue.idle(LONG)))
        })
    };
    assert_eq!(going_on(threads), Ok(()));
    let driver = driver();
    assert_eq!(driver.misuse, Vec::<String>::new());
    // Each step waits for the one before, so there is only one order.
    let expected: Vec<u64> = (QUEUES..QUEUES * (STEPS + 1)).collect();
    let log: Vec<u64> = driver
        .log
        .iter()
        .copied()
        .filter(|mark| *mark < APART)
        .collect();
    assert!(log == expected, "{:?}", &log[..20]);
    let most = QUEUES * STEPS / 2;
    let events = driver.events() as u64;
    assert!(events < most, "events are used again: {events}");
}

/// A submission from within the work of its queue, or of another thread meanwhile, runs after it.
#[test]
fn work_runs_without_the_lock() {
    let (calls, stream) = (calls(), stream(102));
    let budget = Arc::new(Budget::default());
    let queue = Queue::new(&calls, stream, &budget);
    let timeline = Timeline::new(&calls);
    let (inner, signalled) = (queue.clone(), timeline.clone());
    let submitted = queue.submit(
        &[],
        move |_, stream| {
            let nested = move |_: &Calls, stream| {
                driver().work(stream, APART + 2);
                Ok(1)
            };
            inner.submit(&[], nested, &[(&signalled, 2)])?;
            driver().work(stream, APART + 1);
            Ok(1)
        },
        &[(&timeline, 1)],
    );
    assert_eq!(submitted, Ok(()));
    assert_eq!(budget.0.load(Ordering::Relaxed), 2);
    assert_eq!(going_on(|| timeline.wait(2, LONG)), Ok(()));
    let log: Vec<u64> = driver()
        .log
        .iter()
        .copied()
        .filter(|mark| *mark > APART)
        .collect();
    assert_eq!(log, [APART + 1, APART + 2]);
    assert_eq!(going_on(|| queue.idle(LONG)), Ok(()));
    assert_eq!(budget.0.load(Ordering::Relaxed), 0);
}

#[test]
fn failure_travels_along_waits_and_blocks_no_queue() {
    let calls = calls();
    let budget = Arc::default();
    let [bad, other] = [103, 104].map(|number| Queue::new(&calls, stream(number), &budget));
    let [first, second, third] = [(); 3].map(|()| Timeline::new(&calls));
    // Held for a value that never comes, and failed when that is known.
    let held = other.submit(&[(&first, 1)], |_, _| Ok(0), &[(&second, 1)]);
    assert_eq!(held, Ok(()));
    let refuse = |_: &Calls, _| Err(Stop::Failed("no".into()));
    assert!(bad.submit(&[], refuse, &[(&first, 1)]).is_err());
    assert!(first.wait(1, LONG).is_err() && second.wait(1, LONG).is_err());
    assert!(bad.submit(&[], |_, _| Ok(0), &[]).is_err());
    // A wait for a failed timeline fails its signals, and the queue continues.
    let after = other.submit(&[(&second, 2)], |_, _| Ok(0), &[(&third, 1)]);
    assert_eq!(after, Ok(()));
    assert!(third.wait(1, LONG).is_err());
    assert_eq!(going_on(|| other.idle(LONG)), Ok(()));
}

/// What waits for a signal of a lost device fails, and later work of the queue does not (E3).
#[cfg(feature = "vulkan")]
#[test]
fn a_loss_fails_what_waits_for_it_in_the_driver() {
    let (calls, budget) = (calls(), Arc::default());
    let queue = Queue::new(&calls, stream(105), &budget);
    // The driver in memory ignores external semaphores.
    let shared = || Timeline::shared(&calls, std::ptr::null_mut());
    let (lost, sound) = (shared(), shared());
    let [first, second, third] = [(); 3].map(|()| Timeline::new(&calls));
    for (wait, signal) in [(&lost, &first), (&sound, &second)] {
        assert_eq!(wait.promise(1), Ok(()));
        let submitted = queue.submit(&[(wait, 1)], |_, _| Ok(0), &[(signal, 1)]);
        assert_eq!(submitted, Ok(()));
    }
    let submitted = queue.submit(&[], |_, _| Ok(0), &[(&third, 1)]);
    assert_eq!(submitted, Ok(()));
    queue.lose(&lost, &mut Vec::new());
    assert!(lost.has_failed() && first.has_failed());
    assert!(!sound.has_failed() && !second.has_failed() && !third.has_failed());
}
