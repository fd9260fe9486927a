//! Waits before their signals, on many streams at once.

use std::sync::atomic::Ordering;

use syncline::backend::{Device as _, Queue as _};
use syncline::cuda::{Buffer, Device, Queue};
use syncline::{QueueKind, Timeline, WaitMode};

use crate::lab::Lab;
use crate::machine::On;
use crate::raw::cuda::{self, Hand, Stream, Words, has_memory_operations};
use crate::row::{Call, LONG, Question, Row, Variant};
use crate::side::{OURS, Outcome, RAW, Side};

pub(super) const ROWS: &[Row] = &[Row {
    id: "cuda.wbs.roundtrip",
    question: Question::Many,
    ours: "N streams, each waits, clears 4 KiB and signals: the first N - 1 wait for the last, which is submitted last and waits for the host; the host signals it, and spins for one after the other",
    raw: "the same with cuStreamWaitValue64 and cuStreamWriteValue64 on mapped memory, the host stores and spins. With 16 streams and more it hangs, and those have no raw side",
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

/// The round trip by hand.
struct ByHand {
    streams: Vec<Stream>,
    buffers: Vec<Buffer>,
    /// A word of the host, one of the last stream, and one for each stream.
    words: Words,
    value: u64,
}

const GO: usize = 0;
const OPEN: usize = 1;
const DONE: usize = 2;

impl ByHand {
    fn new(hand: &Hand, streams: &[Stream], buffers: &[Buffer]) -> Outcome<Self> {
        Ok(Self {
            streams: streams.to_vec(),
            buffers: buffers.to_vec(),
            words: Words::new(hand, DONE + buffers.len())?,
            value: 0,
        })
    }

    fn round(&mut self) -> Outcome<()> {
        self.value += 1;
        let (value, words) = (self.value, &self.words);
        let last = self.streams.len() - 1;
        for (at, &stream) in self.streams.iter().enumerate() {
            let awaited = if at < last { OPEN } else { GO };
            words.wait(stream, awaited, value)?;
            cuda::clear(&self.buffers[at], stream)?;
            if at == last {
                words.write(stream, OPEN, value)?;
            }
            words.write(stream, DONE + at, value)?;
        }
        words.word(GO).store(value, Ordering::Release);
        let ended = (0..=last).try_for_each(|at| words.poll(DONE + at, value));
        if ended.is_err() {
            // The host opens all waits, so that the streams end.
            words.word(OPEN).store(value, Ordering::Release);
            let streams = self.streams.iter();
            streams.for_each(|stream| drop(cuda::finish(*stream)));
        }
        ended
    }
}

/// From this number of streams on, the raw calls hang.
const HANGS: u64 = 16;

fn roundtrip(call: &Call<'_>, lab: &mut Lab) -> Outcome<()> {
    let device = call.machine.cuda(call.subject)?;
    let buffers = (0..call.n).map(|_| device.buffer(BYTES));
    let buffers = buffers.collect::<Result<Vec<_>, _>>()?;
    let mut ours = Ours::new(&device, &buffers)?;
    let ours = Side::timed(OURS, || ours.round());
    if call.n >= HANGS || !has_memory_operations(&device) {
        return lab.race(vec![ours]);
    }
    let hand = Hand::new(&device)?;
    let streams = (0..call.n).map(|_| hand.stream());
    let mut raw = ByHand::new(&hand, &streams.collect::<Outcome<Vec<_>>>()?, &buffers)?;
    // The streams of ours may block those of raw.
    if let Err(stop) = raw.round() {
        lab.note(format!("raw hangs: {stop}"));
        return lab.race(vec![ours]);
    }
    lab.race(vec![ours, Side::timed(RAW, || raw.round())])
}
