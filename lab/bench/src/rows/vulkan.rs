//! Vulkan: submissions, queries, waits, and signals from the host.

use std::hint::black_box;
use std::sync::Mutex;

use syncline::QueueKind;
use syncline::backend::{Device as _, Queue as _};
use syncline::vulkan::{Device, Queue};

use crate::lab::Lab;
use crate::limit::Limit;
use crate::machine::On;
use crate::raw::vulkan::{self as raw, Hand};
use crate::row::{BURST, Call, LONG, Question, Row, Variant, lock};
use crate::side::{OURS, Outcome, RAW, Side, Stop};

const OUTSTANDING: u64 = 0;
const REACHED: u64 = 1;

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "vulkan.submit",
        question: Question::Submission,
        ours: "a submission with one timeline signal, 64 at a time, without their end",
        raw: "vkQueueSubmit with one timeline signal on the same VkQueue, 64 at a time",
        limits: &[Limit::OverRaw(400.0)],
        on: &[On::VulkanQueues],
        variants: &[],
        run: submit,
    },
    Row {
        id: "adopt.vulkan",
        question: Question::Submission,
        ours: "an application's own vkQueueSubmit, which waits for a timeline that another submission signals, and signals one through a claim: claim, wait_ready, the semaphores, the queue's guard, vkQueueSubmit, submitted; 64 at a time, without their end and without the signals that they wait for",
        raw: "the same vkQueueSubmit, with the same two waits and one signal, behind a mutex",
        limits: &[Limit::RatioToRaw(1.25)],
        on: &[On::Vulkan],
        variants: &[],
        run: adopt,
    },
    Row {
        id: "vulkan.query",
        question: Question::Wait,
        ours: "the value of a timeline, or whether a point is reached",
        raw: "vkGetSemaphoreCounterValue",
        limits: &[],
        on: &[On::Vulkan],
        variants: &[
            Variant::new("with a signal outstanding", OUTSTANDING)
                .with_limits(&[Limit::OverRaw(60.0)]),
            Variant::new("known to be reached", REACHED).with_limits(&[Limit::Within(5.0)]),
        ],
        run: query,
    },
    Row {
        id: "vulkan.submit.wait",
        question: Question::Wait,
        ours: "submit a signal, and the host waits for it with the default wait, which spins for 30 µs and then parks",
        raw: "vkQueueSubmit and vkWaitSemaphores, which parks at once",
        limits: &[Limit::RatioToRaw(1.5)],
        on: &[On::VulkanQueues],
        variants: &[],
        run: submit_wait,
    },
    Row {
        id: "vulkan.host.signal",
        question: Question::Wait,
        ours: "signal a timeline from the host",
        raw: "vkSignalSemaphore",
        limits: &[Limit::RatioToRaw(1.3)],
        on: &[On::Vulkan],
        variants: &[],
        run: host_signal,
    },
];

/// A queue of the subject's family, and a hand on the same `VkQueue`.
fn queue(call: &Call<'_>, label: &str) -> Outcome<(Device, Queue, Hand)> {
    let device = call.machine.vulkan(call.subject)?;
    let queue = match call.subject.family {
        Some(family) => device.queue_of_family(family.index, label)?,
        None => device.queue(QueueKind::Compute, label)?,
    };
    let hand = Hand::new(&device, &queue)?;
    Ok((device, queue, hand))
}

fn submit(call: &Call<'_>, lab: &mut Lab) -> Outcome<()> {
    let (device, queue, hand) = queue(call, "submitted to")?;
    let timeline = device.timeline("submitted")?;
    let own_semaphore = device.semaphore_of(&timeline)?;
    let semaphore = hand.semaphore(false)?;
    lab.race(vec![
        Side::values(
            OURS,
            BURST,
            |value| {
                queue.submit(&[], |_| Ok(()), &[timeline.signal_at(value)])?;
                Ok(())
            },
            |last| {
                hand.wait(own_semaphore, last)?;
                Ok(timeline.at(last).wait(LONG)?)
            },
        ),
        Side::values(
            RAW,
            BURST,
            |value| hand.submit((&[], &[]), (&[semaphore.raw], &[value])),
            |last| {
                hand.expect(semaphore, last);
                hand.wait(semaphore.raw, last)
            },
        ),
    ])
}

fn query(call: &Call<'_>, lab: &mut Lab) -> Outcome<()> {
    let (device, _queue, hand) = queue(call, "idle")?;
    let timeline = device.timeline("queried")?;
    let semaphore = hand.semaphore(false)?;
    let raw = Side::timed(RAW, || {
        black_box(hand.value(black_box(semaphore.raw))?);
        Ok(())
    });
    if call.n == REACHED {
        timeline.signal(1)?;
        let point = timeline.at(1);
        let ours = Side::timed(OURS, || match black_box(black_box(point).is_reached()?) {
            true => Ok(()),
            false => Err(Stop::Failed("a reached point is not reached".into())),
        });
        return lab.race(vec![ours, raw]);
    }
    // Outstanding during the race: a submission of the application, for which the host signals
    // later.
    let mut claim = timeline.claim(1)?;
    claim.submitted()?;
    let ours = Side::timed(OURS, || {
        black_box(black_box(&timeline).value()?);
        Ok(())
    });
    let raced = lab.race(vec![ours, raw]);
    hand.signal(device.semaphore_of(&timeline)?, 1)?;
    timeline.at(1).wait(LONG)?;
    raced
}

fn submit_wait(call: &Call<'_>, lab: &mut Lab) -> Outcome<()> {
    let (device, queue, hand) = queue(call, "waited for")?;
    let timeline = device.timeline("waited for")?;
    let semaphore = hand.semaphore(false)?;
    let (mut value, mut by_hand) = (0, 0);
    lab.race(vec![
        Side::timed(OURS, || {
            value += 1;
            queue.submit(&[], |_| Ok(()), &[timeline.signal_at(value)])?;
            Ok(timeline.at(value).wait(LONG)?)
        }),
        Side::timed(RAW, || {
            by_hand += 1;
            hand.expect(semaphore, by_hand);
            hand.submit((&[], &[]), (&[semaphore.raw], &[by_hand]))?;
            hand.wait(semaphore.raw, by_hand)
        }),
    ])
}

fn host_signal(call: &Call<'_>, lab: &mut Lab) -> Outcome<()> {
    let (device, _queue, hand) = queue(call, "idle")?;
    let timeline = device.timeline("signalled")?;
    let semaphore = hand.semaphore(false)?;
    let (mut ours, mut raw) = (0, 0);
    lab.race(vec![
        Side::timed(OURS, || {
            ours += 1;
            Ok(timeline.signal(ours)?)
        }),
        Side::timed(RAW, || {
            raw += 1;
            hand.signal(semaphore.raw, raw)
        }),
    ])
}

fn adopt(call: &Call<'_>, lab: &mut Lab) -> Outcome<()> {
    let (device, queue, hand) = queue(call, "an application's")?;
    let (before, after) = (device.timeline("before")?, device.timeline("after")?);
    // The semaphore that is waited for, and the one that is signalled.
    let by_hand = [hand.semaphore(false)?, hand.semaphore(false)?];
    let mutex = Mutex::new(());
    lab.race(vec![
        Side::gated(
            OURS,
            BURST,
            |mut values| {
                values.try_for_each(|value| {
                    queue.submit(&[], |_| Ok(()), &[before.signal_at(value)])?;
                    Ok(())
                })
            },
            |value| {
                let mut claim = after.claim(value)?;
                claim.wait_ready(LONG)?;
                let (wait, own) = (before.at(value), device.semaphore_of(&after)?);
                let waits = [device.semaphore(wait)?, own];
                let guard = queue.lock()?;
                raw::submit(
                    &device,
                    guard.raw(),
                    &[],
                    (&waits, &[wait.value(), claim.predecessor()]),
                    (&[own], &[claim.value()]),
                )?;
                drop(guard);
                claim.submitted()?;
                Ok(())
            },
            |last| Ok(after.at(last).wait(LONG)?),
        ),
        Side::gated(
            RAW,
            BURST,
            // The signals that the submissions of a burst wait for.
            |mut values| {
                hand.expect(by_hand[0], values.end - 1);
                values.try_for_each(|value| hand.submit((&[], &[]), (&[by_hand[0].raw], &[value])))
            },
            |value| {
                let [before, after] = by_hand.map(|semaphore| semaphore.raw);
                let _alone = lock(&mutex);
                let waits: (&[_], &[_]) = (&[before, after], &[value, value - 1]);
                hand.submit(waits, (&[after], &[value]))
            },
            |last| {
                hand.expect(by_hand[1], last);
                hand.wait(by_hand[1].raw, last)
            },
        ),
    ])
}
