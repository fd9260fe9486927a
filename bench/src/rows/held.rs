//! Submissions that are held on the host until a value is signalled.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use syncline::backend::{Device as _, Queue as _};
use syncline::{Device, Error, Queue, QueueKind, Timeline};

use super::scale::{compared, heap};
use super::{Call, Floor, Row, Variant, is_short};
use crate::lab::Lab;
use crate::limit::Limit;
use crate::machine::On;
use crate::raw::channel::{Counter, Job, Patience, Worker};
use crate::raw::held::{Held, Missing};
use crate::side::{OURS, Outcome, RAW, Side, Stop, bursts, gated_bursts};
use crate::stats::median;

/// Time-out of all waits of these rows.
const LONG: Duration = Duration::from_secs(120);

/// Number of queues that hold submissions, in a full run and in a short one.
const QUEUES: (usize, usize) = (1000, 50);

/// Held submissions of the smaller variant of `held.deep`, and of the larger one.
const FEWEST: u64 = 125_000;
const MOST: u64 = 1_000_000;

/// A short run of `held.deep` holds this many times fewer submissions.
const SHORTER: u64 = 1000;

/// How many times fewer are held for comparison.
const FEWER: u64 = 8;

/// The limits of `held.deep`: the cost does not grow with what is held.
///
/// To hold takes somewhat longer once the lists no longer fit into the caches.
const DEEP: &[Limit] = &[
    Limit::Figure("own_bytes_each", 256.0),
    Limit::Figure("hold_to_that_of_an_eighth", 1.5),
    Limit::Figure("release_to_that_of_an_eighth", 1.3),
];

/// The limit of `held.waits`: the cost of a wait does not grow with the number of waits.
const WAITS: &[Limit] = &[Limit::Within(1000.0)];

/// Number of releases that are timed together.
const PART: u64 = 100;

/// Number of such parts. The other submissions are released at once afterwards.
const PARTS: u64 = 20;

const HOLD: u64 = 0;
const RELEASE: u64 = 1;

/// Why these rows have no floor.
const FLOOR: Floor = Floor::Unmeasured("raw is already the least: a heap and a mutex");

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "held.wide",
        ours: "Each of 1000 queues (--quick: 50) holds one submission. It waits for a timeline that the host signals, and signals a timeline of its own. Timed are the 1000 submissions, or the one signal that releases them; per submission",
        raw: "the same by hand: a heap of submissions by value, behind a mutex; vkSignalSemaphore for that timeline and vkQueueSubmit for each that is released, on the host a boxed closure through a channel to one worker thread for each queue",
        floor: FLOOR,
        limits: &[],
        on: &[On::Host, On::Vulkan],
        variants: &[
            Variant::new("to hold", HOLD),
            Variant::new("to release", RELEASE),
        ],
        run: wide,
    },
    Row {
        id: "held.deep",
        ours: "as many submissions, over 1000 queues in turns, each of which waits for a value of its own of one timeline. The host signals these values one by one. One signal of the first 2000, each of which releases one submission; the rest is released at once, untimed. The same with an eighth of them, for comparison. (--quick: a thousandth of them, over 50 queues)",
        raw: "the same by hand, as in held.wide",
        floor: FLOOR,
        limits: DEEP,
        on: &[On::Host, On::Vulkan],
        variants: &[
            Variant::new("125 000 held", FEWEST),
            Variant::new("1 000 000 held", MOST),
        ],
        run: deep,
    },
    Row {
        id: "held.waits",
        ours: "one submission that waits for a value of each of N timelines, and the N signals of the host that release it, one by one; per wait",
        raw: "the same by hand: a mutex for each timeline, with its value and what is waited for, and a count of the values that are missing; the last signal sends a boxed closure through a channel to a worker thread",
        floor: Floor::Unmeasured("raw is already the least: a mutex and a count"),
        limits: WAITS,
        on: &[On::Host],
        variants: &[
            Variant::new("8 waits", 8),
            Variant::new("64 waits", 64),
            Variant::new("1024 waits", 1024),
            Variant::new("4096 waits", 4096),
        ],
        run: waits,
    },
];

/// Queues that hold submissions until a value is signalled.
trait Holds {
    /// Holds a submission on `queue` until `gate` is signalled.
    ///
    /// It then signals `done` on the timeline of that queue.
    fn hold(&self, queue: usize, gate: u64, done: u64) -> Outcome<()>;

    /// Signals `gate`.
    fn release(&self, gate: u64) -> Outcome<()>;

    /// Waits until the timeline of `queue` is at `done`.
    fn wait(&self, queue: usize, done: u64) -> Outcome<()>;
}

/// Through Syncline.
struct Ours {
    gate: Timeline,
    queues: Vec<(Queue, Timeline)>,
}

impl Ours {
    fn new(device: &Device, count: usize) -> Outcome<Self> {
        let queue = |_| -> Outcome<_> {
            Ok((
                device.queue(QueueKind::Compute, "one that holds")?,
                device.timeline("done")?,
            ))
        };
        Ok(Self {
            gate: device.timeline("gate")?,
            queues: (0..count).map(queue).collect::<Outcome<_>>()?,
        })
    }
}

impl Holds for Ours {
    fn hold(&self, queue: usize, gate: u64, done: u64) -> Outcome<()> {
        let (queue, timeline) = &self.queues[queue];
        queue.submit(
            &[self.gate.at(gate)],
            |_| Ok(()),
            &[timeline.signal_at(done)],
        )?;
        Ok(())
    }

    fn release(&self, gate: u64) -> Outcome<()> {
        Ok(self.gate.signal(gate)?)
    }

    fn wait(&self, queue: usize, done: u64) -> Outcome<()> {
        Ok(self.queues[queue].1.at(done).wait(LONG)?)
    }
}

/// Worker threads by hand.
struct Workers {
    held: Held,
    /// The jobs of the workers wait for value 0 of it, which is reached.
    open: Arc<Counter>,
    workers: Vec<(Worker, Arc<Counter>)>,
}

impl Workers {
    fn new(count: usize, held: u64) -> Self {
        let counter = || Arc::new(Counter::new(Patience::OURS));
        let worker = |_| (Worker::start(Patience::OURS), counter());
        Self {
            held: Held::with_room(held),
            open: counter(),
            workers: (0..count).map(worker).collect(),
        }
    }
}

impl Holds for Workers {
    fn hold(&self, queue: usize, gate: u64, done: u64) -> Outcome<()> {
        self.held.hold(gate, queue, done);
        Ok(())
    }

    fn release(&self, gate: u64) -> Outcome<()> {
        self.held.release(gate, |queue, done| {
            let (worker, counter) = &self.workers[queue];
            let job = Job {
                wait: (self.open.clone(), 0),
                work: Box::new(|| ()),
                signal: (counter.clone(), done),
            };
            if worker.send(job) {
                return Ok(());
            }
            Err(Stop::Failed("a worker by hand has ended".into()))
        })
    }

    fn wait(&self, queue: usize, done: u64) -> Outcome<()> {
        self.workers[queue].1.wait(done);
        Ok(())
    }
}

#[cfg(feature = "vulkan")]
struct OnVulkan {
    held: Held,
    hand: crate::raw::vulkan::Hand,
    gate: crate::raw::vulkan::Semaphore,
    semaphores: Vec<crate::raw::vulkan::Semaphore>,
}

#[cfg(feature = "vulkan")]
impl OnVulkan {
    fn new(device: &syncline::vulkan::Device, count: usize, held: u64) -> Outcome<Self> {
        let queue = device.queue(QueueKind::Compute, "by hand")?;
        let hand = crate::raw::vulkan::Hand::new(device, queue.family(), queue.index());
        let semaphores = (0..count).map(|_| hand.semaphore(false));
        Ok(Self {
            held: Held::with_room(held),
            semaphores: semaphores.collect::<Outcome<_>>()?,
            gate: hand.semaphore(false)?,
            hand,
        })
    }
}

#[cfg(feature = "vulkan")]
impl Holds for OnVulkan {
    fn hold(&self, queue: usize, gate: u64, done: u64) -> Outcome<()> {
        self.held.hold(gate, queue, done);
        Ok(())
    }

    fn release(&self, gate: u64) -> Outcome<()> {
        self.hand.signal(self.gate.raw, gate)?;
        self.hand.expect(self.gate, gate);
        let queue = self.hand.lock()?;
        self.held.release(gate, |at, done| {
            let semaphore = [self.semaphores[at].raw];
            self.hand.submit(&queue, (&[], &[]), (&semaphore, &[done]))
        })
    }

    fn wait(&self, queue: usize, done: u64) -> Outcome<()> {
        self.hand.expect(self.semaphores[queue], done);
        self.hand.wait(self.semaphores[queue].raw, done)
    }
}

/// Ours and raw, and the number of queues of each, for at most `held` submissions.
fn both(call: &Call<'_>, lab: &Lab, held: u64) -> Outcome<([Box<dyn Holds>; 2], usize)> {
    let count = if is_short(lab) { QUEUES.1 } else { QUEUES.0 };
    let device = call.machine.device(call.subject.indices[0])?;
    let raw: Box<dyn Holds> = match &device {
        #[cfg(feature = "vulkan")]
        Device::Vulkan(device) => Box::new(OnVulkan::new(device, count, held)?),
        _ => Box::new(Workers::new(count, held)),
    };
    Ok(([Box::new(Ours::new(&device, count)?), raw], count))
}

fn wide(call: &Call<'_>, lab: &mut Lab) -> Outcome<()> {
    let (both, queues) = both(call, lab, QUEUES.0 as u64)?;
    let burst = queues as u64;
    // The submissions of a burst wait for the next value and signal it.
    let hold = |holds: &dyn Holds, value: u64, count: u64| {
        (0..count as usize).try_for_each(|queue| holds.hold(queue, value, value))
    };
    let ended = |holds: &dyn Holds, value: u64, count: u64| {
        (0..count as usize).try_for_each(|queue| holds.wait(queue, value))
    };
    let run = |holds: &dyn Holds, value: &Cell<u64>, n| {
        let now = Cell::new(0);
        let begin = |count| {
            now.set(count);
            value.set(value.get() + 1);
            hold(holds, value.get(), count)
        };
        let release = || holds.release(value.get());
        let end = || ended(holds, value.get(), now.get());
        if call.n == HOLD {
            gated_bursts(
                n,
                burst,
                |_| Ok(()),
                begin,
                || release().and_then(|()| end()),
            )
        } else {
            gated_bursts(n, burst, begin, |_| release(), end)
        }
    };
    let [ours, raw] = &both;
    let values = [Cell::new(0), Cell::new(0)];
    lab.race(vec![
        Side::ours(|n| run(&**ours, &values[0], n)).step(burst),
        Side::raw(|n| run(&**raw, &values[1], n)).step(burst),
    ])
}

/// Medians are taken of each of these lists.
#[derive(Default)]
struct Deep {
    /// Nanoseconds to hold one submission.
    hold: Vec<f64>,
    /// Nanoseconds to release one submission.
    release: Vec<f64>,
    /// Heap bytes of one held submission.
    bytes: Vec<f64>,
}

/// One side, and the last value that it has signalled.
struct Deeper<'h> {
    holds: &'h dyn Holds,
    queues: u64,
    last: u64,
}

fn deep(call: &Call<'_>, lab: &mut Lab) -> Outcome<()> {
    let short = is_short(lab);
    let held = if short { call.n / SHORTER } else { call.n };
    let (both, queues) = both(call, lab, held)?;
    // A larger number takes longer and gives the same number of samples for each round.
    let rounds = (u64::from(lab.rounds()) / 10 * FEWEST / call.n).max(3);
    let [mut ours, mut raw] = both.each_ref().map(|holds| Deeper {
        holds: &**holds,
        queues: queues as u64,
        last: 0,
    });
    let [mut first, mut found, mut by_hand, mut fewer] = [(); 4].map(|()| Deep::default());
    // Only on new queues does the heap grow by all that is held. This also warms up.
    ours.release_one_by_one(held, &mut first)?;
    raw.release_one_by_one(held, &mut Deep::default())?;
    // The order alternates, so that a machine that slows down does not matter.
    for round in 0..rounds {
        if round % 2 == 0 {
            ours.release_one_by_one(held / FEWER, &mut fewer)?;
            ours.release_one_by_one(held, &mut found)?;
            raw.release_one_by_one(held, &mut by_hand)?;
        } else {
            raw.release_one_by_one(held, &mut by_hand)?;
            ours.release_one_by_one(held, &mut found)?;
            ours.release_one_by_one(held / FEWER, &mut fewer)?;
        }
    }
    let of = |samples: &[f64]| median(samples).unwrap_or(f64::NAN);
    lab.taken(OURS, &found.release);
    lab.taken(RAW, &by_hand.release);
    lab.figure("hold_ours_ns", of(&found.hold));
    lab.figure("hold_raw_ns", of(&by_hand.hold));
    lab.figure("own_bytes_each", of(&first.bytes));
    for (name, all, fewer) in [
        ("hold_to_that_of_an_eighth", &found.hold, &fewer.hold),
        (
            "release_to_that_of_an_eighth",
            &found.release,
            &fewer.release,
        ),
    ] {
        lab.figure(name, compared(all, fewer));
    }
    if short {
        lab.note(format!("a short run: {held} held over {queues} queues"));
    }
    Ok(())
}

impl Deeper<'_> {
    /// The queue whose submission waits for `value`, and what that submission signals.
    fn place(&self, value: u64) -> (usize, u64) {
        ((value % self.queues) as usize, value / self.queues + 1)
    }

    fn wait(&self, value: u64) -> Outcome<()> {
        let (queue, done) = self.place(value);
        self.holds.wait(queue, done)
    }

    /// Holds `held` submissions, each for the next value, and releases them one by one.
    fn release_one_by_one(&mut self, held: u64, found: &mut Deep) -> Outcome<()> {
        let (first, end) = (self.last, self.last + held);
        let each = |start: Instant, count: u64| start.elapsed().as_nanos() as f64 / count as f64;
        let before = heap()?;
        let start = Instant::now();
        for value in first + 1..=end {
            let (queue, done) = self.place(value);
            self.holds.hold(queue, value, done)?;
        }
        found.hold.push(each(start, held));
        found.bytes.push((heap()? - before) / held as f64);
        // The last signal releases at least one submission.
        let part = PART.min(held / (2 * PARTS)).max(1);
        let mut last = first;
        for _ in 0..PARTS.min(held / 2) {
            let start = Instant::now();
            for value in last + 1..=last + part {
                self.holds.release(value)?;
            }
            found.release.push(each(start, part));
            for value in last + 1..=last + part {
                self.wait(value)?;
            }
            last += part;
        }
        self.holds.release(end)?;
        self.last = end;
        for value in (first + 1..=end).rev().take(self.queues as usize) {
            self.wait(value)?;
        }
        Ok(())
    }
}

/// One submission with `call.n` outstanding waits.
fn waits(call: &Call<'_>, lab: &mut Lab) -> Outcome<()> {
    let count = call.n;
    let device = call.machine.device(call.subject.indices[0])?;
    let (queue, done) = (
        device.queue(QueueKind::Compute, "one that holds")?,
        device.timeline("done")?,
    );
    let timeline = |_| device.timeline("waited for");
    let timelines = (0..count)
        .map(timeline)
        .collect::<Result<Vec<_>, Error>>()?;
    let last = Cell::new(0);
    let ours = |_| {
        let value = last.get() + 1;
        last.set(value);
        let points: Vec<_> = timelines.iter().map(|of| of.at(value)).collect();
        queue.submit(&points, |_| Ok(()), &[done.signal_at(value)])?;
        for timeline in &timelines {
            timeline.signal(value)?;
        }
        Ok(())
    };
    let missing = Missing::new(count);
    let (worker, open, ended) = (
        Worker::start(Patience::OURS),
        Arc::new(Counter::new(Patience::OURS)),
        Arc::new(Counter::new(Patience::OURS)),
    );
    let last_by_hand = Cell::new(0);
    let raw = |_| {
        let value = last_by_hand.get() + 1;
        last_by_hand.set(value);
        missing.hold(value);
        for timeline in 0..missing.len() {
            if !missing.signal(timeline, value) {
                continue;
            }
            let job = Job {
                wait: (open.clone(), 0),
                work: Box::new(|| ()),
                signal: (ended.clone(), value),
            };
            if !worker.send(job) {
                return Err(Stop::Failed("a worker by hand has ended".into()));
            }
        }
        Ok(())
    };
    lab.race(vec![
        Side::ours(|n| bursts(n, count, ours, || Ok(done.at(last.get()).wait(LONG)?))).step(count),
        Side::raw(|n| {
            bursts(n, count, raw, || {
                ended.wait(last_by_hand.get());
                Ok(())
            })
        })
        .step(count),
    ])
}
