//! Waits before their signals, on many streams at once.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use syncline::backend::{Device as _, Queue as _};
use syncline::cuda::{Buffer, Device, Queue};
use syncline::{QueueKind, Timeline, WaitMode};

use super::{Call, Floor, Row, Variant};
use crate::lab::Lab;
use crate::limit::RAW_HANGS;
use crate::machine::On;
use crate::raw::child::{self, End};
use crate::raw::cuda::{Calls, Hand, Stream, Words, has_memory_operations};
use crate::raw::least::cuda as least;
use crate::side::{Outcome, RAW, Side, Stop, timed};

/// Time-out of all waits of this row.
const LONG: Duration = Duration::from_secs(20);

pub(super) const ROWS: &[Row] = &[Row {
    id: "cuda.wbs.roundtrip",
    ours: "N streams, each waits, clears 4 KiB and signals: the first N - 1 wait for the last, which is submitted last and waits for the host; the host signals it, and spins for one after the other",
    raw: "the same with cuStreamWaitValue64 and cuStreamWriteValue64 on mapped memory, the host stores and spins; from 16 streams on in a process of its own, which is killed after some seconds",
    floor: Floor::Side(
        "the same by the least timelines that several threads may use: submissions are held on the host and released as ours: cuStreamWaitEvent, cuMemsetD32Async and cuEventRecord; cuEventQuery until all are complete",
    ),
    limits: &[],
    on: &[On::Cuda],
    variants: &[
        Variant::new("1 stream", 1),
        Variant::new("8 streams", 8),
        Variant::new("16 streams", 16),
        Variant::new("64 streams", 64),
        Variant::new("256 streams", 256),
        Variant::new("1024 streams", 1024),
    ],
    run: roundtrip,
}];

/// Bytes that each stream clears.
const BYTES: u64 = 4096;

/// The round trip through Syncline.
struct Ours {
    queues: Vec<Queue>,
    buffers: Vec<Buffer>,
    /// Signalled by the host.
    go: Timeline,
    /// Signalled by the last queue.
    open: Timeline,
    done: Vec<Timeline>,
    value: u64,
}

impl Ours {
    fn new(device: &Device, buffers: &[Buffer]) -> Outcome<Self> {
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
                move |recorder: &mut syncline::cuda::Recorder<'_>| recorder.memset_d32(&buffer, 0);
            let done = self.done[at].signal_at(value);
            if at < last {
                queue.submit(&[self.open.at(value)], work, &[done])?;
            } else {
                let open = self.open.signal_at(value);
                queue.submit(&[self.go.at(value)], work, &[open, done])?;
            }
        }
        self.go.signal(value)?;
        // Raw waits in the same way. `wait_all` would sleep.
        for done in &self.done {
            done.at(value).wait_with(WaitMode::Spin, LONG)?;
        }
        Ok(())
    }
}

/// The round trip over the timelines of the floor.
struct Least {
    queues: Vec<Arc<least::Queue>>,
    buffers: Vec<Buffer>,
    go: Arc<least::Timeline>,
    open: Arc<least::Timeline>,
    done: Vec<Arc<least::Timeline>>,
    value: u64,
}

impl Least {
    /// The streams belong to the hand, which outlives this.
    fn new(hand: &Hand, streams: &[Stream], buffers: &[Buffer]) -> Self {
        let room = Arc::default();
        let queue = |stream: &Stream| least::Queue::new(hand, *stream, &room);
        let timeline = |_: &Stream| least::Timeline::new(hand);
        Self {
            queues: streams.iter().map(queue).collect(),
            buffers: buffers.to_vec(),
            go: least::Timeline::new(hand),
            open: least::Timeline::new(hand),
            done: streams.iter().map(timeline).collect(),
            value: 0,
        }
    }

    fn round(&mut self) -> Outcome<()> {
        self.value += 1;
        let value = self.value;
        let last = self.queues.len() - 1;
        for (at, queue) in self.queues.iter().enumerate() {
            let buffer = self.buffers[at].clone();
            let work = move |calls: &Calls, stream| calls.clear(&buffer, stream).map(|()| 1);
            let done = (&self.done[at], value);
            if at < last {
                queue.submit(&[(&self.open, value)], work, &[done])?;
            } else {
                queue.submit(&[(&self.go, value)], work, &[(&self.open, value), done])?;
            }
        }
        self.go.signal(value)?;
        let mut done = self.done.iter();
        done.try_for_each(|done| done.wait(value, LONG))
    }
}

/// The round trip by hand.
struct ByHand<'h> {
    hand: &'h Hand,
    streams: Vec<Stream>,
    buffers: Vec<Buffer>,
    /// A word of the host, one of the last stream, and one for each stream.
    words: Words,
    value: u64,
}

const GO: usize = 0;
const OPEN: usize = 1;
const DONE: usize = 2;

impl<'h> ByHand<'h> {
    fn new(hand: &'h Hand, streams: &[Stream], buffers: &[Buffer]) -> Outcome<Self> {
        Ok(Self {
            hand,
            streams: streams.to_vec(),
            buffers: buffers.to_vec(),
            words: hand.words(DONE + buffers.len())?,
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
            // The host opens all waits, so that the streams end.
            words.word(OPEN).store(value, Ordering::Release);
            let streams = self.streams.iter();
            streams.for_each(|stream| drop(self.hand.finish(*stream)));
        }
        ended
    }
}

fn buffers(device: &Device, count: u64) -> Outcome<Vec<Buffer>> {
    let buffers = (0..count).map(|_| device.buffer(BYTES));
    Ok(buffers.collect::<Result<_, _>>()?)
}

fn streams(hand: &Hand, count: u64) -> Outcome<Vec<Stream>> {
    (0..count).map(|_| hand.stream()).collect()
}

/// From this number of streams on, the raw calls run in a process that can be killed.
const RISKY: u64 = 16;

fn roundtrip(call: &Call<'_>, lab: &mut Lab) -> Outcome<()> {
    let device = call.machine.cuda(call.subject)?;
    if !has_memory_operations(&device) {
        lab.note("this device's streams have no memory operations: there is no raw side".into());
    }
    if call.n >= RISKY {
        child::offered()?;
    }
    let buffers = buffers(&device, call.n)?;
    let hand = Hand::new(&device)?;
    // Raw and the floor share the streams, because additional streams may block those in use.
    let streams = streams(&hand, call.n)?;
    let mut ours = Ours::new(&device, &buffers)?;
    let mut least = Least::new(&hand, &streams, &buffers);
    let side = Side::ours(|n| timed(|| (0..n).try_for_each(|_| ours.round())));
    let floor = Side::floor(|n| timed(|| (0..n).try_for_each(|_| least.round())));
    if !has_memory_operations(&device) {
        return lab.race(vec![side, floor]);
    }
    if call.n < RISKY {
        let mut raw = ByHand::new(&hand, &streams, &buffers)?;
        // The other streams of this process may block the raw side as well.
        if let Err(stop) = raw.round() {
            lab.race(vec![side, floor])?;
            lab.figure(RAW_HANGS, 1.0);
            lab.note(format!("raw hangs: {stop}"));
            return Ok(());
        }
        return lab.race(vec![
            side,
            Side::raw(|n| timed(|| (0..n).try_for_each(|_| raw.round()))),
            floor,
        ]);
    }
    lab.race(vec![side, floor])?;
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

/// Makes the raw round trips, in a process of its own. Returns nanoseconds of each.
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
    let mut raw = ByHand::new(&hand, &streams(&hand, count)?, &buffers)?;
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
