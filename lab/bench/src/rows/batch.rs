//! Many waits and signals in one submission.

use std::array::from_fn;

use syncline::backend::{Device as _, Queue as _};
use syncline::{Point, QueueKind, Signal};

use crate::lab::Lab;
use crate::limit::Limit;
use crate::machine::On;
use crate::raw::vulkan::{Awaited, Hand};
use crate::row::{Call, EACH, LONG, Question, Row};
use crate::side::{OURS, Outcome, RAW, Side};

/// Largest number of outstanding submissions on Vulkan; half of it on CUDA.
///
/// There each wait and each signal counts as two of 416 commands. Above that the engine holds
/// submissions.
const BURST: u64 = 16;

pub(super) const ROWS: &[Row] = &[Row {
    id: "batch",
    question: Question::Submission,
    ours: "one submission that waits for 8 timelines and signals 8 others, 16 at a time (8 on CUDA); what they wait for is pending, and the host makes it come after what is timed",
    raw: "vkQueueSubmit with 8 waits and 8 signals; on CUDA cuWait- and cuSignalExternalSemaphoresAsync of 8 each",
    limits: &[Limit::OverRaw(2000.0)],
    on: &[On::Vulkan, On::Shared],
    variants: &[],
    run: batch,
}];

fn batch(call: &Call<'_>, lab: &mut Lab) -> Outcome<()> {
    #[cfg(feature = "cuda")]
    if call.subject.indices.len() == 2 {
        return super::external::batch(call, lab, BURST / 2);
    }
    let device = call.machine.vulkan(call.subject)?;
    let queue = device.queue(QueueKind::Compute, "batches")?;
    let hand = Hand::new(&device, &queue)?;
    let awaited = Awaited::new(&device, || device.timeline("awaited"), EACH)?;
    let signalled = (0..EACH).map(|_| device.timeline("signalled"));
    let signalled = signalled.collect::<Result<Vec<_>, _>>()?;
    let semaphores = || -> Outcome<Vec<_>> { (0..EACH).map(|_| hand.semaphore(false)).collect() };
    let (before, after) = (semaphores()?, semaphores()?);
    let waits: [_; EACH] = from_fn(|at| before[at].raw);
    let signals: [_; EACH] = from_fn(|at| after[at].raw);
    lab.race(vec![
        Side::gated(
            OURS,
            BURST,
            |values| awaited.promise(values.end - 1),
            |value| {
                let waits: [Point<'_>; EACH] = from_fn(|at| awaited.timelines[at].at(value));
                let signals: [Signal<'_>; EACH] = from_fn(|at| signalled[at].signal_at(value));
                queue.submit(&waits, |_| Ok(()), &signals)?;
                Ok(())
            },
            |last| {
                awaited.keep(&hand, last)?;
                for timeline in &signalled {
                    hand.wait(device.semaphore_of(timeline)?, last)?;
                    timeline.at(last).wait(LONG)?;
                }
                Ok(())
            },
        ),
        Side::values(
            RAW,
            BURST,
            |value| hand.submit((&waits, &[value; EACH]), (&signals, &[value; EACH])),
            |last| {
                for semaphore in &before {
                    hand.signal(semaphore.raw, last)?;
                    hand.expect(*semaphore, last);
                }
                after.iter().try_for_each(|semaphore| {
                    hand.expect(*semaphore, last);
                    hand.wait(semaphore.raw, last)
                })
            },
        ),
    ])
}
