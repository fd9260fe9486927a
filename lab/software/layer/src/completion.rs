//! Calls that report to the application that work is complete.
//!
//! A thread that gets such a report must find the signals of the work, here and in other processes.
//! So these calls store the signals before they return.
#![allow(
    unsafe_code,
    reason = "is called by the application, and calls the driver"
)]

use ash::vk;

use crate::chain;
use crate::device::Device;

/// `vkWaitForFences`.
pub(crate) unsafe extern "system" fn wait_for_fences(
    raw: vk::Device,
    count: u32,
    fences: *const vk::Fence,
    all: vk::Bool32,
    timeout: u64,
) -> vk::Result {
    // SAFETY: valid usage.
    unsafe {
        let Some(device) = Device::of(raw) else {
            return vk::Result::ERROR_DEVICE_LOST;
        };
        let result = (device.driver.wait_for_fences)(raw, count, fences, all, timeout);
        if result == vk::Result::SUCCESS && device.shares() {
            for &fence in chain::slice(fences, count) {
                let status = device.driver.get_fence_status;
                if all == vk::TRUE || status(raw, fence) == vk::Result::SUCCESS {
                    device.fence_is_signalled(fence);
                }
            }
        }
        device.catch_up();
        result
    }
}

/// `vkGetFenceStatus`.
pub(crate) unsafe extern "system" fn get_fence_status(
    raw: vk::Device,
    fence: vk::Fence,
) -> vk::Result {
    // SAFETY: valid usage.
    unsafe {
        let Some(device) = Device::of(raw) else {
            return vk::Result::ERROR_DEVICE_LOST;
        };
        let result = (device.driver.get_fence_status)(raw, fence);
        if result == vk::Result::SUCCESS && device.shares() {
            device.fence_is_signalled(fence);
        }
        device.catch_up();
        result
    }
}

/// `vkQueueWaitIdle`.
pub(crate) unsafe extern "system" fn queue_wait_idle(queue: vk::Queue) -> vk::Result {
    // SAFETY: valid usage.
    unsafe {
        let Some(device) = Device::of(queue) else {
            return vk::Result::ERROR_DEVICE_LOST;
        };
        let result = (device.driver.queue_wait_idle)(queue);
        device.catch_up();
        result
    }
}

/// `vkDeviceWaitIdle`.
pub(crate) unsafe extern "system" fn device_wait_idle(raw: vk::Device) -> vk::Result {
    // SAFETY: valid usage.
    unsafe {
        let Some(device) = Device::of(raw) else {
            return vk::Result::ERROR_DEVICE_LOST;
        };
        let result = (device.driver.device_wait_idle)(raw);
        device.catch_up();
        result
    }
}
