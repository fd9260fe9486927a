//! The system calls that a driver makes itself, when it is called without this project.
#![allow(unsafe_code, reason = "calls the driver")]

use std::collections::BTreeSet;

use libc::c_int;
use syncline::Device;

use crate::counter::Calls;

/// Returns the system calls that a driver makes on a thread that uses `device`.
///
/// `None` if they are unknown.
#[cfg_attr(
    not(feature = "vulkan"),
    allow(unused_variables, reason = "only Vulkan has a driver that is measured")
)]
pub(crate) fn own_calls(device: &Device, calls: &Calls) -> Option<BTreeSet<c_int>> {
    match device {
        Device::Host(_) => Some(BTreeSet::new()),
        #[cfg(feature = "vulkan")]
        Device::Vulkan(device) => {
            let before = calls.made_by(crate::this_thread());
            vulkan::submit_and_wait(device);
            let after = calls.made_by(crate::this_thread());
            let more = |(call, count): (&c_int, &u64)| {
                (before.get(call).is_none_or(|before| before < count)).then_some(*call)
            };
            Some(after.iter().filter_map(more).collect())
        }
        _ => None,
    }
}

#[cfg(feature = "vulkan")]
mod vulkan {
    use ash::vk;
    use syncline::QueueKind;
    use syncline::backend::Device as _;
    use syncline::vulkan::Device;

    /// Submits signals, and waits for them.
    pub(super) fn submit_and_wait(device: &Device) {
        let queue = device
            .queue(QueueKind::Compute, "by hand")
            .expect("a queue");
        let mut kind =
            vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
        let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
        // SAFETY: the structure is valid.
        let semaphore = unsafe { device.raw().create_semaphore(&info, None) }.expect("a semaphore");
        let semaphores = [semaphore];
        for value in (1..2000).step_by(2) {
            let values = [value];
            let mut timeline =
                vk::TimelineSemaphoreSubmitInfo::default().signal_semaphore_values(&values);
            let submission = vk::SubmitInfo::default()
                .signal_semaphores(&semaphores)
                .push_next(&mut timeline);
            let guard = device
                .lock_queue(queue.family(), queue.index())
                .expect("the queue");
            // SAFETY: the queue is locked, the semaphore lives until the wait has ended, and its
            // values grow.
            unsafe {
                device
                    .raw()
                    .queue_submit(guard.raw(), &[submission], vk::Fence::null())
            }
            .expect("submitted");
            drop(guard);
            let wait = vk::SemaphoreWaitInfo::default()
                .semaphores(&semaphores)
                .values(&values);
            // SAFETY: a live timeline semaphore of the device.
            unsafe { device.raw().wait_semaphores(&wait, u64::MAX) }.expect("waited");
            let signal = vk::SemaphoreSignalInfo::default()
                .semaphore(semaphore)
                .value(value + 1);
            // SAFETY: as above. The submission has signalled.
            unsafe { device.raw().signal_semaphore(&signal) }.expect("signalled");
        }
        // SAFETY: nothing uses the semaphore any more, except for the driver after the last signal.
        unsafe {
            device.raw().device_wait_idle().expect("idle");
            device.raw().destroy_semaphore(semaphore, None);
        }
    }
}
