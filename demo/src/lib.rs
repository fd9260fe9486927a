//! Frames over shared timelines, for `syncline demo` and the rows `interop.frames` of the bench.
//!
//! A producer simulates, a consumer draws, three buffers are between them, and only timelines
//! order them.

pub mod across;
#[cfg_attr(
    not(all(feature = "cuda", feature = "vulkan")),
    allow(dead_code, reason = "the kernels of a backend that is left out")
)]
pub mod compute;
pub mod scene;
pub mod stage;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use syncline::Submitted;
use syncline::backend::{self, Device as _, Queue as _};
#[cfg(feature = "vulkan")]
use syncline::image::{Format, ImageInfo, ImageUsage};
use syncline::trace::Trace;
use syncline::{
    Buffer, Device, Error, Link, Point, Queue, QueueKind, Recorder, Result, SharedBuffer, Signal,
    Slots, Stopwatch, Timeline, host,
};

use compute::reference::Reference;
use scene::View;
pub use stage::Producer;
use stage::{Between, Consumer};

/// An error for a wrong frame.
pub(crate) fn wrong(what: &str) -> Error {
    Error::work(std::io::Error::other(format!("{what} is wrong")))
}

/// Shared buffers between producer and consumer.
pub const SLOTS: usize = 3;

/// Frames that the host has not read yet.
///
/// More than slots, so that the timelines protect the slots and not the host.
pub const READBACKS: usize = 6;

/// One frame of so many is measured by stopwatches.
const MEASURED: u32 = 16;

/// The delay of the producer in a run without waits.
const DELAY: Duration = Duration::from_millis(5);

/// A frame that takes longer than this hangs.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Width and height of a frame in pixels.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Pixels of a row.
    pub width: u32,
    /// Rows.
    pub height: u32,
}

impl Size {
    /// Bytes of a frame, heights or pixels.
    #[must_use]
    pub fn bytes(self) -> u64 {
        u64::from(self.width) * u64::from(self.height) * 4
    }
}

/// How producer and consumer are ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// By timelines. The host waits only for frames to read.
    Timelines,
    /// The usual way: the host waits for the queue after each stage.
    HostSynchronized,
    /// Not at all, with a delayed producer.
    None,
}

/// The pixels of a frame that has finished and is not overwritten yet.
#[must_use]
pub fn pixels(readbacks: &[Buffer], frame: u32) -> Vec<u32> {
    let words = readbacks[frame as usize % READBACKS].words();
    let words = words.unwrap_or_default().iter();
    words.map(|word| word.load(Ordering::Relaxed)).collect()
}

/// The expected picture of the last one of `frames` frames, which are at least 1.
///
/// Takes as long as simulating all frames on the host.
#[must_use]
pub fn expected(view: &View, frames: u32) -> Vec<u32> {
    let Size { width, height } = view.field();
    let mut reference = Reference::new(width, height);
    for _ in 1..frames {
        reference.advance_frame();
    }
    scene::reference::draw(view, reference.advance_frame())
}

/// Queues, buffers and timelines of one run. The producer's device is a `P`.
pub struct Pipeline<P: backend::Device = Device> {
    producer: Arc<dyn Producer<P>>,
    consumer: Arc<dyn Consumer>,
    producing: P::Queue,
    consuming: Queue,
    /// Copies slots if the two sides have no common memory.
    relay: Option<Relay>,
    readbacks: Vec<Buffer>,
    /// Reaches n when frame n is in its slot.
    produced: Timeline,
    /// Reaches n when frame n has been drawn and its slot is free again.
    consumed: Timeline,
    /// The slots, which `consumed` frees.
    ring: Slots,
    shares: &'static str,
    /// Times the work of the producer and of the consumer, on some frames.
    watches: Option<Arc<[Stopwatch; 2]>>,
    trace: Option<Arc<Trace>>,
}

/// The image of a slot.
#[cfg(feature = "vulkan")]
const fn heights(Size { width, height }: Size) -> ImageInfo {
    ImageInfo::d2(Format::R32Sint, width, height, ImageUsage::SAMPLED)
}

/// Copies slots from the producer to the consumer.
struct Relay {
    queue: host::Queue,
    /// The slots on the consumer's side.
    slots: Vec<Buffer>,
    /// Reaches n when frame n is in its slot on the consumer's side.
    relayed: Timeline,
}

impl Relay {
    fn new(slots: Vec<Buffer>) -> Result<Self> {
        let host = host::Device::new();
        Ok(Self {
            queue: host.queue(QueueKind::Transfer, "relay")?,
            slots,
            relayed: host.timeline("relayed")?,
        })
    }
}

/// The slots of a link.
struct Shared {
    left: Between,
    right: Between,
    /// The slots of the right side, if each side has its own.
    relayed: Option<Vec<Buffer>>,
}

impl Shared {
    fn buffers(link: &Link, size: Size) -> Result<Self> {
        let slots = (0..SLOTS).map(|_| link.buffer_or_relay(size.bytes()));
        let slots: Vec<SharedBuffer> = slots.collect::<Result<_>>()?;
        let left: Vec<_> = slots.iter().map(|slot| slot.left().clone()).collect();
        let right: Vec<_> = slots.iter().map(|slot| slot.right().clone()).collect();
        let is_relayed = slots.iter().any(SharedBuffer::is_relayed);
        Ok(Self {
            left: left.into(),
            relayed: is_relayed.then(|| right.clone()),
            right: right.into(),
        })
    }

    /// Images of heights that Vulkan on the right can sample, or buffers.
    fn new(link: &Link, size: Size) -> Result<Self> {
        #[cfg(feature = "vulkan")]
        if matches!(link.right(), syncline::Device::Vulkan(_)) {
            let info = heights(size);
            let images: Result<Vec<_>> = (0..SLOTS).map(|_| link.image(&info)).collect();
            match images {
                Ok(images) => {
                    return Ok(Self {
                        left: Between::Images(images.iter().map(|of| of.left().clone()).collect()),
                        right: Between::Images(
                            images.iter().map(|of| of.right().clone()).collect(),
                        ),
                        relayed: None,
                    });
                }
                // The second if a driver lacks a function or a format.
                Err(Error::CannotShare { .. } | Error::Unsupported { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Self::buffers(link, size)
    }
}

impl Pipeline {
    /// A pipeline that draws the scene, from the left of `link` to the right.
    ///
    /// The slots are shared images where both sides have images in common, and buffers otherwise.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the right is CUDA, which does not draw. A driver error.
    pub fn scene(link: &Link, view: View) -> Result<Self> {
        Self::over(link, view, Shared::new(link, view.field())?)
    }

    /// Same as [`Pipeline::scene`], but the slots are buffers on every pair.
    ///
    /// # Errors
    /// Same errors as [`Pipeline::scene`].
    #[cfg(all(feature = "cuda", feature = "vulkan"))]
    pub fn with_buffers(link: &Link, view: View) -> Result<Self> {
        Self::over(link, view, Shared::buffers(link, view.field())?)
    }

    fn over(link: &Link, view: View, slots: Shared) -> Result<Self> {
        let shares = slots.left.shares(slots.relayed.is_some());
        let producer = stage::producer(link.left(), view.field(), slots.left)?;
        let relay = slots.relayed.map(Relay::new).transpose()?;
        Self::assemble(link, view, shares, producer, slots.right, relay)
    }
}

impl<P: backend::Device> Pipeline<P> {
    /// A pipeline whose left side is a device of any backend.
    ///
    /// The two sides share no memory: the host copies each frame.
    ///
    /// # Errors
    /// Same errors as [`Pipeline::scene`].
    pub fn relayed(
        link: &Link<P, Device>,
        view: View,
        producer: Arc<dyn Producer<P>>,
    ) -> Result<Self> {
        let slots = (0..SLOTS).map(|_| Buffer::host_visible(link.right(), view.field().bytes()));
        let slots: Vec<_> = slots.collect::<Result<_>>()?;
        let relay = Relay::new(slots.clone())?;
        Self::assemble(link, view, "nothing", producer, slots.into(), Some(relay))
    }

    fn assemble(
        link: &Link<P, Device>,
        view: View,
        shares: &'static str,
        producer: Arc<dyn Producer<P>>,
        slots: Between,
        relay: Option<Relay>,
    ) -> Result<Self> {
        let readbacks: Vec<_> = (0..READBACKS)
            .map(|_| Buffer::host_visible(link.right(), view.picture().bytes()))
            .collect::<Result<_>>()?;
        let consumed = link.timeline("consumed")?;
        let pipeline = Self {
            shares,
            producer,
            consumer: stage::painter(link.right(), view, slots, readbacks.clone())?,
            producing: link.left().queue(QueueKind::Compute, "simulate")?,
            consuming: link.right().queue(QueueKind::Graphics, "draw")?,
            relay,
            readbacks,
            produced: link.timeline("produced")?,
            ring: Slots::new(consumed.wait_only(), SLOTS)?,
            consumed,
            watches: None,
            trace: None,
        };
        pipeline.begin()?;
        Ok(pipeline)
    }

    /// What both sides share: `images`, `buffers`, or `nothing` if the host copies each frame.
    #[must_use]
    pub const fn shares(&self) -> &'static str {
        self.shares
    }

    /// Lets the consumer take new images, before the producer writes them.
    fn begin(&self) -> Result<()> {
        let consumer = self.consumer.clone();
        let begin = move |recorder: &mut Recorder<'_>| consumer.begin(recorder);
        self.consuming.submit(&[], begin, &[])?;
        self.consuming.idle(TIMEOUT)
    }

    /// Lets `trace` follow the queues.
    ///
    /// The name of each submission is its stage and the number of the frame.
    ///
    /// # Errors
    /// Those of [`Trace::follow`].
    pub fn traced(self, trace: Arc<Trace>) -> Result<Self> {
        trace.follow(&self.producing)?;
        trace.follow(&self.consuming)?;
        if let Some(relay) = &self.relay {
            trace.follow(&relay.queue)?;
        }
        Ok(Self {
            trace: Some(trace),
            ..self
        })
    }

    /// Lets `watches` measure the work of the producer and of the consumer on a frame, from time to
    /// time.
    #[must_use]
    pub fn watched(self, watches: Arc<[Stopwatch; 2]>) -> Self {
        Self {
            watches: Some(watches),
            ..self
        }
    }

    fn label(&self, submitted: Submitted<'_>, what: &str, frame: u32) {
        if let Some(trace) = &self.trace {
            trace.label(submitted.end(), &format!("{what} {frame}"));
        }
    }

    /// Makes `frames` frames and calls `take` with each and its number from 0.
    ///
    /// # Errors
    /// An error of `take`; a driver error; a frame that takes too long.
    pub fn run<E: From<Error>>(
        self,
        frames: u32,
        order: Order,
        mut take: impl FnMut(u32, &[u32]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.run_switching(frames, order, |frame, _, rgba| {
            take(frame, rgba).map(|()| Some(order))
        })
    }

    /// Like [`Pipeline::run`], with an order that can change.
    ///
    /// `take` also gets the order of the frame. It returns the order of later frames, or `None` to
    /// end. Before the order changes, all frames are taken and all queues are idle.
    ///
    /// # Errors
    /// Same errors as [`Pipeline::run`].
    pub fn run_switching<E: From<Error>>(
        self,
        frames: u32,
        order: Order,
        take: impl FnMut(u32, Order, &[u32]) -> Result<Option<Order>, E>,
    ) -> Result<(), E> {
        let made = self.make(frames, order, take);
        // Also after a failure, because software drivers crash if the process ends while they work.
        let ended = self.finish();
        made.and(ended.map_err(E::from))
    }

    fn make<E: From<Error>>(
        &self,
        frames: u32,
        mut order: Order,
        mut take: impl FnMut(u32, Order, &[u32]) -> Result<Option<Order>, E>,
    ) -> Result<(), E> {
        let (mut submitted, mut taken) = (0, 0);
        let mut wanted = Some(order);
        loop {
            let next = wanted.filter(|_| submitted < frames);
            let is_full = submitted - taken == READBACKS as u32;
            if taken < submitted && (is_full || next != Some(order)) {
                self.consumed.at(u64::from(taken) + 1).wait(TIMEOUT)?;
                wanted = take(taken, order, &self.frame(taken))?;
                taken += 1;
                continue;
            }
            let Some(next) = next else {
                return Ok(());
            };
            if next != order {
                self.finish()?;
                order = next;
            }
            self.submit(submitted, order)?;
            submitted += 1;
        }
    }

    /// Submits to the queue of a side, which is 0 for the producer and 1 for the consumer.
    fn submit_to<'q, Q: backend::Queue>(
        &self,
        side: usize,
        queue: &'q Q,
        frame: u32,
        wait: Point<'_>,
        work: impl for<'r, 'a> FnOnce(&'r mut Q::Recorder<'a>) -> Result<()> + Send + 'static,
        signal: Signal<'_>,
    ) -> Result<Submitted<'q>> {
        match &self.watches {
            // A measured frame is submitted in more parts.
            Some(watches) if frame.is_multiple_of(MEASURED) => {
                watches[side].time(queue, &[wait], work, &[signal])
            }
            _ => queue.submit(&[wait], work, &[signal]),
        }
    }

    /// Makes `frames` frames at full speed. Returns frames per second.
    ///
    /// There must be at least one frame. The last one is compared with `last`, which is that of
    /// [`expected`].
    ///
    /// # Errors
    /// A driver error; a frame that takes too long; a last frame that is wrong.
    pub fn timed(self, frames: u32, order: Order, last: &[u32]) -> Result<f64> {
        let made = self.make_timed(frames, order, last);
        let ended = self.finish();
        made.and_then(|fps| ended.map(|()| fps))
    }

    fn make_timed(&self, frames: u32, order: Order, last: &[u32]) -> Result<f64> {
        let start = Instant::now();
        self.advance(0, frames, order)?;
        let took = start.elapsed();
        if self.frame(frames - 1) != last {
            return Err(wrong(&format!("the last of {frames} timed frames")));
        }
        Ok(f64::from(frames) / took.as_secs_f64())
    }

    /// Makes `frames` frames at full speed, beginning with number `first`, which is the next.
    ///
    /// Waits for the last one.
    ///
    /// # Errors
    /// A driver error; a frame that takes too long.
    pub fn advance(&self, first: u32, frames: u32, order: Order) -> Result<()> {
        let end = first + frames;
        let wait = |made: u32| self.consumed.at(made.into()).wait(TIMEOUT);
        for frame in first..end {
            if let Some(oldest) = frame.checked_sub(READBACKS as u32) {
                wait(oldest + 1)?;
            }
            self.submit(frame, order)?;
        }
        wait(end)
    }

    /// The pixels of one of the last few frames, which has finished and is not overwritten yet.
    #[must_use]
    pub fn frame(&self, frame: u32) -> Vec<u32> {
        pixels(&self.readbacks, frame)
    }

    fn submit(&self, frame: u32, order: Order) -> Result<()> {
        match order {
            Order::Timelines => {
                self.produce(frame, order)?;
                self.relay(frame, order)?;
                self.consume(frame, order)
            }
            Order::HostSynchronized => {
                self.produce(frame, order)?;
                self.producing.position().wait(TIMEOUT)?;
                self.relay(frame, order)?;
                self.consume(frame, order)?;
                self.consuming.position().wait(TIMEOUT)
            }
            Order::None => {
                // The error shows even if both stages share one queue of the driver.
                self.consume(frame, order)?;
                self.relay(frame, order)?;
                self.produce(frame, order)
            }
        }
    }

    fn produce(&self, frame: u32, order: Order) -> Result<()> {
        let number = u64::from(frame) + 1;
        let free = match order {
            Order::Timelines => self.ring.frame(number)?.free(),
            Order::HostSynchronized | Order::None => Point::EMPTY,
        };
        let producer = self.producer.clone();
        let late = (order == Order::None).then_some(DELAY);
        let submitted = self.submit_to(
            0,
            &self.producing,
            frame,
            free,
            move |recorder| producer.record(recorder, frame, frame as usize % SLOTS, late),
            self.produced.signal_at(number),
        )?;
        self.label(submitted, "simulate", frame);
        Ok(())
    }

    fn relay(&self, frame: u32, order: Order) -> Result<()> {
        let Some(relay) = &self.relay else {
            return Ok(());
        };
        let number = u64::from(frame) + 1;
        let slot = frame as usize % SLOTS;
        let (producer, to) = (self.producer.clone(), relay.slots[slot].clone());
        let ready = if order == Order::None {
            Point::EMPTY
        } else {
            self.produced.at(number)
        };
        let submitted = relay.queue.submit(
            &[ready],
            move |recorder| {
                recorder.try_run(move || producer.read(slot, to.words().unwrap_or_default()));
                Ok(())
            },
            &[relay.relayed.signal_at(number)],
        )?;
        self.label(submitted, "relay", frame);
        if order == Order::HostSynchronized {
            relay.queue.idle(TIMEOUT)?;
        }
        Ok(())
    }

    fn consume(&self, frame: u32, order: Order) -> Result<()> {
        let number = u64::from(frame) + 1;
        let ready = match (order, &self.relay) {
            (Order::None | Order::HostSynchronized, _) => Point::EMPTY,
            (Order::Timelines, None) => self.produced.at(number),
            (Order::Timelines, Some(relay)) => relay.relayed.at(number),
        };
        let consumer = self.consumer.clone();
        let (slot, readback) = (frame as usize % SLOTS, frame as usize % READBACKS);
        let submitted = self.submit_to(
            1,
            &self.consuming,
            frame,
            ready,
            move |recorder: &mut Recorder<'_>| consumer.record(recorder, slot, readback),
            self.consumed.signal_at(number),
        )?;
        self.label(submitted, "draw", frame);
        Ok(())
    }

    /// Waits for all work, so that the buffers can be dropped.
    ///
    /// # Errors
    /// A driver error.
    pub fn finish(&self) -> Result<()> {
        self.producing.idle(TIMEOUT)?;
        self.consuming.idle(TIMEOUT)?;
        if let Some(relay) = &self.relay {
            relay.queue.idle(TIMEOUT)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    /// Every frame is compared. Those that are made with waits are right, also after a switch.
    #[test]
    fn after_a_switch_frames_are_right_again() {
        let host = syncline::Device::Host(host::Device::new());
        let view = View::of_field(16);
        let pipeline = Pipeline::scene(&syncline::connect(&host, &host), view).unwrap();
        let mut reference = Reference::new(view.field().width, view.field().height);
        let mut wrong = 0;
        let mut orders = Vec::new();
        let ran = pipeline.run_switching(1000, Order::Timelines, |frame, order, rgba| {
            let right = scene::reference::draw(&view, reference.advance_frame());
            wrong += u32::from(right != rgba);
            assert!(right == rgba || order == Order::None, "frame {frame}");
            orders.push(order);
            let wanted = match frame / 16 % 2 {
                0 => Order::Timelines,
                _ => Order::None,
            };
            Ok::<_, Error>((frame < 90).then_some(wanted))
        });
        ran.unwrap();
        assert!(wrong > 0);
        // From the first frame that ends it, only those in flight are taken.
        assert_eq!(orders.len(), 90 + READBACKS);
        let switches = orders.windows(2).filter(|two| two[0] != two[1]);
        assert_eq!(switches.count(), 5);
    }
}
