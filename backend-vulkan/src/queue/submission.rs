//! Logical queues, and how they hand submissions to the driver.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::cell::UnsafeCell;
use std::ops::Range;
use std::sync::Arc;

use ash::vk;
use smallvec::SmallVec;
use syncline_core::backend::{
    Batch, EngineQueue, Enqueue, Flush, InFlightBudget, Keep, NativePoint, Recycled,
    SubmissionQueue, Timing, Waker,
};
use syncline_core::{Object, Result, Timeline};

use crate::device::driver_queue::{DriverQueue, SUBMISSION};
use crate::device::open::Device;
use crate::driver::error::unsupported;
use crate::queue::commands::Commands;
use crate::queue::guard::QueueGuard;
use crate::queue::recorder::{Recorded, Recorder, Split};
use crate::timeline::port::{Port, Semaphore};
use crate::timing::stamp::Stamp;

/// Runs submissions in order on a `VkQueue`, which it may share with others. Cheap to clone.
///
/// While 16 384 units are in flight on a `VkQueue` (four for each submission, one for each of its waits, command buffers and
/// signals), further submissions to it are held on the host, so that the driver never blocks a caller behind a closed
/// gate. For that, one submission has no more than another sixteen thousand units.
#[derive(Clone)]
pub struct Queue(EngineQueue<Device, Submitter>);

/// The kind of queues in errors.
pub(crate) const QUEUE: &str = "Vulkan queue";

impl Queue {
    pub(crate) fn new(device: &Device, driver: &Arc<DriverQueue>, label: &str) -> Result<Self> {
        let object = Object::new(QUEUE, label);
        let own = device.new_timeline(&format!("{label} (position)"))?;
        let submitter = Submitter::new(device, driver, &object, &own)?;
        let id = device.id();
        let engine = EngineQueue::new(device.clone(), id, object, own, submitter);
        Ok(Self::with_engine(engine))
    }

    pub(crate) fn with_engine(engine: EngineQueue<Device, Submitter>) -> Self {
        engine.enqueue().driver.join(engine.submissions());
        Self(engine)
    }

    pub(crate) const fn inner(&self) -> &EngineQueue<Device, Submitter> {
        &self.0
    }

    /// Its queue family, in the driver's numbering.
    #[must_use]
    pub fn family(&self) -> u32 {
        self.0.enqueue().driver.family.index
    }

    /// The index, within the family, of the driver queue that it runs on.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.0.enqueue().driver.index
    }

    pub(crate) fn submissions(&self) -> &Arc<SubmissionQueue<Submitter>> {
        self.0.submissions()
    }

    /// Locks the `VkQueue` under it for the application's own use; see [`Device::lock_queue`].
    pub fn lock(&self) -> QueueGuard {
        self.0.device().guard(&self.0.enqueue().driver)
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Gives the submissions of a queue to its `VkQueue`.
pub struct Submitter {
    commands: Arc<Commands>,
    driver: Arc<DriverQueue>,
    stamps: Recycled<Stamp>,
    spare: Spare,
}

/// Lists for the next submission, in the room of the one before it.
#[derive(Default)]
struct Spare(UnsafeCell<Option<Box<Recorded>>>);

// SAFETY: the cell is only touched by `take` and `put`, in `Enqueue::record` and `Enqueue::flush`.
// The engine calls those of one queue one at a time, and orders each behind the one before. What
// the cell holds is `Send`.
unsafe impl Sync for Spare {}
const _: fn() = || {
    fn may_go_from_thread_to_thread<T: Send>() {}
    may_go_from_thread_to_thread::<Recorded>();
};

impl Spare {
    /// # Safety
    /// Called in `Enqueue::record` or `Enqueue::flush`.
    unsafe fn take(&self) -> Option<Box<Recorded>> {
        // SAFETY: by this function's contract no other thread touches the cell. Nothing of the
        // application's runs while the reference lives, so nothing on this thread does either.
        unsafe { &mut *self.0.get() }.take()
    }

    /// # Safety
    /// Called in `Enqueue::record` or `Enqueue::flush`.
    unsafe fn put(&self, mut recorded: Box<Recorded>) {
        recorded.clear();
        // SAFETY: as in `take`. What the application wanted kept is dropped above, and lists that
        // are there already below.
        drop(unsafe { &mut *self.0.get() }.replace(recorded));
    }
}

impl Submitter {
    /// `own` is the own timeline of the queue `object`.
    pub(crate) fn new(
        device: &Device,
        driver: &Arc<DriverQueue>,
        object: &Object,
        own: &Timeline,
    ) -> Result<Self> {
        let semaphore = own
            .port::<Port>(device.id())
            .and_then(|port| port.on(&device.0))
            .cloned()
            .ok_or_else(|| unsupported(object, "count", "its own timeline has no semaphore"))?;
        let commands = Commands::new(&device.0, object, driver.family.index, semaphore)?;
        Ok(Self {
            commands: Arc::new(commands),
            driver: driver.clone(),
            stamps: Recycled::default(),
            spare: Spare::default(),
        })
    }

    /// Fills in what is submitted with the commands.
    fn prepare(&self, batch: &Batch<'_>, recorded: &mut Recorded) -> Result<()> {
        // What is signalled behind other queues' values has its time behind them, too, and those come behind the work.
        let stamp = batch.stamp::<Stamp>();
        let (behind_work, behind_order) = if batch.order.is_empty() {
            (stamp, None)
        } else {
            (None, stamp)
        };
        let had_commands = !recorded.is_empty();
        recorded.finish(behind_work.as_ref())?;
        let mut semaphores: SmallVec<[&Arc<Semaphore>; 16]> = SmallVec::new();
        let parts = &mut recorded.parts;
        let all = vk::PipelineStageFlags::ALL_COMMANDS;
        // Without commands only the signals are left to wait, and their time.
        let stage = if recorded.buffers.is_empty() || !had_commands {
            all
        } else {
            recorded.wait_stage
        };
        for wait in batch.waits {
            let semaphore = self.semaphore(*wait)?;
            parts.wait(semaphore.raw(), wait.value(), stage);
            semaphores.push(semaphore);
        }
        // The values that go with binary semaphores are ignored.
        for &(semaphore, stages) in &recorded.binary_waits {
            parts.wait(semaphore, 0, stages);
        }

        // They come behind the work alone, which they never travel without.
        for &semaphore in &recorded.binary_signals {
            parts.signal(semaphore, 0);
        }

        // Without commands there is nothing to come between the waits and the order.
        if !batch.order.is_empty() && !recorded.buffers.is_empty() {
            parts.split(recorded.buffers.len());
        }
        for order in batch.order {
            let semaphore = self.semaphore(*order)?;
            parts.wait(semaphore.raw(), order.value(), all);
            semaphores.push(semaphore);
        }
        if behind_order.is_some() {
            recorded.finish(behind_order.as_ref())?;
        }
        let parts = &mut recorded.parts;
        for signal in batch.signals {
            let semaphore = self.semaphore(*signal)?;
            parts.signal(semaphore.raw(), signal.value());
            semaphores.push(semaphore);
        }
        // The queue's own timeline needs no `Arc` here: its `Commands` have one.
        parts.signal(self.commands.own.raw(), batch.end.value());
        recorded.used.number = batch.end.value();
        self.commands
            .keep(&semaphores, &mut recorded.used, batch.finished());
        Ok(())
    }

    /// What it takes of the driver queue's budget.
    fn units(recorded: &Recorded) -> u64 {
        let parts = &recorded.parts;
        let infos = 1 + u64::from(parts.split.is_some());
        let count = parts.waits.len() + recorded.buffers.len() + parts.signals.len();
        infos * SUBMISSION + count as u64
    }

    /// `vkQueueSubmit`, once.
    ///
    /// # Safety
    /// The queue's lock is held. `recorded` is what [`Submitter::prepare`] has made: its command
    /// buffers are ended and in no other submission. They and the semaphores live until the
    /// submission has finished, and are of this device. The signal of each wait is pending, and
    /// each value signalled is above the one before.
    #[inline]
    unsafe fn submit(&self, recorded: &Recorded) -> Result<(), vk::Result> {
        let parts = &recorded.parts;
        if let Some(first) = parts.split {
            // SAFETY: by this function's contract.
            return unsafe { self.submit_in_two(recorded, first) };
        }
        let mut values = vk::TimelineSemaphoreSubmitInfo::default()
            .wait_semaphore_values(&parts.wait_values)
            .signal_semaphore_values(&parts.signal_values);
        let info = vk::SubmitInfo::default()
            .wait_semaphores(&parts.waits)
            .wait_dst_stage_mask(&parts.wait_stages)
            .command_buffers(&recorded.buffers)
            .signal_semaphores(&parts.signals)
            .push_next(&mut values);
        let device = self.commands.device.raw();
        // SAFETY: by this function's contract.
        unsafe { device.queue_submit(self.driver.raw, &[info], recorded.fence) }
    }

    /// As [`Submitter::submit`], with so much of it beside the work, and the rest behind that.
    ///
    /// # Safety
    /// As there.
    #[cold]
    unsafe fn submit_in_two(&self, recorded: &Recorded, first: Split) -> Result<(), vk::Result> {
        let parts = &recorded.parts;
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
            .command_buffers(&recorded.buffers[..buffers])
            .push_next(&mut first_values);
        let rest = (waits..parts.waits.len(), signals..parts.signals.len());
        let mut last_values = values(rest.0.clone(), rest.1.clone());
        let last = info(rest.0, rest.1)
            .command_buffers(&recorded.buffers[buffers..])
            .push_next(&mut last_values);
        let device = self.commands.device.raw();
        // SAFETY: by this function's contract.
        unsafe { device.queue_submit(self.driver.raw, &[first, last], recorded.fence) }
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
    type Recorder<'a> = Recorder<'a>;
    /// In a box, as the engine hands it around by value.
    type Prepared = Box<Recorded>;
    type Stamp = Stamp;

    fn order_domain(&self) -> Option<u64> {
        Some(self.driver.domain)
    }

    fn in_flight_budget(&self) -> Option<&Arc<InFlightBudget>> {
        Some(&self.driver.budget)
    }

    fn record<W>(&self, batch: &Batch<'_>, keep: &mut Keep, work: W) -> Result<Box<Recorded>>
    where
        W: for<'r, 'a> FnOnce(&'r mut Recorder<'a>) -> Result<()>,
    {
        self.commands.recycle(batch.finished());
        // SAFETY: called in `Enqueue::record`.
        let spare = unsafe { self.spare.take() };
        let mut recorded = spare.unwrap_or_else(|| Box::new(Recorded::new(&self.commands)));
        let worked = work(&mut Recorder::new(&mut recorded));
        match worked.and_then(|()| self.prepare(batch, &mut recorded)) {
            Ok(()) => {
                keep.append(&mut recorded.keep);
                keep.take_in_flight(Self::units(&recorded));
                Ok(recorded)
            }
            Err(error) => {
                recorded.discard();
                // SAFETY: called in `Enqueue::record`.
                unsafe { self.spare.put(recorded) };
                Err(error)
            }
        }
    }

    fn flush(
        &self,
        mut recorded: Box<Recorded>,
        waker: &dyn Fn() -> Waker,
    ) -> Flush<Box<Recorded>> {
        let Some(locked) = self.driver.try_lock(waker) else {
            return Flush::Busy(recorded);
        };
        // SAFETY: the queue's lock is held, by `locked`. `prepare` has ended the command buffers of
        // this queue's pool, and `Commands` keeps them and the timeline semaphores until the
        // submission has finished. For everything raw that the application gave, the contract of
        // that method of `Recorder` says the same. The engine submits only behind waits whose
        // signal is pending, and has checked that each value signalled grows.
        let submitted = unsafe { self.submit(&recorded) };
        let flushed = match submitted {
            Ok(()) => {
                let end = recorded.used.number;
                for recorded_use in recorded.binaries.drain(..) {
                    recorded_use.submitted(end);
                }
                self.commands.submitted(&mut recorded.used);
                Flush::Done
            }
            Err(code) => {
                recorded.discard();
                let commands = &self.commands;
                let error = commands
                    .device
                    .failed(&commands.object, "vkQueueSubmit", code);
                Flush::Refused(error)
            }
        };
        // SAFETY: called in `Enqueue::flush`.
        unsafe { self.spare.put(recorded) };
        // Wakes other queues of the same driver queue; they run once this one has returned to the engine.
        drop(locked);
        flushed
    }

    fn rest(&self, reached: u64) {
        self.commands.rest(reached);
    }

    fn stamp(&self, _: &Object, _timing: Timing) -> Result<Arc<Stamp>> {
        self.stamps.take_fit(Stamp::renew, || {
            let commands = &self.commands;
            Stamp::new(&commands.device, &commands.object, self.driver.family)
        })
    }

    fn stamp_again(
        &self,
        queue: &Object,
        timing: Timing,
        before: Arc<Stamp>,
    ) -> Result<Arc<Stamp>> {
        let again = self.stamps.take_again(before, Stamp::renew);
        again.map_or_else(|| self.stamp(queue, timing), Ok)
    }

    fn write_stamp(recorder: &mut Recorder<'_>, stamp: &Arc<Stamp>) -> Result<()> {
        recorder.recorded.write_time(stamp);
        Ok(())
    }
}
