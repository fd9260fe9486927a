//! Four threads on four queues that share one timeline.

#[cfg(any(feature = "cuda", feature = "vulkan"))]
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use syncline::backend::{Device as _, Queue as _};
use syncline::{Device, Queue, QueueKind};

#[cfg(any(feature = "cuda", feature = "vulkan"))]
use super::crew::lock;
use super::crew::{Part, THREADS, race};
use super::{Call, Floor, RECORDED, Row};
use crate::lab::Lab;
use crate::machine::On;
use crate::raw::channel::{Counter, Job, Patience, Worker};
use crate::side::{FLOOR, OURS, Outcome, RAW, Stop};

/// Time-out of all waits of this row.
const LONG: Duration = Duration::from_secs(20);

pub(super) const ROWS: &[Row] = &[Row {
    id: "contend",
    ours: "four threads, each with a queue of its own, submit 64 times each: a submission takes the next value of one timeline from an atomic counter, waits for the value before it, and signals it. From the start of all four threads until the last has submitted, divided by the number of submissions, without their end",
    raw: "the same by hand: a mutex around the next value and the driver's calls (cuStreamWaitEvent and cuEventRecord; vkQueueSubmit with one wait and one signal). On the host, which needs no mutex, a boxed closure through a channel to one worker thread for each queue",
    floor: Floor::Side(
        "the same by the least timelines that several threads may use, whose claims are in order, so that the mutex stays; on the host raw, with threads that poll as long as ours before they sleep",
    ),
    limits: RECORDED,
    on: &[On::Each],
    variants: &[],
    run: contend,
}];

/// Ours: queues, and a timeline that they share.
struct Ours {
    queues: Vec<Queue>,
    shared: syncline::Timeline,
    next: AtomicU64,
}

impl Ours {
    fn new(device: &Device, queues: Vec<Queue>) -> Outcome<Self> {
        Ok(Self {
            queues,
            shared: device.timeline("shared")?,
            next: AtomicU64::new(1),
        })
    }

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
    match &device {
        #[cfg(feature = "cuda")]
        Device::Cuda(cuda) => on_cuda(&device, cuda, lab),
        #[cfg(feature = "vulkan")]
        Device::Vulkan(vulkan) => on_vulkan(&device, vulkan, lab),
        _ => host(&device, lab),
    }
}

/// One for each thread.
fn each<T, E>(make: impl Fn() -> Result<T, E>) -> Outcome<Vec<T>>
where
    Stop: From<E>,
{
    Ok((0..THREADS).map(|_| make()).collect::<Result<_, E>>()?)
}

/// Worker threads, and the counter that their jobs wait for and signal.
struct Workers {
    workers: Vec<Worker>,
    counter: std::sync::Arc<Counter>,
    next: AtomicU64,
}

impl Workers {
    fn new(patience: Patience) -> Self {
        Self {
            workers: (0..THREADS).map(|_| Worker::start(patience)).collect(),
            counter: std::sync::Arc::new(Counter::new(patience)),
            next: AtomicU64::new(1),
        }
    }

    fn submit(&self, me: usize, count: u64) -> Outcome<()> {
        for _ in 0..count {
            let value = self.next.fetch_add(1, Ordering::Relaxed);
            let job = Job {
                wait: (self.counter.clone(), value - 1),
                work: Box::new(|| ()),
                signal: (self.counter.clone(), value),
            };
            if !self.workers[me].send(job) {
                return Err(Stop::Failed("a worker by hand has ended".into()));
            }
        }
        Ok(())
    }

    fn drain(&self) -> Outcome<()> {
        self.counter.wait(self.next.load(Ordering::Relaxed) - 1);
        Ok(())
    }
}

fn host(device: &Device, lab: &mut Lab) -> Outcome<()> {
    let ours = Ours::new(
        device,
        each(|| device.queue(QueueKind::Compute, "one of four"))?,
    )?;
    let [raw, floor] = [Patience::NONE, Patience::OURS].map(Workers::new);
    race(
        lab,
        &[
            Part {
                name: OURS,
                work: &|me, count| ours.submit(me, count),
                drain: &|| ours.drain(),
            },
            Part {
                name: RAW,
                work: &|me, count| raw.submit(me, count),
                drain: &|| raw.drain(),
            },
            Part {
                name: FLOOR,
                work: &|me, count| floor.submit(me, count),
                drain: &|| floor.drain(),
            },
        ],
    )
}

#[cfg(feature = "cuda")]
fn on_cuda(device: &Device, cuda: &syncline::cuda::Device, lab: &mut Lab) -> Outcome<()> {
    use crate::raw::cuda::{Chain, Hand};
    use crate::raw::least::cuda as least;

    let hand = Hand::new(cuda)?;
    let ours = Ours::new(
        device,
        each(|| device.queue(QueueKind::Compute, "one of four"))?,
    )?;
    let raw = Chain::new(&hand, THREADS, 64)?;
    let room = std::sync::Arc::default();
    let queues = each(|| -> Outcome<_> { Ok(least::Queue::new(&hand, hand.stream()?, &room)) })?;
    let shared = least::Timeline::new(&hand);
    let last = Mutex::new(0);
    race(
        lab,
        &[
            Part {
                name: OURS,
                work: &|me, count| ours.submit(me, count),
                drain: &|| ours.drain(),
            },
            Part {
                name: RAW,
                work: &|me, count| raw.submit(me, count),
                drain: &|| raw.finish(),
            },
            Part {
                name: FLOOR,
                work: &|me, count| {
                    for _ in 0..count {
                        let mut last = lock(&last);
                        let (wait, signal) = ((&shared, *last), (&shared, *last + 1));
                        queues[me].submit(&[wait], |_, _| Ok(0), &[signal])?;
                        *last += 1;
                    }
                    Ok(())
                },
                drain: &|| shared.wait(*lock(&last), LONG),
            },
        ],
    )
}

#[cfg(feature = "vulkan")]
fn on_vulkan(device: &Device, vulkan: &syncline::vulkan::Device, lab: &mut Lab) -> Outcome<()> {
    use crate::raw::least::vulkan as least;
    use crate::raw::vulkan::{Calls, Hand};

    let own = each(|| vulkan.queue(QueueKind::Compute, "one of four"))?;
    // The driver's queue of each.
    let places: Vec<_> = own.iter().map(|own| (own.family(), own.index())).collect();
    let ours = Ours::new(device, own.into_iter().map(Queue::from).collect())?;
    let hands: Vec<_> = places
        .iter()
        .map(|(family, index)| Hand::new(vulkan, *family, *index))
        .collect();
    let calls: &Calls = &hands[0];
    let (semaphore, least_semaphore) = (hands[0].semaphore(false)?, hands[0].semaphore(false)?);
    let positions = hands
        .iter()
        .map(|hand| hand.semaphore(false))
        .collect::<Outcome<Vec<_>>>()?;
    let room = std::sync::Arc::default();
    let queues: Vec<_> = positions
        .iter()
        .map(|position| least::Queue::new(calls, position.raw, &room))
        .collect();
    let shared = least::Timeline::new(least_semaphore.raw);
    let (raw_last, last) = (Mutex::new(0), Mutex::new(0));
    let guard = |me: usize| vulkan.lock_queue(places[me].0, places[me].1);
    let raced = race(
        lab,
        &[
            Part {
                name: OURS,
                work: &|me, count| ours.submit(me, count),
                drain: &|| ours.drain(),
            },
            Part {
                name: RAW,
                work: &|me, count| {
                    for _ in 0..count {
                        let mut last = lock(&raw_last);
                        let (wait, signal) = ([*last], [*last + 1]);
                        let semaphores = [semaphore.raw];
                        calls.submit(&guard(me)?, (&semaphores, &wait), (&semaphores, &signal))?;
                        *last += 1;
                    }
                    Ok(())
                },
                drain: &|| {
                    let last = *lock(&raw_last);
                    hands[0].expect(semaphore, last);
                    calls.wait(semaphore.raw, last)
                },
            },
            Part {
                name: FLOOR,
                work: &|me, count| {
                    for _ in 0..count {
                        let mut last = lock(&last);
                        let (wait, signal) = ((&shared, *last), (&shared, *last + 1));
                        queues[me].submit(&guard(me)?, &[wait], &[signal])?;
                        *last += 1;
                    }
                    Ok(())
                },
                drain: &|| {
                    let last = *lock(&last);
                    hands[0].expect(least_semaphore, last);
                    for ((hand, position), queue) in hands.iter().zip(&positions).zip(&queues) {
                        hand.expect(*position, queue.position());
                    }
                    calls.wait(least_semaphore.raw, last)
                },
            },
        ],
    );
    // The semaphores of the first hand are used on all queues.
    hands.iter().try_for_each(Hand::settle).and(raced)
}
