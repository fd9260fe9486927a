//! Four threads on four queues that share one timeline.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;

use syncline::backend::{Device as _, Queue as _};
use syncline::{Device, Queue, QueueKind, Timeline};

use crate::lab::Lab;
use crate::limit::Limit;
use crate::machine::On;
use crate::row::{BURST, Call, LONG, Question, Row, lock};
use crate::side::{OURS, Outcome, RAW, Side, Stop};

/// Number of threads. The measuring thread is the first.
const THREADS: usize = 4;

pub(super) const ROWS: &[Row] = &[Row {
    id: "contend",
    question: Question::Submission,
    ours: "four threads, each with a queue of its own, submit 64 times each: a submission takes the next value of one timeline from an atomic counter, waits for the value before it, and signals it. From the start of all four threads until the last has submitted, divided by the number of submissions, without their end",
    raw: "the same by hand: a mutex around the next value and the driver's calls (cuStreamWaitEvent and cuEventRecord; vkQueueSubmit with one wait and one signal)",
    limits: &[Limit::RatioToRaw(2.5)],
    on: &[On::Cuda, On::Vulkan],
    variants: &[],
    run: contend,
}];

/// One side: what each thread submits, and the end of a burst, which is not timed.
struct Part<'w> {
    name: &'static str,
    /// Submits so often on the thread with this number.
    work: &'w (dyn Fn(usize, u64) -> Outcome<()> + Sync),
    drain: &'w dyn Fn() -> Outcome<()>,
}

/// Ours: queues, and a timeline that they share.
struct Ours {
    queues: Vec<Queue>,
    shared: Timeline,
    next: AtomicU64,
}

impl Ours {
    fn submit(&self, me: usize, count: u64) -> Outcome<()> {
        for _ in 0..count {
            let value = self.next.fetch_add(1, Ordering::Relaxed);
            let (wait, signal) = (self.shared.at(value - 1), self.shared.signal_at(value));
            self.queues[me].submit(&[wait], |_| Ok(()), &[signal])?;
        }
        Ok(())
    }

    fn drain(&self) -> Outcome<()> {
        let last = self.next.load(Ordering::Relaxed) - 1;
        Ok(self.shared.at(last).wait(LONG)?)
    }
}

fn contend(call: &Call<'_>, lab: &mut Lab) -> Outcome<()> {
    let device = call.machine.device(call.subject.indices[0])?;
    let queue = |_| device.queue(QueueKind::Compute, "one of four");
    let ours = Ours {
        queues: (0..THREADS).map(queue).collect::<Result<_, _>>()?,
        shared: device.timeline("shared")?,
        next: AtomicU64::new(1),
    };
    let ours = Part {
        name: OURS,
        work: &|me, count| ours.submit(me, count),
        drain: &|| ours.drain(),
    };
    match &device {
        #[cfg(feature = "cuda")]
        Device::Cuda(device) => {
            let hand = crate::raw::cuda::Hand::new(device)?;
            let raw = crate::raw::cuda::Chain::new(&hand, THREADS, BURST)?;
            let raw = Part {
                name: RAW,
                work: &|me, count| raw.submit(me, count),
                drain: &|| raw.finish(),
            };
            race(lab, &[ours, raw])
        }
        #[cfg(feature = "vulkan")]
        Device::Vulkan(device) => on_vulkan(device, lab, ours),
        _ => Err(Stop::Skipped("the host has no driver".into())),
    }
}

#[cfg(feature = "vulkan")]
fn on_vulkan(device: &syncline::vulkan::Device, lab: &mut Lab, ours: Part<'_>) -> Outcome<()> {
    use crate::raw::vulkan::{Hand, submit};

    // All alive at once, so that they have different queues of the driver, if it has as many.
    let queue = |_| device.queue(QueueKind::Compute, "by hand");
    let queues = (0..THREADS).map(queue).collect::<Result<Vec<_>, _>>()?;
    let hands = queues.iter().map(|queue| Hand::new(device, queue));
    let hands = hands.collect::<Outcome<Vec<_>>>()?;
    let queues: Vec<_> = hands.iter().map(Hand::queue).collect();
    let semaphore = hands[0].semaphore(false)?;
    let last = Mutex::new(0);
    let raw = Part {
        name: RAW,
        work: &|me, count| {
            for _ in 0..count {
                let mut last = lock(&last);
                let (wait, signal) = ([*last], [*last + 1]);
                let of = [semaphore.raw];
                submit(device, queues[me], &[], (&of, &wait), (&of, &signal))?;
                *last += 1;
            }
            Ok(())
        },
        drain: &|| {
            let last = *lock(&last);
            hands[0].expect(semaphore, last);
            hands[0].wait(semaphore.raw, last)
        },
    };
    let raced = race(lab, &[ours, raw]);
    // The semaphore of the first hand is used on all queues.
    hands.iter().try_for_each(Hand::settle).and(raced)
}

/// Measures the sides with four threads.
///
/// A sample is the time from the start of all threads until the last one has submitted its part,
/// divided by the number of submissions.
fn race<'w>(lab: &mut Lab, parts: &[Part<'w>]) -> Outcome<()> {
    /// The next side and the number of its submissions for each thread; `None` ends the threads.
    type Order = Option<(usize, u64)>;
    let barrier = Barrier::new(THREADS);
    let order = Mutex::new(Order::None);
    let ended = Mutex::new(Ok(()));
    let works: Vec<_> = parts.iter().map(|part| part.work).collect();
    thread::scope(|scope| {
        for me in 1..THREADS {
            let (barrier, order, ended, works) = (&barrier, &order, &ended, &works);
            scope.spawn(move || {
                loop {
                    barrier.wait();
                    let Some((part, count)) = *lock(order) else {
                        return;
                    };
                    if let Err(stop) = works[part](me, count) {
                        *lock(ended) = Err(stop);
                    }
                    barrier.wait();
                }
            });
        }
        let side = |(at, part): (usize, &Part<'w>)| {
            let (name, work, drain) = (part.name, part.work, part.drain);
            let (barrier, order, ended) = (&barrier, &order, &ended);
            let each =
                |values: std::ops::Range<u64>| (values.end - values.start).div_ceil(THREADS as u64);
            Side::bursts(
                name,
                BURST * THREADS as u64,
                move |values| {
                    *lock(order) = Some((at, each(values)));
                    Ok(())
                },
                move |values| {
                    barrier.wait();
                    let done = work(0, each(values));
                    barrier.wait();
                    done.and(std::mem::replace(&mut *lock(ended), Ok(())))
                },
                move |_| drain(),
            )
        };
        let raced = lab.race(parts.iter().enumerate().map(side).collect());
        *lock(&order) = None;
        barrier.wait();
        raced
    })
}
