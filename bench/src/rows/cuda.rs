//! CUDA: dependencies between streams, queries, waits, and what the host opens.

use std::cell::Cell;
use std::hint::black_box;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use syncline::backend::{Device as _, Queue as _};
use syncline::cuda::{Device, DeviceBuffer, Queue};
use syncline::{Fence, QueueKind, Timeline, wait_all};
use syncline_conformance::Subject as _;
use syncline_conformance::workload::Equipped;

use super::gate::close;
use super::{Call, Row, Variant};
use crate::bar::{Bar, RAW_HANGS};
use crate::lab::{Lab, Outcome, RAW, Side, Stop, bursts, timed};
use crate::machine::On;
use crate::raw::child::{self, End};
use crate::raw::cuda::{Event, Hand, Stream, Words, has_memory_operations};

/// No wait of these rows takes so long.
const LONG: Duration = Duration::from_secs(20);

/// So much is outstanding at the most, on either side.
const BURST: u64 = 64;

/// Hops of one chain.
const CHAIN: u64 = 1000;

const OUTLASTS: Bar = Bar::Outlasts(0.8);

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "cuda.hop.submit",
        ours: "a signal on one stream and a wait for it on another: two submissions, 64 such pairs at a time; their end is not timed",
        raw: "cuEventRecord and cuStreamWaitEvent, 64 pairs at a time, each with an event of its own",
        bar: Bar::Ratio(1.4),
        on: &[On::Cuda],
        variants: &[],
        run: hop,
    },
    Row {
        id: "cuda.chain",
        ours: "1000 hops between two streams, from the first submission to the end; per hop",
        raw: "cuStreamWaitEvent and cuEventRecord for each hop, and cuEventSynchronize at the end",
        bar: Bar::Ratio(1.25),
        on: &[On::Cuda],
        variants: &[],
        run: chain,
    },
    Row {
        id: "cuda.query.reached",
        ours: "whether a point is reached that is known to be",
        raw: "cuEventQuery of a finished event",
        bar: Bar::All(&[Bar::Ratio(0.1), Bar::Within(5.0)]),
        on: &[On::Cuda],
        variants: &[],
        run: query_reached,
    },
    Row {
        id: "cuda.query.pending",
        ours: "whether a point is reached whose stream is held up",
        raw: "cuEventQuery of an event in the same stream",
        bar: Bar::Over(30.0),
        on: &[On::Cuda],
        variants: &[],
        run: query_pending,
    },
    Row {
        id: "cuda.submit.wait",
        ours: "submit a signal, and the host waits for it",
        raw: "cuEventRecord and cuEventSynchronize, which spins",
        bar: Bar::Ratio(1.1),
        on: &[On::Cuda],
        variants: &[],
        run: submit_wait,
    },
    Row {
        id: "cuda.wbs.roundtrip",
        ours: "N streams, each waits, clears 4 KiB and signals: the first N - 1 wait for the last, which is submitted last and waits for the host; the host signals it, and waits for all",
        raw: "the same with cuStreamWaitValue64 and cuStreamWriteValue64 on mapped memory, the host stores and spins; from 16 streams on in a process of its own, which is killed after some seconds",
        bar: OUTLASTS,
        on: &[On::Cuda],
        variants: &[
            Variant::asked("1 stream", 1, Bar::Ratio(0.8)),
            Variant::asked("8 streams", 8, Bar::Ratio(0.8)),
            Variant::new("16 streams", 16),
            Variant::new("64 streams", 64),
            Variant::new("256 streams", 256),
            Variant::new("1024 streams", 1024),
        ],
        run: roundtrip,
    },
    Row {
        id: "cuda.timestamp",
        ours: "record a timed fence, 64 at a time",
        raw: "cuEventRecord of an event with timing, 64 at a time",
        bar: Bar::Ratio(1.1),
        on: &[On::Cuda],
        variants: &[],
        run: timestamp,
    },
];

fn hop(call: &Call<'_>, lab: &mut dyn Lab) -> Outcome<()> {
    let device = call.machine.cuda(call.subject)?;
    let hand = Hand::new(&device)?;
    let (from, to) = (
        device.queue(QueueKind::Compute, "from")?,
        device.queue(QueueKind::Compute, "to")?,
    );
    let timeline = device.timeline("hops")?;
    let (first, second) = (hand.stream()?, hand.stream()?);
    let events = hand.events(BURST, false)?;
    let value = Cell::new(0);
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
    ])
}

fn chain(call: &Call<'_>, lab: &mut dyn Lab) -> Outcome<()> {
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
                timeline.at(value).wait(LONG)?;
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
    lab.race(vec![ours.each(CHAIN), raw.each(CHAIN)])
}

fn query_reached(call: &Call<'_>, lab: &mut dyn Lab) -> Outcome<()> {
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
    lab.race_finely(vec![
        Side::ours(|n| asked(n, true, || Ok(black_box(point).is_reached()?))),
        Side::raw(|n| asked(n, true, || hand.query(black_box(event)))),
    ])
}

fn query_pending(call: &Call<'_>, lab: &mut dyn Lab) -> Outcome<()> {
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
        lab.race_finely(vec![
            Side::ours(|n| asked(n, false, || Ok(black_box(point).is_reached()?))),
            Side::raw(|n| asked(n, false, || hand.query(black_box(event)))),
        ])
    })();
    Equipped::open(&latch)?;
    queue.idle(LONG)?;
    raced
}

/// Asks so often, and each time expects the same answer.
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

fn submit_wait(call: &Call<'_>, lab: &mut dyn Lab) -> Outcome<()> {
    let device = call.machine.cuda(call.subject)?;
    let hand = Hand::new(&device)?;
    let queue = device.queue(QueueKind::Compute, "waited for")?;
    let timeline = device.timeline("waited for")?;
    let (event, stream) = (hand.event(false)?, hand.stream()?);
    let mut value = 0;
    lab.race(vec![
        Side::ours(|n| {
            timed(|| {
                for _ in 0..n {
                    value += 1;
                    queue.submit(&[], |_| Ok(()), &[timeline.signal_at(value)])?;
                    timeline.at(value).wait(LONG)?;
                }
                Ok(())
            })
        }),
        Side::raw(|n| {
            timed(|| {
                for _ in 0..n {
                    hand.record(event, stream)?;
                    hand.synchronize(event)?;
                }
                Ok(())
            })
        }),
    ])
}

fn timestamp(call: &Call<'_>, lab: &mut dyn Lab) -> Outcome<()> {
    let device = call.machine.cuda(call.subject)?;
    let hand = Hand::new(&device)?;
    let queue = device.queue(QueueKind::Compute, "timed")?;
    let fences: Vec<Fence> = (0..BURST).map(|_| device.timed_fence("time")).collect();
    let stream = hand.stream()?;
    let events = hand.events(BURST, true)?;
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
    ])
}

/// What each stream clears.
const BYTES: u64 = 4096;

/// The round trip through Syncline.
struct Ours {
    queues: Vec<Queue>,
    buffers: Vec<DeviceBuffer>,
    /// Signalled by the host.
    go: Timeline,
    /// Signalled by the last queue.
    open: Timeline,
    done: Vec<Timeline>,
    value: u64,
}

impl Ours {
    fn new(device: &Device, buffers: &[DeviceBuffer]) -> Outcome<Self> {
        let count = buffers.len();
        let queues = (0..count).map(|_| device.queue(QueueKind::Compute, "one of many"));
        let done = (0..count).map(|_| device.timeline("done"));
        Ok(Self {
            queues: queues.collect::<Result<_, _>>()?,
            buffers: buffers.to_vec(),
            go: device.timeline("go")?,
            open: device.timeline("open")?,
            done: done.collect::<Result<_, _>>()?,
            value: 0,
        })
    }

    fn round(&mut self) -> Outcome<()> {
        self.value += 1;
        let value = self.value;
        let last = self.queues.len() - 1;
        for (at, queue) in self.queues.iter().enumerate() {
            let buffer = self.buffers[at].clone();
            let work =
                move |recorder: &mut syncline::cuda::Recorder| recorder.memset_d32(&buffer, 0);
            let done = self.done[at].signal_at(value);
            if at < last {
                queue.submit(&[self.open.at(value)], work, &[done])?;
            } else {
                let open = self.open.signal_at(value);
                queue.submit(&[self.go.at(value)], work, &[open, done])?;
            }
        }
        self.go.signal(value)?;
        match self.done.as_slice() {
            [one] => one.at(value).wait(LONG)?,
            all => {
                let points: Vec<_> = all.iter().map(|done| done.at(value)).collect();
                wait_all(&points, LONG)?;
            }
        }
        Ok(())
    }
}

/// The round trip by hand.
struct ByHand<'h> {
    hand: &'h Hand,
    streams: Vec<Stream>,
    buffers: Vec<DeviceBuffer>,
    /// The host's, the last stream's, and one for each stream.
    words: Words,
    value: u64,
}

const GO: usize = 0;
const OPEN: usize = 1;
const DONE: usize = 2;

impl<'h> ByHand<'h> {
    fn new(hand: &'h Hand, buffers: &[DeviceBuffer]) -> Outcome<Self> {
        let count = buffers.len();
        Ok(Self {
            hand,
            streams: (0..count).map(|_| hand.stream()).collect::<Outcome<_>>()?,
            buffers: buffers.to_vec(),
            words: hand.words(DONE + count)?,
            value: 0,
        })
    }

    fn round(&mut self) -> Outcome<()> {
        self.value += 1;
        let (value, words) = (self.value, &self.words);
        let last = self.streams.len() - 1;
        for (at, &stream) in self.streams.iter().enumerate() {
            let awaited = if at < last { OPEN } else { GO };
            self.hand.wait_value(stream, words, awaited, value)?;
            self.hand.clear(&self.buffers[at], stream)?;
            if at == last {
                self.hand.write_value(stream, words, OPEN, value)?;
            }
            self.hand.write_value(stream, words, DONE + at, value)?;
        }
        words.word(GO).store(value, Ordering::Release);
        let ended = (0..=last).try_for_each(|at| words.poll(DONE + at, value));
        if ended.is_err() {
            // The host opens what no stream has, so that they come to an end.
            words.word(OPEN).store(value, Ordering::Release);
        }
        ended
    }
}

fn buffers(device: &Device, count: u64) -> Outcome<Vec<DeviceBuffer>> {
    let buffers = (0..count).map(|_| device.buffer(BYTES));
    Ok(buffers.collect::<Result<_, _>>()?)
}

/// From so many streams on, the raw calls run where they can be killed.
const RISKY: u64 = 16;

fn roundtrip(call: &Call<'_>, lab: &mut dyn Lab) -> Outcome<()> {
    let device = call.machine.cuda(call.subject)?;
    if !has_memory_operations(&device) {
        lab.note("this device's streams have no memory operations: there is no raw side".into());
    }
    if call.n >= RISKY {
        child::offered()?;
    }
    let buffers = buffers(&device, call.n)?;
    let mut ours = Ours::new(&device, &buffers)?;
    let side = Side::ours(|n| timed(|| (0..n).try_for_each(|_| ours.round())));
    if !has_memory_operations(&device) {
        return lab.race(vec![side]);
    }
    if call.n < RISKY {
        let hand = Hand::new(&device)?;
        let mut raw = ByHand::new(&hand, &buffers)?;
        return lab.race(vec![
            side,
            Side::raw(|n| timed(|| (0..n).try_for_each(|_| raw.round()))),
        ]);
    }
    lab.race(vec![side])?;
    /// A round trip takes less than a millisecond.
    const PATIENCE: Duration = Duration::from_secs(6);
    let job = format!(
        "roundtrip {} {} {}",
        call.subject.indices[0],
        call.n,
        lab.rounds()
    );
    match child::run(&job, PATIENCE)? {
        End::Samples(samples) => lab.taken(RAW, &samples),
        End::Hung => {
            lab.figure(RAW_HANGS, 1.0);
            lab.note(format!("raw hangs: no end after {PATIENCE:?}"));
        }
    }
    Ok(())
}

/// The raw round trip, in a process of its own: how many nanoseconds each took.
pub(crate) fn risky(
    machine: &crate::Machine,
    index: usize,
    count: u64,
    rounds: u32,
) -> Outcome<Vec<f64>> {
    let syncline::Device::Cuda(device) = machine.device(index)? else {
        return Err(Stop::Failed("that is no CUDA device".into()));
    };
    let buffers = buffers(&device, count)?;
    let hand = Hand::new(&device)?;
    let mut raw = ByHand::new(&hand, &buffers)?;
    let mut samples = Vec::new();
    for round in 0..3 + rounds {
        let start = Instant::now();
        raw.round()?;
        if round >= 3 {
            samples.push(start.elapsed().as_nanos() as f64);
        }
    }
    Ok(samples)
}

/// What the driver takes of the heap for one event that is outstanding, of `count`.
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
