//! CUDA: dependencies between streams, queries and waits.

use std::cell::Cell;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use syncline::backend::{Device as _, Queue as _};
use syncline::cuda::Device;
use syncline::{Fence, QueueKind, WaitMode};
use syncline_conformance::Subject as _;
use syncline_conformance::workload::Equipped;

use super::gate::close;
use super::{Call, Floor, Row, Variant};
use crate::lab::Lab;
use crate::limit::Limit;
use crate::machine::On;
use crate::raw::cuda::{Calls, Event, Hand};
use crate::raw::least::cuda as least;
use crate::side::{Outcome, Side, Stop, bursts, timed};

/// Time-out of all waits of these rows.
const LONG: Duration = Duration::from_secs(20);

/// Largest number of outstanding submissions of a side.
const BURST: u64 = 64;

/// Hops of one chain.
const CHAIN: u64 = 1000;

/// Bytes of the memset of `cuda.submit.wait`.
const BYTES: u64 = 4096;

/// The limit of one submission above the floor, in nanoseconds.
const SUBMISSION: f64 = 200.0;

const IDLE: u64 = 0;
const WORK: u64 = 1;

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "cuda.hop.submit",
        ours: "a signal on one stream and a wait for it on another: two submissions, 64 such pairs at a time, without their end",
        raw: "cuEventRecord and cuStreamWaitEvent, 64 pairs at a time, each with an event of its own",
        floor: Floor::Side(
            "the same two calls by the least timelines that several threads may use: a lock for each queue, a claim, a ring of reference-counted events behind a lock",
        ),
        limits: &[Limit::OverFloor(2.0 * SUBMISSION)],
        on: &[On::Cuda],
        variants: &[],
        run: hop,
    },
    Row {
        id: "cuda.chain",
        ours: "1000 hops between two streams, from the first submission to the end, for which the host spins; per hop",
        raw: "cuStreamWaitEvent and cuEventRecord for each hop, and cuEventSynchronize at the end, which spins",
        floor: Floor::Side(
            "the same calls by the least timelines that several threads may use; cuEventQuery at the end",
        ),
        limits: &[Limit::OverFloor(SUBMISSION)],
        on: &[On::Cuda],
        variants: &[],
        run: chain,
    },
    Row {
        id: "cuda.query.reached",
        ours: "a query of a point that is known to be reached",
        raw: "cuEventQuery of a finished event",
        floor: Floor::Unmeasured("a load and a comparison: no call of the driver"),
        limits: &[Limit::Within(5.0)],
        on: &[On::Cuda],
        variants: &[],
        run: query_reached,
    },
    Row {
        id: "cuda.query.pending",
        ours: "a query of a point whose stream is behind a closed gate",
        raw: "cuEventQuery of an event in the same stream",
        floor: Floor::Side(
            "cuEventQuery between two of cuThreadExchangeStreamCaptureMode, without which it would break a capture of another thread",
        ),
        limits: &[Limit::OverRaw(60.0)],
        on: &[On::Cuda],
        variants: &[],
        run: query_pending,
    },
    Row {
        id: "cuda.submit.wait",
        ours: "submit a signal, and the host spins for it; or a signal behind a memset. adaptive: with the default wait",
        raw: "cuEventRecord and cuEventSynchronize, which spins; or cuMemsetD32Async before. On an idle stream the driver completes the event itself, and no device takes part",
        floor: Floor::Side(
            "the same by the least timeline that several threads may use, and cuEventQuery until it is complete, as a wait with a time-out must",
        ),
        limits: &[Limit::OverFloor(SUBMISSION)],
        on: &[On::Cuda],
        variants: &[
            Variant::new("idle stream", IDLE),
            Variant::new("behind 4 KiB of work", WORK),
        ],
        run: submit_wait,
    },
    Row {
        id: "cuda.timestamp",
        ours: "record a timed fence, 64 at a time",
        raw: "cuEventRecord of an event with timing, 64 at a time",
        floor: Floor::Side(
            "the same by the least queue and fences that several threads may use: a lock each, and reference-counted events",
        ),
        limits: &[Limit::OverFloor(SUBMISSION)],
        on: &[On::Cuda],
        variants: &[],
        run: timestamp,
    },
];

fn hop(call: &Call<'_>, lab: &mut Lab) -> Outcome<()> {
    let device = call.machine.cuda(call.subject)?;
    let hand = Hand::new(&device)?;
    let (from, to) = (
        device.queue(QueueKind::Compute, "from")?,
        device.queue(QueueKind::Compute, "to")?,
    );
    let timeline = device.timeline("hops")?;
    let (first, second) = (hand.stream()?, hand.stream()?);
    let events = hand.events(BURST, false)?;
    let [least_from, least_to] = least_queues(&hand)?;
    let least_timeline = least::Timeline::new(&hand);
    let (value, least_value) = (Cell::new(0), Cell::new(0));
    lab.race(vec![
        Side::ours(|n| {
            bursts(
                n,
                BURST,
                |count| {
                    for value in value.get() + 1..=value.get() + count {
                        from.submit(&[], |_| Ok(()), &[timeline.signal_at(value)])?;
                        to.submit(&[timeline.at(value)], |_| Ok(()), &[])?;
                    }
                    value.set(value.get() + count);
                    Ok(())
                },
                || Ok(to.idle(LONG)?),
            )
        })
        .step(BURST),
        Side::raw(|n| {
            bursts(
                n,
                BURST,
                |count| {
                    for &event in &events[..count as usize] {
                        hand.record(event, first)?;
                        hand.wait_event(second, event)?;
                    }
                    Ok(())
                },
                || hand.finish(second),
            )
        })
        .step(BURST),
        Side::floor(|n| {
            bursts(
                n,
                BURST,
                |count| {
                    for value in least_value.get() + 1..=least_value.get() + count {
                        least_from.submit(&[], |_, _| Ok(0), &[(&least_timeline, value)])?;
                        least_to.submit(&[(&least_timeline, value)], |_, _| Ok(0), &[])?;
                    }
                    least_value.set(least_value.get() + count);
                    Ok(())
                },
                || least_to.idle(LONG),
            )
        })
        .step(BURST),
    ])
}

/// Two queues of the floor.
fn least_queues(hand: &Hand) -> Outcome<[Arc<least::Queue>; 2]> {
    let room = Arc::default();
    let queue = || -> Outcome<_> { Ok(least::Queue::new(hand, hand.stream()?, &room)) };
    Ok([queue()?, queue()?])
}

fn chain(call: &Call<'_>, lab: &mut Lab) -> Outcome<()> {
    let device = call.machine.cuda(call.subject)?;
    let hand = Hand::new(&device)?;
    let queues = [
        device.queue(QueueKind::Compute, "even")?,
        device.queue(QueueKind::Compute, "odd")?,
    ];
    let timeline = device.timeline("chain")?;
    let streams = [hand.stream()?, hand.stream()?];
    let events = hand.events(CHAIN, false)?;
    let mut value = 0;
    let ours = Side::ours(|n| {
        timed(|| {
            for _ in 0..n {
                for hop in 0..CHAIN {
                    let queue = &queues[(hop % 2) as usize];
                    let (wait, signal) = (timeline.at(value), timeline.signal_at(value + 1));
                    queue.submit(&[wait], |_| Ok(()), &[signal])?;
                    value += 1;
                }
                timeline.at(value).wait_with(WaitMode::Spin, LONG)?;
            }
            Ok(())
        })
    });
    let least_queues = least_queues(&hand)?;
    let least_timeline = least::Timeline::new(&hand);
    let mut least_value = 0;
    let floor = Side::floor(|n| {
        timed(|| {
            for _ in 0..n {
                for hop in 0..CHAIN {
                    let queue = &least_queues[(hop % 2) as usize];
                    queue.submit(
                        &[(&least_timeline, least_value)],
                        |_, _| Ok(0),
                        &[(&least_timeline, least_value + 1)],
                    )?;
                    least_value += 1;
                }
                least_timeline.wait(least_value, LONG)?;
            }
            Ok(())
        })
    });
    let raw = Side::raw(|n| {
        timed(|| {
            for _ in 0..n {
                let mut before: Option<Event> = None;
                for (hop, &event) in events.iter().enumerate() {
                    let stream = streams[hop % 2];
                    if let Some(before) = before {
                        hand.wait_event(stream, before)?;
                    }
                    hand.record(event, stream)?;
                    before = Some(event);
                }
                if let Some(last) = before {
                    hand.synchronize(last)?;
                }
            }
            Ok(())
        })
    });
    lab.race(vec![ours.each(CHAIN), raw.each(CHAIN), floor.each(CHAIN)])
}

fn query_reached(call: &Call<'_>, lab: &mut Lab) -> Outcome<()> {
    let device = call.machine.cuda(call.subject)?;
    let hand = Hand::new(&device)?;
    let queue = device.queue(QueueKind::Compute, "finished")?;
    let timeline = device.timeline("finished")?;
    queue.submit(&[], |_| Ok(()), &[timeline.signal_at(1)])?;
    let point = timeline.at(1);
    point.wait(LONG)?;
    let (event, stream) = (hand.event(false)?, hand.stream()?);
    hand.record(event, stream)?;
    hand.synchronize(event)?;
    lab.race(vec![
        Side::ours(|n| asked(n, true, || Ok(black_box(point).is_reached()?))),
        Side::raw(|n| asked(n, true, || hand.query(black_box(event)))),
    ])
}

fn query_pending(call: &Call<'_>, lab: &mut Lab) -> Outcome<()> {
    let device = call.machine.cuda(call.subject)?;
    let equipped = call.machine.equipped(call.subject.indices[0])?;
    let hand = Hand::new(&device)?;
    let queue = device.queue(QueueKind::Compute, "held up")?;
    let timeline = device.timeline("held up")?;
    let event = hand.event(false)?;
    let latch = close(&equipped, &queue.clone().into())?;
    let raced = (|| {
        queue.submit(&[], |_| Ok(()), &[timeline.signal_at(1)])?;
        hand.record(event, queue.stream().raw())?;
        let point = timeline.at(1);
        lab.race(vec![
            Side::ours(|n| asked(n, false, || Ok(black_box(point).is_reached()?))),
            Side::raw(|n| asked(n, false, || hand.query(black_box(event)))),
            Side::floor(|n| asked(n, false, || hand.ask(black_box(event)))),
        ])
    })();
    Equipped::open(&latch)?;
    queue.idle(LONG)?;
    raced
}

/// Queries `n` times and expects the same answer each time.
fn asked(n: u64, expected: bool, ask: impl Fn() -> Outcome<bool>) -> Outcome<Duration> {
    timed(|| {
        for _ in 0..n {
            if black_box(ask()?) != expected {
                return Err(Stop::Failed(format!("reached: not {expected}")));
            }
        }
        Ok(())
    })
}

fn submit_wait(call: &Call<'_>, lab: &mut Lab) -> Outcome<()> {
    let device = call.machine.cuda(call.subject)?;
    let hand = Hand::new(&device)?;
    let queue = device.queue(QueueKind::Compute, "waited for")?;
    let timeline = device.timeline("waited for")?;
    let (event, stream) = (hand.event(false)?, hand.stream()?);
    // One for each side, because the sides use different streams.
    let buffer = || device.buffer(BYTES);
    let [own, by_hand, leasts] = [buffer()?, buffer()?, buffer()?];
    let work = call.n == WORK;
    let value = Cell::new(0);
    let ours = |n, mode| {
        timed(|| {
            for _ in 0..n {
                value.set(value.get() + 1);
                let signals = [timeline.signal_at(value.get())];
                if work {
                    let buffer = own.clone();
                    queue.submit(&[], move |to| to.memset_d32(&buffer, 0), &signals)?;
                } else {
                    queue.submit(&[], |_| Ok(()), &signals)?;
                }
                timeline.at(value.get()).wait_with(mode, LONG)?;
            }
            Ok(())
        })
    };
    let raw = |n| {
        timed(|| {
            for _ in 0..n {
                if work {
                    hand.clear(&by_hand, stream)?;
                }
                hand.record(event, stream)?;
                hand.synchronize(event)?;
            }
            Ok(())
        })
    };
    let least_queue = least::Queue::new(&hand, hand.stream()?, &Arc::default());
    let least_timeline = least::Timeline::new(&hand);
    let least_value = Cell::new(0);
    let floor = |n| {
        timed(|| {
            for _ in 0..n {
                least_value.set(least_value.get() + 1);
                let value = least_value.get();
                let signals = [(&least_timeline, value)];
                if work {
                    let buffer = leasts.clone();
                    let work =
                        move |calls: &Calls, stream| calls.clear(&buffer, stream).map(|()| 1);
                    least_queue.submit(&[], work, &signals)?;
                } else {
                    least_queue.submit(&[], |_, _| Ok(0), &signals)?;
                }
                least_timeline.wait(value, LONG)?;
            }
            Ok(())
        })
    };
    let raced = lab.race(vec![
        Side::ours(|n| ours(n, WaitMode::Spin)),
        Side::raw(raw),
        Side::floor(floor),
        Side::new("adaptive", |n| ours(n, WaitMode::Adaptive)),
    ]);
    // The buffers are dropped after the work that writes them.
    hand.finish(stream)?;
    raced
}

fn timestamp(call: &Call<'_>, lab: &mut Lab) -> Outcome<()> {
    let device = call.machine.cuda(call.subject)?;
    let hand = Hand::new(&device)?;
    let queue = device.queue(QueueKind::Compute, "timed")?;
    let fences: Vec<Fence> = (0..BURST).map(|_| device.timed_fence("time")).collect();
    let stream = hand.stream()?;
    let events = hand.events(BURST, true)?;
    let least_fences: Vec<least::Fence> = (0..BURST).map(|_| least::Fence::default()).collect();
    let least_queue = least::Queue::new(&hand, hand.stream()?, &Arc::default());
    lab.race(vec![
        Side::ours(|n| {
            bursts(
                n,
                BURST,
                |count| {
                    for fence in &fences[..count as usize] {
                        queue.record(fence)?;
                    }
                    Ok(())
                },
                || Ok(queue.idle(LONG)?),
            )
        })
        .step(BURST),
        Side::raw(|n| {
            bursts(
                n,
                BURST,
                |count| {
                    for &event in &events[..count as usize] {
                        hand.record(event, stream)?;
                    }
                    Ok(())
                },
                || hand.finish(stream),
            )
        })
        .step(BURST),
        Side::floor(|n| {
            bursts(
                n,
                BURST,
                |count| {
                    for fence in &least_fences[..count as usize] {
                        least_queue.record_timed(fence)?;
                    }
                    Ok(())
                },
                || least_queue.idle(LONG),
            )
        })
        .step(BURST),
    ])
}

/// Heap bytes of the driver for each of `count` outstanding events.
pub(super) fn event_bytes(
    equipped: &Equipped,
    device: &Device,
    count: u64,
    heap: impl Fn() -> Outcome<f64>,
) -> Outcome<f64> {
    let hand = Hand::new(device)?;
    let queue = device.queue(QueueKind::Compute, "held up")?;
    let latch = close(equipped, &queue.clone().into())?;
    let measured = (|| {
        let stream = queue.stream();
        let before = heap()?;
        for _ in 0..count {
            hand.record(hand.event(false)?, stream.raw())?;
        }
        Ok((heap()? - before) / count as f64)
    })();
    Equipped::open(&latch)?;
    queue.idle(LONG)?;
    measured
}
