//! Logical queues, and how they hand submissions to the driver.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::cell::UnsafeCell;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use ash::vk;
use smallvec::SmallVec;
use syncline_core::backend::{
    self, Batch, Device as _, Enqueue, Flush, Held, Keep, Lane, NativePoint, Recycled, Room,
    Submitted, Timing, Waker,
};
use syncline_core::trace::Trace;
use syncline_core::{Fence, Object, Point, Result, Signal};

use crate::commands::Commands;
use crate::device::Device;
use crate::driver_queue::{DriverQueue, QueueGuard, SUBMISSION};
use crate::error::unsupported;
use crate::port::{Port, Semaphore};
use crate::recorder::{Recorder, Split};
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
            .and_then(|port| port.on(&device.0))
            .cloned()
            .ok_or_else(|| unsupported(&object, "count", "its own timeline has no semaphore"))?;
        let commands = Commands::new(&device.0, &object, driver.family.index, semaphore)?;
        let submitter = Submitter {
            commands: Arc::new(commands),
            driver: driver.clone(),
            stamps: Recycled::default(),
            spare: Spare::default(),
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

    /// The engine's way to its `VkQueue`.
    pub(crate) fn submitter(&self) -> &Submitter {
        self.lane.driver()
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

    fn trace(&self, trace: &Trace) -> Result<()> {
        self.lane.trace(&self.device, trace)
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
    spare: Spare,
}

/// The recorder of the next submission, in the room of the one before it.
#[derive(Default)]
struct Spare(UnsafeCell<Option<Box<Recorder>>>);

// SAFETY: the cell is only touched in `Enqueue::record` and `Enqueue::flush`, which the engine calls one at a time for
// each queue; what it holds may go from thread to thread.
unsafe impl Sync for Spare {}
const _: fn() = || {
    fn may_go_from_thread_to_thread<T: Send>() {}
    may_go_from_thread_to_thread::<Recorder>();
};

impl Spare {
    /// # Safety
    /// Called in `Enqueue::record` or `Enqueue::flush`.
    unsafe fn take(&self) -> Option<Box<Recorder>> {
        // SAFETY: nobody else touches the cell now, and nothing else runs while this does.
        unsafe { &mut *self.0.get() }.take()
    }

    /// # Safety
    /// Called in `Enqueue::record` or `Enqueue::flush`.
    unsafe fn put(&self, mut recorder: Box<Recorder>) {
        recorder.clear();
        // SAFETY: as above. One that is there already is dropped behind the change.
        drop(unsafe { &mut *self.0.get() }.replace(recorder));
    }
}

impl Submitter {
    /// Fills in what is submitted with the commands.
    fn prepare(&self, batch: &Batch<'_>, recorder: &mut Recorder) -> Result<()> {
        // What is signalled behind other queues' values has its time behind them, too, and those come behind the work.
        let stamp = batch.stamp::<Stamp>();
        let (behind_work, behind_order) = if batch.order.is_empty() {
            (stamp, None)
        } else {
            (None, stamp)
        };
        let had_commands = !recorder.is_empty();
        recorder.finish(behind_work.as_ref())?;
        let mut semaphores: SmallVec<[&Arc<Semaphore>; 16]> = SmallVec::new();
        let parts = &mut recorder.parts;
        let all = vk::PipelineStageFlags::ALL_COMMANDS;
        // Without commands only the signals are left to wait, and their time.
        let stage = if recorder.buffers.is_empty() || !had_commands {
            all
        } else {
            recorder.wait_stage
        };
        for wait in batch.waits {
            let semaphore = self.semaphore(*wait)?;
            parts.wait(semaphore.raw(), wait.value(), stage);
            semaphores.push(semaphore);
        }
        // The values that go with binary semaphores are ignored.
        for &(semaphore, stages) in &recorder.binary_waits {
            parts.wait(semaphore, 0, stages);
        }

        // They come behind the work alone, which they never travel without.
        for &semaphore in &recorder.binary_signals {
            parts.signal(semaphore, 0);
        }

        // Without commands there is nothing to come between the waits and the order.
        if !batch.order.is_empty() && !recorder.buffers.is_empty() {
            parts.split(recorder.buffers.len());
        }
        for order in batch.order {
            let semaphore = self.semaphore(*order)?;
            parts.wait(semaphore.raw(), order.value(), all);
            semaphores.push(semaphore);
        }
        if behind_order.is_some() {
            recorder.finish(behind_order.as_ref())?;
        }
        let parts = &mut recorder.parts;
        for signal in batch.signals {
            let semaphore = self.semaphore(*signal)?;
            parts.signal(semaphore.raw(), signal.value());
            semaphores.push(semaphore);
        }
        // The queue's own timeline needs no `Arc` here: its `Commands` have one.
        parts.signal(self.commands.own.raw(), batch.end.value());
        recorder.used.number = batch.end.value();
        self.commands
            .keep(&semaphores, &mut recorder.used, batch.finished());
        Ok(())
    }

    /// What it takes of the driver queue's room.
    fn units(recorder: &Recorder) -> u64 {
        let parts = &recorder.parts;
        let infos = 1 + u64::from(parts.split.is_some());
        let count = parts.waits.len() + recorder.buffers.len() + parts.signals.len();
        infos * SUBMISSION + count as u64
    }

    /// `vkQueueSubmit`, once.
    ///
    /// # Safety
    /// The queue's lock is held, and the semaphores and command buffers live until the submission has finished.
    #[inline]
    unsafe fn submit(&self, recorder: &Recorder) -> Result<(), vk::Result> {
        let parts = &recorder.parts;
        if let Some(first) = parts.split {
            // SAFETY: by this function's contract.
            return unsafe { self.submit_in_two(recorder, first) };
        }
        let mut values = vk::TimelineSemaphoreSubmitInfo::default()
            .wait_semaphore_values(&parts.wait_values)
            .signal_semaphore_values(&parts.signal_values);
        let info = vk::SubmitInfo::default()
            .wait_semaphores(&parts.waits)
            .wait_dst_stage_mask(&parts.wait_stages)
            .command_buffers(&recorder.buffers)
            .signal_semaphores(&parts.signals)
            .push_next(&mut values);
        let device = self.commands.device.raw();
        // SAFETY: by this function's contract.
        unsafe { device.queue_submit(self.driver.raw, &[info], recorder.fence) }
    }

    /// As [`Submitter::submit`], with so much of it beside the work, and the rest behind that.
    ///
    /// # Safety
    /// As there.
    #[cold]
    unsafe fn submit_in_two(&self, recorder: &Recorder, first: Split) -> Result<(), vk::Result> {
        let parts = &recorder.parts;
        let Split {
            waits,
            buffers,
            signals,
        } = first;
        let values = |waits: Range<usize>, signals: Range<usize>| {
            vk::TimelineSemaphoreSubmitInfo::default()
                .wait_semaphore_values(&parts.wait_values[waits])
                .signal_semaphore_values(&parts.signal_values[signals])
        };
        let info = |waits: Range<usize>, signals: Range<usize>| {
            vk::SubmitInfo::default()
                .wait_semaphores(&parts.waits[waits.clone()])
                .wait_dst_stage_mask(&parts.wait_stages[waits])
                .signal_semaphores(&parts.signals[signals])
        };
        let mut first_values = values(0..waits, 0..signals);
        let first = info(0..waits, 0..signals)
            .command_buffers(&recorder.buffers[..buffers])
            .push_next(&mut first_values);
        let rest = (waits..parts.waits.len(), signals..parts.signals.len());
        let mut last_values = values(rest.0.clone(), rest.1.clone());
        let last = info(rest.0, rest.1)
            .command_buffers(&recorder.buffers[buffers..])
            .push_next(&mut last_values);
        let device = self.commands.device.raw();
        // SAFETY: by this function's contract.
        unsafe { device.queue_submit(self.driver.raw, &[first, last], recorder.fence) }
    }

    fn semaphore<'a>(&self, point: NativePoint<'a>) -> Result<&'a Arc<Semaphore>> {
        let port = point.port::<Port>();
        let semaphore = port.and_then(|port| port.on(&self.commands.device));
        semaphore.ok_or_else(|| {
            let reason = "its port on this device is not a semaphore of this VkDevice";
            unsupported(point.object(), "be used by a Vulkan queue", reason)
        })
    }
}

impl Enqueue for Submitter {
    type Recorder<'a> = Recorder;
    /// In a box, as the engine hands it around by value.
    type Prepared = Box<Recorder>;
    type Stamp = Stamp;

    fn order_domain(&self) -> u64 {
        self.driver.domain
    }

    fn room(&self) -> Option<&Arc<Room>> {
        Some(&self.driver.room)
    }

    fn record<W>(&self, batch: &Batch<'_>, keep: &mut Keep, work: W) -> Result<Box<Recorder>>
    where
        W: for<'r, 'a> FnOnce(&'r mut Recorder) -> Result<()>,
    {
        self.commands.recycle(batch.finished());
        // SAFETY: in `record`.
        let spare = unsafe { self.spare.take() };
        let mut recorder = spare.unwrap_or_else(|| Box::new(Recorder::new(&self.commands)));
        match work(&mut recorder).and_then(|()| self.prepare(batch, &mut recorder)) {
            Ok(()) => {
                keep.append(&mut recorder.keep);
                keep.take_room(Self::units(&recorder));
                Ok(recorder)
            }
            Err(error) => {
                recorder.discard();
                // SAFETY: in `record`.
                unsafe { self.spare.put(recorder) };
                Err(error)
            }
        }
    }

    fn flush(&self, mut recorder: Box<Recorder>, lane: &dyn Fn() -> Waker) -> Flush<Box<Recorder>> {
        let Some(locked) = self.driver.try_lock(lane) else {
            return Flush::Busy(recorder);
        };
        // SAFETY: the queue's lock is held. Command buffers are ended, and they and all semaphores live
        // until the submission has finished, as `InFlight` or by the contract of `Recorder`'s methods.
        // Every wait's signal is pending, and the engine has checked that each value signalled grows.
        let submitted = unsafe { self.submit(&recorder) };
        let flushed = match submitted {
            Ok(()) => {
                let end = recorder.used.number;
                for using in recorder.binaries.drain(..) {
                    using.submitted(end);
                }
                self.commands.submitted(&mut recorder.used);
                Flush::Done
            }
            Err(code) => {
                recorder.discard();
                let commands = &self.commands;
                let error = commands
                    .device
                    .failed(&commands.object, "vkQueueSubmit", code);
                Flush::Refused(error)
            }
        };
        // SAFETY: in `flush`.
        unsafe { self.spare.put(recorder) };
        // Wakes other lanes of the same driver queue; they run once this one has returned to the engine.
        drop(locked);
        flushed
    }

    fn rest(&self, reached: u64) {
        self.commands.rest(reached);
    }

    fn stamp(&self, _timing: Timing) -> Result<Arc<Stamp>> {
        self.stamps.take_fit(Stamp::renew, || {
            timing::new_stamp(&self.commands, self.driver.family)
        })
    }

    fn stamp_again(&self, timing: Timing, before: Arc<Stamp>) -> Result<Arc<Stamp>> {
        let again = self.stamps.take_again(before, Stamp::renew);
        again.map_or_else(|| self.stamp(timing), Ok)
    }

    fn write_stamp(recorder: &mut Recorder, stamp: &Arc<Stamp>) -> Result<()> {
        recorder.write_time(stamp);
        Ok(())
    }
}
