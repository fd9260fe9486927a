//! The same frames by two processes: one simulates, the other draws and reads.
//!
//! Only timelines that both have order the frames.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use syncline::Mechanism;
use syncline::backend::{Device as _, Queue as _};
#[cfg(feature = "vulkan")]
use syncline::info::BackendKind;
use syncline::negotiate::{Made, Needs, Party, Plan};
use syncline::process::Endpoint;
use syncline::{
    Buffer, Device, Error, Point, Queue, QueueKind, Recorder, Result, SignalOnly, Slots, Timeline,
    WaitOnly, handle::SharedWords, host,
};

use super::scene::View;
use super::stage::{Between, Consumer, Producer, painter, producer};
use super::{DELAY, READBACKS, SLOTS, Size, TIMEOUT, pixels};

/// Time-out for the other process's part of the setup.
const SETUP: Duration = Duration::from_secs(20);

/// The part of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It simulates.
    Producer,
    /// It draws.
    Consumer,
}

/// The slots of one process, and the plans of the timelines that order them.
struct Setup {
    /// The device that the timelines are for.
    device: Device,
    plans: [Plan; 2],
    slots: Between,
    relay: Option<Relay>,
}

impl Setup {
    /// Makes the slots that `device` uses.
    ///
    /// The slots are images or buffers that both processes have. Otherwise they are memory of the
    /// device, and a worker of each process copies to and from shared host memory.
    fn new(role: Role, device: &Device, size: Size, endpoint: &Endpoint) -> Result<Self> {
        let native = Needs::MEMORY | Needs::NATIVE;
        match plans(role, device, endpoint, native) {
            Ok(plans) => Ok(Self {
                device: device.clone(),
                slots: slots(&plans[0], device, size, endpoint)?,
                plans,
                relay: None,
            }),
            Err(Error::Conflict(_)) => Self::with_relay(role, device, size, endpoint),
            Err(error) => Err(error),
        }
    }

    fn with_relay(role: Role, device: &Device, size: Size, endpoint: &Endpoint) -> Result<Self> {
        let host = host::Device::new();
        let plans = plans(role, &host, endpoint, Needs::empty())?;
        let mut words = Vec::new();
        for label in labels() {
            words.push(match role {
                Role::Consumer => endpoint.receive_words(&label, size.bytes(), SETUP)?,
                Role::Producer => {
                    let words = SharedWords::new(size.bytes())?;
                    endpoint.send_words(&label, &words, SETUP)?;
                    words
                }
            });
        }
        let slots = visible(device, size, SLOTS)?;
        let worker = host.queue(QueueKind::Transfer, "carry")?;
        let relay = Relay::new(worker, words, slots.clone())?;
        Ok(Self {
            device: Device::Host(host),
            plans,
            slots: slots.into(),
            relay: Some(relay),
        })
    }

    fn shares(&self) -> &'static str {
        self.slots.shares(self.relay.is_some())
    }

    /// True in the process that takes new images first (X9).
    fn is_home(&self) -> bool {
        self.plans[0].home().id() == Party::of(&self.device).id()
    }

    /// Makes the timelines. No frame begins in a process before both have called this.
    fn timelines(&self, endpoint: &Endpoint) -> Result<Shared> {
        let devices = std::slice::from_ref(&self.device);
        let make = |plan: &Plan, label| plan.make_across(label, 0, devices, &[endpoint], SETUP);
        Ok(Shared {
            produced: make(&self.plans[0], "produced")?,
            consumed: make(&self.plans[1], "consumed")?,
            party: Party::of(&self.device).id(),
            shares: self.shares(),
        })
    }
}

fn labels() -> impl Iterator<Item = String> {
    (0..SLOTS).map(|slot| format!("slot {slot}"))
}

/// Images of heights if Vulkan draws them, and buffers otherwise.
fn slots(plan: &Plan, device: &Device, size: Size, endpoint: &Endpoint) -> Result<Between> {
    let (devices, peers) = ([device.clone()], [endpoint]);
    #[cfg(feature = "vulkan")]
    if plan.parties().iter().any(|party| {
        party.needs().contains(Needs::WAIT) && party.backend() == Some(BackendKind::Vulkan)
    }) {
        let mut images = Vec::new();
        for label in labels() {
            let made = plan.image_across(&label, &super::heights(size), &devices, &peers, SETUP)?;
            images.extend(made.into_iter().map(|(_, image)| image));
        }
        return Ok(Between::Images(images));
    }
    let mut buffers = Vec::new();
    for label in labels() {
        let made = plan.memory_across(&label, size.bytes(), &devices, &peers, SETUP)?;
        buffers.extend(made.into_iter().map(|(_, memory)| memory));
    }
    Ok(buffers.into())
}

/// Objects that both processes have, as one of them sees them.
struct Shared {
    /// Reaches n when frame n is in its slot.
    produced: Made,
    /// Reaches n when frame n is out of it, and the slot free again.
    consumed: Made,
    /// The party of this process in both plans.
    party: syncline::negotiate::PartyId,
    /// What both devices share.
    shares: &'static str,
}

impl Shared {
    fn mechanism(&self) -> Mechanism {
        self.produced.plan().mechanism()
    }
}

/// A plan for each direction: first of the timeline that the producer signals.
fn plans<D: syncline::backend::Device>(
    role: Role,
    device: &D,
    endpoint: &Endpoint,
    needs: Needs,
) -> Result<[Plan; 2]> {
    let plan = |signaller: Role| {
        let own = Party::of(device).needing(needs);
        let own = match role == signaller {
            true => own.signals(),
            false => own.waits(),
        };
        endpoint.negotiate(own, SETUP)
    };
    Ok([plan(Role::Producer)?, plan(Role::Consumer)?])
}

fn copy(from: &[AtomicU32], to: &[AtomicU32]) {
    for (from, to) in from.iter().zip(to) {
        to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Host-visible memory of `device` for frames.
fn visible(device: &Device, size: Size, count: usize) -> Result<Vec<Buffer>> {
    let all = (0..count).map(|_| Buffer::host_visible(device, size.bytes()));
    all.collect()
}

/// The value of frame `frame`, counted from 0, once it has got so far.
fn number(frame: u32) -> u64 {
    u64::from(frame) + 1
}

/// The point, or nothing in a run that shows what the waits are for.
fn if_synchronized(synchronized: bool, point: Point<'_>) -> Point<'_> {
    if synchronized { point } else { Point::EMPTY }
}

/// A copying worker, the host memory that both processes have, and that of the device.
struct Relay {
    worker: host::Queue,
    words: Vec<SharedWords>,
    slots: Vec<Buffer>,
    /// Reaches n when frame n is in its slot on the device.
    filled: Timeline,
    /// Reaches n when frame n has been copied from there.
    emptied: Timeline,
    /// The slots of the device, which `emptied` frees.
    ring: Slots,
}

impl Relay {
    fn new(worker: host::Queue, words: Vec<SharedWords>, slots: Vec<Buffer>) -> Result<Self> {
        let host = worker.device();
        let emptied = host.timeline("emptied")?;
        Ok(Self {
            worker,
            words,
            slots,
            filled: host.timeline("filled")?,
            ring: Slots::new(emptied.wait_only(), SLOTS)?,
            emptied,
        })
    }
}

/// The process that simulates.
pub struct Producing {
    queue: Queue,
    stage: Arc<dyn Producer>,
    relay: Option<Relay>,
    produced: SignalOnly,
    consumed: WaitOnly,
    /// The slots that both processes have, which `consumed` frees.
    ring: Slots,
    /// Bounds how many frames are submitted ahead.
    ahead: Slots,
    shared: Shared,
}

impl Producing {
    /// Makes the part of this process, together with the other process.
    ///
    /// # Errors
    /// The reason why the two cannot do it.
    pub fn new(device: &Device, size: Size, endpoint: &Endpoint) -> Result<Self> {
        let setup = Setup::new(Role::Producer, device, size, endpoint)?;
        let stage = producer(device, size, setup.slots.clone())?;
        let queue = device.queue(QueueKind::Compute, "simulate")?;
        if setup.is_home() {
            let producer = stage.clone();
            let begin = move |recorder: &mut Recorder<'_>| producer.begin(recorder);
            queue.submit(&[], begin, &[])?;
            queue.idle(TIMEOUT)?;
        }
        let shared = setup.timelines(endpoint)?;
        let consumed = shared.consumed.wait_only(shared.party)?;
        Ok(Self {
            queue,
            stage,
            relay: setup.relay,
            produced: shared.produced.signal_only(shared.party)?,
            ring: Slots::new(consumed.clone(), SLOTS)?,
            ahead: Slots::new(consumed.clone(), 2 * SLOTS)?,
            consumed,
            shared,
        })
    }

    /// How signals reach the other process.
    #[must_use]
    pub fn mechanism(&self) -> Mechanism {
        self.shared.mechanism()
    }

    /// What both devices share. See [`Pipeline::shares`](super::Pipeline::shares).
    #[must_use]
    pub const fn shares(&self) -> &'static str {
        self.shared.shares
    }

    /// Number of frames that the other process has consumed.
    #[must_use]
    pub fn consumed(&self) -> u64 {
        self.consumed.frozen_value()
    }

    /// Makes `frames` frames, and tells the other process when the last one is consumed.
    ///
    /// # Errors
    /// A driver error; a frame that takes too long; the other process is lost.
    pub fn run(&self, frames: u32, synchronized: bool, endpoint: &Endpoint) -> Result<()> {
        let made = (0..frames).try_for_each(|frame| {
            self.ahead.frame(number(frame))?.free().wait(TIMEOUT)?;
            self.submit(frame, synchronized)
        });
        let last = self.consumed.at(frames.into());
        let made = made.and_then(|()| last.wait(TIMEOUT));
        // Also after a failure, because software drivers crash if the process ends while they work.
        let idle = self.queue.idle(TIMEOUT);
        made?;
        idle?;
        endpoint.send_point(last, SETUP)
    }

    fn submit(&self, frame: u32, synchronized: bool) -> Result<()> {
        let late = (!synchronized).then_some(DELAY);
        let slot = frame as usize % SLOTS;
        let stage = self.stage.clone();
        let record = move |recorder: &mut Recorder<'_>| stage.record(recorder, frame, slot, late);
        let free = if_synchronized(synchronized, self.ring.frame(number(frame))?.free());
        let produced = self.produced.signal_at(number(frame));
        let Some(relay) = &self.relay else {
            self.queue.submit(&[free], record, &[produced])?;
            return Ok(());
        };
        let emptied = relay.ring.frame(number(frame))?.free();
        let filled = relay.filled.signal_at(number(frame));
        self.queue.submit(&[emptied], record, &[filled])?;
        let (from, to) = (relay.slots[slot].clone(), relay.words[slot].clone());
        let carry = move |recorder: &mut host::Recorder<'_>| {
            recorder.run(move || copy(from.words().unwrap_or_default(), to.words()));
            Ok(())
        };
        let emptied = relay.emptied.signal_at(number(frame));
        let filled = relay.filled.at(number(frame));
        relay
            .worker
            .submit(&[free, filled], carry, &[emptied, produced])?;
        Ok(())
    }
}

/// The process that draws.
pub struct Consuming {
    queue: Queue,
    stage: Arc<dyn Consumer>,
    readbacks: Vec<Buffer>,
    relay: Option<Relay>,
    produced: WaitOnly,
    consumed: SignalOnly,
    /// Reaches n when the host can read frame n.
    drawn: Timeline,
    shared: Shared,
}

impl Consuming {
    /// Makes the part of this process, together with the other process.
    ///
    /// # Errors
    /// The reason why the two cannot do it.
    pub fn new(device: &Device, view: View, endpoint: &Endpoint) -> Result<Self> {
        let setup = Setup::new(Role::Consumer, device, view.field(), endpoint)?;
        let slots = setup.slots.clone();
        let readbacks = visible(device, view.picture(), READBACKS)?;
        // Before the queue, because it refuses a device that does not draw.
        let stage = painter(device, view, slots, readbacks.clone())?;
        let queue = device.queue(QueueKind::Graphics, "draw")?;
        if setup.is_home() {
            let consumer = stage.clone();
            let begin = move |recorder: &mut Recorder<'_>| consumer.begin(recorder);
            queue.submit(&[], begin, &[])?;
            queue.idle(TIMEOUT)?;
        }
        let shared = setup.timelines(endpoint)?;
        Ok(Self {
            stage,
            queue,
            readbacks,
            relay: setup.relay,
            produced: shared.produced.wait_only(shared.party)?,
            consumed: shared.consumed.signal_only(shared.party)?,
            drawn: device.timeline("drawn")?,
            shared,
        })
    }

    /// How signals come from the other process.
    #[must_use]
    pub fn mechanism(&self) -> Mechanism {
        self.shared.mechanism()
    }

    /// What both devices share. See [`Pipeline::shares`](super::Pipeline::shares).
    #[must_use]
    pub const fn shares(&self) -> &'static str {
        self.shared.shares
    }

    /// Draws `frames` frames and calls `take` with each and its number from 0.
    ///
    /// Then waits until the other process has seen that.
    ///
    /// # Errors
    /// An error of `take`; a driver error; a frame that takes too long; the other process is lost.
    pub fn run<E: From<syncline::Error>>(
        &self,
        frames: u32,
        synchronized: bool,
        endpoint: &Endpoint,
        take: impl FnMut(u32, &[u32]) -> Result<(), E>,
    ) -> Result<(), E> {
        let made = self.make(frames, synchronized, take);
        // Also after a failure, because software drivers crash if the process ends while they work.
        let idle = self.queue.idle(TIMEOUT);
        made?;
        idle?;
        // The other process says that it has seen the last frame, so that this one can end.
        let last = endpoint.receive_point(TIMEOUT)?;
        Ok(last.point().wait(TIMEOUT)?)
    }

    fn make<E: From<syncline::Error>>(
        &self,
        frames: u32,
        synchronized: bool,
        mut take: impl FnMut(u32, &[u32]) -> Result<(), E>,
    ) -> Result<(), E> {
        let idle = || match &self.relay {
            Some(relay) => relay.worker.idle(TIMEOUT),
            None => self.queue.idle(TIMEOUT),
        };
        let mut read = |frame: u32| -> Result<(), E> {
            self.drawn.at(number(frame)).wait(TIMEOUT)?;
            // The producer knows of the frame before this process reports it, even if this process
            // is killed next. The end of the submission alone does not tell that: the host may make
            // the signal after it.
            idle()?;
            take(frame, &pixels(&self.readbacks, frame))
        };
        for frame in 0..frames {
            if let Some(oldest) = frame.checked_sub(READBACKS as u32) {
                read(oldest)?;
            }
            self.submit(frame, synchronized)?;
        }
        (frames.saturating_sub(READBACKS as u32)..frames).try_for_each(read)
    }

    fn submit(&self, frame: u32, synchronized: bool) -> Result<()> {
        let (slot, readback) = (frame as usize % SLOTS, frame as usize % READBACKS);
        let stage = self.stage.clone();
        let record = move |recorder: &mut Recorder<'_>| stage.record(recorder, slot, readback);
        let ready = if_synchronized(synchronized, self.produced.at(number(frame)));
        let consumed = self.consumed.signal_at(number(frame));
        let drawn = self.drawn.signal_at(number(frame));
        let Some(relay) = &self.relay else {
            self.queue.submit(&[ready], record, &[consumed, drawn])?;
            return Ok(());
        };
        let (from, to) = (relay.words[slot].clone(), relay.slots[slot].clone());
        let carry = move |recorder: &mut host::Recorder<'_>| {
            recorder.run(move || copy(from.words(), to.words().unwrap_or_default()));
            Ok(())
        };
        let emptied = relay.ring.frame(number(frame))?.free();
        let filled = relay.filled.signal_at(number(frame));
        relay
            .worker
            .submit(&[ready, emptied], carry, &[filled, consumed])?;
        let filled = relay.filled.at(number(frame));
        let emptied = relay.emptied.signal_at(number(frame));
        self.queue.submit(&[filled], record, &[drawn, emptied])?;
        Ok(())
    }
}
