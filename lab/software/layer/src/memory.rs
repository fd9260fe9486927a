//! The application's exportable memory: made by the layer, and imported by the driver as its own.
//!
//! Such memory is a file of [`software::Memory`]. The driver imports its pages by their address
//! (`VK_EXT_external_memory_host`), so that the host, queues and importers have the same bytes.
//! Buffers and images are made for that handle type below the layer.
#![allow(
    unsafe_code,
    reason = "is called by the application, and calls the driver"
)]

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::Arc;

use ash::{ext, khr, vk};
use syncline_software_payload as software;

use crate::bug::Bug;
use crate::chain::{self, Copied, known};
use crate::device::Device;
use crate::instance::{Instance, next};
use crate::physical;

pub(crate) const OPAQUE: vk::ExternalMemoryHandleTypeFlags =
    vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD;
/// The handle type that takes the place of descriptors below the layer.
const HOST: vk::ExternalMemoryHandleTypeFlags =
    vk::ExternalMemoryHandleTypeFlags::HOST_ALLOCATION_EXT;
/// Bytes of a page. The driver imports whole pages.
const PAGE: u64 = 4096;

/// What the layer knows of the memory of a device whose descriptors it makes.
pub(crate) struct Heaps {
    properties: vk::PhysicalDeviceMemoryProperties,
    /// The UUID of the GPU in the headers of its files.
    gpu: [u8; software::UUID_BYTES],
    /// The driver that lays out images.
    pub(crate) twin: software::Twin,
}

/// What the layer keeps for memory of the application.
pub(crate) struct Shared {
    /// The pages that the driver has imported.
    pub(crate) memory: Arc<software::Memory>,
    /// Absent if the memory cannot be exported.
    file: Option<OwnedFd>,
}

/// True if the layer makes the descriptors of a device's memory.
///
/// The driver must have such descriptors, and import memory of the host at any page.
///
/// # Safety
/// A live physical device of this instance.
pub(crate) unsafe fn serves(instance: &Instance, physical: vk::PhysicalDevice) -> bool {
    // SAFETY: by this function's contract.
    let extensions = unsafe { physical::driver_extensions(instance, physical) };
    let has = |name| {
        let all = extensions.as_deref().unwrap_or_default();
        all.iter()
            .any(|one| one.extension_name_as_c_str() == Ok(name))
    };
    if !has(khr::external_memory_fd::NAME) || !has(ext::external_memory_host::NAME) {
        return false;
    }
    let mut host = vk::PhysicalDeviceExternalMemoryHostPropertiesEXT::default();
    let mut all = vk::PhysicalDeviceProperties2::default().push_next(&mut host);
    // SAFETY: by this function's contract; valid structures of an extension that is there.
    unsafe { (instance.get_physical_device_properties2)(physical, &raw mut all) };
    (1..=PAGE).contains(&host.min_imported_host_pointer_alignment)
}

impl Shared {
    pub(crate) fn size(&self) -> u64 {
        self.memory.size() as u64
    }
}

impl Heaps {
    /// `None` if the driver lacks a function of Vulkan 1.0.
    ///
    /// # Safety
    /// A live physical device of this instance.
    pub(crate) unsafe fn of(instance: &Instance, physical: vk::PhysicalDevice) -> Option<Self> {
        let mut properties = vk::PhysicalDeviceMemoryProperties::default();
        // SAFETY: by this function's contract; the function is taken as the type of its name.
        let twin = unsafe {
            let get = next!(
                instance.get_instance_proc_addr,
                instance.raw,
                PFN_vkGetPhysicalDeviceMemoryProperties,
                c"vkGetPhysicalDeviceMemoryProperties"
            )?;
            get(physical, &raw mut properties);
            instance.twin(physical)?
        };
        Some(Self {
            properties,
            gpu: twin.uuid().unwrap_or_default(),
            twin,
        })
    }

    /// Makes memory of so many bytes, or opens the memory of a descriptor.
    ///
    /// An importer may ask for less than there is, as with NVIDIA's driver.
    fn shared(
        &self,
        info: &vk::MemoryAllocateInfo<'_>,
        import: Option<BorrowedFd<'_>>,
        exports: bool,
    ) -> Result<Shared, vk::Result> {
        let size = info.allocation_size;
        let Some(file) = import else {
            if !self.has(size, info.memory_type_index) {
                return Err(vk::Result::ERROR_OUT_OF_DEVICE_MEMORY);
            }
            let made = software::Memory::create(size, self.gpu);
            let (memory, file) = made.map_err(|_| vk::Result::ERROR_OUT_OF_DEVICE_MEMORY)?;
            return Ok(Shared {
                memory: Arc::new(memory),
                file: Some(file),
            });
        };
        let refused = vk::Result::ERROR_INVALID_EXTERNAL_HANDLE;
        let memory = software::Memory::open(file).map_err(|_| refused)?;
        if memory.gpu() != self.gpu {
            return Err(refused);
        }
        if size > memory.size() as u64 {
            return Err(vk::Result::ERROR_OUT_OF_DEVICE_MEMORY);
        }
        // A program that never exports the memory again does not need an open descriptor.
        let file = exports.then(|| rustix::io::fcntl_dupfd_cloexec(file, 0));
        let file = file.transpose();
        Ok(Shared {
            memory: Arc::new(memory),
            file: file.map_err(|_| vk::Result::ERROR_TOO_MANY_OBJECTS)?,
        })
    }

    /// True if the heap of the memory type has so many bytes.
    fn has(&self, size: u64, memory_type: u32) -> bool {
        let types = self.properties.memory_types_as_slice();
        let found = types.get(memory_type as usize);
        let heap = found.map(|found| self.properties.memory_heaps[found.heap_index as usize]);
        heap.is_some_and(|heap| size <= heap.size)
    }
}

/// `vkAllocateMemory`: the driver makes memory without descriptors.
pub(crate) unsafe extern "system" fn allocate_memory(
    raw: vk::Device,
    info: *const vk::MemoryAllocateInfo<'_>,
    allocator: *const vk::AllocationCallbacks<'_>,
    memory: *mut vk::DeviceMemory,
) -> vk::Result {
    // SAFETY: valid usage: a live device, and a valid allocate info.
    let (device, given, export, import) = unsafe {
        let chain = (*info).p_next;
        let export = chain::find::<vk::ExportMemoryAllocateInfo<'_>>(chain);
        let import = chain::find::<vk::ImportMemoryFdInfoKHR<'_>>(chain);
        (Device::of(raw), *info, export, import)
    };
    let Some(device) = device else {
        return vk::Result::ERROR_INITIALIZATION_FAILED;
    };
    let allocate = device.driver.allocate_memory;
    let exports = export.is_some_and(|export| export.handle_types.contains(OPAQUE));
    let import = import.filter(|import| import.handle_type == OPAQUE);
    let Some(heaps) = device
        .heaps
        .as_ref()
        .filter(|_| exports || import.is_some())
    else {
        // SAFETY: valid usage.
        return unsafe { allocate(raw, info, allocator, memory) };
    };
    let descriptor = import.map(|import| import.fd);
    if descriptor.is_some_and(|fd| fd < 0) {
        return vk::Result::ERROR_INVALID_EXTERNAL_HANDLE;
    }
    // SAFETY: not negative. If it is not open, the system says so.
    let borrowed = descriptor.map(|fd| unsafe { BorrowedFd::borrow_raw(fd) });
    let shared = match heaps.shared(&given, borrowed, exports) {
        Ok(shared) => shared,
        Err(code) => return code,
    };
    // What is dedicated need not be so for the driver, which gets another size.
    let sizes = known![
        vk::MemoryAllocateFlagsInfo<'_>,
        vk::MemoryOpaqueCaptureAddressAllocateInfo<'_>,
        vk::MemoryPriorityAllocateInfoEXT<'_>,
    ];
    // SAFETY: valid usage: a valid chain.
    let rest = unsafe { Copied::of(given.p_next, &sizes) };
    let mut host = vk::ImportMemoryHostPointerInfoEXT::default()
        .handle_type(HOST)
        .host_pointer(shared.memory.address().cast());
    host.p_next = rest.first();
    let mut asked = vk::MemoryAllocateInfo::default()
        .allocation_size(given.allocation_size.next_multiple_of(PAGE))
        .memory_type_index(given.memory_type_index);
    asked.p_next = (&raw const host).cast();
    // SAFETY: valid structures. The file has whole pages, which stay mapped until the memory is
    // freed.
    let allocated = unsafe { allocate(raw, &raw const asked, allocator, memory) };
    if allocated != vk::Result::SUCCESS {
        return allocated;
    }
    if let Some(descriptor) = descriptor {
        // SAFETY: valid usage: on success the descriptor belongs to the implementation.
        drop(unsafe { OwnedFd::from_raw_fd(descriptor) });
    }
    // SAFETY: just made.
    device.add_memory(unsafe { *memory }, shared, descriptor.is_some());
    vk::Result::SUCCESS
}

/// `vkFreeMemory`: the pages are unmapped after the driver has let them go.
pub(crate) unsafe extern "system" fn free_memory(
    raw: vk::Device,
    memory: vk::DeviceMemory,
    allocator: *const vk::AllocationCallbacks<'_>,
) {
    // SAFETY: valid usage: a live device, and null or memory that is used no more.
    unsafe {
        let Some(device) = Device::of(raw) else {
            return;
        };
        // Before the driver may give the handle to another thread.
        let shared = device.remove_memory(memory);
        (device.driver.free_memory)(raw, memory, allocator);
        drop(shared);
    }
}

/// `vkGetMemoryFdKHR`.
pub(crate) unsafe extern "system" fn get_memory_fd(
    raw: vk::Device,
    info: *const vk::MemoryGetFdInfoKHR<'_>,
    fd: *mut i32,
) -> vk::Result {
    let refused = vk::Result::ERROR_INVALID_EXTERNAL_HANDLE;
    // SAFETY: valid usage: a live device, and a valid structure.
    let (device, info) = unsafe { (Device::of(raw), &*info) };
    let Some(device) = device else { return refused };
    if info.handle_type != OPAQUE || device.heaps.is_none() {
        return device.driver.get_memory_fd.map_or(refused, |next| {
            // SAFETY: valid usage.
            unsafe { next(raw, info, fd) }
        });
    }
    let copy = device.with_memory(info.memory, |shared| {
        let file = shared.file.as_ref().ok_or(refused)?;
        let another = Bug::ExportsOtherMemory.is_planted().then(|| {
            let (size, gpu) = (shared.memory.size() as u64, shared.memory.gpu());
            software::Memory::create(size, gpu)
        });
        let file = match &another {
            Some(Ok((_, another))) => another.as_fd(),
            _ => file.as_fd(),
        };
        let copy = rustix::io::fcntl_dupfd_cloexec(file, 0);
        copy.map_err(|_| vk::Result::ERROR_TOO_MANY_OBJECTS)
    });
    match copy.unwrap_or(Err(refused)) {
        Ok(copy) => {
            // SAFETY: valid usage.
            unsafe { *fd = copy.into_raw_fd() };
            vk::Result::SUCCESS
        }
        Err(code) => code,
    }
}

/// `vkBindBufferMemory`: the driver's, unless a bug is planted.
pub(crate) unsafe extern "system" fn bind_buffer_memory(
    raw: vk::Device,
    buffer: vk::Buffer,
    memory: vk::DeviceMemory,
    offset: vk::DeviceSize,
) -> vk::Result {
    // SAFETY: valid usage: a live device.
    let Some(device) = (unsafe { Device::of(raw) }) else {
        return vk::Result::ERROR_INITIALIZATION_FAILED;
    };
    let ignored = Bug::IgnoresOffset.is_planted() && device.with_memory(memory, |_| ()).is_some();
    let offset = if ignored { 0 } else { offset };
    device.ownership.bind(buffer, memory, offset);
    // SAFETY: valid usage. The memory has room at its beginning, too.
    unsafe { (device.driver.bind_buffer_memory)(raw, buffer, memory, offset) }
}

/// Replaces descriptors by memory of the host.
pub(crate) const fn below(
    handle_types: vk::ExternalMemoryHandleTypeFlags,
) -> vk::ExternalMemoryHandleTypeFlags {
    let others = handle_types.as_raw() & !OPAQUE.as_raw();
    vk::ExternalMemoryHandleTypeFlags::from_raw(others | HOST.as_raw())
}

/// `vkCreateBuffer`: a buffer for descriptors is one for memory of the host below.
pub(crate) unsafe extern "system" fn create_buffer(
    raw: vk::Device,
    info: *const vk::BufferCreateInfo<'_>,
    allocator: *const vk::AllocationCallbacks<'_>,
    buffer: *mut vk::Buffer,
) -> vk::Result {
    // SAFETY: valid usage: a live device, and a valid create info.
    let (device, mut given) = unsafe { (Device::of(raw), *info) };
    let Some(device) = device else {
        return vk::Result::ERROR_INITIALIZATION_FAILED;
    };
    let create = device.driver.create_buffer;
    let sizes = known![
        vk::ExternalMemoryBufferCreateInfo<'_>,
        vk::BufferOpaqueCaptureAddressCreateInfo<'_>,
        vk::BufferDeviceAddressCreateInfoEXT<'_>,
    ];
    // SAFETY: valid usage: a valid chain. The copy lives until the call has ended.
    unsafe {
        let external = chain::find::<vk::ExternalMemoryBufferCreateInfo<'_>>(given.p_next);
        let is_shared = external.is_some_and(|external| external.handle_types.contains(OPAQUE));
        if device.heaps.is_none() || !is_shared {
            return create(raw, info, allocator, buffer);
        }
        let mut copied = Copied::of(given.p_next, &sizes);
        if let Some(external) = copied.get::<vk::ExternalMemoryBufferCreateInfo<'_>>() {
            external.handle_types = below(external.handle_types);
        }
        given.p_next = copied.first();
        let result = create(raw, &raw const given, allocator, buffer);
        if result == vk::Result::SUCCESS {
            device.ownership.add_buffer(*buffer, given.size);
        }
        result
    }
}

/// `vkGetPhysicalDeviceExternalBufferProperties`.
///
/// The layer answers for opaque descriptors, and the driver for other handle types.
pub(crate) unsafe extern "system" fn get_physical_device_external_buffer_properties(
    physical: vk::PhysicalDevice,
    info: *const vk::PhysicalDeviceExternalBufferInfo<'_>,
    properties: *mut vk::ExternalBufferProperties<'_>,
) {
    use vk::ExternalMemoryFeatureFlags as Features;
    // SAFETY: valid usage: a live physical device and valid structures.
    unsafe {
        let Some(instance) = crate::instance::INSTANCES.get(physical) else {
            return;
        };
        let is_software = instance.twin(physical).is_some();
        if (*info).handle_type != OPAQUE || !is_software || !serves(&instance, physical) {
            let next = instance.get_physical_device_external_buffer_properties;
            return next(physical, info, properties);
        }
        (*properties).external_memory_properties = vk::ExternalMemoryProperties::default()
            .external_memory_features(Features::EXPORTABLE | Features::IMPORTABLE)
            .export_from_imported_handle_types(OPAQUE)
            .compatible_handle_types(OPAQUE);
    }
}
