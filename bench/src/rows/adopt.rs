//! Vulkan: submissions that the application makes itself.

use std::cell::Cell;
use std::sync::Mutex;
use std::time::Duration;

use syncline::QueueKind;
use syncline::backend::{Device as _, Queue as _};

use super::crew::lock;
use super::{Call, Floor, RECORDED, Row};
use crate::lab::Lab;
use crate::machine::On;
use crate::raw::least::vulkan as least;
use crate::raw::vulkan::Hand;
use crate::side::{Outcome, Side, gated_bursts};

/// Time-out of all waits of this row.
const LONG: Duration = Duration::from_secs(20);

/// Largest number of outstanding submissions of a side.
const BURST: u64 = 64;

pub(super) const ROWS: &[Row] = &[Row {
    id: "adopt.vulkan",
    ours: "an application's own vkQueueSubmit, which waits for a timeline that another submission signals, and signals one through a claim: claim, wait_ready, the semaphores, the queue's guard, vkQueueSubmit, submitted; 64 at a time, without their end and without the signals that they wait for",
    raw: "the same vkQueueSubmit, with the same two waits and one signal, behind a mutex",
    floor: Floor::Side(
        "raw, and the least that two threads need to share a timeline: a claim, and a published value",
    ),
    limits: RECORDED,
    on: &[On::Vulkan],
    variants: &[],
    run: adopt,
}];

fn adopt(call: &Call<'_>, lab: &mut Lab) -> Outcome<()> {
    let device = call.machine.vulkan(call.subject)?;
    let queue = device.queue(QueueKind::Compute, "an application's")?;
    let hand = Hand::new(&device, queue.family(), queue.index());
    let (before, after) = (device.timeline("before")?, device.timeline("after")?);
    // For raw and for the floor: the semaphore that is waited for, and the one that is signalled.
    let by_hand = [
        [hand.semaphore(false)?, hand.semaphore(false)?],
        [hand.semaphore(false)?, hand.semaphore(false)?],
    ];
    let least_after = least::Timeline::new(by_hand[1][1].raw);
    let mutex = Mutex::new(());
    let ours = Cell::new(0);
    let values = [Cell::new(0), Cell::new(0)];
    // Submits the signals that the submissions of a burst wait for.
    let prepare = |side: usize, count| {
        let (semaphore, first) = (by_hand[side][0], values[side].get());
        let guard = hand.lock()?;
        for value in first + 1..=first + count {
            hand.submit(&guard, (&[], &[]), (&[semaphore.raw], &[value]))?;
        }
        hand.expect(semaphore, first + count);
        Ok(())
    };
    let submit = |side: usize, value: u64| {
        let [before, after] = by_hand[side].map(|semaphore| semaphore.raw);
        let guard = hand.lock()?;
        hand.submit(
            &guard,
            (&[before, after], &[value, value - 1]),
            (&[after], &[value]),
        )
    };
    let drain = |side: usize| {
        let after = by_hand[side][1];
        hand.expect(after, values[side].get());
        hand.wait(after.raw, values[side].get())
    };
    lab.race(vec![
        Side::ours(|n| {
            gated_bursts(
                n,
                BURST,
                |count| {
                    for value in ours.get() + 1..=ours.get() + count {
                        queue.submit(&[], |_| Ok(()), &[before.signal_at(value)])?;
                    }
                    Ok(())
                },
                |count| {
                    for value in ours.get() + 1..=ours.get() + count {
                        let mut claim = after.claim(value)?;
                        claim.wait_ready(LONG)?;
                        let (wait, own) = (before.at(value), device.semaphore_of(&after)?);
                        let waits = [device.semaphore(wait)?, own];
                        let guard = queue.lock()?;
                        hand.submit(
                            &guard,
                            (&waits, &[wait.value(), claim.predecessor()]),
                            (&[own], &[claim.value()]),
                        )?;
                        drop(guard);
                        claim.submitted()?;
                    }
                    ours.set(ours.get() + count);
                    Ok(())
                },
                || Ok(after.at(ours.get()).wait(LONG)?),
            )
        })
        .step(BURST),
        Side::raw(|n| {
            gated_bursts(
                n,
                BURST,
                |count| prepare(0, count),
                |count| {
                    for value in values[0].get() + 1..=values[0].get() + count {
                        let _alone = lock(&mutex);
                        submit(0, value)?;
                    }
                    values[0].set(values[0].get() + count);
                    Ok(())
                },
                || drain(0),
            )
        })
        .step(BURST),
        Side::floor(|n| {
            gated_bursts(
                n,
                BURST,
                |count| prepare(1, count),
                |count| {
                    for value in values[1].get() + 1..=values[1].get() + count {
                        let _alone = lock(&mutex);
                        let (predecessor, _) = least_after.claim(value)?;
                        debug_assert_eq!(predecessor, value - 1);
                        submit(1, value)?;
                        least_after.submitted(value, 0);
                    }
                    values[1].set(values[1].get() + count);
                    Ok(())
                },
                || drain(1),
            )
        })
        .step(BURST),
    ])
}
