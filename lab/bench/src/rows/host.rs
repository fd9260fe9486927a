//! Host queues, and host threads that wait for each other.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use syncline::QueueKind;
use syncline::backend::{Device as _, Queue as _};

use crate::lab::Lab;
use crate::limit::Limit;
use crate::machine::On;
use crate::processor::AffinityGuard;
use crate::raw::channel::{Counter, Worker};
use crate::row::{Call, LONG, Question, Row, Variant};
use crate::side::{OURS, Outcome, RAW, Side, Stop, timed};

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "host.submit",
        question: Question::Submission,
        ours: "submit a closure to a host queue with one wait and one signal",
        raw: "a boxed closure through a crossbeam channel to a worker thread, values with a condition variable: both threads sleep when there is nothing to do",
        limits: &[],
        on: &[On::Host],
        variants: &[
            Variant::new("64 at a time, to the end", 64).with_limits(&[Limit::RatioToRaw(1.2)]),
            Variant::new("one at a time, to the end", 1),
        ],
        run: submit,
    },
    Row {
        id: "wait.cores",
        question: Question::Wait,
        ours: "two threads and two host timelines, there and back, with the default waits",
        raw: "a mutex and a condition variable for each way",
        limits: &[Limit::RatioToRaw(1.5)],
        on: &[On::Host],
        variants: &[
            Variant::new("both threads on one processor", 1),
            Variant::new("each on its own", 2),
        ],
        run: cores,
    },
];

fn submit(call: &Call<'_>, lab: &mut Lab) -> Outcome<()> {
    let host = call.machine.host(call.subject)?;
    let queue = host.queue(QueueKind::Compute, "submitted to")?;
    let values = host.timeline("values")?;
    let (worker, counter) = (Worker::start(), Arc::new(Counter::default()));
    let (ran, submitted) = (Arc::new(AtomicU64::new(0)), Cell::new(0));
    let closure = || {
        submitted.set(submitted.get() + 1);
        let ran = ran.clone();
        move || {
            ran.fetch_add(1, Ordering::Relaxed);
        }
    };
    lab.race(vec![
        Side::bursts(
            OURS,
            call.n,
            |_| Ok(()),
            |range| {
                let last = range.end - 1;
                for value in range {
                    let closure = closure();
                    queue.submit(
                        &[values.at(value - 1)],
                        move |recorder| {
                            recorder.run(closure);
                            Ok(())
                        },
                        &[values.signal_at(value)],
                    )?;
                }
                Ok(values.at(last).wait(LONG)?)
            },
            |_| Ok(()),
        ),
        Side::bursts(
            RAW,
            call.n,
            |_| Ok(()),
            |range| {
                let last = range.end - 1;
                for value in range {
                    worker.step(&counter, value - 1, closure())?;
                }
                counter.wait(last);
                Ok(())
            },
            |_| Ok(()),
        ),
    ])?;
    match ran.load(Ordering::Relaxed) {
        ran if ran == submitted.get() => Ok(()),
        ran => Err(Stop::Failed(format!(
            "{ran} of {} closures ran",
            submitted.get()
        ))),
    }
}

fn cores(call: &Call<'_>, lab: &mut Lab) -> Outcome<()> {
    let host = call.machine.host(call.subject)?;
    let _guard = AffinityGuard::new();
    let processors = processors(call.n)?;
    let lines = [host.timeline("ping")?, host.timeline("pong")?];
    let counters = [Counter::default(), Counter::default()];
    lab.race(vec![
        round_trips(
            OURS,
            processors,
            |way, value| Ok(lines[way].signal(value)?),
            |way, value| Ok(lines[way].at(value).wait(LONG)?),
        ),
        round_trips(
            RAW,
            processors,
            |way, value| {
                counters[way].signal(value);
                Ok(())
            },
            |way, value| {
                counters[way].wait(value);
                Ok(())
            },
        ),
    ])
}

/// Round trips of two threads on these processors, from when both are ready.
fn round_trips<'a>(
    name: &'static str,
    [here, there]: [usize; 2],
    signal: impl Fn(usize, u64) -> Outcome<()> + Sync + 'a,
    wait: impl Fn(usize, u64) -> Outcome<()> + Sync + 'a,
) -> Side<'a> {
    let mut reached = 0;
    Side::new(name, move |n| {
        let values = reached + 1..=reached + n;
        reached += n;
        let ready = Barrier::new(2);
        thread::scope(|scope| -> Outcome<Duration> {
            let other = scope.spawn(|| {
                let bound = bind(there);
                ready.wait();
                bound?;
                values.clone().try_for_each(|value| {
                    wait(0, value)?;
                    signal(1, value)
                })
            });
            let bound = bind(here);
            ready.wait();
            bound?;
            let time = timed(|| {
                values.clone().try_for_each(|value| {
                    signal(0, value)?;
                    wait(1, value)
                })
            })?;
            let ended = other.join();
            ended.map_err(|_| Stop::Failed("the other thread panicked".into()))??;
            Ok(time)
        })
    })
}

/// The processors of the two threads.
fn processors(count: u64) -> Outcome<[usize; 2]> {
    let allowed = sched_getaffinity(None).map_err(std::io::Error::from)?;
    let mut all = (0..CpuSet::MAX_CPU).filter(|processor| allowed.is_set(*processor));
    match (all.next(), all.next()) {
        (Some(first), _) if count == 1 => Ok([first, first]),
        (Some(first), Some(second)) => Ok([first, second]),
        _ => Err(Stop::Skipped("there is one processor".into())),
    }
}

/// Binds the thread to a processor.
fn bind(processor: usize) -> Outcome<()> {
    let mut only = CpuSet::new();
    only.set(processor);
    Ok(sched_setaffinity(None, &only).map_err(std::io::Error::from)?)
}
