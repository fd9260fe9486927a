//! Physical devices, and what a `VkDevice` was created with.

use std::ffi::CStr;

use ash::vk;
use syncline_core::clock::HostClock;
use syncline_core::{Error, QueueKind, info::Info};

/// Name of the limit with the reason why a device does not share sync files.
pub(crate) const SYNC_FILES_LIMIT: &str = "sync files";

/// Extensions and features of a `VkDevice` beyond Vulkan 1.2 and its feature `timelineSemaphore`.
///
/// Syncline does not use what is not enabled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Enabled {
    /// The feature `hostQueryReset`. Without it, queues of transfer-only families write no
    /// timestamps.
    pub host_query_reset: bool,
    /// `VK_KHR_external_semaphore_fd`, to share timelines.
    pub external_semaphore_fd: bool,
    /// `VK_KHR_external_memory_fd`, to share buffers.
    pub external_memory_fd: bool,
    /// `VK_KHR_calibrated_timestamps` or `VK_EXT_calibrated_timestamps`, to read both clocks
    /// together.
    pub calibrated_timestamps: bool,
}

/// A queue family that can run submissions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Family {
    pub(crate) index: u32,
    pub(crate) kind: QueueKind,
    pub(crate) count: u32,
    pub(crate) timestamp_bits: u32,
}

/// Everything that the backend knows of a physical device.
#[derive(Clone)]
pub(crate) struct PhysicalDevice {
    pub(crate) raw: vk::PhysicalDevice,
    pub(crate) info: Info,
    /// The reason why the device cannot be used, if there is one.
    pub(crate) rejected: Option<Error>,
    pub(crate) families: Vec<Family>,
    pub(crate) enabled: Enabled,
    /// The clock of the host that the driver calibrates together with the device's clock.
    pub(crate) host_clock: Option<HostClock>,
    /// True if `vkWaitSemaphores` with `VK_SEMAPHORE_WAIT_ANY` is a busy loop.
    ///
    /// Mesa's common code has a busy loop for drivers that emulate timeline semaphores. Only
    /// lavapipe does.
    pub(crate) wait_any_spins: bool,
    /// True if `vkGetQueryPoolResults` waits for all work of the device, whatever its flags.
    ///
    /// The function of lavapipe does.
    pub(crate) query_read_blocks: bool,
    /// True if the driver needs [`deferred_destroy`](crate::device::deferred_destroy).
    pub(crate) needs_deferred_destroy: bool,
    /// The handle types that a new binary semaphore can be exported as.
    ///
    /// Opaque descriptors if the driver exports them, and sync files if the driver combines both.
    pub(crate) binary_exports: vk::ExternalSemaphoreHandleTypeFlags,
    /// The device extensions to enable.
    pub(crate) extensions: Vec<&'static CStr>,
}
