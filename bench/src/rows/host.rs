//! Host timelines and host queues.

use std::cell::Cell;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use syncline::backend::{Device as _, Queue as _};
use syncline::{Error, QueueKind, WaitMode};

use super::{Call, Floor, Row, Variant};
use crate::lab::Lab;
use crate::machine::On;
use crate::raw::channel::{Counter, Job, Patience, Worker};
use crate::raw::futex::{Sleep, Timespec, Word};
use crate::side::{Outcome, Side, Stop, bursts, timed};

/// Time-out of all waits of these rows.
const LONG: Duration = Duration::from_secs(20);

/// The same as [`LONG`].
const TIMEOUT: Timespec = Timespec {
    tv_sec: 20,
    tv_nsec: 0,
};

/// How long the hand-written wait spins: as long as an adaptive wait of Syncline.
const SPIN: Duration = WaitMode::SPIN;

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "host.pingpong",
        ours: "two threads and two host timelines, there and back",
        raw: "two futex words, with a count of sleepers, so that no wake is made without one, and the same spinning",
        floor: Floor::Side(
            "the same with a time-out for each wait that sleeps, as every wait has one",
        ),
        limits: &[],
        on: &[On::Host],
        variants: &[
            Variant::new("spinning first", SPINNING),
            Variant::new("sleeping at once", SLEEPING),
        ],
        run: pingpong,
    },
    Row {
        id: "host.submit",
        ours: "submit a closure to a host queue with one wait and one signal",
        raw: "a boxed closure through a crossbeam channel to a worker thread, values with a condition variable: both threads sleep when there is nothing to do",
        floor: Floor::Side("the same, but both threads poll for as long as ours before they sleep"),
        limits: &[],
        on: &[On::Host],
        variants: &[
            Variant::new("64 at a time, to the end", 64),
            Variant::new("one at a time, to the end", 1),
        ],
        run: submit,
    },
    Row {
        id: "host.lock",
        ours: "lock and unlock a free std::sync::Mutex, as the engine does a few times per operation. The limits in nanoseconds are for a processor that takes 4.4 ns for it",
        raw: "one atomic addition",
        floor: Floor::Unmeasured("the lock is the standard library's"),
        limits: &[],
        on: &[On::Host],
        variants: &[],
        run: lock,
    },
];

const SPINNING: u64 = 0;
const SLEEPING: u64 = 1;

fn lock(_: &Call<'_>, lab: &mut Lab) -> Outcome<()> {
    let (mutex, word) = (Mutex::new(0_u64), AtomicU64::new(0));
    lab.race(vec![
        Side::ours(|n| {
            timed(|| {
                for _ in 0..n {
                    *black_box(&mutex)
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner) += 1;
                }
                Ok(())
            })
        }),
        Side::raw(|n| {
            timed(|| {
                for _ in 0..n {
                    black_box(&word).fetch_add(1, Ordering::SeqCst);
                }
                Ok(())
            })
        }),
    ])
}

fn pingpong(call: &Call<'_>, lab: &mut Lab) -> Outcome<()> {
    let host = call.machine.host(call.subject)?;
    let (mode, spin) = match call.n {
        SLEEPING => (WaitMode::Block, Duration::ZERO),
        _ => (WaitMode::Adaptive, SPIN),
    };
    let (ping, pong) = (&host.timeline("ping")?, &host.timeline("pong")?);
    let words = &[Word::default(), Word::default()];
    thread::scope(|scope| {
        let (order, orders) = channel::<(Whose, u64, u64)>();
        let (ready, is_ready) = channel();
        // One partner for all sides, because its placement on a processor costs more than the sides
        // differ.
        scope.spawn(move || {
            for (whose, from, to) in orders {
                if ready.send(()).is_err() {
                    return;
                }
                for value in from + 1..=to {
                    match whose {
                        Whose::Ours => {
                            let there = ping.at(value).wait_with(mode, LONG);
                            if there.and_then(|()| pong.signal(value)).is_err() {
                                return;
                            }
                        }
                        Whose::Words(sleep) => {
                            words[0].wait(value as u32, spin, sleep);
                            words[1].signal(value as u32);
                        }
                    }
                }
            }
        });
        let call = |whose, from, to| -> Outcome<()> {
            let gone = |_| Stop::Failed("the partner has ended".into());
            order.send((whose, from, to)).map_err(|_| gone(()))?;
            is_ready.recv().map_err(|_| gone(()))
        };
        // Raw and the floor use the same words.
        let (mut ours, word) = (0, Cell::new(0));
        let by_hand = |n, sleep| {
            let first = word.get();
            word.set(first + n);
            call(Whose::Words(sleep), first, first + n)?;
            timed(|| {
                for value in first + 1..=first + n {
                    words[0].signal(value as u32);
                    words[1].wait(value as u32, spin, sleep);
                }
                Ok(())
            })
        };
        let outcome = lab.race(vec![
            Side::ours(|n| {
                call(Whose::Ours, ours, ours + n)?;
                timed(|| {
                    for _ in 0..n {
                        ours += 1;
                        ping.signal(ours)?;
                        pong.at(ours).wait_with(mode, LONG)?;
                    }
                    Ok(())
                })
            }),
            Side::raw(|n| by_hand(n, Sleep::Long)),
            Side::floor(|n| by_hand(n, Sleep::For(&TIMEOUT))),
        ]);
        // Ends the partner in any state.
        ping.fail(Error::work(Stop::Skipped("the race is over".into())));
        drop(order);
        outcome
    })
}

/// The side that the partner answers.
#[derive(Clone, Copy)]
enum Whose {
    Ours,
    Words(Sleep<'static>),
}

fn submit(call: &Call<'_>, lab: &mut Lab) -> Outcome<()> {
    let host = call.machine.host(call.subject)?;
    let queue = host.queue(QueueKind::Compute, "submitted to")?;
    let values = host.timeline("values")?;
    let ran = Arc::new(AtomicU64::new(0));
    let closure = || {
        let ran = ran.clone();
        move || {
            ran.fetch_add(1, Ordering::Relaxed);
        }
    };
    let [sleepy, looking] = [Patience::NONE, Patience::OURS].map(ByHand::new);
    let (burst, mut ours) = (call.n, 0);
    let submitted = Cell::new(0);
    let count_in = |count| submitted.set(submitted.get() + count);
    let by_hand = |hand: ByHand| {
        let (closure, count_in, mut value) = (&closure, &count_in, 0);
        move |n| {
            bursts(
                n,
                burst,
                |count| {
                    for _ in 0..count {
                        hand.submit(value, Box::new(closure()))?;
                        value += 1;
                    }
                    count_in(count);
                    hand.counter.wait(value);
                    Ok(())
                },
                || Ok(()),
            )
        }
    };
    lab.race(vec![
        Side::ours(|n| {
            bursts(
                n,
                burst,
                |count| {
                    for _ in 0..count {
                        let closure = closure();
                        queue.submit(
                            &[values.at(ours)],
                            move |recorder| {
                                recorder.run(closure);
                                Ok(())
                            },
                            &[values.signal_at(ours + 1)],
                        )?;
                        ours += 1;
                    }
                    count_in(count);
                    Ok(values.at(ours).wait(LONG)?)
                },
                || Ok(()),
            )
        })
        .step(burst),
        Side::raw(by_hand(sleepy)).step(burst),
        Side::floor(by_hand(looking)).step(burst),
    ])?;
    match ran.load(Ordering::Relaxed) {
        ran if ran == submitted.get() => Ok(()),
        ran => Err(Stop::Failed(format!(
            "{ran} of {} closures ran",
            submitted.get()
        ))),
    }
}

/// A worker and the values that its jobs wait for and signal.
struct ByHand {
    worker: Worker,
    counter: Arc<Counter>,
}

impl ByHand {
    fn new(patience: Patience) -> Self {
        Self {
            worker: Worker::start(patience),
            counter: Arc::new(Counter::new(patience)),
        }
    }

    /// Waits for `value`, does the work and signals the next value.
    fn submit(&self, value: u64, work: Box<dyn FnOnce() + Send>) -> Outcome<()> {
        let job = Job {
            wait: (self.counter.clone(), value),
            work,
            signal: (self.counter.clone(), value + 1),
        };
        if self.worker.send(job) {
            return Ok(());
        }
        Err(Stop::Failed("the worker by hand has ended".into()))
    }
}
