//! A `VkDevice`, and opening it.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::sync::{Arc, OnceLock};

use ash::{khr, vk};
use syncline_core::backend::Watcher;
use syncline_core::clock::HostClock;
use syncline_core::{DeviceId, Error, Info, Object, Result};

use crate::device::clock_readings::DeviceClock;
use crate::device::deferred_destroy::DeferredDestroy;
use crate::device::driver_queue::DriverQueue;
use crate::device::file_kind::FileKind;
use crate::device::native::Native;
use crate::device::physical::{Enabled, PhysicalDevice};
use crate::device::query_pools::QueryPools;
use crate::device::wake::WakeSemaphore;
use crate::driver::error::native;
use crate::driver::instance::Instance;

/// The most driver queues that are created in one family. Logical queues share them.
const QUEUES_PER_FAMILY: u32 = 16;

/// A `VkDevice`, opened here or adopted from an application. Cheap to clone.
///
/// Everything made from it keeps it alive.
#[derive(Clone)]
pub struct Device(pub(crate) Arc<Inner>);

/// The state behind a [`Device`].
pub(crate) struct Inner {
    pub(crate) id: DeviceId,
    pub(crate) object: Object,
    pub(crate) info: Info,
    pub(crate) enabled: Enabled,
    pub(crate) queues: Vec<Arc<DriverQueue>>,
    /// Indices of the physical device's queue families that run submissions, ascending. They do not
    /// depend on the queues of this `VkDevice`.
    pub(crate) families: Vec<u32>,
    pub(crate) query_pools: QueryPools,
    pub(crate) clock: DeviceClock,
    /// See [`PhysicalDevice::host_clock`].
    pub(crate) host_clock: Option<HostClock>,
    pub(crate) external_semaphores: Option<khr::external_semaphore_fd::Device>,
    pub(crate) external_memory: Option<khr::external_memory_fd::Device>,
    /// See [`PhysicalDevice::binary_exports`].
    pub(crate) binary_exports: vk::ExternalSemaphoreHandleTypeFlags,
    /// The file kind of timelines that the driver exports. Empty until the first import.
    pub(crate) timeline_file_kind: OnceLock<FileKind>,
    /// The same for binary semaphores.
    pub(crate) binary_file_kind: OnceLock<FileKind>,
    /// The same for memory.
    pub(crate) memory_file_kind: OnceLock<FileKind>,
    /// The first error that said that the device is lost.
    pub(crate) lost: OnceLock<Error>,
    pub(crate) watcher: Watcher,
    pub(crate) wake: WakeSemaphore,
    /// See [`PhysicalDevice::wait_any_spins`].
    pub(crate) wait_any_spins: bool,
    /// See [`PhysicalDevice::query_read_blocks`].
    pub(crate) query_read_blocks: bool,
    pub(crate) deferred_destroy: DeferredDestroy,
    /// The last field, so that the device is destroyed after all other fields.
    pub(crate) native: Native,
}

impl Device {
    /// Calls `vkCreateDevice` with queues of every family and everything in
    /// [`PhysicalDevice::enabled`].
    pub(crate) fn open(instance: &Instance, physical: &PhysicalDevice) -> Result<Self> {
        let object = Object::new("device", &physical.info.marked_name());
        let priorities = [1.0; QUEUES_PER_FAMILY as usize];
        let queues: Vec<_> = physical
            .families
            .iter()
            .map(|family| {
                vk::DeviceQueueCreateInfo::default()
                    .queue_family_index(family.index)
                    .queue_priorities(&priorities[..family.count.min(QUEUES_PER_FAMILY) as usize])
            })
            .collect();
        let extensions: Vec<_> = physical
            .extensions
            .iter()
            .map(|name| name.as_ptr())
            .collect();
        let mut timelines =
            vk::PhysicalDeviceTimelineSemaphoreFeatures::default().timeline_semaphore(true);
        let mut reset = vk::PhysicalDeviceHostQueryResetFeatures::default()
            .host_query_reset(physical.enabled.host_query_reset);
        let info = vk::DeviceCreateInfo::default()
            .queue_create_infos(&queues)
            .enabled_extension_names(&extensions)
            .push_next(&mut timelines)
            .push_next(&mut reset);
        // SAFETY: `info` is valid and enables only what the physical device offers. The physical
        // device is of this instance.
        let raw = unsafe { instance.raw().create_device(physical.raw, &info, None) }
            .map_err(|code| native(&object, "vkCreateDevice", code))?;
        let mut handles = Vec::new();
        for family in &physical.families {
            for index in 0..family.count.min(QUEUES_PER_FAMILY) {
                // SAFETY: the device was made with this queue.
                let queue = unsafe { raw.get_device_queue(family.index, index) };
                handles.push((family.index, index, queue));
            }
        }
        let native = Native::opened(instance, physical.raw, raw);
        Self::assemble(native, physical.clone(), object, &handles)
    }

    /// Makes a device of handles that are opened or adopted already.
    pub(crate) fn assemble(
        handles: Native,
        physical: PhysicalDevice,
        object: Object,
        queues: &[(u32, u32, vk::Queue)],
    ) -> Result<Self> {
        let queues = queues
            .iter()
            .filter_map(|&(family, index, raw)| {
                let family = physical
                    .families
                    .iter()
                    .find(|known| known.index == family)?;
                Some(Arc::new(DriverQueue::new(raw, *family, index)))
            })
            .collect();
        let no_handle = vk::ExternalSemaphoreHandleTypeFlags::empty();
        let semaphore = create_timeline(&handles.device, 0, no_handle)
            .map_err(|code| native(&object, "vkCreateSemaphore", code))?;
        let enabled = physical.enabled;
        let (instance, device) = (&handles.instance, &handles.device);
        let families = physical.families.iter();
        Ok(Self(Arc::new(Inner {
            id: DeviceId::new(),
            object,
            enabled,
            queues,
            families: families.map(|family| family.index).collect(),
            info: physical.info,
            query_pools: QueryPools::default(),
            clock: DeviceClock::default(),
            host_clock: physical.host_clock,
            external_semaphores: enabled
                .external_semaphore_fd
                .then(|| khr::external_semaphore_fd::Device::new(instance, device)),
            external_memory: enabled
                .external_memory_fd
                .then(|| khr::external_memory_fd::Device::new(instance, device)),
            binary_exports: physical.binary_exports,
            timeline_file_kind: OnceLock::new(),
            binary_file_kind: OnceLock::new(),
            memory_file_kind: OnceLock::new(),
            lost: OnceLock::new(),
            watcher: Watcher::default(),
            wake: WakeSemaphore::new(semaphore),
            wait_any_spins: physical.wait_any_spins,
            query_read_blocks: physical.query_read_blocks,
            deferred_destroy: DeferredDestroy::new(physical.needs_deferred_destroy),
            native: handles,
        })))
    }

    pub(crate) fn id(&self) -> DeviceId {
        self.0.id
    }

    pub(crate) fn object(&self) -> &Object {
        &self.0.object
    }

    pub(crate) fn info(&self) -> &Info {
        &self.0.info
    }

    /// The error for a failed import: [`Error::DeviceLost`], else [`Error::Import`].
    pub(crate) fn import_error(
        &self,
        call: &'static str,
        code: vk::Result,
        what: &dyn Fn() -> String,
    ) -> Error {
        match self.0.failed(self.object(), call, code) {
            lost @ Error::DeviceLost { .. } => lost,
            refused => Error::Import {
                object: self.object().clone(),
                what: what(),
                reason: refused.to_string(),
            },
        }
    }
}

impl Inner {
    pub(crate) const fn raw(&self) -> &ash::Device {
        &self.native.device
    }

    /// The error for a failed call. Remembers that the device is lost.
    #[cold]
    pub(crate) fn failed(&self, object: &Object, call: &'static str, code: vk::Result) -> Error {
        let error = native(object, call, code);
        if matches!(error, Error::DeviceLost { .. }) {
            self.lost.get_or_init(|| error.clone());
        }
        error
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost.get().is_some()
    }

    /// Calls `vkCreateSemaphore` for a timeline semaphore.
    ///
    /// The caller has checked that the device exports timelines as `exports`.
    pub(crate) fn timeline_semaphore(
        &self,
        initial: u64,
        exports: vk::ExternalSemaphoreHandleTypeFlags,
    ) -> Result<vk::Semaphore> {
        create_timeline(self.raw(), initial, exports)
            .map_err(|code| self.failed(&self.object, "vkCreateSemaphore", code))
    }

    /// Calls `vkDestroySemaphore` for semaphores that [`DeferredDestroy`] has returned.
    pub(crate) fn destroy_semaphores(&self, semaphores: Vec<vk::Semaphore>) {
        for semaphore in semaphores {
            // SAFETY: made on this device, and deferred when its `Semaphore` was dropped, so no
            // submission of this crate uses it. The driver has released it, because a later
            // submission has signalled or the device is idle.
            unsafe { self.native.device.destroy_semaphore(semaphore, None) };
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.query_pools.destroy(&self.native.device);
        let deferred = self.deferred_destroy.take_all();
        if !deferred.is_empty() {
            for queue in &self.queues {
                // SAFETY: the queue is of this device. No thread uses it now: a logical queue and a
                // `QueueGuard` keep the device, and without a guard the application does not use
                // the queue (see `Device::adopt`). A lost device fails this call, and uses no
                // semaphore any more.
                let _ = unsafe { self.native.device.queue_wait_idle(queue.raw) };
            }
            self.destroy_semaphores(deferred);
        }
        // SAFETY: made on this device and destroyed only here. No call waits for it, because each
        // such call is made through an `Arc` of `self`.
        unsafe {
            self.native.device.destroy_semaphore(self.wake.raw, None);
        }
    }
}

fn create_timeline(
    device: &ash::Device,
    initial: u64,
    exports: vk::ExternalSemaphoreHandleTypeFlags,
) -> Result<vk::Semaphore, vk::Result> {
    let mut timeline = vk::SemaphoreTypeCreateInfo::default()
        .semaphore_type(vk::SemaphoreType::TIMELINE)
        .initial_value(initial);
    let mut export = vk::ExportSemaphoreCreateInfo::default().handle_types(exports);
    let mut info = vk::SemaphoreCreateInfo::default().push_next(&mut timeline);
    if !exports.is_empty() {
        info = info.push_next(&mut export);
    }
    // SAFETY: `info` is valid, and the feature `timelineSemaphore` is enabled on every device here.
    // Callers that pass handle types have checked that the device exports timelines as such.
    unsafe { device.create_semaphore(&info, None) }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (Vulkan)", self.0.object)
    }
}
