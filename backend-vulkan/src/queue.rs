//! Logical queues, and how they hand submissions to the driver.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::sync::Arc;
use std::time::Duration;

use ash::vk;
use smallvec::SmallVec;
use syncline_core::backend::{
    self, Batch, Device as _, Enqueue, Flush, Held, Keep, Lane, NativePoint, Recycled, Room,
    Submitted, Waker,
};
use syncline_core::{Fence, Object, Point, Result, Signal};

use crate::commands::{Commands, InFlight};
use crate::device::Device;
use crate::driver_queue::{DriverQueue, QueueGuard, SUBMISSION};
use crate::error::unsupported;
use crate::port::{Port, Semaphore};
use crate::recorder::Recorder;
use crate::timing::{self, Stamp};

/// Runs submissions in order on a `VkQueue`, which it may share with others. Cheap to clone.
///
/// While 16 384 units are in flight on a `VkQueue` (four for each submission, one for each of its waits, command buffers and
/// signals), further submissions to it are held on the host, so that the driver never blocks a caller behind a closed
/// gate. For that, one submission has no more than another sixteen thousand units.
#[derive(Clone)]
pub struct Queue {
    device: Device,
    lane: Arc<Lane<Submitter>>,
}

impl Queue {
    pub(crate) fn new(device: &Device, driver: &Arc<DriverQueue>, label: &str) -> Result<Self> {
        let object = Object::new("Vulkan queue", label);
        let own = device.timeline(&format!("{label} (position)"))?;
        let semaphore = own
            .port::<Port>(device.id())
            .map(|port| port.0.clone())
            .ok_or_else(|| unsupported(&object, "count", "its own timeline has no semaphore"))?;
        let commands = Commands::new(&device.0, &object, driver.family.index, semaphore)?;
        let submitter = Submitter {
            commands: Arc::new(commands),
            driver: driver.clone(),
            stamps: Recycled::default(),
        };
        let lane = Lane::new(object, device.id(), own, submitter);
        driver.join(&lane);
        Ok(Self {
            device: device.clone(),
            lane,
        })
    }

    /// Its queue family, in the driver's numbering.
    #[must_use]
    pub fn family(&self) -> u32 {
        self.lane.driver().driver.family.index
    }

    /// The index, within the family, of the driver queue that it runs on.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.lane.driver().driver.index
    }

    /// Locks the `VkQueue` under it for the application's own use; see [`Device::lock_queue`].
    pub fn lock(&self) -> QueueGuard {
        self.device.guard(&self.lane.driver().driver)
    }
}

impl backend::Queue for Queue {
    type Device = Device;
    type Recorder<'a> = Recorder;

    fn device(&self) -> Device {
        self.device.clone()
    }

    fn object(&self) -> &Object {
        self.lane.object()
    }

    fn submit<'q, W>(
        &'q self,
        waits: &[Point<'_>],
        work: W,
        signals: &[Signal<'_>],
    ) -> Result<Submitted<'q>>
    where
        W: for<'r, 'a> FnOnce(&'r mut Recorder) -> Result<()> + Send + 'static,
    {
        self.lane.submit(waits, work, signals)
    }

    fn record(&self, fence: &Fence) -> Result<()> {
        self.lane.record(fence)
    }

    fn position(&self) -> Point<'_> {
        self.lane.position()
    }

    fn held(&self) -> Held {
        self.lane.held()
    }

    fn idle(&self, timeout: Duration) -> Result<()> {
        self.lane.idle(timeout)
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(&self.lane, f)
    }
}

/// The engine's way to a `VkQueue`.
pub(crate) struct Submitter {
    commands: Arc<Commands>,
    driver: Arc<DriverQueue>,
    stamps: Recycled<Stamp>,
}

/// A `VkSubmitInfo` in the making.
#[derive(Default)]
struct Part {
    waits: SmallVec<[vk::Semaphore; 4]>,
    wait_values: SmallVec<[u64; 4]>,
    wait_stages: SmallVec<[vk::PipelineStageFlags; 4]>,
    buffers: SmallVec<[vk::CommandBuffer; 4]>,
    signals: SmallVec<[vk::Semaphore; 4]>,
    signal_values: SmallVec<[u64; 4]>,
}

impl Part {
    fn wait(&mut self, semaphore: vk::Semaphore, value: u64, stages: vk::PipelineStageFlags) {
        self.waits.push(semaphore);
        self.wait_values.push(value);
        self.wait_stages.push(stages);
    }

    fn signal(&mut self, semaphore: vk::Semaphore, value: u64) {
        self.signals.push(semaphore);
        self.signal_values.push(value);
    }

    /// What it takes of the driver queue's room.
    fn units(&self) -> u64 {
        let parts = self.waits.len() + self.buffers.len() + self.signals.len();
        SUBMISSION + parts as u64
    }

    fn values(&self) -> vk::TimelineSemaphoreSubmitInfo<'_> {
        vk::TimelineSemaphoreSubmitInfo::default()
            .wait_semaphore_values(&self.wait_values)
            .signal_semaphore_values(&self.signal_values)
    }

    fn info<'a>(
        &'a self,
        values: &'a mut vk::TimelineSemaphoreSubmitInfo<'_>,
    ) -> vk::SubmitInfo<'a> {
        vk::SubmitInfo::default()
            .wait_semaphores(&self.waits)
            .wait_dst_stage_mask(&self.wait_stages)
            .command_buffers(&self.buffers)
            .signal_semaphores(&self.signals)
            .push_next(values)
    }
}

/// A recorded submission that the driver does not have yet.
pub(crate) struct Prepared {
    work: Part,
    /// Waits between work and signals, and then the signals, where other queues signal first.
    tail: Option<Part>,
    fence: vk::Fence,
    used: InFlight,
}

impl Submitter {
    fn prepare(&self, batch: &Batch<'_>, recorder: &mut Recorder) -> Result<Prepared> {
        recorder.finish()?;
        let mut semaphores: SmallVec<[&Arc<Semaphore>; 16]> = SmallVec::new();
        let mut part = Part {
            buffers: std::mem::take(&mut recorder.buffers),
            ..Part::default()
        };
        let all = vk::PipelineStageFlags::ALL_COMMANDS;
        // Without commands only the signals are left to wait.
        let stage = if part.buffers.is_empty() {
            all
        } else {
            recorder.wait_stage
        };
        for wait in batch.waits {
            let semaphore = self.semaphore(*wait)?;
            part.wait(semaphore.raw(), wait.value(), stage);
            semaphores.push(semaphore);
        }
        // The values that go with binary semaphores are ignored.
        for &(semaphore, stages) in &recorder.binary_waits {
            part.wait(semaphore, 0, stages);
        }

        // They come behind the work alone, which they never travel without.
        for &semaphore in &recorder.binary_signals {
            part.signal(semaphore, 0);
        }

        // Without commands there is nothing to come between the waits and the order.
        let split = !batch.order.is_empty() && !part.buffers.is_empty();
        let mut work = None;
        if split {
            work = Some(std::mem::take(&mut part));
        }
        for order in batch.order {
            let semaphore = self.semaphore(*order)?;
            part.wait(semaphore.raw(), order.value(), all);
            semaphores.push(semaphore);
        }
        for signal in batch.signals {
            let semaphore = self.semaphore(*signal)?;
            part.signal(semaphore.raw(), signal.value());
            semaphores.push(semaphore);
        }
        // The queue's own timeline needs no `Arc` here: its `Commands` have one.
        part.signal(self.semaphore(batch.end)?.raw(), batch.end.value());
        let (work, tail) = match work {
            Some(work) => (work, Some(part)),
            None => (part, None),
        };
        Ok(Prepared {
            work,
            tail,
            fence: recorder.fence,
            used: InFlight {
                number: batch.end.value(),
                submission: 0,
                buffers: std::mem::take(&mut recorder.ours),
                semaphores: self.commands.keep(&semaphores, batch.end.value()),
            },
        })
    }

    fn semaphore<'a>(&self, point: NativePoint<'a>) -> Result<&'a Arc<Semaphore>> {
        point.port::<Port>().map(|port| &port.0).ok_or_else(|| {
            let reason = "its port on this device is not one of the Vulkan backend";
            unsupported(point.object(), "be used by a Vulkan queue", reason)
        })
    }
}

impl Enqueue for Submitter {
    type Recorder<'a> = Recorder;
    type Prepared = Prepared;
    type Stamp = Stamp;

    fn order_domain(&self) -> u64 {
        self.driver.domain
    }

    fn room(&self) -> Option<&Arc<Room>> {
        Some(&self.driver.room)
    }

    fn record<W>(&self, batch: &Batch<'_>, keep: &mut Keep, work: W) -> Result<Prepared>
    where
        W: for<'r, 'a> FnOnce(&'r mut Recorder) -> Result<()>,
    {
        self.commands.recycle();
        let mut recorder = Recorder::new(&self.commands);
        let prepared = work(&mut recorder).and_then(|()| self.prepare(batch, &mut recorder));
        match prepared {
            Ok(prepared) => {
                keep.append(&mut recorder.keep);
                let parts = prepared.tail.iter().chain([&prepared.work]);
                keep.take_room(parts.map(Part::units).sum());
                Ok(prepared)
            }
            Err(error) => {
                recorder.discard();
                Err(error)
            }
        }
    }

    /// `vkQueueSubmit`, once.
    fn flush(&self, prepared: Prepared, lane: &dyn Fn() -> Waker) -> Flush<Prepared> {
        let Some(locked) = self.driver.try_lock(lane) else {
            return Flush::Busy(prepared);
        };
        let device = &self.commands.device;
        let mut values = prepared.work.values();
        let mut infos: SmallVec<[_; 2]> = SmallVec::new();
        infos.push(prepared.work.info(&mut values));
        let mut tail_values = prepared.tail.as_ref().map(Part::values);
        if let (Some(tail), Some(values)) = (&prepared.tail, &mut tail_values) {
            infos.push(tail.info(values));
        }
        // SAFETY: the queue's lock is held. Command buffers are ended, and they and all semaphores live
        // until the submission has finished, as `InFlight` or by the contract of `Recorder`'s methods.
        // Every wait's signal is pending, and the engine has checked that each value signalled grows.
        let submitted = unsafe {
            device
                .raw()
                .queue_submit(self.driver.raw, &infos, prepared.fence)
        };
        drop(infos);
        let flushed = match submitted {
            Ok(()) => {
                self.commands.submitted(prepared.used);
                Flush::Done
            }
            Err(code) => {
                self.commands.give_back(prepared.used.buffers);
                Flush::Refused(device.failed(&self.commands.object, "vkQueueSubmit", code))
            }
        };
        // Wakes other lanes of the same driver queue; they run once this one has returned to the engine.
        drop(locked);
        flushed
    }

    fn rest(&self, reached: u64) {
        self.commands.rest(reached);
    }

    fn stamp(&self) -> Result<Arc<Stamp>> {
        self.stamps.take(Stamp::renew, || {
            timing::new_stamp(&self.commands, self.driver.family)
        })
    }

    fn write_stamp(recorder: &mut Recorder, stamp: &Arc<Stamp>) -> Result<()> {
        timing::write(recorder, stamp)
    }
}
