//! Many waits and signals in one submission.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use ash::vk;
use syncline::backend::{Device as _, Queue as _};
use syncline::{Point, QueueKind, Signal, Timeline};

use super::{Call, Floor, Row};
use crate::lab::Lab;
use crate::limit::Limit;
use crate::machine::On;
use crate::raw::least::vulkan as least;
use crate::raw::vulkan::{Hand, Semaphore};
use crate::side::{Outcome, Side, gated_bursts};

/// Time-out of all waits of this row.
const LONG: Duration = Duration::from_secs(20);

/// Number of waits, and of signals, of each submission.
pub(super) const EACH: usize = 8;

/// Largest number of outstanding submissions on Vulkan; half of it on CUDA.
///
/// There each wait and each signal counts as two of 416 commands. Above that the engine holds
/// submissions.
const BURST: u64 = 16;

pub(super) const ROWS: &[Row] = &[Row {
    id: "batch",
    ours: "one submission that waits for 8 timelines and signals 8 others, 16 at a time (8 on CUDA); what they wait for is pending, and the host makes it come after what is timed",
    raw: "vkQueueSubmit with 8 waits and 8 signals; on CUDA cuWait- and cuSignalExternalSemaphoresAsync of 8 each",
    floor: Floor::Side(
        "the same calls by timelines that several threads may use, as little as that takes: 8 claims, and 8 values to be published; on Vulkan with the queue's position, on CUDA with cuEventRecord (Q9), 8 rings of reference-counted events, and a note of what waits for what (E3)",
    ),
    limits: &[Limit::RatioToFloor(1.2)],
    on: &[On::Vulkan, On::Shared(None)],
    variants: &[],
    run: batch,
}];

/// Timelines whose signals the host announces, and makes later.
pub(super) struct Awaited {
    pub(super) timelines: Vec<Timeline>,
    semaphores: Vec<vk::Semaphore>,
    pending: Cell<u64>,
}

impl Awaited {
    pub(super) fn new(
        device: &syncline::vulkan::Device,
        make: impl Fn() -> syncline::Result<Timeline>,
        count: usize,
    ) -> Outcome<Self> {
        let timelines = (0..count).map(|_| make()).collect::<Result<Vec<_>, _>>()?;
        let semaphores = timelines
            .iter()
            .map(|timeline| device.semaphore_of(timeline))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            timelines,
            semaphores,
            pending: Cell::new(0),
        })
    }

    /// Announces `count` more values to the engine.
    pub(super) fn promise(&self, count: u64) -> Outcome<()> {
        let value = self.pending.get() + count;
        for timeline in &self.timelines {
            timeline.claim(value)?.submitted()?;
        }
        self.pending.set(value);
        Ok(())
    }

    /// Makes the announced signals.
    pub(super) fn keep(&self, hand: &Hand) -> Outcome<()> {
        for semaphore in &self.semaphores {
            hand.signal(*semaphore, self.pending.get())?;
        }
        Ok(())
    }
}

/// An array of `EACH` elements.
pub(super) fn each<T>(of: impl FnMut(usize) -> T) -> [T; EACH] {
    std::array::from_fn(of)
}

fn batch(call: &Call<'_>, lab: &mut Lab) -> Outcome<()> {
    #[cfg(feature = "cuda")]
    if call.subject.indices.len() == 2 {
        return super::external::batch(call, lab, BURST / 2);
    }
    vulkan(call, lab)
}

fn vulkan(call: &Call<'_>, lab: &mut Lab) -> Outcome<()> {
    let device = call.machine.vulkan(call.subject)?;
    let queue = device.queue(QueueKind::Compute, "batches")?;
    let hand = Hand::new(&device, queue.family(), queue.index());
    let awaited = Awaited::new(&device, || device.timeline("awaited"), EACH)?;
    let signalled = (0..EACH)
        .map(|_| device.timeline("signalled"))
        .collect::<Result<Vec<_>, _>>()?;
    let semaphores = |_| {
        (0..EACH)
            .map(|_| hand.semaphore(false))
            .collect::<Outcome<Vec<_>>>()
    };
    let (before, after) = (semaphores(())?, semaphores(())?);
    let (raw_waits, raw_signals) = (each(|at| before[at].raw), each(|at| after[at].raw));
    let (ours, raw, floor) = (Cell::new(0), Cell::new(0), Cell::new(0));
    let (least_before, least_after) = (semaphores(())?, semaphores(())?);
    let least_waits = each(|at| least::Timeline::new(least_before[at].raw));
    let least_signals = each(|at| least::Timeline::new(least_after[at].raw));
    let position = hand.semaphore(false)?;
    let least_queue = least::Queue::new(&hand, position.raw, &Arc::default());
    // Makes the signals that were waited for.
    let open = |waited: &[Semaphore], signalled: &[Semaphore], value| -> Outcome<()> {
        for semaphore in waited {
            hand.signal(semaphore.raw, value)?;
            hand.expect(*semaphore, value);
        }
        for semaphore in signalled {
            hand.wait(semaphore.raw, value)?;
            hand.expect(*semaphore, value);
        }
        Ok(())
    };
    lab.race(vec![
        Side::ours(|n| {
            gated_bursts(
                n,
                BURST,
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
                    awaited.keep(&hand)?;
                    for timeline in &signalled {
                        hand.wait(device.semaphore_of(timeline)?, ours.get())?;
                        timeline.at(ours.get()).wait(LONG)?;
                    }
                    Ok(())
                },
            )
        })
        .step(BURST),
        Side::raw(|n| {
            let queue = hand.lock()?;
            gated_bursts(
                n,
                BURST,
                |_| Ok(()),
                |count| {
                    for value in raw.get() + 1..=raw.get() + count {
                        let values = [value; EACH];
                        hand.submit(&queue, (&raw_waits, &values), (&raw_signals, &values))?;
                    }
                    raw.set(raw.get() + count);
                    Ok(())
                },
                || open(&before, &after, raw.get()),
            )
        })
        .step(BURST),
        Side::floor(|n| {
            let queue = hand.lock()?;
            gated_bursts(
                n,
                BURST,
                |count| {
                    let mut waits = least_waits.iter();
                    waits.try_for_each(|timeline| timeline.promise(floor.get() + count))
                },
                |count| {
                    for value in floor.get() + 1..=floor.get() + count {
                        let waits = each(|at| (&least_waits[at], value));
                        let signals = each(|at| (&least_signals[at], value));
                        least_queue.submit(&queue, &waits, &signals)?;
                    }
                    floor.set(floor.get() + count);
                    Ok(())
                },
                || {
                    open(&least_before, &least_after, floor.get())?;
                    hand.expect(position, least_queue.position());
                    Ok(())
                },
            )
        })
        .step(BURST),
    ])
}
