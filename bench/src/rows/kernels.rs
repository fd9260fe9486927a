//! CUDA: submissions with kernels, on Syncline's queues and on an application's streams.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use syncline::backend::{Device as _, Queue as _};
use syncline::cuda::{Device, Queue};
use syncline::{QueueKind, WaitMode};

use super::{Call, Floor, RECORDED, Row};
use crate::lab::Lab;
use crate::machine::On;
use crate::raw::cuda::{Calls, Hand, Small};
use crate::raw::least::cuda as least;
use crate::side::{Outcome, Side, bursts, timed};

/// Time-out of all waits of these rows.
const LONG: Duration = Duration::from_secs(20);

/// Largest number of outstanding submissions of a side.
const BURST: u64 = 64;

/// Submissions of `launches`.
const SUBMISSIONS: u64 = 20;

/// Launches of each submission.
///
/// All of them together are more than the engine submits to the driver at once.
const LAUNCHES: u64 = 50;

/// The floor of these rows.
const LEAST: Floor = Floor::Side(
    "the same calls by the least timelines that several threads may use: a lock for each queue, a claim, a ring of reference-counted events behind a lock",
);

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "launches",
        ours: "1000 launches of a kernel of one thread to one stream, in 20 submissions of 50 launches and one signal each, as an application submits the steps of its work; from the first submission to the end, for which the host spins; per launch",
        raw: "cuLaunchKernel 1000 times, cuEventRecord after every 50, and cuEventSynchronize at the end, which spins",
        floor: LEAST,
        limits: RECORDED,
        on: &[On::Cuda],
        variants: &[],
        run: launches,
    },
    Row {
        id: "submit.kernel",
        ours: "a submission that waits for the one before it, on another stream, launches a kernel of one thread, and signals; two streams in turns, 64 at a time, without their end",
        raw: "cuStreamWaitEvent, cuLaunchKernel and cuEventRecord, with an event for each",
        floor: LEAST,
        limits: RECORDED,
        on: &[On::Cuda],
        variants: &[],
        run: |call, lab| kernels(call, lab, own_queues),
    },
    Row {
        id: "adopt.cuda",
        ours: "as submit.kernel, with queues over two streams that the application has made itself",
        raw: "as in submit.kernel",
        floor: LEAST,
        limits: RECORDED,
        on: &[On::Cuda],
        variants: &[],
        run: |call, lab| kernels(call, lab, adopted_queues),
    },
];

fn launches(call: &Call<'_>, lab: &mut Lab) -> Outcome<()> {
    let device = call.machine.cuda(call.subject)?;
    let hand = Hand::new(&device)?;
    let small = Small::new(&device)?;
    let queue = device.queue(QueueKind::Compute, "launched to")?;
    let timeline = device.timeline("launched")?;
    let (stream, events) = (hand.stream()?, hand.events(SUBMISSIONS, false)?);
    let least_queue = least::Queue::new(&hand, hand.stream()?, &Arc::default());
    let least_timeline = least::Timeline::new(&hand);
    let (mut value, mut least_value) = (0, 0);
    let each = SUBMISSIONS * LAUNCHES;
    let raced = lab.race(vec![
        Side::ours(|n| {
            timed(|| {
                for _ in 0..n {
                    for _ in 0..SUBMISSIONS {
                        value += 1;
                        let kernel = small.clone();
                        queue.submit(
                            &[],
                            move |to| (0..LAUNCHES).try_for_each(|_| kernel.record(to)),
                            &[timeline.signal_at(value)],
                        )?;
                    }
                    timeline.at(value).wait_with(WaitMode::Spin, LONG)?;
                }
                Ok(())
            })
        })
        .each(each),
        Side::raw(|n| {
            timed(|| {
                for _ in 0..n {
                    for &event in &events {
                        (0..LAUNCHES).try_for_each(|_| small.launch(&hand, stream))?;
                        hand.record(event, stream)?;
                    }
                    let mut last = events.last().into_iter();
                    last.try_for_each(|last| hand.synchronize(*last))?;
                }
                Ok(())
            })
        })
        .each(each),
        Side::floor(|n| {
            timed(|| {
                for _ in 0..n {
                    for _ in 0..SUBMISSIONS {
                        least_value += 1;
                        let kernel = small.clone();
                        let work = move |calls: &Calls, stream| {
                            (0..LAUNCHES).try_for_each(|_| kernel.launch(calls, stream))?;
                            Ok(LAUNCHES)
                        };
                        least_queue.submit(&[], work, &[(&least_timeline, least_value)])?;
                    }
                    least_timeline.wait(least_value, LONG)?;
                }
                Ok(())
            })
        })
        .each(each),
    ]);
    // The kernel is dropped after its launches.
    hand.finish(stream).and(raced)
}

fn own_queues(device: &Device, _: &Hand) -> Outcome<[Queue; 2]> {
    let queue = |label| device.queue(QueueKind::Compute, label);
    Ok([queue("even")?, queue("odd")?])
}

fn adopted_queues(_: &Device, hand: &Hand) -> Outcome<[Queue; 2]> {
    Ok([hand.adopted("even")?, hand.adopted("odd")?])
}

/// Makes the two queues of ours.
type Queues = fn(&Device, &Hand) -> Outcome<[Queue; 2]>;

fn kernels(call: &Call<'_>, lab: &mut Lab, queues: Queues) -> Outcome<()> {
    let device = call.machine.cuda(call.subject)?;
    let hand = Hand::new(&device)?;
    let small = Small::new(&device)?;
    let queues = queues(&device, &hand)?;
    let timeline = device.timeline("steps")?;
    let streams = [hand.stream()?, hand.stream()?];
    let events = hand.events(BURST, false)?;
    let room = Arc::default();
    let least_queues = [
        least::Queue::new(&hand, hand.stream()?, &room),
        least::Queue::new(&hand, hand.stream()?, &room),
    ];
    let least_timeline = least::Timeline::new(&hand);
    let (value, least_value) = (Cell::new(0), Cell::new(0));
    let raced = lab.race(vec![
        Side::ours(|n| {
            bursts(
                n,
                BURST,
                |count| {
                    for step in value.get()..value.get() + count {
                        let queue = &queues[(step % 2) as usize];
                        let (wait, signal) = (timeline.at(step), timeline.signal_at(step + 1));
                        let kernel = small.clone();
                        queue.submit(&[wait], move |to| kernel.record(to), &[signal])?;
                    }
                    value.set(value.get() + count);
                    Ok(())
                },
                || Ok(timeline.at(value.get()).wait(LONG)?),
            )
        })
        .step(BURST),
        Side::raw(|n| {
            bursts(
                n,
                BURST,
                |count| {
                    // The last event of the burst before is complete.
                    let mut before = events[BURST as usize - 1];
                    for (step, &event) in events[..count as usize].iter().enumerate() {
                        let stream = streams[step % 2];
                        hand.wait_event(stream, before)?;
                        small.launch(&hand, stream)?;
                        hand.record(event, stream)?;
                        before = event;
                    }
                    Ok(())
                },
                || streams.iter().try_for_each(|stream| hand.finish(*stream)),
            )
        })
        .step(BURST),
        Side::floor(|n| {
            bursts(
                n,
                BURST,
                |count| {
                    for step in least_value.get()..least_value.get() + count {
                        let queue = &least_queues[(step % 2) as usize];
                        let (wait, signal) = ((&least_timeline, step), (&least_timeline, step + 1));
                        let kernel = small.clone();
                        let work =
                            move |calls: &Calls, stream| kernel.launch(calls, stream).map(|()| 1);
                        queue.submit(&[wait], work, &[signal])?;
                    }
                    least_value.set(least_value.get() + count);
                    Ok(())
                },
                || least_timeline.wait(least_value.get(), LONG),
            )
        })
        .step(BURST),
    ]);
    // The kernel is dropped after its launches, and an application's stream after the work of its
    // queue.
    let mut ended = queues.iter().try_for_each(|queue| Ok(queue.idle(LONG)?));
    for stream in streams {
        ended = ended.and(hand.finish(stream));
    }
    raced.and(ended)
}
