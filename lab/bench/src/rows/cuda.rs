//! CUDA: dependencies between streams, queries and waits.

use std::hint::black_box;

use syncline::backend::{Device as _, Queue as _};
use syncline::{Fence, QueueKind, WaitMode};
use syncline_conformance::Subject as _;
use syncline_conformance::workload::Equipped;

use crate::lab::Lab;
use crate::limit::Limit;
use crate::machine::On;
use crate::raw::cuda::{self, Event, Hand};
use crate::row::{BURST, Call, LONG, Question, Row, Variant, close};
use crate::side::{OURS, Outcome, RAW, Side, Stop};

/// Hops of one chain.
const CHAIN: u64 = 1000;

/// Bytes of the memset of `cuda.submit.wait`.
const BYTES: u64 = 4096;

const IDLE: u64 = 0;
const WORK: u64 = 1;

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "cuda.hop.submit",
        question: Question::Submission,
        ours: "a signal on one stream and a wait for it on another: two submissions, 64 such pairs at a time, without their end",
        raw: "cuEventRecord and cuStreamWaitEvent, 64 pairs at a time, each with an event of its own",
        limits: &[Limit::OverRaw(300.0)],
        on: &[On::Cuda],
        variants: &[],
        run: hop,
    },
    Row {
        id: "cuda.chain",
        question: Question::Submission,
        ours: "1000 hops between two streams, from the first submission to the end, for which the host spins; per hop",
        raw: "cuStreamWaitEvent and cuEventRecord for each hop, and cuEventSynchronize at the end, which spins",
        limits: &[Limit::OverRaw(200.0)],
        on: &[On::Cuda],
        variants: &[],
        run: chain,
    },
    Row {
        id: "cuda.timestamp",
        question: Question::Submission,
        ours: "record a timed fence, 64 at a time",
        raw: "cuEventRecord of an event with timing, 64 at a time",
        limits: &[Limit::OverRaw(300.0)],
        on: &[On::Cuda],
        variants: &[],
        run: timestamp,
    },
    Row {
        id: "cuda.query.reached",
        question: Question::Wait,
        ours: "a query of a point that is known to be reached",
        raw: "cuEventQuery of a finished event",
        limits: &[Limit::Within(5.0)],
        on: &[On::Cuda],
        variants: &[],
        run: query_reached,
    },
    Row {
        id: "cuda.query.pending",
        question: Question::Wait,
        ours: "a query of a point whose stream is behind a closed gate",
        raw: "cuEventQuery of an event in the same stream",
        limits: &[Limit::OverRaw(60.0)],
        on: &[On::Cuda],
        variants: &[],
        run: query_pending,
    },
    Row {
        id: "cuda.submit.wait",
        question: Question::Wait,
        ours: "submit a signal, or a signal behind a memset, and the default wait of the host",
        raw: "cuEventRecord and cuEventSynchronize, which spins; or cuMemsetD32Async before. On an idle stream the driver completes the event itself, and no device takes part",
        limits: &[Limit::OverRaw(400.0)],
        on: &[On::Cuda],
        variants: &[
            Variant::new("idle stream", IDLE),
            Variant::new("behind 4 KiB of work", WORK),
        ],
        run: submit_wait,
    },
];

fn hop(call: &Call<'_>, lab: &mut Lab) -> Outcome<()> {
    let device = call.machine.cuda(call.subject)?;
    let hand = Hand::new(&device)?;
    let from = device.queue(QueueKind::Compute, "from")?;
    let to = device.queue(QueueKind::Compute, "to")?;
    let timeline = device.timeline("hops")?;
    let (first, second) = (hand.stream()?, hand.stream()?);
    let events = hand.events(BURST)?;
    lab.race(vec![
        Side::values(
            OURS,
            BURST,
            |value| {
                from.submit(&[], |_| Ok(()), &[timeline.signal_at(value)])?;
                to.submit(&[timeline.at(value)], |_| Ok(()), &[])?;
                Ok(())
            },
            |_| Ok(to.idle(LONG)?),
        ),
        Side::values(
            RAW,
            BURST,
            |value| {
                let event = events[(value % BURST) as usize];
                cuda::record(event, first)?;
                cuda::wait_event(second, event)
            },
            |_| cuda::finish(second),
        ),
    ])
}

fn chain(call: &Call<'_>, lab: &mut Lab) -> Outcome<()> {
    let device = call.machine.cuda(call.subject)?;
    let hand = Hand::new(&device)?;
    let queue = |label| device.queue(QueueKind::Compute, label);
    let queues = [queue("even")?, queue("odd")?];
    let timeline = device.timeline("chain")?;
    let streams = [hand.stream()?, hand.stream()?];
    let events = hand.events(CHAIN)?;
    let mut value = 0;
    let ours = Side::timed(OURS, || {
        for hop in 0..CHAIN {
            let (wait, signal) = (timeline.at(value), timeline.signal_at(value + 1));
            queues[(hop % 2) as usize].submit(&[wait], |_| Ok(()), &[signal])?;
            value += 1;
        }
        Ok(timeline.at(value).wait_with(WaitMode::Spin, LONG)?)
    });
    let raw = Side::timed(RAW, || {
        let mut before: Option<Event> = None;
        for (hop, &event) in events.iter().enumerate() {
            if let Some(before) = before {
                cuda::wait_event(streams[hop % 2], before)?;
            }
            cuda::record(event, streams[hop % 2])?;
            before = Some(event);
        }
        before.map_or(Ok(()), cuda::synchronize)
    });
    lab.race(vec![ours.each(CHAIN), raw.each(CHAIN)])
}

fn timestamp(call: &Call<'_>, lab: &mut Lab) -> Outcome<()> {
    let device = call.machine.cuda(call.subject)?;
    let hand = Hand::new(&device)?;
    let queue = device.queue(QueueKind::Compute, "timed")?;
    let fences: Vec<Fence> = (0..BURST).map(|_| device.timed_fence("time")).collect();
    let stream = hand.stream()?;
    let events = (0..BURST).map(|_| hand.timed_event());
    let events = events.collect::<Outcome<Vec<_>>>()?;
    let at = |value: u64| (value % BURST) as usize;
    lab.race(vec![
        Side::values(
            OURS,
            BURST,
            |value| Ok(queue.record(&fences[at(value)])?),
            |_| Ok(queue.idle(LONG)?),
        ),
        Side::values(
            RAW,
            BURST,
            |value| cuda::record(events[at(value)], stream),
            |_| cuda::finish(stream),
        ),
    ])
}

/// A side that queries and expects this answer each time.
fn asked<'a>(name: &'static str, expected: bool, ask: impl Fn() -> Outcome<bool> + 'a) -> Side<'a> {
    Side::timed(name, move || match black_box(ask()?) == expected {
        true => Ok(()),
        false => Err(Stop::Failed(format!("reached: not {expected}"))),
    })
}

fn query_reached(call: &Call<'_>, lab: &mut Lab) -> Outcome<()> {
    let device = call.machine.cuda(call.subject)?;
    let hand = Hand::new(&device)?;
    let queue = device.queue(QueueKind::Compute, "finished")?;
    let timeline = device.timeline("finished")?;
    queue.submit(&[], |_| Ok(()), &[timeline.signal_at(1)])?;
    let point = timeline.at(1);
    point.wait(LONG)?;
    let (event, stream) = (hand.event()?, hand.stream()?);
    cuda::record(event, stream)?;
    cuda::synchronize(event)?;
    lab.race(vec![
        asked(OURS, true, || Ok(black_box(point).is_reached()?)),
        asked(RAW, true, || cuda::query(black_box(event))),
    ])
}

fn query_pending(call: &Call<'_>, lab: &mut Lab) -> Outcome<()> {
    let device = call.machine.cuda(call.subject)?;
    let equipped = call.machine.equipped(call.subject.indices[0])?;
    let hand = Hand::new(&device)?;
    let queue = device.queue(QueueKind::Compute, "held up")?;
    let timeline = device.timeline("held up")?;
    let event = hand.event()?;
    let latch = close(&equipped, &queue.clone().into())?;
    let raced = (|| {
        queue.submit(&[], |_| Ok(()), &[timeline.signal_at(1)])?;
        cuda::record(event, queue.stream().raw())?;
        let point = timeline.at(1);
        lab.race(vec![
            asked(OURS, false, || Ok(black_box(point).is_reached()?)),
            asked(RAW, false, || cuda::query(black_box(event))),
        ])
    })();
    Equipped::open(&latch)?;
    queue.idle(LONG)?;
    raced
}

fn submit_wait(call: &Call<'_>, lab: &mut Lab) -> Outcome<()> {
    let device = call.machine.cuda(call.subject)?;
    let hand = Hand::new(&device)?;
    let queue = device.queue(QueueKind::Compute, "waited for")?;
    let timeline = device.timeline("waited for")?;
    let (event, stream) = (hand.event()?, hand.stream()?);
    // One for each side, because the sides use different streams.
    let [own, by_hand] = [device.buffer(BYTES)?, device.buffer(BYTES)?];
    let work = call.n == WORK;
    let mut value = 0;
    let raced = lab.race(vec![
        Side::timed(OURS, || {
            value += 1;
            let signals = [timeline.signal_at(value)];
            if work {
                let buffer = own.clone();
                queue.submit(&[], move |to| to.memset_d32(&buffer, 0), &signals)?;
            } else {
                queue.submit(&[], |_| Ok(()), &signals)?;
            }
            Ok(timeline.at(value).wait(LONG)?)
        }),
        Side::timed(RAW, || {
            if work {
                cuda::clear(&by_hand, stream)?;
            }
            cuda::record(event, stream)?;
            cuda::synchronize(event)
        }),
    ]);
    // The buffers are dropped after the work that writes them.
    cuda::finish(stream)?;
    raced
}
