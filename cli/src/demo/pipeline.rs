//! The pipeline: a producer that simulates, a consumer that shades, three buffers between them, and
//! timelines as their only order.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use syncline::backend::{Device as _, Queue as _};
use syncline::{Link, Memory, Point, Queue, QueueKind, Recorder, SharedBuffer, Timeline, host};

use crate::demo::compute::reference::Reference;
use crate::demo::stage::{Consumer, Producer};
use crate::failure::Failure;

/// Shared buffers between producer and consumer.
const SLOTS: usize = 3;

/// Frames that the host has not read yet. More than slots, so that the slots are guarded by the
/// timelines and not by the host.
const READBACKS: usize = 6;

/// How late the producer is when the waits are dropped.
const DELAY: Duration = Duration::from_millis(5);

/// A frame that takes longer than this hangs.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Width and height of a frame in pixels.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) width: u32,
    pub(crate) height: u32,
}

impl Size {
    /// Bytes of a frame, heights or pixels.
    pub(crate) fn bytes(self) -> u64 {
        u64::from(self.width) * u64::from(self.height) * 4
    }
}

/// What keeps producer and consumer in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Their timelines; the host waits for nothing but frames to read.
    Timelines,
    /// The usual way: the host waits for the queue after every stage.
    HostSynchronized,
    /// Nothing, with the producer delayed.
    None,
}

/// One run's queues, buffers and timelines.
pub(crate) struct Pipeline {
    size: Size,
    producer: Producer,
    consumer: Consumer,
    producing: Queue,
    consuming: Queue,
    /// Carries slots over where the two sides have no memory in common.
    relaying: Option<host::Queue>,
    slots: Vec<SharedBuffer>,
    readbacks: Vec<Memory>,
    /// Reaches n when frame n is in its slot.
    produced: Timeline,
    /// Reaches n when frame n is in its slot on the consumer's side; used with a relay only.
    relayed: Timeline,
    /// Reaches n when frame n has been shaded and its slot is free again.
    consumed: Timeline,
}

impl Pipeline {
    pub(crate) fn new(link: &Link, size: Size) -> Result<Self, Failure> {
        let slots: Vec<_> = (0..SLOTS)
            .map(|_| link.buffer(size.bytes()))
            .collect::<Result<_, _>>()?;
        let readbacks: Vec<_> = (0..READBACKS)
            .map(|_| Memory::host_visible(link.right(), size.bytes()))
            .collect::<Result<_, _>>()?;
        let left: Vec<_> = slots.iter().map(|slot| slot.left().clone()).collect();
        let right: Vec<_> = slots.iter().map(|slot| slot.right().clone()).collect();
        let host = host::Device::new();
        let relayed = slots.iter().any(SharedBuffer::is_relayed);
        let relaying = relayed
            .then(|| host.queue(QueueKind::Transfer, "relay"))
            .transpose()?;
        Ok(Self {
            size,
            producer: Producer::new(link.left(), size, left)?,
            consumer: Consumer::new(link.right(), size, right, readbacks.clone())?,
            producing: link.left().queue(QueueKind::Compute, "simulate")?,
            consuming: link.right().queue(QueueKind::Compute, "shade")?,
            relaying,
            slots,
            readbacks,
            produced: link.timeline("produced")?,
            relayed: host.timeline("relayed")?,
            consumed: link.timeline("consumed")?,
        })
    }

    /// Makes `frames` frames and hands each, with its number from 0, to `take`.
    pub(crate) fn run(
        self,
        frames: u32,
        order: Order,
        take: impl FnMut(u32, &[u32]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let made = self.make(frames, order, take);
        // Also after a failure: software drivers crash if the process ends while they work.
        let ended = self.finish();
        made.and(ended)
    }

    fn make(
        &self,
        frames: u32,
        order: Order,
        mut take: impl FnMut(u32, &[u32]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut rgba = Vec::new();
        let mut read = |frame: u32| {
            self.consumed.at(u64::from(frame) + 1).wait(TIMEOUT)?;
            let words = self.readbacks[frame as usize % READBACKS]
                .words()
                .unwrap_or_default();
            rgba.clear();
            rgba.extend(words.iter().map(|word| word.load(Ordering::Relaxed)));
            take(frame, &rgba)
        };
        for frame in 0..frames {
            if let Some(oldest) = frame.checked_sub(READBACKS as u32) {
                read(oldest)?;
            }
            self.submit(frame, order)?;
        }
        for frame in frames.saturating_sub(READBACKS as u32)..frames {
            read(frame)?;
        }
        Ok(())
    }

    /// Makes `frames` frames at full speed; the last one is compared, so that the speed is that of
    /// right frames. Returns frames per second.
    pub(crate) fn timed(self, frames: u32, order: Order) -> Result<f64, Failure> {
        let made = self.make_timed(frames, order);
        let ended = self.finish();
        made.and_then(|fps| ended.map(|()| fps))
    }

    fn make_timed(&self, frames: u32, order: Order) -> Result<f64, Failure> {
        let start = Instant::now();
        for frame in 0..frames {
            if let Some(oldest) = frame.checked_sub(READBACKS as u32) {
                self.consumed.at(u64::from(oldest) + 1).wait(TIMEOUT)?;
            }
            self.submit(frame, order)?;
        }
        self.consumed.at(frames.into()).wait(TIMEOUT)?;
        let took = start.elapsed();

        let mut reference = Reference::new(self.size.width, self.size.height);
        for _ in 1..frames {
            reference.advance_frame();
        }
        let heights = reference.advance_frame();
        let right = super::compute::reference::shade(heights, self.size.width, self.size.height);
        let words = self.readbacks[(frames as usize - 1) % READBACKS]
            .words()
            .unwrap_or_default();
        if !words
            .iter()
            .map(|word| word.load(Ordering::Relaxed))
            .eq(right)
        {
            return Err(Failure::Words(format!(
                "the last of {frames} timed frames is wrong"
            )));
        }
        Ok(f64::from(frames) / took.as_secs_f64())
    }

    fn submit(&self, frame: u32, order: Order) -> Result<(), Failure> {
        match order {
            Order::Timelines => {
                self.produce(frame, order)?;
                self.relay(frame, order)?;
                self.consume(frame, order)
            }
            Order::HostSynchronized => {
                self.produce(frame, order)?;
                self.producing.idle(TIMEOUT)?;
                self.relay(frame, order)?;
                self.consume(frame, order)?;
                Ok(self.consuming.idle(TIMEOUT)?)
            }
            Order::None => {
                // Even where both share one driver queue, this shows.
                self.consume(frame, order)?;
                self.relay(frame, order)?;
                self.produce(frame, order)
            }
        }
    }

    fn produce(&self, frame: u32, order: Order) -> Result<(), Failure> {
        let number = u64::from(frame) + 1;
        let free = match order {
            Order::Timelines => self.consumed.at(number.saturating_sub(SLOTS as u64)),
            Order::HostSynchronized | Order::None => Point::EMPTY,
        };
        let producer = self.producer.clone();
        let late = (order == Order::None).then_some(DELAY);
        self.producing.submit(
            &[free],
            move |recorder: &mut Recorder<'_>| {
                producer.record(recorder, frame, frame as usize % SLOTS, late)
            },
            &[self.produced.signal_at(number)],
        )?;
        Ok(())
    }

    fn relay(&self, frame: u32, order: Order) -> Result<(), Failure> {
        let Some(queue) = &self.relaying else {
            return Ok(());
        };
        let number = u64::from(frame) + 1;
        let slot = self.slots[frame as usize % SLOTS].clone();
        let ready = if order == Order::None {
            Point::EMPTY
        } else {
            self.produced.at(number)
        };
        queue.submit(
            &[ready],
            move |recorder| {
                recorder.run(move || slot.relay());
                Ok(())
            },
            &[self.relayed.signal_at(number)],
        )?;
        if order == Order::HostSynchronized {
            queue.idle(TIMEOUT)?;
        }
        Ok(())
    }

    fn consume(&self, frame: u32, order: Order) -> Result<(), Failure> {
        let number = u64::from(frame) + 1;
        let ready = match (order, &self.relaying) {
            (Order::None | Order::HostSynchronized, _) => Point::EMPTY,
            (Order::Timelines, None) => self.produced.at(number),
            (Order::Timelines, Some(_)) => self.relayed.at(number),
        };
        let consumer = self.consumer.clone();
        let (slot, readback) = (frame as usize % SLOTS, frame as usize % READBACKS);
        self.consuming.submit(
            &[ready],
            move |recorder: &mut Recorder<'_>| consumer.record(recorder, slot, readback),
            &[self.consumed.signal_at(number)],
        )?;
        Ok(())
    }

    /// Lets everything end before the buffers go.
    fn finish(&self) -> Result<(), Failure> {
        self.producing.idle(TIMEOUT)?;
        self.consuming.idle(TIMEOUT)?;
        if let Some(queue) = &self.relaying {
            queue.idle(TIMEOUT)?;
        }
        Ok(())
    }
}
