//! Vulkan by hand: direct calls on Syncline's `VkDevice` and `VkQueue`s.
#![allow(unsafe_code, reason = "calls the driver, as the baseline")]

use std::cell::RefCell;
use std::ops::Deref;
use std::time::{Duration, Instant};

use ash::vk;
use syncline::vulkan::{Device, QueueGuard};

use crate::side::{Outcome, Stop};

/// Time-out of all waits.
const LONG: Duration = Duration::from_secs(20);

/// Largest number of waits of a submission.
pub(crate) const WAITS: usize = 16;

/// Timeline semaphores of a device, and a queue to use them on.
pub(crate) struct Hand {
    calls: Calls,
    queue: (u32, u32),
    /// Each semaphore with the highest value that it will reach.
    semaphores: RefCell<Vec<(vk::Semaphore, u64)>>,
}

/// A semaphore of a [`Hand`], which must not be used after the hand is dropped.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Semaphore {
    pub(crate) raw: vk::Semaphore,
    at: usize,
}

impl Deref for Hand {
    type Target = Calls;

    fn deref(&self) -> &Calls {
        &self.calls
    }
}

fn failed(call: &str, code: vk::Result) -> Stop {
    Stop::Failed(format!("{call} returned {code:?}"))
}

impl Hand {
    /// A hand for the queue with this index of this family.
    pub(crate) fn new(device: &Device, family: u32, index: u32) -> Self {
        Self {
            calls: Calls {
                device: device.clone(),
            },
            queue: (family, index),
            semaphores: RefCell::default(),
        }
    }

    /// Locks the queue. To be called once for many submissions.
    pub(crate) fn lock(&self) -> Outcome<QueueGuard> {
        Ok(self.calls.device.lock_queue(self.queue.0, self.queue.1)?)
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

    /// A handle that signals one semaphore from another thread.
    pub(crate) fn signaller(&self, semaphore: vk::Semaphore) -> Signaller {
        Signaller(self.calls.device.clone(), semaphore)
    }

    /// `vkGetSemaphoreFdKHR` of a semaphore that can be exported.
    #[cfg(feature = "cuda")]
    pub(crate) fn export(&self, semaphore: Semaphore) -> Outcome<std::os::fd::OwnedFd> {
        use std::os::fd::FromRawFd as _;
        let functions =
            ash::khr::external_semaphore_fd::Device::new(self.calls.device.instance(), self.raw());
        let info = vk::SemaphoreGetFdInfoKHR::default()
            .semaphore(semaphore.raw)
            .handle_type(vk::ExternalSemaphoreHandleTypeFlags::OPAQUE_FD);
        // SAFETY: a live semaphore that was made for handles of this type, on a device with the
        // extension.
        let fd = unsafe { functions.get_semaphore_fd(&info) }
            .map_err(|code| failed("vkGetSemaphoreFdKHR", code))?;
        // SAFETY: a new descriptor with this as its only owner.
        Ok(unsafe { std::os::fd::OwnedFd::from_raw_fd(fd) })
    }
}

/// The driver's functions for one device, usable from any thread.
#[derive(Clone)]
pub(crate) struct Calls {
    device: Device,
}

impl Calls {
    fn raw(&self) -> &ash::Device {
        self.device.raw()
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

    /// As [`Hand::wait`], with a second semaphore that would end the wait at 1.
    pub(crate) fn wait_or(
        &self,
        semaphore: vk::Semaphore,
        value: u64,
        other: vk::Semaphore,
    ) -> Outcome<()> {
        let (semaphores, values) = ([semaphore, other], [value, 1]);
        let info = vk::SemaphoreWaitInfo::default()
            .flags(vk::SemaphoreWaitFlags::ANY)
            .semaphores(&semaphores)
            .values(&values);
        // SAFETY: live timeline semaphores of this device.
        unsafe { self.raw().wait_semaphores(&info, LONG.as_nanos() as u64) }
            .map_err(|code| failed("vkWaitSemaphores", code))
    }

    /// `vkGetSemaphoreCounterValue` until the value is reached.
    #[inline]
    pub(crate) fn poll(&self, semaphore: vk::Semaphore, value: u64) -> Outcome<()> {
        let start = Instant::now();
        let mut looks = 0_u32;
        while self.value(semaphore)? < value {
            std::hint::spin_loop();
            looks += 1;
            if looks.is_multiple_of(1 << 16) && start.elapsed() > LONG {
                return Err(Stop::Failed("a semaphore does not get to its value".into()));
            }
        }
        Ok(())
    }

    /// `vkQueueSubmit` of one submission without commands and with at most [`WAITS`] waits.
    #[inline]
    pub(crate) fn submit(
        &self,
        queue: &QueueGuard,
        (waits, wait_values): (&[vk::Semaphore], &[u64]),
        (signals, signal_values): (&[vk::Semaphore], &[u64]),
    ) -> Outcome<()> {
        self.submit_commands(queue, &[], (waits, wait_values), (signals, signal_values))
    }

    /// `vkQueueSubmit` of one submission with at most [`WAITS`] waits.
    #[inline]
    pub(crate) fn submit_commands(
        &self,
        queue: &QueueGuard,
        commands: &[vk::CommandBuffer],
        (waits, wait_values): (&[vk::Semaphore], &[u64]),
        (signals, signal_values): (&[vk::Semaphore], &[u64]),
    ) -> Outcome<()> {
        const STAGES: [vk::PipelineStageFlags; WAITS] =
            [vk::PipelineStageFlags::ALL_COMMANDS; WAITS];
        let mut values = vk::TimelineSemaphoreSubmitInfo::default()
            .wait_semaphore_values(wait_values)
            .signal_semaphore_values(signal_values);
        let info = vk::SubmitInfo::default()
            .wait_semaphores(waits)
            .wait_dst_stage_mask(&STAGES[..waits.len()])
            .command_buffers(commands)
            .signal_semaphores(signals)
            .push_next(&mut values);
        // SAFETY: the queue is locked. All semaphores are timelines of this device and live until
        // they reach their expected values. Rows only count up. Command buffers are recorded and
        // used once at a time.
        unsafe {
            self.raw()
                .queue_submit(queue.raw(), &[info], vk::Fence::null())
        }
        .map_err(|code| failed("vkQueueSubmit", code))
    }
}

/// A semaphore that is signalled from another thread than that of its hand.
pub(crate) struct Signaller(Device, vk::Semaphore);

impl Signaller {
    /// `vkSignalSemaphore`.
    pub(crate) fn signal(&self, value: u64) -> Outcome<()> {
        let info = vk::SemaphoreSignalInfo::default()
            .semaphore(self.1)
            .value(value);
        // SAFETY: a live timeline semaphore of this device; rows only ever count up.
        unsafe { self.0.raw().signal_semaphore(&info) }
            .map_err(|code| failed("vkSignalSemaphore", code))
    }
}

impl Hand {
    /// Waits until all semaphores have reached their expected values and the queue is idle.
    pub(crate) fn settle(&self) -> Outcome<()> {
        const PATIENCE: Duration = Duration::from_secs(2);
        for (semaphore, value) in self.semaphores.borrow().iter() {
            let (semaphores, values) = ([*semaphore], [*value]);
            let info = vk::SemaphoreWaitInfo::default()
                .semaphores(&semaphores)
                .values(&values);
            // SAFETY: a live timeline semaphore of this device.
            unsafe {
                self.raw()
                    .wait_semaphores(&info, PATIENCE.as_nanos() as u64)
            }
            .map_err(|code| failed("vkWaitSemaphores", code))?;
        }
        let queue = self.lock()?;
        // Drivers may use a semaphore a moment after the last submission with it has signalled.
        // SAFETY: the queue is locked, and all submissions of rows end.
        unsafe { self.raw().queue_wait_idle(queue.raw()) }
            .map_err(|code| failed("vkQueueWaitIdle", code))
    }
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
