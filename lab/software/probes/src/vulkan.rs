//! Vulkan's side of external semaphores and memory.

use std::sync::OnceLock;

use ash::{Device, Entry, Instance, khr, vk};

use crate::cuda::*;
use crate::harness::stop;
use crate::kit::{check, need};

mod image;

pub(crate) use image::{Shape, SharedImage};

/// The word that [`Vulkan::fill_imported`] writes.
pub(crate) const FILL: u32 = 5;

/// The answer where Vulkan cannot export anything to the CUDA device.
const NONE: &str = "no Vulkan";

/// `CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD`, and the type of memory.
pub(crate) const OPAQUE_FD: u32 = 1;
/// `CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD`.
pub(crate) const TIMELINE_FD: u32 = 9;

/// The Vulkan device that is CUDA device 0.
pub(crate) struct Vulkan {
    _entry: Entry,
    instance: Instance,
    physical: vk::PhysicalDevice,
    device: Device,
    queue: vk::Queue,
    semaphores: khr::external_semaphore_fd::Device,
    memory: khr::external_memory_fd::Device,
}

/// Memory that Vulkan has exported.
pub(crate) struct Exported {
    pub(crate) fd: i32,
    pub(crate) size: u64,
    pub(crate) memory: vk::DeviceMemory,
}

/// A timeline of Vulkan's that CUDA has imported as one.
pub(crate) struct Imported {
    vulkan: vk::Semaphore,
    pub(crate) cuda: Handle,
}

/// A timeline of [`vulkan()`]'s that CUDA has imported as one.
pub(crate) fn timeline() -> Imported {
    let vulkan = need(vulkan().semaphore(true));
    let (code, cuda) = import(TIMELINE_FD, self::vulkan().export(vulkan));
    check(code);
    Imported { vulkan, cuda }
}

impl Imported {
    pub(crate) fn signal_code(&self, value: u64, stream: Handle) -> Code {
        signal_one(self.cuda, value, stream)
    }

    pub(crate) fn wait_code(&self, value: u64, stream: Handle) -> Code {
        wait_one(self.cuda, value, stream)
    }

    pub(crate) fn signal(&self, value: u64, stream: Handle) {
        check(self.signal_code(value, stream));
    }

    pub(crate) fn wait(&self, value: u64, stream: Handle) {
        check(self.wait_code(value, stream));
    }

    pub(crate) fn value(&self) -> u64 {
        vulkan().value(self.vulkan)
    }

    pub(crate) fn signal_host(&self, value: u64) -> Result<(), String> {
        let info = vk::SemaphoreSignalInfo::default()
            .semaphore(self.vulkan)
            .value(value);
        // SAFETY: a live timeline of this device.
        let result = unsafe { vulkan().device.signal_semaphore(&info) };
        result.map_err(|result| failed("vkSignalSemaphore", result))
    }

    /// Waits on the host for at most a second.
    pub(crate) fn wait_host(&self, value: u64) -> i32 {
        let (semaphores, values) = ([self.vulkan], [value]);
        let info = vk::SemaphoreWaitInfo::default()
            .semaphores(&semaphores)
            .values(&values);
        // SAFETY: live timelines of this device.
        match unsafe { vulkan().device.wait_semaphores(&info, 1_000_000_000) } {
            Ok(()) => 0,
            Err(result) => result.as_raw(),
        }
    }

    pub(crate) fn destroy_vulkan(&self) {
        vulkan().destroy(self.vulkan);
    }
}

pub(crate) fn signal_one(semaphore: Handle, value: u64, stream: Handle) -> Code {
    signal_semaphores(&semaphore, &params(value), 1, stream)
}

pub(crate) fn wait_one(semaphore: Handle, value: u64, stream: Handle) -> Code {
    wait_semaphores(&semaphore, &params(value), 1, stream)
}

pub(crate) fn params(value: u64) -> SemaphoreParams {
    SemaphoreParams {
        value,
        rest: [0; 17],
    }
}

/// Imports a descriptor, which CUDA owns afterwards if the result is 0.
pub(crate) fn import(kind: u32, fd: i32) -> (Code, Handle) {
    let mut semaphore = 0;
    let desc = SemaphoreDesc {
        kind,
        fd,
        ..Default::default()
    };
    (import_semaphore(&mut semaphore, &desc), semaphore)
}

fn failed(call: &str, result: vk::Result) -> String {
    format!("{call} returned {}", result.as_raw())
}

/// Ends the question if a call has failed.
fn must<T>(call: &str, result: Result<T, vk::Result>) -> T {
    need(result.map_err(|result| failed(call, result)))
}

/// A physical device and its instance.
pub(crate) struct Listed {
    entry: Entry,
    instance: Instance,
    physical: vk::PhysicalDevice,
}

impl Listed {
    /// The first device that is a GPU. [`NONE`], if there is none.
    pub(crate) fn gpu() -> Result<Self, String> {
        let is_gpu = |kind, _| kind != vk::PhysicalDeviceType::CPU;
        Self::of(is_gpu).ok_or_else(|| NONE.into())
    }

    /// Makes an instance and looks for a device by its type and UUID.
    fn of(is_chosen: impl Fn(vk::PhysicalDeviceType, [u8; 16]) -> bool) -> Option<Self> {
        // SAFETY: the system's Vulkan loader, whose initializers have no conditions.
        let entry = unsafe { Entry::load() }.ok()?;
        let application = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_2);
        let info = vk::InstanceCreateInfo::default().application_info(&application);
        // SAFETY: a valid description. Lives as long as this process.
        let instance = unsafe { entry.create_instance(&info, None) }.ok()?;
        // SAFETY: a live instance.
        let physical = unsafe { instance.enumerate_physical_devices() }.ok()?;
        let physical = physical.into_iter().find(|physical| {
            let mut id = vk::PhysicalDeviceIDProperties::default();
            let mut properties = vk::PhysicalDeviceProperties2::default().push_next(&mut id);
            // SAFETY: a device of this instance.
            unsafe { instance.get_physical_device_properties2(*physical, &mut properties) };
            is_chosen(properties.properties.device_type, id.device_uuid)
        })?;
        Some(Self {
            entry,
            instance,
            physical,
        })
    }

    pub(crate) fn open(self) -> Result<Vulkan, String> {
        let Self {
            entry,
            instance,
            physical,
        } = self;
        let priorities = [1.0];
        let queues = [vk::DeviceQueueCreateInfo::default().queue_priorities(&priorities)];
        let extensions = [
            khr::external_semaphore_fd::NAME.as_ptr(),
            khr::external_memory_fd::NAME.as_ptr(),
        ];
        let mut features = vk::PhysicalDeviceVulkan12Features::default().timeline_semaphore(true);
        let info = vk::DeviceCreateInfo::default()
            .queue_create_infos(&queues)
            .enabled_extension_names(&extensions)
            .push_next(&mut features);
        // SAFETY: a valid description. A device without the extensions refuses it.
        let device = unsafe { instance.create_device(physical, &info, None) }
            .map_err(|result| failed("vkCreateDevice", result))?;
        Ok(Vulkan {
            // SAFETY: the device has one queue of this family.
            queue: unsafe { device.get_device_queue(0, 0) },
            semaphores: khr::external_semaphore_fd::Device::new(&instance, &device),
            memory: khr::external_memory_fd::Device::new(&instance, &device),
            _entry: entry,
            instance,
            physical,
            device,
        })
    }
}

/// The device of this process's question.
pub(crate) fn vulkan() -> &'static Vulkan {
    static DEVICE: OnceLock<Vulkan> = OnceLock::new();
    DEVICE.get_or_init(Vulkan::open)
}

impl Vulkan {
    /// Answers [`NONE`], if no device is the CUDA device, or the device exports nothing.
    pub(crate) fn open() -> Self {
        Self::try_open().unwrap_or_else(|| stop(NONE))
    }

    fn try_open() -> Option<Self> {
        let mut uuid = [0; 16];
        if device_get_uuid(&mut uuid, 0) != 0 {
            return None;
        }
        Listed::of(|_, id| id == uuid)?.open().ok()
    }

    /// A semaphore that can be exported, with the value 0 if it is a timeline.
    pub(crate) fn semaphore(&self, timeline: bool) -> Result<vk::Semaphore, String> {
        let kind = if timeline {
            vk::SemaphoreType::TIMELINE
        } else {
            vk::SemaphoreType::BINARY
        };
        let mut kind = vk::SemaphoreTypeCreateInfo::default().semaphore_type(kind);
        let mut export = vk::ExportSemaphoreCreateInfo::default()
            .handle_types(vk::ExternalSemaphoreHandleTypeFlags::OPAQUE_FD);
        let info = vk::SemaphoreCreateInfo::default()
            .push_next(&mut kind)
            .push_next(&mut export);
        // SAFETY: a valid description.
        unsafe { self.device.create_semaphore(&info, None) }
            .map_err(|result| failed("vkCreateSemaphore", result))
    }

    pub(crate) fn export(&self, semaphore: vk::Semaphore) -> i32 {
        let info = vk::SemaphoreGetFdInfoKHR::default()
            .semaphore(semaphore)
            .handle_type(vk::ExternalSemaphoreHandleTypeFlags::OPAQUE_FD);
        // SAFETY: a live semaphore that was made for this.
        must("vkGetSemaphoreFdKHR", unsafe {
            self.semaphores.get_semaphore_fd(&info)
        })
    }

    pub(crate) fn destroy(&self, semaphore: vk::Semaphore) {
        // SAFETY: of this device, and not used by a queue of it.
        unsafe { self.device.destroy_semaphore(semaphore, None) };
    }

    pub(crate) fn value(&self, semaphore: vk::Semaphore) -> u64 {
        // SAFETY: a live timeline of this device.
        must("vkGetSemaphoreCounterValue", unsafe {
            self.device.get_semaphore_counter_value(semaphore)
        })
    }

    /// Submits a signal of a binary semaphore and waits until it is done.
    pub(crate) fn signal_binary(&self, semaphore: vk::Semaphore) -> Result<(), String> {
        let semaphores = [semaphore];
        let info = [vk::SubmitInfo::default().signal_semaphores(&semaphores)];
        // SAFETY: a live semaphore of this device, and the only use of the queue.
        unsafe {
            self.device
                .queue_submit(self.queue, &info, vk::Fence::null())
        }
        .map_err(|result| failed("vkQueueSubmit", result))?;
        // SAFETY: the only use of the queue.
        unsafe { self.device.queue_wait_idle(self.queue) }
            .map_err(|result| failed("vkQueueWaitIdle", result))
    }

    /// A buffer without memory, and what it needs.
    fn external_buffer(&self, bytes: u64) -> (vk::Buffer, vk::MemoryRequirements) {
        let handle = vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD;
        let mut external = vk::ExternalMemoryBufferCreateInfo::default().handle_types(handle);
        let info = vk::BufferCreateInfo::default()
            .size(bytes)
            .usage(vk::BufferUsageFlags::TRANSFER_DST | vk::BufferUsageFlags::TRANSFER_SRC)
            .push_next(&mut external);
        // SAFETY: a valid description.
        let buffer = must("vkCreateBuffer", unsafe {
            self.device.create_buffer(&info, None)
        });
        // SAFETY: a live buffer of this device.
        let needs = unsafe { self.device.get_buffer_memory_requirements(buffer) };
        (buffer, needs)
    }

    /// Exports the memory of a buffer of at least this size.
    pub(crate) fn exported_memory(&self, bytes: u64, dedicated: bool) -> Exported {
        let (buffer, needs) = self.external_buffer(bytes);
        let own = if dedicated {
            buffer
        } else {
            vk::Buffer::null()
        };
        let own = vk::MemoryDedicatedAllocateInfo::default().buffer(own);
        let memory = self.exportable(needs.size, needs.memory_type_bits, own);
        self.bind(buffer, memory, 0);
        Exported {
            fd: self.export_memory(memory),
            size: needs.size,
            memory,
        }
    }

    /// Memory for export, which may be dedicated.
    fn exportable(
        &self,
        bytes: u64,
        types: u32,
        mut own: vk::MemoryDedicatedAllocateInfo<'_>,
    ) -> vk::DeviceMemory {
        let handle = vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD;
        let mut export = vk::ExportMemoryAllocateInfo::default().handle_types(handle);
        let mut info = vk::MemoryAllocateInfo::default()
            .allocation_size(bytes)
            .memory_type_index(self.local_type(types))
            .push_next(&mut export);
        if own.buffer != vk::Buffer::null() || own.image != vk::Image::null() {
            info = info.push_next(&mut own);
        }
        // SAFETY: a valid description.
        must("vkAllocateMemory", unsafe {
            self.device.allocate_memory(&info, None)
        })
    }

    /// Binds memory that has room for the buffer, and whose type is one for it.
    fn bind(&self, buffer: vk::Buffer, memory: vk::DeviceMemory, offset: u64) {
        // SAFETY: as the function says.
        must("vkBindBufferMemory", unsafe {
            self.device.bind_buffer_memory(buffer, memory, offset)
        });
    }

    pub(crate) fn memory_types(&self) -> Vec<vk::MemoryType> {
        let instance = &self.instance;
        // SAFETY: a device of this instance.
        let all = unsafe { instance.get_physical_device_memory_properties(self.physical) };
        all.memory_types_as_slice().to_vec()
    }

    /// The first of these memory types that is local to the device.
    fn local_type(&self, allowed: u32) -> u32 {
        self.type_with(allowed, vk::MemoryPropertyFlags::DEVICE_LOCAL)
    }

    /// The first of these memory types that has these properties.
    fn type_with(&self, allowed: u32, wanted: vk::MemoryPropertyFlags) -> u32 {
        let index = (0..).zip(self.memory_types()).find(|(index, kind)| {
            allowed & (1 << index) != 0 && kind.property_flags.contains(wanted)
        });
        need(index.ok_or_else(|| "no memory of such a type".into())).0
    }

    /// Imports memory of this size, and fills 64 bytes with [`FILL`], in a buffer at an offset.
    ///
    /// Without a memory type it takes the first that is local to the device. Returns the result of
    /// the import. If that is 0, Vulkan owns the descriptor.
    pub(crate) fn fill_imported(
        &self,
        fd: i32,
        size: u64,
        offset: u64,
        memory_type: Option<u32>,
    ) -> Result<i32, String> {
        let handle = vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD;
        let (buffer, needs) = self.external_buffer(64);
        let memory_type = match memory_type {
            Some(index) if needs.memory_type_bits & (1 << index) == 0 => {
                return Err("not for buffers".into());
            }
            Some(index) => index,
            None => self.local_type(needs.memory_type_bits),
        };
        let mut import = vk::ImportMemoryFdInfoKHR::default()
            .handle_type(handle)
            .fd(fd);
        let info = vk::MemoryAllocateInfo::default()
            .allocation_size(size)
            .memory_type_index(memory_type)
            .push_next(&mut import);
        // SAFETY: a valid description.
        let memory = match unsafe { self.device.allocate_memory(&info, None) } {
            Ok(memory) => memory,
            Err(result) => return Ok(result.as_raw()),
        };
        self.bind(buffer, memory, offset);
        self.run(|commands| {
            // SAFETY: a command buffer in recording, and a live buffer.
            unsafe {
                self.device
                    .cmd_fill_buffer(commands, buffer, 0, vk::WHOLE_SIZE, FILL);
            }
        })?;
        Ok(0)
    }

    /// Records commands, submits them, and waits.
    fn run(&self, record: impl FnOnce(vk::CommandBuffer)) -> Result<(), String> {
        let run = || {
            let pool = vk::CommandPoolCreateInfo::default();
            // SAFETY: valid descriptions, and the only use of the queue.
            unsafe {
                let pool = self.device.create_command_pool(&pool, None)?;
                let info = vk::CommandBufferAllocateInfo::default()
                    .command_pool(pool)
                    .command_buffer_count(1);
                let buffers = self.device.allocate_command_buffers(&info)?;
                let commands = buffers[0];
                let begin = vk::CommandBufferBeginInfo::default();
                self.device.begin_command_buffer(commands, &begin)?;
                record(commands);
                self.device.end_command_buffer(commands)?;
                let info = [vk::SubmitInfo::default().command_buffers(&buffers)];
                self.device
                    .queue_submit(self.queue, &info, vk::Fence::null())?;
                self.device.queue_wait_idle(self.queue)
            }
        };
        run().map_err(|result| failed("a submission", result))
    }

    pub(crate) fn export_memory(&self, memory: vk::DeviceMemory) -> i32 {
        let info = vk::MemoryGetFdInfoKHR::default()
            .memory(memory)
            .handle_type(vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD);
        // SAFETY: live memory that was made for this.
        must("vkGetMemoryFdKHR", unsafe {
            self.memory.get_memory_fd(&info)
        })
    }
}
