//! A device with one queue, semaphores, and memory that is exported.
#![allow(unsafe_code, reason = "calls Vulkan")]

use std::ffi::CStr;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex};

use ash::{khr, vk};
use syncline_software_layer::LAYER_NAME;

pub(crate) const FOR_EVER: u64 = u64::MAX;
/// Bytes of the buffers.
pub(crate) const BYTES: u64 = 4096;
const OPAQUE: vk::ExternalSemaphoreHandleTypeFlags =
    vk::ExternalSemaphoreHandleTypeFlags::OPAQUE_FD;
pub(crate) const MEMORY: vk::ExternalMemoryHandleTypeFlags =
    vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD;

/// An instance with the layer.
pub(crate) struct Instance {
    pub(crate) raw: ash::Instance,
    entry: ash::Entry,
}

impl Instance {
    /// Creates an instance with these layers, the first on top, and these extensions.
    pub(crate) fn new(layers: &[&CStr], extensions: &[&CStr], version: u32) -> Self {
        Self::try_new(layers, extensions, version).unwrap()
    }

    /// Returns an error without a loader or a driver.
    fn try_new(layers: &[&CStr], extensions: &[&CStr], version: u32) -> Result<Self, String> {
        // SAFETY: a Vulkan loader is trusted. Valid structures.
        unsafe {
            let entry = ash::Entry::load().map_err(|error| error.to_string())?;
            let layers: Vec<_> = layers.iter().map(|name| name.as_ptr()).collect();
            let extensions: Vec<_> = extensions.iter().map(|name| name.as_ptr()).collect();
            let application = vk::ApplicationInfo::default().api_version(version);
            let info = vk::InstanceCreateInfo::default()
                .application_info(&application)
                .enabled_layer_names(&layers)
                .enabled_extension_names(&extensions);
            let raw = entry.create_instance(&info, None);
            let raw = raw.map_err(|code| code.to_string())?;
            Ok(Self { raw, entry })
        }
    }

    pub(crate) fn entry(&self) -> &ash::Entry {
        &self.entry
    }

    /// Returns the physical devices of type CPU.
    pub(crate) fn software(&self) -> Vec<vk::PhysicalDevice> {
        // SAFETY: a live instance.
        unsafe {
            let all = self.raw.enumerate_physical_devices().unwrap();
            let cpu = vk::PhysicalDeviceType::CPU;
            all.into_iter()
                .filter(|&one| self.raw.get_physical_device_properties(one).device_type == cpu)
                .collect()
        }
    }

    pub(crate) fn driver_id(&self, physical: vk::PhysicalDevice) -> vk::DriverId {
        let mut driver = vk::PhysicalDeviceDriverProperties::default();
        let mut all = vk::PhysicalDeviceProperties2::default().push_next(&mut driver);
        // SAFETY: a live physical device of Vulkan 1.2.
        unsafe { self.raw.get_physical_device_properties2(physical, &mut all) };
        driver.driver_id
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // SAFETY: each device holds the instance, so none is left.
        unsafe { self.raw.destroy_instance(None) };
    }
}

/// A software driver that the loader finds.
#[derive(Clone)]
pub(crate) struct Driver {
    pub(crate) id: vk::DriverId,
    pub(crate) name: String,
}

impl Driver {
    pub(crate) fn all() -> Vec<Self> {
        let instance = match Instance::try_new(&[], &[], vk::API_VERSION_1_2) {
            Ok(instance) => instance,
            Err(reason) => {
                println!("no instance: {reason}");
                return Vec::new();
            }
        };
        let all = instance.software().into_iter().map(|physical| {
            let id = instance.driver_id(physical);
            let name = format!("{id:?}");
            Self { id, name }
        });
        all.collect()
    }

    /// Returns a new instance with the layer, and this driver's device.
    pub(crate) fn instance(&self) -> (Arc<Instance>, vk::PhysicalDevice) {
        let instance = Instance::new(&[LAYER_NAME], &[], vk::API_VERSION_1_3);
        let mut all = instance.software().into_iter();
        let found = all.find(|&one| instance.driver_id(one) == self.id).unwrap();
        (Arc::new(instance), found)
    }

    pub(crate) fn open(&self) -> Gpu {
        let (instance, physical) = self.instance();
        Gpu::open(instance, physical)
    }

    /// Opens two devices of one instance.
    pub(crate) fn open_two(&self) -> (Gpu, Gpu) {
        let (instance, physical) = self.instance();
        (
            Gpu::open(instance.clone(), physical),
            Gpu::open(instance, physical),
        )
    }
}

/// A device and its queue.
pub(crate) struct Gpu {
    pub(crate) device: ash::Device,
    pub(crate) queue: vk::Queue,
    pub(crate) fds: khr::external_semaphore_fd::Device,
    memory_fds: khr::external_memory_fd::Device,
    pool: vk::CommandPool,
    pub(crate) instance: Arc<Instance>,
    /// Objects that are destroyed with the device.
    made: Mutex<Made>,
}

#[derive(Default)]
struct Made {
    semaphores: Vec<vk::Semaphore>,
    fences: Vec<vk::Fence>,
    buffers: Vec<vk::Buffer>,
    memory: Vec<vk::DeviceMemory>,
}

/// Memory that the device and the host can read.
#[derive(Clone, Copy)]
pub(crate) struct Buffer {
    pub(crate) raw: vk::Buffer,
    pub(crate) memory: vk::DeviceMemory,
}

/// Semaphores of one batch, each with its value.
pub(crate) type Values<'a> = &'a [(vk::Semaphore, u64)];

impl Gpu {
    pub(crate) fn open(instance: Arc<Instance>, physical: vk::PhysicalDevice) -> Self {
        let mut timelines =
            vk::PhysicalDeviceTimelineSemaphoreFeatures::default().timeline_semaphore(true);
        let mut second =
            vk::PhysicalDeviceSynchronization2Features::default().synchronization2(true);
        let queues = [vk::DeviceQueueCreateInfo::default().queue_priorities(&[1.0])];
        let extensions = [
            khr::external_semaphore_fd::NAME.as_ptr(),
            khr::external_memory_fd::NAME.as_ptr(),
        ];
        let info = vk::DeviceCreateInfo::default()
            .queue_create_infos(&queues)
            .enabled_extension_names(&extensions)
            .push_next(&mut timelines)
            .push_next(&mut second);
        // SAFETY: valid structures, and what they enable is there.
        unsafe {
            let device = instance.raw.create_device(physical, &info, None).unwrap();
            let pool = vk::CommandPoolCreateInfo::default();
            Self {
                queue: device.get_device_queue(0, 0),
                fds: khr::external_semaphore_fd::Device::new(&instance.raw, &device),
                memory_fds: khr::external_memory_fd::Device::new(&instance.raw, &device),
                pool: device.create_command_pool(&pool, None).unwrap(),
                device,
                instance,
                made: Mutex::default(),
            }
        }
    }

    fn make(&self, timeline: Option<u64>, exports: bool) -> vk::Semaphore {
        let mut kind = vk::SemaphoreTypeCreateInfo::default();
        if let Some(value) = timeline {
            kind = kind
                .semaphore_type(vk::SemaphoreType::TIMELINE)
                .initial_value(value);
        }
        let mut export = vk::ExportSemaphoreCreateInfo::default().handle_types(OPAQUE);
        let mut info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
        if exports {
            info = info.push_next(&mut export);
        }
        // SAFETY: valid structures.
        let made = unsafe { self.device.create_semaphore(&info, None) }.unwrap();
        self.made.lock().unwrap().semaphores.push(made);
        made
    }

    /// Creates a timeline of the driver.
    pub(crate) fn timeline(&self, value: u64) -> vk::Semaphore {
        self.make(Some(value), false)
    }

    pub(crate) fn shared_timeline(&self, value: u64) -> vk::Semaphore {
        self.make(Some(value), true)
    }

    /// Creates a binary semaphore of the driver.
    pub(crate) fn binary(&self) -> vk::Semaphore {
        self.make(None, false)
    }

    pub(crate) fn shared_binary(&self) -> vk::Semaphore {
        self.make(None, true)
    }

    pub(crate) fn export(&self, semaphore: vk::Semaphore) -> OwnedFd {
        let info = vk::SemaphoreGetFdInfoKHR::default()
            .semaphore(semaphore)
            .handle_type(OPAQUE);
        // SAFETY: a live semaphore; the descriptor is new.
        unsafe { OwnedFd::from_raw_fd(self.fds.get_semaphore_fd(&info).unwrap()) }
    }

    pub(crate) fn try_import(
        &self,
        semaphore: vk::Semaphore,
        fd: RawFd,
        flags: vk::SemaphoreImportFlags,
    ) -> Result<(), vk::Result> {
        let info = vk::ImportSemaphoreFdInfoKHR::default()
            .semaphore(semaphore)
            .handle_type(OPAQUE)
            .flags(flags)
            .fd(fd);
        // SAFETY: a live semaphore that no queue uses.
        unsafe { self.fds.import_semaphore_fd(&info) }
    }

    pub(crate) fn import(
        &self,
        semaphore: vk::Semaphore,
        fd: OwnedFd,
        flags: vk::SemaphoreImportFlags,
    ) {
        self.try_import(semaphore, fd.as_raw_fd(), flags).unwrap();
        let _ = fd.into_raw_fd();
    }

    /// Creates a timeline with the payload behind `fd`.
    pub(crate) fn imported_timeline(&self, fd: OwnedFd) -> vk::Semaphore {
        let semaphore = self.timeline(0);
        self.import(semaphore, fd, vk::SemaphoreImportFlags::empty());
        semaphore
    }

    pub(crate) fn imported_binary(&self, fd: OwnedFd) -> vk::Semaphore {
        let semaphore = self.binary();
        self.import(semaphore, fd, vk::SemaphoreImportFlags::empty());
        semaphore
    }

    pub(crate) fn destroy(&self, semaphore: vk::Semaphore) {
        let mut made = self.made.lock().unwrap();
        made.semaphores.retain(|&other| other != semaphore);
        // SAFETY: a live semaphore that no queue uses.
        unsafe { self.device.destroy_semaphore(semaphore, None) };
    }

    pub(crate) fn value(&self, semaphore: vk::Semaphore) -> u64 {
        // SAFETY: a live timeline.
        unsafe { self.device.get_semaphore_counter_value(semaphore) }.unwrap()
    }

    pub(crate) fn signal(&self, semaphore: vk::Semaphore, value: u64) {
        self.try_signal(semaphore, value).unwrap();
    }

    pub(crate) fn try_signal(
        &self,
        semaphore: vk::Semaphore,
        value: u64,
    ) -> Result<(), vk::Result> {
        let info = vk::SemaphoreSignalInfo::default()
            .semaphore(semaphore)
            .value(value);
        // SAFETY: a live timeline.
        unsafe { self.device.signal_semaphore(&info) }
    }

    pub(crate) fn try_wait(
        &self,
        all: Values<'_>,
        flags: vk::SemaphoreWaitFlags,
        timeout: u64,
    ) -> Result<(), vk::Result> {
        let (semaphores, values): (Vec<_>, Vec<_>) = all.iter().copied().unzip();
        let info = vk::SemaphoreWaitInfo::default()
            .semaphores(&semaphores)
            .values(&values)
            .flags(flags);
        // SAFETY: live timelines, each with its value.
        unsafe { self.device.wait_semaphores(&info, timeout) }
    }

    pub(crate) fn wait(&self, semaphore: vk::Semaphore, value: u64) {
        let all = vk::SemaphoreWaitFlags::empty();
        self.try_wait(&[(semaphore, value)], all, FOR_EVER).unwrap();
    }

    /// Calls `vkQueueSubmit` for one batch.
    pub(crate) fn try_submit(
        &self,
        waits: Values<'_>,
        commands: &[vk::CommandBuffer],
        signals: Values<'_>,
        fence: vk::Fence,
    ) -> Result<(), vk::Result> {
        let (wait_semaphores, wait_values): (Vec<_>, Vec<_>) = waits.iter().copied().unzip();
        let (signal_semaphores, signal_values): (Vec<_>, Vec<_>) = signals.iter().copied().unzip();
        let stages = vec![vk::PipelineStageFlags::ALL_COMMANDS; waits.len()];
        let mut values = vk::TimelineSemaphoreSubmitInfo::default()
            .wait_semaphore_values(&wait_values)
            .signal_semaphore_values(&signal_values);
        let batch = vk::SubmitInfo::default()
            .wait_semaphores(&wait_semaphores)
            .wait_dst_stage_mask(&stages)
            .command_buffers(commands)
            .signal_semaphores(&signal_semaphores)
            .push_next(&mut values);
        // SAFETY: valid structures with live objects.
        unsafe { self.device.queue_submit(self.queue, &[batch], fence) }
    }

    pub(crate) fn submit(
        &self,
        waits: Values<'_>,
        commands: &[vk::CommandBuffer],
        signals: Values<'_>,
    ) {
        self.try_submit(waits, commands, signals, vk::Fence::null())
            .unwrap();
    }

    pub(crate) fn fence(&self) -> vk::Fence {
        // SAFETY: a valid structure.
        unsafe {
            let info = vk::FenceCreateInfo::default();
            let fence = self.device.create_fence(&info, None).unwrap();
            self.made.lock().unwrap().fences.push(fence);
            fence
        }
    }

    pub(crate) fn idle(&self) {
        // SAFETY: a live device.
        unsafe { self.device.device_wait_idle() }.unwrap();
    }

    /// Creates a buffer in memory that is exported, or in memory behind a descriptor.
    pub(crate) fn buffer(&self, import: Option<OwnedFd>) -> Buffer {
        let raw = self.external_buffer(BYTES);
        // SAFETY: valid structures. On success the driver owns the descriptor.
        unsafe {
            let needs = self.device.get_buffer_memory_requirements(raw);
            let mut dedicated = vk::MemoryDedicatedAllocateInfo::default().buffer(raw);
            let mut export = vk::ExportMemoryAllocateInfo::default().handle_types(MEMORY);
            let mut from = vk::ImportMemoryFdInfoKHR::default().handle_type(MEMORY);
            let mut allocate = vk::MemoryAllocateInfo::default()
                .allocation_size(needs.size)
                .memory_type_index(needs.memory_type_bits.trailing_zeros())
                .push_next(&mut dedicated);
            match import {
                None => allocate = allocate.push_next(&mut export),
                Some(fd) => {
                    from = from.fd(fd.into_raw_fd());
                    allocate = allocate.push_next(&mut from);
                }
            }
            let memory = self.device.allocate_memory(&allocate, None).unwrap();
            self.device.bind_buffer_memory(raw, memory, 0).unwrap();
            self.made.lock().unwrap().memory.push(memory);
            Buffer { raw, memory }
        }
    }

    /// Creates a buffer that can be bound to memory that is exported or imported.
    pub(crate) fn external_buffer(&self, bytes: u64) -> vk::Buffer {
        let mut external = vk::ExternalMemoryBufferCreateInfo::default().handle_types(MEMORY);
        let info = vk::BufferCreateInfo::default()
            .size(bytes)
            .usage(vk::BufferUsageFlags::TRANSFER_SRC | vk::BufferUsageFlags::TRANSFER_DST)
            .push_next(&mut external);
        // SAFETY: valid structures.
        let raw = unsafe { self.device.create_buffer(&info, None) }.unwrap();
        self.made.lock().unwrap().buffers.push(raw);
        raw
    }

    /// Destroys all buffers, which no queue uses. Their memory stays.
    pub(crate) fn destroy_buffers(&self) {
        let buffers = std::mem::take(&mut self.made.lock().unwrap().buffers);
        for buffer in buffers {
            // SAFETY: live buffers of this device.
            unsafe { self.device.destroy_buffer(buffer, None) };
        }
    }

    pub(crate) fn export_memory(&self, buffer: &Buffer) -> OwnedFd {
        self.try_export_memory(buffer.memory).unwrap()
    }

    pub(crate) fn try_export_memory(
        &self,
        memory: vk::DeviceMemory,
    ) -> Result<OwnedFd, vk::Result> {
        let info = vk::MemoryGetFdInfoKHR::default()
            .memory(memory)
            .handle_type(MEMORY);
        // SAFETY: live memory; the descriptor is new.
        unsafe {
            let fd = self.memory_fds.get_memory_fd(&info)?;
            Ok(OwnedFd::from_raw_fd(fd))
        }
    }

    /// Returns the first word of a buffer that no queue writes.
    pub(crate) fn read(&self, buffer: &Buffer) -> u32 {
        // SAFETY: host-visible memory, as all of a software driver is.
        unsafe {
            let flags = vk::MemoryMapFlags::empty();
            let at = self
                .device
                .map_memory(buffer.memory, 0, BYTES, flags)
                .unwrap();
            let word = at.cast::<u32>().read_volatile();
            self.device.unmap_memory(buffer.memory);
            word
        }
    }

    pub(crate) fn record(&self, work: impl FnOnce(vk::CommandBuffer)) -> vk::CommandBuffer {
        let info = vk::CommandBufferAllocateInfo::default()
            .command_pool(self.pool)
            .command_buffer_count(1);
        let begin = vk::CommandBufferBeginInfo::default();
        // SAFETY: valid structures.
        unsafe {
            let commands = self.device.allocate_command_buffers(&info).unwrap()[0];
            self.device.begin_command_buffer(commands, &begin).unwrap();
            work(commands);
            self.device.end_command_buffer(commands).unwrap();
            commands
        }
    }

    /// Records a transfer of a buffer from one queue family to another.
    pub(crate) fn transfer(
        &self,
        commands: vk::CommandBuffer,
        buffer: &Buffer,
        from: u32,
        to: u32,
    ) {
        let stages = vk::PipelineStageFlags::ALL_COMMANDS;
        let all = vk::AccessFlags::MEMORY_READ | vk::AccessFlags::MEMORY_WRITE;
        let barrier = vk::BufferMemoryBarrier::default()
            .buffer(buffer.raw)
            .size(vk::WHOLE_SIZE)
            .src_access_mask(all)
            .dst_access_mask(all)
            .src_queue_family_index(from)
            .dst_queue_family_index(to);
        let none = vk::DependencyFlags::empty();
        // SAFETY: a command buffer in recording, and a live buffer.
        unsafe {
            self.device
                .cmd_pipeline_barrier(commands, stages, stages, none, &[], &[barrier], &[]);
        }
    }

    pub(crate) fn acquire(&self, commands: vk::CommandBuffer, buffer: &Buffer) {
        self.transfer(commands, buffer, vk::QUEUE_FAMILY_EXTERNAL, 0);
    }

    pub(crate) fn release(&self, commands: vk::CommandBuffer, buffer: &Buffer) {
        self.transfer(commands, buffer, 0, vk::QUEUE_FAMILY_EXTERNAL);
    }

    /// Records commands that acquire a buffer, fill it with `word`, and release it.
    pub(crate) fn fill(&self, buffer: &Buffer, word: u32) -> vk::CommandBuffer {
        self.record(|commands| {
            self.acquire(commands, buffer);
            self.add_fill(commands, buffer, word);
            self.release(commands, buffer);
        })
    }

    pub(crate) fn add_fill(&self, commands: vk::CommandBuffer, buffer: &Buffer, word: u32) {
        // SAFETY: a command buffer in recording, and a live buffer.
        unsafe {
            self.device
                .cmd_fill_buffer(commands, buffer.raw, 0, BYTES, word);
        }
    }

    /// Records commands that copy one buffer to another, with the transfers of both.
    pub(crate) fn copy(&self, from: &Buffer, to: &Buffer) -> vk::CommandBuffer {
        self.record(|commands| {
            self.acquire(commands, from);
            self.acquire(commands, to);
            self.add_copy(commands, from, to);
            self.release(commands, from);
            self.release(commands, to);
        })
    }

    pub(crate) fn add_copy(&self, commands: vk::CommandBuffer, from: &Buffer, to: &Buffer) {
        let all = [vk::BufferCopy::default().size(BYTES)];
        // SAFETY: a command buffer in recording, and live buffers.
        unsafe {
            self.device
                .cmd_copy_buffer(commands, from.raw, to.raw, &all);
        }
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // Work may wait for a value that never comes, and the driver would wait for it.
            std::mem::forget(self.instance.clone());
            return;
        }
        // SAFETY: idle first, so that nothing uses what is destroyed. A lost device is idle.
        unsafe {
            let _ = self.device.device_wait_idle();
            let made = std::mem::take(&mut *self.made.lock().unwrap());
            for semaphore in made.semaphores {
                self.device.destroy_semaphore(semaphore, None);
            }
            for fence in made.fences {
                self.device.destroy_fence(fence, None);
            }
            for buffer in made.buffers {
                self.device.destroy_buffer(buffer, None);
            }
            for memory in made.memory {
                self.device.free_memory(memory, None);
            }
            self.device.destroy_command_pool(self.pool, None);
            self.device.destroy_device(None);
        }
    }
}
