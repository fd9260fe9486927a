//! Timelines that CUDA and Vulkan share.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use syncline::backend::{Device as _, Queue as _};
use syncline::{Point, QueueKind, Signal, Timeline, WaitMode, cuda, share, vulkan};

use super::batch::{Awaited, EACH, each};
use super::{Call, Floor, Row};
use crate::lab::Lab;
use crate::limit::Limit;
use crate::machine::On;
use crate::raw::cuda::{self as by_hand, Event, External, signal_params, wait_params};
use crate::raw::least::cuda as least;
use crate::raw::vulkan::{Hand, Semaphore};
use crate::side::{Outcome, Side, bursts, gated_bursts, timed};

/// Time-out of all waits of these rows.
const LONG: Duration = Duration::from_secs(20);

/// Largest number of outstanding signals or waits of a side.
const BURST: u64 = 64;

/// The limit of one submission above the floor, in nanoseconds.
const SUBMISSION: f64 = 350.0;

/// Rounds of one chain.
const ROUNDS: u64 = 16;

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "cuda.external.signal",
        ours: "a submission to a stream that signals a shared timeline, 64 at a time, without their end",
        raw: "cuSignalExternalSemaphoresAsync, 64 at a time",
        floor: Floor::Side(
            "the same call, and cuEventRecord, because only the event says that the writes are visible to the host (Q9), by the least timeline that several threads may use",
        ),
        limits: &[Limit::OverFloor(SUBMISSION)],
        on: &[On::Shared(None)],
        variants: &[],
        run: signal,
    },
    Row {
        id: "cuda.external.wait",
        ours: "a submission to a stream that waits for a shared timeline, 64 at a time; their signals are pending, and the host makes them after the timed part",
        raw: "cuWaitExternalSemaphoresAsync, 64 at a time",
        floor: Floor::Side(
            "the same call by the least queues and timelines that several threads may use, and cuEventRecord, because the signaller of the next wait may first wait for the end of this one (Q7)",
        ),
        limits: &[Limit::OverFloor(SUBMISSION)],
        on: &[On::Shared(None)],
        variants: &[],
        run: wait,
    },
    Row {
        id: "interop.pingpong.transfer",
        ours: "CUDA to Vulkan's transfer queue and back on a shared timeline, 16 rounds from the first submission to the end, for which the host spins; per round",
        raw: "cuWaitExternalSemaphoresAsync, cuSignalExternalSemaphoresAsync and vkQueueSubmit with a wait and a signal for each round; the host spins at the end",
        floor: Floor::Side(
            "the same calls, and cuEventRecord behind each signal of CUDA (Q9), and a second semaphore for each vkQueueSubmit to signal, the queue's position",
        ),
        limits: &[],
        on: &[On::Shared(Some(QueueKind::Transfer))],
        variants: &[],
        run: pingpong,
    },
    Row {
        id: "interop.pingpong.compute",
        ours: "CUDA to a compute queue of Vulkan and back on a shared timeline, 16 rounds from the first submission to the end, for which the host spins; per round",
        raw: "cuWaitExternalSemaphoresAsync, cuSignalExternalSemaphoresAsync and vkQueueSubmit with a wait and a signal for each round; the host spins at the end",
        floor: Floor::Side(
            "the same calls, and cuEventRecord behind each signal of CUDA (Q9), and a second semaphore for each vkQueueSubmit to signal, the queue's position",
        ),
        limits: &[],
        on: &[On::Shared(Some(QueueKind::Compute))],
        variants: &[],
        run: pingpong,
    },
];

/// The two devices of a subject, with a hand on each.
pub(super) struct Pair {
    pub(super) cuda: cuda::Device,
    pub(super) vulkan: vulkan::Device,
    /// The Vulkan queue of the subject's kind.
    pub(super) queue: vulkan::Queue,
    /// Dropped before the hand whose semaphores it imports.
    pub(super) cuda_hand: by_hand::Hand,
    pub(super) vulkan_hand: Hand,
}

impl Pair {
    pub(super) fn new(call: &Call<'_>) -> Outcome<Self> {
        let (cuda, vulkan) = (
            call.machine.cuda(call.subject)?,
            call.machine.vulkan(call.subject)?,
        );
        let queue = match call.subject.family {
            Some(family) => vulkan.queue_of_family(family.index, "vulkan")?,
            None => vulkan.queue(QueueKind::Compute, "vulkan")?,
        };
        let vulkan_hand = Hand::new(&vulkan, queue.family(), queue.index());
        let cuda_hand = by_hand::Hand::new(&cuda)?;
        Ok(Self {
            cuda,
            vulkan,
            queue,
            cuda_hand,
            vulkan_hand,
        })
    }

    /// A timeline that both devices share.
    pub(super) fn timeline(&self, label: &str) -> syncline::Result<Timeline> {
        share(&self.cuda, &self.vulkan)?.timeline(label)
    }

    /// A semaphore that both devices share, by hand.
    pub(super) fn semaphore(&self) -> Outcome<(Semaphore, External)> {
        let semaphore = self.vulkan_hand.semaphore(true)?;
        let handle = self.vulkan_hand.export(semaphore)?;
        Ok((semaphore, self.cuda_hand.import(handle)?))
    }
}

fn signal(call: &Call<'_>, lab: &mut Lab) -> Outcome<()> {
    let pair = Pair::new(call)?;
    let timeline = pair.timeline("signalled")?;
    let queue = pair.cuda.queue(QueueKind::Compute, "signalling")?;
    let (semaphore, imported) = pair.semaphore()?;
    let (least_semaphore, least_imported) = pair.semaphore()?;
    let (hand, stream) = (&pair.cuda_hand, pair.cuda_hand.stream()?);
    let least_queue = least::Queue::new(hand, hand.stream()?, &Arc::default());
    let least_timeline = least::Timeline::shared(hand, least_imported);
    let (ours, raw, floor) = (Cell::new(0), Cell::new(0), Cell::new(0));
    lab.race(vec![
        Side::ours(|n| {
            bursts(
                n,
                BURST,
                |count| {
                    for value in ours.get() + 1..=ours.get() + count {
                        queue.submit(&[], |_| Ok(()), &[timeline.signal_at(value)])?;
                    }
                    ours.set(ours.get() + count);
                    Ok(())
                },
                || Ok(timeline.at(ours.get()).wait(LONG)?),
            )
        })
        .step(BURST),
        Side::raw(|n| {
            bursts(
                n,
                BURST,
                |count| {
                    for value in raw.get() + 1..=raw.get() + count {
                        hand.signal_external(&[imported], &[signal_params(value)], stream)?;
                    }
                    raw.set(raw.get() + count);
                    Ok(())
                },
                || {
                    pair.vulkan_hand.expect(semaphore, raw.get());
                    hand.finish(stream)
                },
            )
        })
        .step(BURST),
        Side::floor(|n| {
            bursts(
                n,
                BURST,
                |count| {
                    for value in floor.get() + 1..=floor.get() + count {
                        let signals = [(&least_timeline, value)];
                        least_queue.submit(&[], |_, _| Ok(0), &signals)?;
                    }
                    floor.set(floor.get() + count);
                    Ok(())
                },
                || {
                    pair.vulkan_hand.expect(least_semaphore, floor.get());
                    least_queue.idle(LONG)
                },
            )
        })
        .step(BURST),
    ])
}

fn wait(call: &Call<'_>, lab: &mut Lab) -> Outcome<()> {
    let pair = Pair::new(call)?;
    let awaited = Awaited::new(&pair.vulkan, || pair.timeline("awaited"), 1)?;
    let timeline = &awaited.timelines[0];
    let queue = pair.cuda.queue(QueueKind::Compute, "waiting")?;
    let (semaphore, imported) = pair.semaphore()?;
    let (least_semaphore, least_imported) = pair.semaphore()?;
    let (hand, stream) = (&pair.cuda_hand, pair.cuda_hand.stream()?);
    let least_queue = least::Queue::new(hand, hand.stream()?, &Arc::default());
    let least_timeline = least::Timeline::shared(hand, least_imported);
    let (ours, raw, floor) = (Cell::new(0), Cell::new(0), Cell::new(0));
    lab.race(vec![
        Side::ours(|n| {
            gated_bursts(
                n,
                BURST,
                |count| awaited.promise(count),
                |count| {
                    for value in ours.get() + 1..=ours.get() + count {
                        queue.submit(&[timeline.at(value)], |_| Ok(()), &[])?;
                    }
                    ours.set(ours.get() + count);
                    Ok(())
                },
                || {
                    awaited.keep(&pair.vulkan_hand)?;
                    Ok(queue.idle(LONG)?)
                },
            )
        })
        .step(BURST),
        Side::raw(|n| {
            bursts(
                n,
                BURST,
                |count| {
                    for value in raw.get() + 1..=raw.get() + count {
                        hand.wait_external(&[imported], &[wait_params(value)], stream)?;
                    }
                    raw.set(raw.get() + count);
                    Ok(())
                },
                || {
                    pair.vulkan_hand.signal(semaphore.raw, raw.get())?;
                    pair.vulkan_hand.expect(semaphore, raw.get());
                    hand.finish(stream)
                },
            )
        })
        .step(BURST),
        Side::floor(|n| {
            gated_bursts(
                n,
                BURST,
                |count| least_timeline.promise(floor.get() + count),
                |count| {
                    for value in floor.get() + 1..=floor.get() + count {
                        let waits = [(&least_timeline, value)];
                        least_queue.submit(&waits, |_, _| Ok(0), &[])?;
                    }
                    floor.set(floor.get() + count);
                    Ok(())
                },
                || {
                    pair.vulkan_hand.signal(least_semaphore.raw, floor.get())?;
                    pair.vulkan_hand.expect(least_semaphore, floor.get());
                    least_queue.idle(LONG)
                },
            )
        })
        .step(BURST),
    ])
}

fn pingpong(call: &Call<'_>, lab: &mut Lab) -> Outcome<()> {
    let pair = Pair::new(call)?;
    let timeline = pair.timeline("ping-pong")?;
    let cuda = pair.cuda.queue(QueueKind::Compute, "ping")?;
    let vulkan = &pair.queue;
    let (raw, floor) = (Chain::new(&pair, false)?, Chain::new(&pair, true)?);
    let mut ours = 0;
    let by_syncline = Side::ours(|n| {
        timed(|| {
            for _ in 0..n {
                for _ in 0..ROUNDS {
                    let (there, back) = (ours + 1, ours + 2);
                    cuda.submit(
                        &[timeline.at(ours)],
                        |_| Ok(()),
                        &[timeline.signal_at(there)],
                    )?;
                    vulkan.submit(
                        &[timeline.at(there)],
                        |_| Ok(()),
                        &[timeline.signal_at(back)],
                    )?;
                    ours = back;
                }
                timeline.at(ours).wait_with(WaitMode::Spin, LONG)?;
            }
            Ok(())
        })
    });
    lab.race(vec![
        by_syncline.each(ROUNDS),
        Side::raw(|n| raw.run(n)).each(ROUNDS),
        Side::floor(|n| floor.run(n)).each(ROUNDS),
    ])
}

/// Round trips by hand.
struct Chain<'p> {
    pair: &'p Pair,
    stream: by_hand::Stream,
    semaphore: Semaphore,
    imported: External,
    value: Cell<u64>,
    /// The additional calls of the contract.
    ///
    /// An event behind each signal of CUDA, and the position of Vulkan's queue.
    besides: Option<(Vec<Event>, Semaphore)>,
}

impl<'p> Chain<'p> {
    fn new(pair: &'p Pair, besides: bool) -> Outcome<Self> {
        let (semaphore, imported) = pair.semaphore()?;
        let hand = &pair.cuda_hand;
        let besides = besides.then(|| -> Outcome<_> {
            let position = pair.vulkan_hand.semaphore(false)?;
            Ok((hand.events(ROUNDS, false)?, position))
        });
        Ok(Self {
            pair,
            stream: hand.stream()?,
            semaphore,
            imported,
            value: Cell::new(0),
            besides: besides.transpose()?,
        })
    }

    /// Runs `n` chains.
    fn run(&self, n: u64) -> Outcome<Duration> {
        let (hand, imported, stream) = (&self.pair.cuda_hand, [self.imported], self.stream);
        let vulkan = &self.pair.vulkan_hand;
        let queue = vulkan.lock()?;
        timed(|| {
            for _ in 0..n {
                for round in 0..ROUNDS {
                    let before = self.value.get();
                    let (there, back) = (before + 1, before + 2);
                    // The last chain has ended, so the first round need not wait.
                    if round > 0 {
                        hand.wait_external(&imported, &[wait_params(before)], stream)?;
                    }
                    hand.signal_external(&imported, &[signal_params(there)], stream)?;
                    let waits = ([self.semaphore.raw], [there]);
                    let waits: (&[_], &[_]) = (&waits.0, &waits.1);
                    if let Some((events, position)) = &self.besides {
                        hand.record(events[round as usize], stream)?;
                        let signals = [self.semaphore.raw, position.raw];
                        // The position may count in twos as well.
                        vulkan.submit(&queue, waits, (&signals, &[back, back]))?;
                    } else {
                        vulkan.submit(&queue, waits, (&[self.semaphore.raw], &[back]))?;
                    }
                    self.value.set(back);
                }
                let value = self.value.get();
                vulkan.expect(self.semaphore, value);
                if let Some((_, position)) = &self.besides {
                    vulkan.expect(*position, value);
                }
                vulkan.poll(self.semaphore.raw, value)?;
            }
            Ok(())
        })
    }
}

/// The row `batch` on a stream, with timelines that Vulkan shares.
pub(super) fn batch(call: &Call<'_>, lab: &mut Lab, burst: u64) -> Outcome<()> {
    let pair = Pair::new(call)?;
    let awaited = Awaited::new(&pair.vulkan, || pair.timeline("awaited"), EACH)?;
    let signalled = (0..EACH)
        .map(|_| pair.timeline("signalled"))
        .collect::<Result<Vec<_>, _>>()?;
    let queue = pair.cuda.queue(QueueKind::Compute, "batches")?;
    let semaphores =
        || -> Outcome<Vec<(Semaphore, External)>> { (0..EACH).map(|_| pair.semaphore()).collect() };
    let (before, after) = (semaphores()?, semaphores()?);
    let (raw_waits, raw_signals) = (each(|at| before[at].1), each(|at| after[at].1));
    let (hand, stream) = (&pair.cuda_hand, pair.cuda_hand.stream()?);
    let (ours, raw, floor) = (Cell::new(0), Cell::new(0), Cell::new(0));
    let (least_before, least_after) = (semaphores()?, semaphores()?);
    let least_timeline =
        |(_, imported): &(Semaphore, External)| least::Timeline::shared(hand, *imported);
    let least_waits: Vec<_> = least_before.iter().map(least_timeline).collect();
    let least_signals: Vec<_> = least_after.iter().map(least_timeline).collect();
    let least_queue = least::Queue::new(hand, hand.stream()?, &Arc::default());
    // Makes the signals that were waited for.
    let open = |waited: &[(Semaphore, External)],
                signalled: &[(Semaphore, External)],
                value|
     -> Outcome<()> {
        for (semaphore, _) in waited {
            pair.vulkan_hand.signal(semaphore.raw, value)?;
        }
        for (semaphore, _) in waited.iter().chain(signalled) {
            pair.vulkan_hand.expect(*semaphore, value);
        }
        Ok(())
    };
    lab.race(vec![
        Side::ours(|n| {
            gated_bursts(
                n,
                burst,
                |count| awaited.promise(count),
                |count| {
                    for value in ours.get() + 1..=ours.get() + count {
                        let waits: [Point<'_>; EACH] = each(|at| awaited.timelines[at].at(value));
                        let signals: [Signal<'_>; EACH] = each(|at| signalled[at].signal_at(value));
                        queue.submit(&waits, |_| Ok(()), &signals)?;
                    }
                    ours.set(ours.get() + count);
                    Ok(())
                },
                || {
                    awaited.keep(&pair.vulkan_hand)?;
                    Ok(queue.idle(LONG)?)
                },
            )
        })
        .step(burst),
        Side::raw(|n| {
            bursts(
                n,
                burst,
                |count| {
                    for value in raw.get() + 1..=raw.get() + count {
                        hand.wait_external(&raw_waits, &each(|_| wait_params(value)), stream)?;
                        hand.signal_external(
                            &raw_signals,
                            &each(|_| signal_params(value)),
                            stream,
                        )?;
                    }
                    raw.set(raw.get() + count);
                    Ok(())
                },
                || {
                    open(&before, &after, raw.get())?;
                    hand.finish(stream)
                },
            )
        })
        .step(burst),
        Side::floor(|n| {
            gated_bursts(
                n,
                burst,
                |count| {
                    let mut waits = least_waits.iter();
                    waits.try_for_each(|timeline| timeline.promise(floor.get() + count))
                },
                |count| {
                    for value in floor.get() + 1..=floor.get() + count {
                        let waits = each(|at| (&least_waits[at], value));
                        let signals = each(|at| (&least_signals[at], value));
                        least_queue.submit(&waits, |_, _| Ok(0), &signals)?;
                    }
                    floor.set(floor.get() + count);
                    Ok(())
                },
                || {
                    open(&least_before, &least_after, floor.get())?;
                    least_queue.idle(LONG)
                },
            )
        })
        .step(burst),
    ])
}
