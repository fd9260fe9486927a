//! The same frames by two processes: one simulates, the other draws and reads.
//!
//! Only timelines that both have order the frames.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use syncline::backend::{Device as _, Queue as _};
use syncline::negotiate::{Made, Mechanism, Needs, Party, Plan};
use syncline::process::Endpoint;
use syncline::{
    Buffer, Device, Error, Point, Queue, QueueKind, Recorder, Result, SignalOnly, Slots, Timeline,
    WaitOnly, handle::SharedWords, host,
};

use super::scene::View;
use super::stage::{Consumer, Producer};
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

/// Objects that both processes have, as one of them sees them.
struct Shared {
    /// Reaches n when frame n is in its slot.
    produced: Made,
    /// Reaches n when frame n is out of it, and the slot free again.
    consumed: Made,
    /// The party of this process in both plans.
    party: syncline::negotiate::PartyId,
}

impl Shared {
    /// Makes the timelines and the slots that `device` uses.
    ///
    /// The slots are memory that both processes have. Otherwise they are memory of the device, and
    /// a worker of each process copies to and from shared host memory.
    fn new(
        role: Role,
        device: &Device,
        size: Size,
        endpoint: &Endpoint,
    ) -> Result<(Self, Vec<Buffer>, Option<Relay>)> {
        let native = Needs::MEMORY | Needs::NATIVE;
        let label = |slot: usize| format!("slot {slot}");
        let bytes = size.bytes();
        let mut slots = Vec::new();
        let (who, plans, relay) = match plans(role, device, endpoint, native) {
            Ok(plans) => {
                let devices = [device.clone()];
                for slot in 0..SLOTS {
                    let label = label(slot);
                    let made =
                        plans[0].memory_across(&label, bytes, &devices, &[endpoint], SETUP)?;
                    slots.extend(made.into_iter().map(|(_, memory)| memory));
                }
                (device.clone(), plans, None)
            }
            Err(Error::Conflict(_)) => {
                let host = host::Device::new();
                let plans = plans(role, &host, endpoint, Needs::empty())?;
                let mut words = Vec::new();
                for slot in 0..SLOTS {
                    let label = label(slot);
                    words.push(match role {
                        Role::Consumer => endpoint.receive_words(&label, bytes, SETUP)?,
                        Role::Producer => {
                            let words = SharedWords::new(bytes)?;
                            endpoint.send_words(&label, &words, SETUP)?;
                            words
                        }
                    });
                }
                slots = visible(device, size, SLOTS)?;
                let worker = host.queue(QueueKind::Transfer, "carry")?;
                let relay = Relay::new(worker, words, slots.clone())?;
                (Device::Host(host), plans, Some(relay))
            }
            Err(error) => return Err(error),
        };
        let devices = std::slice::from_ref(&who);
        let make = |plan: &Plan, label| plan.make_across(label, 0, devices, &[endpoint], SETUP);
        let shared = Self {
            produced: make(&plans[0], "produced")?,
            consumed: make(&plans[1], "consumed")?,
            party: Party::of(&who).id(),
        };
        Ok((shared, slots, relay))
    }

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
    stage: Producer,
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
        let (shared, slots, relay) = Shared::new(Role::Producer, device, size, endpoint)?;
        let consumed = shared.consumed.wait_only(shared.party)?;
        Ok(Self {
            queue: device.queue(QueueKind::Compute, "simulate")?,
            stage: Producer::new(device, size, slots)?,
            relay,
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
    stage: Consumer,
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
        let field = view.field();
        let (shared, slots, relay) = Shared::new(Role::Consumer, device, field, endpoint)?;
        let readbacks = visible(device, view.picture(), READBACKS)?;
        Ok(Self {
            // First, because it refuses a device that does not draw.
            stage: Consumer::painter(device, view, slots, readbacks.clone())?,
            queue: device.queue(QueueKind::Graphics, "draw")?,
            readbacks,
            relay,
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
