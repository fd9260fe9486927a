//! Queues: a submission becomes one `vkQueueSubmit`.
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

use crate::device::driver_queue::{DriverQueue, MAX_SUBMISSION, SUBMISSION};
use crate::device::open::Device;
use crate::driver::error::unsupported;
use crate::queue::command_pool::CommandPool;
use crate::queue::guard::QueueGuard;
use crate::queue::recorder::{Recorder, Recording, Split};
use crate::timeline::port::{Port, Semaphore};
use crate::timing::stamp::Stamp;

/// Executes submissions in order on a `VkQueue`, which several queues may share. Cheap to clone.
///
/// A submission counts four units, and one more for each wait, command buffer and signal. While
/// 16,384 units are in flight on one `VkQueue`, further submissions to it are held on the host. So
/// the driver never blocks the submitting thread behind work that waits for that thread. A
/// submission of more than 16,000 units is refused with
/// [`Error::Unsupported`](syncline_core::Error::Unsupported). Split it.
#[derive(Clone)]
pub struct Queue(EngineQueue<Device, Feed>);

/// The kind of queues in errors.
pub(crate) const QUEUE: &str = "Vulkan queue";

impl Queue {
    pub(crate) fn new(device: &Device, driver: &Arc<DriverQueue>, label: &str) -> Result<Self> {
        let object = Object::new(QUEUE, label);
        let own = device.new_timeline(&format!("{label} (position)"))?;
        let feed = Feed::new(device, driver, &object, &own)?;
        let id = device.id();
        let engine = EngineQueue::new(device.clone(), id, object, own, feed);
        Ok(Self::with_engine(engine))
    }

    pub(crate) fn with_engine(engine: EngineQueue<Device, Feed>) -> Self {
        engine.enqueue().driver.join(engine.submissions());
        Self(engine)
    }

    pub(crate) const fn inner(&self) -> &EngineQueue<Device, Feed> {
        &self.0
    }

    /// The index of its queue family, as the driver numbers them.
    #[must_use]
    pub fn family(&self) -> u32 {
        self.0.enqueue().driver.family.index
    }

    /// The index of its driver queue within the family.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.0.enqueue().driver.index
    }

    pub(crate) fn submissions(&self) -> &Arc<SubmissionQueue<Feed>> {
        self.0.submissions()
    }

    /// Locks its `VkQueue` for the application's own calls. See [`Device::lock_queue`].
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
pub struct Feed {
    commands: Arc<CommandPool>,
    driver: Arc<DriverQueue>,
    stamps: Recycled<Stamp>,
    spare: SpareRecording,
}

/// The recording of an earlier submission, whose lists are reused for the next one.
#[derive(Default)]
struct SpareRecording(UnsafeCell<Option<Box<Recording>>>);

// SAFETY: only `take` and `put` access the cell, in `Enqueue::record` and `Enqueue::flush`. The
// engine makes these calls of one queue one at a time, each ordered after the previous one. The
// content of the cell is `Send`.
unsafe impl Sync for SpareRecording {}
const _: fn() = || {
    fn requires_send<T: Send>() {}
    requires_send::<Recording>();
};

impl SpareRecording {
    /// # Safety
    /// Called in `Enqueue::record` or `Enqueue::flush`.
    unsafe fn take(&self) -> Option<Box<Recording>> {
        // SAFETY: the caller guarantees that no other thread accesses the cell. No code of the
        // application runs while the reference lives, so no code on this thread accesses it either.
        unsafe { &mut *self.0.get() }.take()
    }

    /// # Safety
    /// Called in `Enqueue::record` or `Enqueue::flush`.
    unsafe fn put(&self, mut recording: Box<Recording>) {
        recording.clear();
        // SAFETY: as in `take`. What the application wanted kept is dropped above, and an earlier
        // recording in the cell below, after the reference has ended.
        drop(unsafe { &mut *self.0.get() }.replace(recording));
    }
}

impl Feed {
    /// `own` is the timeline of the queue's position. `object` is the queue's name.
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
        let commands = CommandPool::new(&device.0, object, driver.family.index, semaphore)?;
        Ok(Self {
            commands: Arc::new(commands),
            driver: driver.clone(),
            stamps: Recycled::default(),
            spare: SpareRecording::default(),
        })
    }

    /// Ends the recording and adds the semaphores of `batch`.
    fn prepare(&self, batch: &Batch<'_>, recording: &mut Recording) -> Result<()> {
        // If the signals must wait for values of other queues, the time is written after that wait
        // too. The wait comes after the work.
        let stamp = batch.stamp::<Stamp>();
        let (behind_work, behind_order) = if batch.order.is_empty() {
            (stamp, None)
        } else {
            (None, stamp)
        };
        let had_commands = !recording.is_empty();
        recording.finish(behind_work.as_ref())?;
        let mut semaphores: SmallVec<[&Arc<Semaphore>; 16]> = SmallVec::new();
        let lists = &mut recording.lists;
        let all = vk::PipelineStageFlags::ALL_COMMANDS;
        // Without commands, only the signals and their time wait. They wait in all stages.
        let stage = if recording.buffers.is_empty() || !had_commands {
            all
        } else {
            recording.wait_stage
        };
        for wait in batch.waits {
            let semaphore = self.semaphore(*wait)?;
            lists.wait(semaphore.raw(), wait.value(), stage);
            semaphores.push(semaphore);
        }
        // Vulkan ignores the values of binary semaphores.
        for &(semaphore, stages) in &recording.binary_waits {
            lists.wait(semaphore, 0, stages);
        }

        // They wait only for the work. A submission with binary semaphores always has commands.
        for &semaphore in &recording.binary_signals {
            lists.signal(semaphore, 0);
        }

        // Without commands, all waits can be in one `VkSubmitInfo`.
        if !batch.order.is_empty() && !recording.buffers.is_empty() {
            lists.split(recording.buffers.len());
        }
        for order in batch.order {
            let semaphore = self.semaphore(*order)?;
            lists.wait(semaphore.raw(), order.value(), all);
            semaphores.push(semaphore);
        }
        if behind_order.is_some() {
            recording.finish(behind_order.as_ref())?;
        }
        let lists = &mut recording.lists;
        for signal in batch.signals {
            let semaphore = self.semaphore(*signal)?;
            lists.signal(semaphore.raw(), signal.value());
            semaphores.push(semaphore);
        }
        // The queue's own timeline needs no `Arc` here, because its `CommandPool` has one.
        lists.signal(self.commands.own.raw(), batch.end.value());
        self.require_units(Self::units(recording))?;
        recording.used.number = batch.end.value();
        self.commands
            .keep(&semaphores, &mut recording.used, batch.finished());
        Ok(())
    }

    /// The units of the driver queue's in-flight budget that it takes.
    fn units(recording: &Recording) -> u64 {
        let lists = &recording.lists;
        let infos = 1 + u64::from(lists.split.is_some());
        let count = lists.waits.len() + recording.buffers.len() + lists.signals.len();
        infos * SUBMISSION + count as u64
    }

    /// Refuses a submission that is so large that the driver may block in `vkQueueSubmit`.
    #[inline]
    fn require_units(&self, units: u64) -> Result<()> {
        if units <= MAX_SUBMISSION {
            return Ok(());
        }
        let asked = format!("take a submission of {units} units");
        let reason = format!(
            "{MAX_SUBMISSION} is the most: four, and one for each wait, command buffer and signal"
        );
        Err(unsupported(&self.commands.object, asked, reason))
    }

    /// Calls `vkQueueSubmit` once.
    ///
    /// # Safety
    /// The gate of the driver queue is locked. `recording` was completed by [`Feed::prepare`]: its
    /// command buffers are ended and in no other submission. They and the semaphores live until the
    /// submission has finished, and are of this device. The signal of each wait is pending. Each
    /// signalled value is above the previous one.
    #[inline]
    unsafe fn submit(&self, recording: &Recording) -> Result<(), vk::Result> {
        let lists = &recording.lists;
        if let Some(first) = lists.split {
            // SAFETY: the caller guarantees it.
            return unsafe { self.submit_in_two(recording, first) };
        }
        let mut values = vk::TimelineSemaphoreSubmitInfo::default()
            .wait_semaphore_values(&lists.wait_values)
            .signal_semaphore_values(&lists.signal_values);
        let info = vk::SubmitInfo::default()
            .wait_semaphores(&lists.waits)
            .wait_dst_stage_mask(&lists.wait_stages)
            .command_buffers(&recording.buffers)
            .signal_semaphores(&lists.signals)
            .push_next(&mut values);
        let device = self.commands.device.raw();
        // SAFETY: the caller guarantees it.
        unsafe { device.queue_submit(self.driver.raw, &[info], recording.fence) }
    }

    /// Same as [`Feed::submit`], with two `VkSubmitInfo`: the work, and the rest after it.
    ///
    /// # Safety
    /// Same as [`Feed::submit`].
    #[cold]
    unsafe fn submit_in_two(&self, recording: &Recording, first: Split) -> Result<(), vk::Result> {
        let lists = &recording.lists;
        let Split {
            waits,
            buffers,
            signals,
        } = first;
        let values = |waits: Range<usize>, signals: Range<usize>| {
            vk::TimelineSemaphoreSubmitInfo::default()
                .wait_semaphore_values(&lists.wait_values[waits])
                .signal_semaphore_values(&lists.signal_values[signals])
        };
        let info = |waits: Range<usize>, signals: Range<usize>| {
            vk::SubmitInfo::default()
                .wait_semaphores(&lists.waits[waits.clone()])
                .wait_dst_stage_mask(&lists.wait_stages[waits])
                .signal_semaphores(&lists.signals[signals])
        };
        let mut first_values = values(0..waits, 0..signals);
        let first = info(0..waits, 0..signals)
            .command_buffers(&recording.buffers[..buffers])
            .push_next(&mut first_values);
        let rest = (waits..lists.waits.len(), signals..lists.signals.len());
        let mut last_values = values(rest.0.clone(), rest.1.clone());
        let last = info(rest.0, rest.1)
            .command_buffers(&recording.buffers[buffers..])
            .push_next(&mut last_values);
        let device = self.commands.device.raw();
        // SAFETY: the caller guarantees it.
        unsafe { device.queue_submit(self.driver.raw, &[first, last], recording.fence) }
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

impl Enqueue for Feed {
    type Recorder<'a> = Recorder<'a>;
    /// Boxed, because the engine moves it by value.
    type Prepared = Box<Recording>;
    type Stamp = Stamp;

    fn order_domain(&self) -> Option<u64> {
        Some(self.driver.domain)
    }

    fn in_flight_budget(&self) -> Option<&Arc<InFlightBudget>> {
        Some(&self.driver.budget)
    }

    fn record<W>(&self, batch: &Batch<'_>, keep: &mut Keep, work: W) -> Result<Box<Recording>>
    where
        W: for<'r, 'a> FnOnce(&'r mut Recorder<'a>) -> Result<()>,
    {
        self.commands.recycle(batch.finished());
        // SAFETY: called in `Enqueue::record`.
        let spare = unsafe { self.spare.take() };
        let mut recording = spare.unwrap_or_else(|| Box::new(Recording::new(&self.commands)));
        let worked = work(&mut Recorder::new(&mut recording));
        match worked.and_then(|()| self.prepare(batch, &mut recording)) {
            Ok(()) => {
                keep.append(&mut recording.keep);
                keep.take_in_flight(Self::units(&recording));
                Ok(recording)
            }
            Err(error) => {
                recording.discard();
                // SAFETY: called in `Enqueue::record`.
                unsafe { self.spare.put(recording) };
                Err(error)
            }
        }
    }

    fn flush(
        &self,
        mut recording: Box<Recording>,
        waker: &dyn Fn() -> Waker,
    ) -> Flush<Box<Recording>> {
        let Some(locked) = self.driver.try_lock(waker) else {
            return Flush::Busy(recording);
        };
        // SAFETY: `locked` holds the gate. `prepare` has ended the command buffers of this queue's
        // pool, and `CommandPool` keeps them and the timeline semaphores until the submission has
        // finished. For raw handles from the application, the contract of the `Recorder` method
        // that took them guarantees the same. The engine submits only behind waits whose signal is
        // pending, and has checked that each signalled value grows.
        let submitted = unsafe { self.submit(&recording) };
        let flushed = match submitted {
            Ok(()) => {
                let end = recording.used.number;
                for recorded_use in recording.binary_uses.drain(..) {
                    recorded_use.submitted(end);
                }
                self.commands.submitted(&mut recording.used);
                Flush::Done
            }
            Err(code) => {
                recording.discard();
                let commands = &self.commands;
                let error = commands
                    .device
                    .failed(&commands.object, "vkQueueSubmit", code);
                Flush::Refused(error)
            }
        };
        // SAFETY: called in `Enqueue::flush`.
        unsafe { self.spare.put(recording) };
        // Wakes other queues of the same driver queue. They run once this call has returned to the
        // engine.
        drop(locked);
        flushed
    }

    fn rest(&self, reached: u64) {
        self.commands.release_finished(reached);
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
        recorder.recording.write_time(stamp);
        Ok(())
    }
}
