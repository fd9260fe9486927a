//! Vulkan by hand: direct calls on the `VkDevice` and a `VkQueue` of Syncline.
#![allow(unsafe_code, reason = "calls the driver, as the baseline")]

use std::cell::RefCell;
use std::time::Duration;

use ash::vk;
use syncline::Timeline;
use syncline::vulkan::{Device, Queue};

use crate::side::{Outcome, Stop};

/// Time-out of all waits.
const LONG: Duration = Duration::from_secs(20);

/// Largest number of waits of a submission.
pub(crate) const WAITS: usize = 16;

/// Semaphores that a submission waits for or signals, and a value of each.
type Values<'s> = (&'s [vk::Semaphore], &'s [u64]);

/// Timeline semaphores of a device, and a queue to use them on.
///
/// Nothing else submits to the `VkQueue` while a hand does: rows end the work of ours before.
pub(crate) struct Hand {
    device: Device,
    queue: vk::Queue,
    /// Each semaphore with the highest value that it will reach.
    semaphores: RefCell<Vec<(vk::Semaphore, u64)>>,
}

/// A semaphore of a [`Hand`], which must not be used after the hand is dropped.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Semaphore {
    pub(crate) raw: vk::Semaphore,
    at: usize,
}

fn failed(call: &str, code: vk::Result) -> Stop {
    Stop::Failed(format!("{call} returned {code:?}"))
}

impl Hand {
    /// A hand for the `VkQueue` of this queue.
    pub(crate) fn new(device: &Device, queue: &Queue) -> Outcome<Self> {
        Ok(Self {
            device: device.clone(),
            queue: queue.lock()?.raw(),
            semaphores: RefCell::default(),
        })
    }

    pub(crate) const fn queue(&self) -> vk::Queue {
        self.queue
    }

    fn raw(&self) -> &ash::Device {
        self.device.raw()
    }

    /// A timeline semaphore at 0. With `exported` it can leave as an opaque descriptor.
    pub(crate) fn semaphore(&self, exported: bool) -> Outcome<Semaphore> {
        let mut kind =
            vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
        let mut export = vk::ExportSemaphoreCreateInfo::default()
            .handle_types(vk::ExternalSemaphoreHandleTypeFlags::OPAQUE_FD);
        let mut info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
        if exported {
            info = info.push_next(&mut export);
        }
        // SAFETY: a valid description. Exported semaphores are only made on devices that can export
        // them.
        let raw = unsafe { self.raw().create_semaphore(&info, None) }
            .map_err(|code| failed("vkCreateSemaphore", code))?;
        let mut semaphores = self.semaphores.borrow_mut();
        semaphores.push((raw, 0));
        let at = semaphores.len() - 1;
        Ok(Semaphore { raw, at })
    }

    /// Notes the value that the semaphore will reach. To be called once for many submissions.
    pub(crate) fn expect(&self, semaphore: Semaphore, value: u64) {
        self.semaphores.borrow_mut()[semaphore.at].1 = value;
    }

    /// `vkGetSemaphoreFdKHR` of a semaphore that can be exported.
    #[cfg(feature = "cuda")]
    pub(crate) fn export(&self, semaphore: Semaphore) -> Outcome<std::os::fd::OwnedFd> {
        use std::os::fd::FromRawFd as _;
        let functions =
            ash::khr::external_semaphore_fd::Device::new(self.device.instance(), self.raw());
        let info = vk::SemaphoreGetFdInfoKHR::default()
            .semaphore(semaphore.raw)
            .handle_type(vk::ExternalSemaphoreHandleTypeFlags::OPAQUE_FD);
        // SAFETY: a live semaphore that was made for handles of this type, on a device with the
        // extension. The new descriptor has this as its only owner.
        unsafe {
            let fd = functions.get_semaphore_fd(&info);
            let fd = fd.map_err(|code| failed("vkGetSemaphoreFdKHR", code))?;
            Ok(std::os::fd::OwnedFd::from_raw_fd(fd))
        }
    }

    /// `vkGetSemaphoreCounterValue`.
    #[inline]
    pub(crate) fn value(&self, semaphore: vk::Semaphore) -> Outcome<u64> {
        // SAFETY: a live timeline semaphore of this device.
        unsafe { self.raw().get_semaphore_counter_value(semaphore) }
            .map_err(|code| failed("vkGetSemaphoreCounterValue", code))
    }

    /// `vkSignalSemaphore`.
    #[inline]
    pub(crate) fn signal(&self, semaphore: vk::Semaphore, value: u64) -> Outcome<()> {
        let info = vk::SemaphoreSignalInfo::default()
            .semaphore(semaphore)
            .value(value);
        // SAFETY: a live timeline semaphore of this device; rows only ever count up.
        unsafe { self.raw().signal_semaphore(&info) }
            .map_err(|code| failed("vkSignalSemaphore", code))
    }

    /// `vkWaitSemaphores`.
    #[inline]
    pub(crate) fn wait(&self, semaphore: vk::Semaphore, value: u64) -> Outcome<()> {
        let (semaphores, values) = ([semaphore], [value]);
        let info = vk::SemaphoreWaitInfo::default()
            .semaphores(&semaphores)
            .values(&values);
        // SAFETY: a live timeline semaphore of this device.
        unsafe { self.raw().wait_semaphores(&info, LONG.as_nanos() as u64) }
            .map_err(|code| failed("vkWaitSemaphores", code))
    }

    /// [`submit`] to the queue of this hand, without commands.
    #[inline]
    pub(crate) fn submit(&self, waits: Values<'_>, signals: Values<'_>) -> Outcome<()> {
        submit(&self.device, self.queue, &[], waits, signals)
    }

    /// Waits until all semaphores have reached their expected values and the queue is idle.
    pub(crate) fn settle(&self) -> Outcome<()> {
        for (semaphore, value) in self.semaphores.borrow().iter() {
            self.wait(*semaphore, *value)?;
        }
        // Drivers may use a semaphore a moment after the last submission with it has signalled.
        // SAFETY: nothing else uses the queue, and all submissions of rows end.
        unsafe { self.raw().queue_wait_idle(self.queue) }
            .map_err(|code| failed("vkQueueWaitIdle", code))
    }
}

/// `vkQueueSubmit` of one submission with at most [`WAITS`] waits.
#[inline]
pub(crate) fn submit(
    device: &Device,
    queue: vk::Queue,
    commands: &[vk::CommandBuffer],
    (waits, wait_values): Values<'_>,
    (signals, signal_values): Values<'_>,
) -> Outcome<()> {
    const STAGES: [vk::PipelineStageFlags; WAITS] = [vk::PipelineStageFlags::ALL_COMMANDS; WAITS];
    let mut values = vk::TimelineSemaphoreSubmitInfo::default()
        .wait_semaphore_values(wait_values)
        .signal_semaphore_values(signal_values);
    let info = vk::SubmitInfo::default()
        .wait_semaphores(waits)
        .wait_dst_stage_mask(&STAGES[..waits.len()])
        .command_buffers(commands)
        .signal_semaphores(signals)
        .push_next(&mut values);
    // SAFETY: nothing else uses the queue meanwhile. All semaphores are timelines of this device
    // and live until they reach their expected values. Rows only count up. Command buffers are
    // recorded and used once at a time.
    unsafe { device.raw().queue_submit(queue, &[info], vk::Fence::null()) }
        .map_err(|code| failed("vkQueueSubmit", code))
}

impl Drop for Hand {
    fn drop(&mut self) {
        // After a failed row, work may still use them, so they are left to the device.
        if self.settle().is_ok() {
            for (semaphore, _) in self.semaphores.take() {
                // SAFETY: made here, and no longer used.
                unsafe { self.raw().destroy_semaphore(semaphore, None) };
            }
        }
    }
}

/// Timelines whose signals the host announces, and makes later.
pub(crate) struct Awaited {
    pub(crate) timelines: Vec<Timeline>,
    semaphores: Vec<vk::Semaphore>,
}

impl Awaited {
    pub(crate) fn new(
        device: &Device,
        make: impl Fn() -> syncline::Result<Timeline>,
        count: usize,
    ) -> Outcome<Self> {
        let timelines = (0..count).map(|_| make()).collect::<Result<Vec<_>, _>>()?;
        let semaphores = timelines
            .iter()
            .map(|timeline| device.semaphore_of(timeline));
        Ok(Self {
            semaphores: semaphores.collect::<Result<_, _>>()?,
            timelines,
        })
    }

    /// Announces the values up to `value` to the engine.
    pub(crate) fn promise(&self, value: u64) -> Outcome<()> {
        for timeline in &self.timelines {
            timeline.claim(value)?.submitted()?;
        }
        Ok(())
    }

    /// Makes the announced signals.
    pub(crate) fn keep(&self, hand: &Hand, value: u64) -> Outcome<()> {
        let mut semaphores = self.semaphores.iter();
        semaphores.try_for_each(|semaphore| hand.signal(*semaphore, value))
    }
}
