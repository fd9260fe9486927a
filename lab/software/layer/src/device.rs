//! Devices: the driver's functions, and what the layer keeps for each software device.
#![allow(unsafe_code, reason = "is called by the loader, and calls the driver")]

use std::collections::HashMap;
use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};

use ash::vk::{self, Handle};
use syncline_software_payload::check_exit;

use crate::commands::Followed;
use crate::image::{Image, Layouts};
use crate::instance::{INSTANCES, next};
use crate::loader::take_link;
use crate::memory::{self, Heaps, Shared};
use crate::ownership::Ownership;
use crate::queue::QueueState;
use crate::semaphore::Semaphore;
use crate::table::{Table, lock, read, write};
use crate::{chain, physical};

/// All devices of the process that were made through this layer.
pub(crate) static DEVICES: Table<Registered> = Table::new();

/// A device of any kind.
pub(crate) struct Registered {
    pub(crate) raw: vk::Device,
    pub(crate) get_device_proc_addr: vk::PFN_vkGetDeviceProcAddr,
    destroy_device: Option<vk::PFN_vkDestroyDevice>,
    /// `None` for hardware, for which the layer changes nothing.
    pub(crate) software: Option<Arc<Device>>,
}

/// The driver's functions that the layer calls or replaces.
pub(crate) struct Driver {
    pub(crate) device: vk::Device,
    pub(crate) create_semaphore: vk::PFN_vkCreateSemaphore,
    pub(crate) destroy_semaphore: vk::PFN_vkDestroySemaphore,
    pub(crate) create_buffer: vk::PFN_vkCreateBuffer,
    pub(crate) create_image: vk::PFN_vkCreateImage,
    pub(crate) destroy_image: vk::PFN_vkDestroyImage,
    pub(crate) bind_image_memory: vk::PFN_vkBindImageMemory,
    pub(crate) bind_image_memory2: Option<vk::PFN_vkBindImageMemory2>,
    pub(crate) bind_buffer_memory: vk::PFN_vkBindBufferMemory,
    pub(crate) allocate_memory: vk::PFN_vkAllocateMemory,
    pub(crate) free_memory: vk::PFN_vkFreeMemory,
    pub(crate) allocate_command_buffers: vk::PFN_vkAllocateCommandBuffers,
    pub(crate) followed: Followed,
    pub(crate) destroy_query_pool: vk::PFN_vkDestroyQueryPool,
    pub(crate) signal_semaphore: vk::PFN_vkSignalSemaphore,
    pub(crate) wait_semaphores: vk::PFN_vkWaitSemaphores,
    pub(crate) get_semaphore_counter_value: vk::PFN_vkGetSemaphoreCounterValue,
    pub(crate) queue_submit: vk::PFN_vkQueueSubmit,
    pub(crate) queue_submit2: Option<vk::PFN_vkQueueSubmit2>,
    pub(crate) queue_bind_sparse: vk::PFN_vkQueueBindSparse,
    pub(crate) wait_for_fences: vk::PFN_vkWaitForFences,
    pub(crate) get_fence_status: vk::PFN_vkGetFenceStatus,
    pub(crate) queue_wait_idle: vk::PFN_vkQueueWaitIdle,
    pub(crate) device_wait_idle: vk::PFN_vkDeviceWaitIdle,
    /// Present if the driver has swapchains.
    pub(crate) acquire_next_image: Option<vk::PFN_vkAcquireNextImageKHR>,
    pub(crate) queue_present: Option<vk::PFN_vkQueuePresentKHR>,
    /// Present if the driver has the extension.
    pub(crate) get_calibrated_timestamps: Option<vk::PFN_vkGetCalibratedTimestampsKHR>,
    /// Present if the driver itself has the extension, for sync files.
    pub(crate) get_semaphore_fd: Option<vk::PFN_vkGetSemaphoreFdKHR>,
    pub(crate) import_semaphore_fd: Option<vk::PFN_vkImportSemaphoreFdKHR>,
    /// Present if the driver has the extension.
    pub(crate) get_memory_fd: Option<vk::PFN_vkGetMemoryFdKHR>,
}

impl Driver {
    /// Returns `None` if a function of Vulkan 1.2 is missing.
    ///
    /// # Safety
    /// `get` is the function of the layer below, and `device` was made by it.
    unsafe fn load(get: vk::PFN_vkGetDeviceProcAddr, device: vk::Device) -> Option<Self> {
        macro_rules! load {
            ($type:ident, $name:literal) => {
                next!(get, device, $type, $name)
            };
        }
        // SAFETY: by this function's contract; each function is taken as the type of its name.
        unsafe {
            Some(Self {
                device,
                create_semaphore: load!(PFN_vkCreateSemaphore, c"vkCreateSemaphore")?,
                destroy_semaphore: load!(PFN_vkDestroySemaphore, c"vkDestroySemaphore")?,
                create_buffer: load!(PFN_vkCreateBuffer, c"vkCreateBuffer")?,
                create_image: load!(PFN_vkCreateImage, c"vkCreateImage")?,
                destroy_image: load!(PFN_vkDestroyImage, c"vkDestroyImage")?,
                bind_image_memory: load!(PFN_vkBindImageMemory, c"vkBindImageMemory")?,
                bind_image_memory2: load!(PFN_vkBindImageMemory2, c"vkBindImageMemory2")
                    .or_else(|| load!(PFN_vkBindImageMemory2, c"vkBindImageMemory2KHR")),
                bind_buffer_memory: load!(PFN_vkBindBufferMemory, c"vkBindBufferMemory")?,
                allocate_memory: load!(PFN_vkAllocateMemory, c"vkAllocateMemory")?,
                free_memory: load!(PFN_vkFreeMemory, c"vkFreeMemory")?,
                allocate_command_buffers: load!(
                    PFN_vkAllocateCommandBuffers,
                    c"vkAllocateCommandBuffers"
                )?,
                followed: Followed::load(get, device),
                destroy_query_pool: load!(PFN_vkDestroyQueryPool, c"vkDestroyQueryPool")?,
                signal_semaphore: load!(PFN_vkSignalSemaphore, c"vkSignalSemaphore")?,
                wait_semaphores: load!(PFN_vkWaitSemaphores, c"vkWaitSemaphores")?,
                get_semaphore_counter_value: load!(
                    PFN_vkGetSemaphoreCounterValue,
                    c"vkGetSemaphoreCounterValue"
                )?,
                queue_submit: load!(PFN_vkQueueSubmit, c"vkQueueSubmit")?,
                queue_submit2: load!(PFN_vkQueueSubmit2, c"vkQueueSubmit2")
                    .or_else(|| load!(PFN_vkQueueSubmit2, c"vkQueueSubmit2KHR")),
                queue_bind_sparse: load!(PFN_vkQueueBindSparse, c"vkQueueBindSparse")?,
                wait_for_fences: load!(PFN_vkWaitForFences, c"vkWaitForFences")?,
                get_fence_status: load!(PFN_vkGetFenceStatus, c"vkGetFenceStatus")?,
                queue_wait_idle: load!(PFN_vkQueueWaitIdle, c"vkQueueWaitIdle")?,
                device_wait_idle: load!(PFN_vkDeviceWaitIdle, c"vkDeviceWaitIdle")?,
                acquire_next_image: load!(PFN_vkAcquireNextImageKHR, c"vkAcquireNextImageKHR"),
                queue_present: load!(PFN_vkQueuePresentKHR, c"vkQueuePresentKHR"),
                get_calibrated_timestamps: load!(
                    PFN_vkGetCalibratedTimestampsKHR,
                    c"vkGetCalibratedTimestampsKHR"
                )
                .or_else(|| {
                    load!(
                        PFN_vkGetCalibratedTimestampsKHR,
                        c"vkGetCalibratedTimestampsEXT"
                    )
                }),
                get_semaphore_fd: load!(PFN_vkGetSemaphoreFdKHR, c"vkGetSemaphoreFdKHR"),
                import_semaphore_fd: load!(PFN_vkImportSemaphoreFdKHR, c"vkImportSemaphoreFdKHR"),
                get_memory_fd: load!(PFN_vkGetMemoryFdKHR, c"vkGetMemoryFdKHR"),
            })
        }
    }

    /// Creates a timeline semaphore of the driver, which only the layer uses.
    pub(crate) fn timeline(&self, value: u64) -> Result<vk::Semaphore, vk::Result> {
        let mut kind = vk::SemaphoreTypeCreateInfo::default()
            .semaphore_type(vk::SemaphoreType::TIMELINE)
            .initial_value(value);
        let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
        let mut made = vk::Semaphore::null();
        // SAFETY: valid structures, on a device with timelines.
        let result = unsafe {
            let create = self.create_semaphore;
            create(
                self.device,
                &raw const info,
                std::ptr::null(),
                &raw mut made,
            )
        };
        result.result_with_success(made)
    }

    /// # Safety
    /// A semaphore of this device that nothing uses any more.
    pub(crate) unsafe fn destroy(&self, semaphore: vk::Semaphore) {
        // SAFETY: by this function's contract.
        unsafe { (self.destroy_semaphore)(self.device, semaphore, std::ptr::null()) };
    }

    /// Calls `vkGetSemaphoreCounterValue` for a semaphore of the driver.
    ///
    /// An error means that the device is lost.
    ///
    /// # Safety
    /// A live timeline semaphore of this device.
    pub(crate) unsafe fn value(&self, semaphore: vk::Semaphore) -> Result<u64, vk::Result> {
        let mut value = 0;
        let get = self.get_semaphore_counter_value;
        // SAFETY: by this function's contract.
        unsafe { get(self.device, semaphore, &raw mut value) }.result_with_success(value)
    }

    /// Calls `vkWaitSemaphores` for semaphores of the driver. The timeout is in nanoseconds.
    ///
    /// # Safety
    /// As many values as semaphores, all live timeline semaphores of this device.
    pub(crate) unsafe fn wait(
        &self,
        semaphores: &[vk::Semaphore],
        values: &[u64],
        flags: vk::SemaphoreWaitFlags,
        timeout: u64,
    ) -> vk::Result {
        let info = vk::SemaphoreWaitInfo::default()
            .flags(flags)
            .semaphores(semaphores)
            .values(values);
        // SAFETY: by this function's contract.
        unsafe { (self.wait_semaphores)(self.device, &raw const info, timeout) }
    }
}

/// What the layer keeps for a software device.
pub(crate) struct Device {
    pub(crate) driver: Arc<Driver>,
    pub(crate) layouts: Layouts,
    /// The application enabled `VK_KHR_external_semaphore_fd`.
    pub(crate) external_semaphores: bool,
    /// Present if the layer makes the descriptors of memory.
    ///
    /// Then the application has enabled `VK_KHR_external_memory_fd`.
    pub(crate) heaps: Option<Heaps>,
    /// Memory that was made for export, or imported.
    memory: RwLock<HashMap<vk::DeviceMemory, Shared>>,
    /// Images that were made for that memory.
    images: Mutex<HashMap<vk::Image, Image>>,
    /// Which device owns that memory.
    pub(crate) ownership: Ownership,
    /// Every semaphore that the application has.
    semaphores: RwLock<HashMap<vk::Semaphore, Arc<Semaphore>>>,
    /// The number of them that are or were shared. If it is 0, calls go to the driver unchanged.
    shared: AtomicUsize,
    /// Queues that have signalled or waited for shared semaphores.
    queues: RwLock<HashMap<vk::Queue, Arc<QueueState>>>,
    /// The last submission of shared semaphores with each fence: its queue and its number there.
    fences: Mutex<HashMap<vk::Fence, (Arc<QueueState>, u64)>>,
}

impl Device {
    /// Returns the software device that a device or a queue belongs to.
    ///
    /// # Safety
    /// A live `VkDevice` or `VkQueue`.
    pub(crate) unsafe fn of(handle: impl Handle) -> Option<Arc<Self>> {
        check_exit("a call of Vulkan");
        // SAFETY: by this function's contract.
        unsafe { DEVICES.get(handle) }.and_then(|registered| registered.software.clone())
    }

    pub(crate) fn semaphore(&self, raw: vk::Semaphore) -> Option<Arc<Semaphore>> {
        read(&self.semaphores).get(&raw).cloned()
    }

    /// Returns the semaphore, if it is shared.
    pub(crate) fn shared(&self, raw: vk::Semaphore) -> Option<Arc<Semaphore>> {
        if !self.shares() {
            return None;
        }
        self.semaphore(raw)
            .filter(|semaphore| semaphore.is_shared())
    }

    /// False while no semaphore of the device is shared.
    pub(crate) fn shares(&self) -> bool {
        self.shared.load(Ordering::Acquire) > 0
    }

    pub(crate) fn note_shared(&self) {
        self.shared.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn add(&self, raw: vk::Semaphore, semaphore: Semaphore) {
        if semaphore.is_shared() {
            self.note_shared();
        }
        write(&self.semaphores).insert(raw, Arc::new(semaphore));
    }

    pub(crate) fn remove(&self, raw: vk::Semaphore) -> Option<Arc<Semaphore>> {
        let removed = write(&self.semaphores).remove(&raw)?;
        if removed.is_shared() {
            self.shared.fetch_sub(1, Ordering::AcqRel);
        }
        Some(removed)
    }

    pub(crate) fn add_memory(&self, raw: vk::DeviceMemory, shared: Shared, is_imported: bool) {
        self.ownership.add_memory(raw, shared.size(), is_imported);
        write(&self.memory).insert(raw, shared);
    }

    pub(crate) fn remove_memory(&self, raw: vk::DeviceMemory) -> Option<Shared> {
        // Without heaps there is none, and no lock is taken.
        self.heaps.as_ref()?;
        self.ownership.remove_memory(raw);
        write(&self.memory).remove(&raw)
    }

    /// Calls `look` with shared memory. Returns `None` for other memory.
    pub(crate) fn with_memory<T>(
        &self,
        raw: vk::DeviceMemory,
        look: impl FnOnce(&Shared) -> T,
    ) -> Option<T> {
        read(&self.memory).get(&raw).map(look)
    }

    /// Locks the images. Without heaps there are none.
    pub(crate) fn images(&self) -> MutexGuard<'_, HashMap<vk::Image, Image>> {
        lock(&self.images)
    }

    /// Returns the state of a queue. Creates it when it is first needed.
    pub(crate) fn queue_state(&self, queue: vk::Queue) -> Result<Arc<QueueState>, vk::Result> {
        if let Some(state) = read(&self.queues).get(&queue) {
            return Ok(state.clone());
        }
        let mut queues = write(&self.queues);
        if let Some(state) = queues.get(&queue) {
            return Ok(state.clone());
        }
        let state = QueueState::start(self.driver.clone())?;
        queues.insert(queue, state.clone());
        Ok(state)
    }

    /// Stores the signals of queues into the pages.
    ///
    /// Called when the calling thread learns that work is complete, so that it also finds the
    /// signals of that work.
    pub(crate) fn catch_up(&self) {
        if !self.shares() {
            return;
        }
        let queues = read(&self.queues);
        let waiting = queues.values().filter(|state| state.is_behind());
        let waiting: Vec<_> = waiting.cloned().collect();
        drop(queues);
        for state in waiting {
            state.catch_up();
        }
    }

    pub(crate) fn note_fence(&self, fence: vk::Fence, state: Arc<QueueState>, number: u64) {
        lock(&self.fences).insert(fence, (state, number));
    }

    /// Stores the signals of the submission with `fence`, once the fence is signalled.
    ///
    /// Lavapipe reports a fence a moment before the timelines of the same submission.
    pub(crate) fn fence_is_signalled(&self, fence: vk::Fence) {
        let known = lock(&self.fences).remove(&fence);
        if let Some((state, number)) = known {
            state.complete(number);
        }
    }

    /// Ends the device's threads, and destroys the layer's objects.
    fn end(&self) {
        let queues = std::mem::take(&mut *write(&self.queues));
        // If a submission still waits, the driver uses the semaphores. Then they are not destroyed.
        let mut idle = true;
        for state in queues.values() {
            idle &= state.stop();
        }
        if idle {
            // Lavapipe's thread uses semaphores for a moment after they are signalled.
            // SAFETY: valid usage: the device is used no more. Its loss changes nothing here.
            let _ = unsafe { (self.driver.device_wait_idle)(self.driver.device) };
        }
        for (_, semaphore) in write(&self.semaphores).drain() {
            semaphore.end(idle);
        }
        for state in queues.values() {
            state.end(idle);
        }
    }
}

/// `vkCreateDevice`: hides the extension that the driver lacks, and enables its timelines.
pub(crate) unsafe extern "system" fn create_device(
    physical: vk::PhysicalDevice,
    info: *const vk::DeviceCreateInfo<'_>,
    allocator: *const vk::AllocationCallbacks<'_>,
    device: *mut vk::Device,
) -> vk::Result {
    let failed = vk::Result::ERROR_INITIALIZATION_FAILED;
    // SAFETY: valid usage: a create info with the loader's link in its chain.
    let (mut info, link) = unsafe {
        let link = take_link::<vk::PFN_vkGetDeviceProcAddr>(
            (*info).p_next,
            vk::StructureType::LOADER_DEVICE_CREATE_INFO,
        );
        (*info, link)
    };
    // SAFETY: a live physical device.
    let instance = unsafe { INSTANCES.get(physical) };
    let (Some(link), Some(instance)) = (link, instance) else {
        return failed;
    };
    let (get_device_proc_addr, of_driver) = (link.other, link.lowest().other);
    // SAFETY: the function of the layer below. It finds its functions without an instance or with
    // it.
    let create = unsafe {
        let get = link.get_instance_proc_addr;
        next!(
            get,
            vk::Instance::null(),
            PFN_vkCreateDevice,
            c"vkCreateDevice"
        )
    };
    let Some(create) = create else { return failed };

    // SAFETY: valid usage.
    let software = unsafe { instance.twin(physical) }.is_some();
    let extension = ash::khr::external_semaphore_fd::NAME;
    // SAFETY: valid usage: an array of texts.
    let mut names = unsafe {
        chain::slice(
            info.pp_enabled_extension_names,
            info.enabled_extension_count,
        )
    }
    .to_vec();
    let is = |name: *const c_char, extension: &CStr| {
        // SAFETY: valid usage: a text that ends with a zero.
        unsafe { CStr::from_ptr(name) == extension }
    };
    let has = |names: &[*const c_char], extension| names.iter().any(|name| is(*name, extension));
    let external_semaphores = software && has(&names, extension);
    // SAFETY: valid usage.
    if external_semaphores && !unsafe { physical::has_sync_files(&instance, physical) } {
        names.retain(|name| !is(*name, extension));
    }
    let external_memory = software && has(&names, ash::khr::external_memory_fd::NAME);
    // SAFETY: valid usage.
    let heaps = unsafe {
        let serves = external_memory && memory::serves(&instance, physical);
        serves.then(|| Heaps::of(&instance, physical)).flatten()
    };
    if heaps.is_some() && !has(&names, ash::ext::external_memory_host::NAME) {
        names.push(ash::ext::external_memory_host::NAME.as_ptr());
    }
    info = info.enabled_extension_names(&names);
    let mut timelines =
        vk::PhysicalDeviceTimelineSemaphoreFeatures::default().timeline_semaphore(true);
    // SAFETY: valid usage: a valid chain.
    let decided = unsafe {
        let chain = info.p_next;
        chain::find::<vk::PhysicalDeviceTimelineSemaphoreFeatures<'_>>(chain).is_some()
            || chain::find::<vk::PhysicalDeviceVulkan12Features<'_>>(chain).is_some()
    };
    if software && !decided {
        timelines.p_next = info.p_next.cast_mut();
        info.p_next = (&raw const timelines).cast();
    }
    // SAFETY: the function of the layer below; valid usage, and structures that live until then.
    unsafe {
        let created = create(physical, &raw const info, allocator, device);
        if created != vk::Result::SUCCESS {
            return created;
        }
        let raw = *device;
        let destroy_device = next!(
            get_device_proc_addr,
            raw,
            PFN_vkDestroyDevice,
            c"vkDestroyDevice"
        );
        let load = || {
            let driver = Driver::load(get_device_proc_addr, raw)?;
            Some((driver, Layouts::load(of_driver, raw)?))
        };
        let driver = software.then(load).flatten();
        if software && driver.is_none() {
            // The application would find an extension without functions.
            if let Some(destroy) = destroy_device {
                destroy(raw, allocator);
            }
            return failed;
        }
        let software = driver.map(|(driver, layouts)| {
            Arc::new(Device {
                driver: Arc::new(driver),
                layouts,
                external_semaphores,
                heaps,
                memory: RwLock::default(),
                images: Mutex::default(),
                ownership: Ownership::default(),
                semaphores: RwLock::default(),
                shared: AtomicUsize::new(0),
                queues: RwLock::default(),
                fences: Mutex::default(),
            })
        });
        let registered = Registered {
            raw,
            get_device_proc_addr,
            destroy_device,
            software,
        };
        DEVICES.insert(raw, Arc::new(registered));
    }
    vk::Result::SUCCESS
}

/// `vkDestroyDevice`: the layer's threads end before the driver's device does.
pub(crate) unsafe extern "system" fn destroy_device(
    raw: vk::Device,
    allocator: *const vk::AllocationCallbacks<'_>,
) {
    // SAFETY: valid usage: null, or a live device that is used no more.
    unsafe {
        let Some(registered) = DEVICES.remove(raw) else {
            return;
        };
        if let Some(device) = &registered.software {
            device.end();
        }
        if let Some(destroy) = registered.destroy_device {
            destroy(raw, allocator);
        }
    }
}
