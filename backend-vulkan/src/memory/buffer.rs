//! Buffers, each with its own memory allocation.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use ash::vk;
use syncline_core::backend::{ImportFd, memory_refused};
use syncline_core::{Error, Result, error::Object, handle::MemoryFd};

use crate::device::inner::Inner;
use crate::device::open::Device;
use crate::device::physical::{CORE_USAGES, TRANSFERS};

/// Properties of memory types that buffers must not use.
///
/// These properties need a feature that is not enabled, or do not apply to buffers.
const UNUSABLE: vk::MemoryPropertyFlags = vk::MemoryPropertyFlags::from_raw(
    vk::MemoryPropertyFlags::PROTECTED.as_raw()
        | vk::MemoryPropertyFlags::LAZILY_ALLOCATED.as_raw()
        | vk::MemoryPropertyFlags::DEVICE_COHERENT_AMD.as_raw()
        | vk::MemoryPropertyFlags::DEVICE_UNCACHED_AMD.as_raw()
        | vk::MemoryPropertyFlags::RDMA_CAPABLE_NV.as_raw(),
);

/// All reads and writes.
const ALL_ACCESS: vk::AccessFlags = vk::AccessFlags::from_raw(
    vk::AccessFlags::MEMORY_READ.as_raw() | vk::AccessFlags::MEMORY_WRITE.as_raw(),
);

/// A `VkBuffer` with a `VkDeviceMemory` that is only for it. Cheap to clone.
///
/// All queue families may use the buffer at once, without transfers of ownership. The last handle
/// frees the buffer.
#[derive(Clone)]
pub struct Buffer(Arc<Memory>);

/// The buffer and memory behind a [`Buffer`].
struct Memory {
    device: Arc<Inner>,
    object: Object,
    buffer: vk::Buffer,
    memory: vk::DeviceMemory,
    size: u64,
    /// The size of the whole allocation in bytes.
    allocated: u64,
    dedicated: bool,
    shared: bool,
    imported: bool,
    concurrent: bool,
    mapping: Option<Mapping>,
}

/// The address where the memory is mapped until it is freed.
struct Mapping(NonNull<AtomicU32>);

// SAFETY: a mapping belongs to the process and not to a thread, and is lent out only as atomics.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// The memory that a buffer is created with.
#[derive(Clone, Copy)]
pub(crate) enum MemoryKind<'h> {
    Device,
    /// Device memory that can be exported.
    Exportable,
    /// The memory of a handle that an exportable buffer was created with.
    Imported(&'h MemoryFd),
    /// Host-visible memory, mapped.
    Host,
}

impl MemoryKind<'_> {
    /// True if another API or another `VkDevice` may use the memory too.
    const fn is_shared(self) -> bool {
        matches!(self, Self::Exportable | Self::Imported(_))
    }
}

impl Buffer {
    /// The raw buffer, valid while a handle lives.
    #[must_use]
    pub fn raw(&self) -> vk::Buffer {
        self.0.buffer
    }

    /// The size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.0.size
    }

    /// The words, if the memory is mapped, without an incomplete word at the end.
    ///
    /// Writes of the device are visible once a point after them is reached.
    #[must_use]
    pub fn as_words(&self) -> Option<&[AtomicU32]> {
        let words = usize::try_from(self.0.size / 4).ok()?;
        // A forked child need not inherit the driver's mappings.
        let mapping = self.0.mapping.as_ref();
        let Mapping(start) = mapping.filter(|_| !self.0.device.is_forked())?;
        // SAFETY: all of the memory is mapped until it is freed, which `self` prevents, and it is
        // at least as large as the buffer. It is aligned to at least 64 bytes
        // (`minMemoryMapAlignment`), is initialized with zeroes, and the host accesses it only
        // through atomics.
        Some(unsafe { std::slice::from_raw_parts(start.as_ptr(), words) })
    }

    /// The name in errors.
    #[must_use]
    pub fn object(&self) -> &Object {
        &self.0.object
    }

    /// What a submission keeps of the buffer.
    pub(crate) fn kept(&self) -> Arc<dyn Any + Send + Sync> {
        self.0.clone()
    }

    /// The memory of the buffer, which a handle is exported from.
    pub(crate) fn memory(&self) -> vk::DeviceMemory {
        self.0.memory
    }

    /// The size of the whole allocation in bytes.
    pub(crate) fn allocated_size(&self) -> u64 {
        self.0.allocated
    }

    /// True if the memory is a dedicated allocation.
    pub(crate) fn is_dedicated(&self) -> bool {
        self.0.dedicated
    }

    pub(crate) fn device(&self) -> &Arc<Inner> {
        &self.0.device
    }

    /// True if the buffer was exported or imported, so that another API or `VkDevice` may own it.
    ///
    /// The application's own commands acquire such a buffer from `VK_QUEUE_FAMILY_EXTERNAL` first,
    /// with [`Buffer::acquire_barrier`], and release it at the end, with
    /// [`Buffer::release_barrier`]. [`Recorder::acquire`](crate::Recorder::acquire) does both.
    #[must_use]
    pub fn is_exported(&self) -> bool {
        self.0.shared
    }

    /// True if both buffers may use the same memory.
    ///
    /// An imported buffer may use the memory of any other exported or imported buffer. Drivers do
    /// not tell whether two handles hold the same memory.
    pub(crate) fn may_alias(&self, other: &Self) -> bool {
        let one_imported = self.0.imported || other.0.imported;
        self.raw() == other.raw() || (self.0.shared && other.0.shared && one_imported)
    }

    /// The barrier that acquires an exported buffer from the other API, for queues of `family`.
    ///
    /// Pass it to `vkCmdPipelineBarrier` at the beginning of the application's own commands, with
    /// `VK_PIPELINE_STAGE_ALL_COMMANDS_BIT` on both sides. Returns `None` for a buffer that is not
    /// exported, which needs no barrier.
    ///
    /// See the ownership transfer to `VK_QUEUE_FAMILY_EXTERNAL` (Vulkan 1.3, 7.7.4).
    #[must_use]
    pub fn acquire_barrier(&self, family: u32) -> Option<vk::BufferMemoryBarrier<'static>> {
        let barrier = self.transfer_barrier()?;
        Some(
            barrier
                .dst_access_mask(ALL_ACCESS)
                .src_queue_family_index(vk::QUEUE_FAMILY_EXTERNAL)
                .dst_queue_family_index(self.family_in_transfers(family)),
        )
    }

    /// The barrier that releases an exported buffer to the other API, at the end of the commands.
    ///
    /// See [`Buffer::acquire_barrier`].
    #[must_use]
    pub fn release_barrier(&self, family: u32) -> Option<vk::BufferMemoryBarrier<'static>> {
        let barrier = self.transfer_barrier()?;
        Some(
            barrier
                .src_access_mask(ALL_ACCESS)
                .src_queue_family_index(self.family_in_transfers(family))
                .dst_queue_family_index(vk::QUEUE_FAMILY_EXTERNAL),
        )
    }

    fn transfer_barrier(&self) -> Option<vk::BufferMemoryBarrier<'static>> {
        let whole = vk::BufferMemoryBarrier::default()
            .buffer(self.0.buffer)
            .size(vk::WHOLE_SIZE);
        self.0.shared.then_some(whole)
    }

    /// The queue family for a transfer of ownership. A concurrent buffer belongs to no family.
    fn family_in_transfers(&self, family: u32) -> u32 {
        if self.0.concurrent {
            vk::QUEUE_FAMILY_IGNORED
        } else {
            family
        }
    }

    /// True if queues of several families use the buffer without transfers of ownership.
    ///
    /// A buffer is concurrent if the physical device has more than one family for graphics, compute
    /// or transfer, whatever queues the `VkDevice` has. In transfers to or from another API, the
    /// family of a concurrent buffer is `VK_QUEUE_FAMILY_IGNORED`.
    #[must_use]
    pub fn is_concurrent(&self) -> bool {
        self.0.concurrent
    }
}

impl Device {
    /// Creates a zeroed buffer in host-visible, coherent memory, which stays mapped.
    ///
    /// The memory is cached if the device has such memory. Transfers are always among the usages.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a size of 0, and for a usage that is not of Vulkan 1.0. Other
    /// usages need features or extensions that the device may not have enabled. A driver error.
    pub fn host_buffer(&self, size: u64, usage: vk::BufferUsageFlags) -> Result<Buffer> {
        self.make_buffer(size, usage, MemoryKind::Host)
    }

    /// Creates a buffer in device-local memory that cannot be exported.
    ///
    /// Transfers are always among the usages.
    ///
    /// # Errors
    /// Same errors as [`Device::host_buffer`].
    pub fn device_buffer(&self, size: u64, usage: vk::BufferUsageFlags) -> Result<Buffer> {
        self.make_buffer(size, usage, MemoryKind::Device)
    }

    /// Calls `vkCreateBuffer`, `vkAllocateMemory`, `vkBindBufferMemory` and `vkMapMemory`.
    ///
    /// Does not consume an imported handle.
    pub(crate) fn make_buffer(
        &self,
        size: u64,
        usage: vk::BufferUsageFlags,
        kind: MemoryKind<'_>,
    ) -> Result<Buffer> {
        let object = Object::new("buffer", "");
        if size == 0 {
            return Err(Error::unsupported(
                &object,
                "be empty",
                "a VkBuffer has at least one byte",
            ));
        }
        // No allocation may be larger than its heap (VUID-vkAllocateMemory-pAllocateInfo-01713),
        // and drivers add to sizes without checking for overflow.
        let properties = self.memory_properties();
        let heaps = properties.memory_heaps_as_slice().iter();
        if heaps.map(|heap| heap.size).max().unwrap_or(0) < size {
            return Err(self.too_large(size));
        }
        let others = usage & !CORE_USAGES;
        if !others.is_empty() {
            return Err(Error::unsupported(
                &object,
                format!("be used as {others:?}"),
                "that needs a feature or an extension, which the device is not known to have enabled",
            ));
        }
        let usage = match kind.is_shared() {
            true => CORE_USAGES,
            false => usage | TRANSFERS,
        };
        let device = self.inner();
        device.require_maker()?;
        let failed = |call| move |code| device.failed(device.object(), call, code);
        let handles = match kind.is_shared() {
            true => vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD,
            false => vk::ExternalMemoryHandleTypeFlags::empty(),
        };

        // All families of the physical device, not only those with queues on this `VkDevice`. The
        // device that imports the memory may have other queues, and must create an identical
        // buffer.
        let families = device.families();
        let concurrent = families.len() > 1;
        let mut external = vk::ExternalMemoryBufferCreateInfo::default().handle_types(handles);
        let mut info = vk::BufferCreateInfo::default().size(size).usage(usage);
        if concurrent {
            info = info
                .sharing_mode(vk::SharingMode::CONCURRENT)
                .queue_family_indices(families);
        }
        if kind.is_shared() {
            info = info.push_next(&mut external);
        }
        // SAFETY: `info` is valid: the size is not 0, and the usages need no feature. Each family
        // is one of the physical device's and appears once. It need not have a queue
        // (VUID-VkBufferCreateInfo-sharingMode-01419). The callers have checked that the device
        // exports or imports buffers of these usages as these handles.
        let buffer =
            unsafe { device.raw().create_buffer(&info, None) }.map_err(failed("vkCreateBuffer"))?;
        // From here on dropping `made` frees everything.
        let mut made = Memory {
            device: device.clone(),
            object,
            buffer,
            memory: vk::DeviceMemory::null(),
            size,
            allocated: 0,
            dedicated: false,
            shared: kind.is_shared(),
            imported: matches!(kind, MemoryKind::Imported(_)),
            concurrent,
            mapping: None,
        };

        let mut dedicated = vk::MemoryDedicatedRequirements::default();
        let mut needs = vk::MemoryRequirements2::default().push_next(&mut dedicated);
        let requirements_info = vk::BufferMemoryRequirementsInfo2::default().buffer(buffer);
        // SAFETY: the buffer was just created on this device, and the call fills the chained
        // structures.
        unsafe {
            device
                .raw()
                .get_buffer_memory_requirements2(&requirements_info, &mut needs)
        };
        let needs = needs.memory_requirements;
        if needs.size < size {
            // The driver has rounded the size up, and it overflowed.
            return Err(self.too_large(size));
        }
        let required = dedicated.requires_dedicated_allocation == vk::TRUE;
        made.dedicated = match kind {
            // As the exporter allocated it.
            MemoryKind::Imported(handle) => handle.dedicated(),
            // Always dedicated, because exporters and importers agree on dedicated memory more
            // often.
            MemoryKind::Exportable => true,
            _ => required || dedicated.prefers_dedicated_allocation == vk::TRUE,
        };
        made.allocated = needs.size;
        let mut duplicate = None;
        if let MemoryKind::Imported(handle) = kind {
            let refused = |reason: String| memory_refused(self.object(), handle, reason);
            if handle.size() < needs.size {
                let needed = needs.size;
                return Err(refused(format!(
                    "a buffer of {size} bytes needs {needed} bytes of it"
                )));
            }
            // VUID-VkMemoryDedicatedAllocateInfo-buffer-02965.
            if handle.dedicated() && handle.size() != needs.size {
                let needed = needs.size;
                return Err(refused(format!(
                    "it was made for one buffer alone, and a buffer of {size} bytes has {needed} bytes"
                )));
            }
            if required && !handle.dedicated() {
                return Err(refused("it was not made for one buffer alone".into()));
            }
            made.allocated = handle.size();
            // The driver takes the duplicate if the allocation succeeds. A later step may still
            // fail, so the handle itself is not passed.
            let clone = ImportFd::duplicate(handle);
            duplicate = Some(clone.map_err(|error| refused(error.to_string()))?);
        }
        let fd = duplicate.as_ref().map_or(-1, ImportFd::number);
        let mut import = vk::ImportMemoryFdInfoKHR::default()
            .handle_type(handles)
            .fd(fd);
        let mut export = vk::ExportMemoryAllocateInfo::default().handle_types(handles);
        let mut dedicated_info = vk::MemoryDedicatedAllocateInfo::default().buffer(buffer);
        let mut info = vk::MemoryAllocateInfo::default()
            .allocation_size(made.allocated)
            .memory_type_index(self.memory_type(needs.memory_type_bits, made.allocated, kind)?);
        match kind {
            MemoryKind::Exportable => info = info.push_next(&mut export),
            MemoryKind::Imported(_) => info = info.push_next(&mut import),
            MemoryKind::Device | MemoryKind::Host => {}
        }
        if made.dedicated {
            info = info.push_next(&mut dedicated_info);
        }
        // SAFETY: `info` is valid: the size is at least what the buffer requires, and exactly that
        // for dedicated memory. The memory type is allowed for the buffer. An imported descriptor
        // is open. `MemoryFd::from_fd` guarantees that it is memory of the same GPU and driver. Its
        // size, memory type and dedicated buffer are those used here
        // (VUID-VkMemoryAllocateInfo-allocationSize-01742,
        // VUID-VkMemoryDedicatedAllocateInfo-buffer-01879).
        let allocated = unsafe { device.raw().allocate_memory(&info, None) };
        made.memory = allocated.map_err(|code| match kind {
            MemoryKind::Imported(handle) => {
                let what = || format!("memory of {} bytes", handle.size());
                self.import_error("vkAllocateMemory", code, &what)
            }
            _ => failed("vkAllocateMemory")(code),
        })?;
        if let Some(duplicate) = duplicate {
            duplicate.taken();
        }
        // SAFETY: both were just created on this device and for each other. The buffer is bound
        // once, to all of its memory.
        unsafe { device.raw().bind_buffer_memory(buffer, made.memory, 0) }
            .map_err(failed("vkBindBufferMemory"))?;
        if matches!(kind, MemoryKind::Host) {
            // SAFETY: memory of a host-visible type, just allocated and not mapped yet. Freeing it
            // unmaps it.
            let start = unsafe {
                device
                    .raw()
                    .map_memory(made.memory, 0, vk::WHOLE_SIZE, vk::MemoryMapFlags::empty())
            };
            let start = start.map_err(failed("vkMapMemory"))?.cast::<u8>();
            let length = usize::try_from(size).map_err(|_| self.too_large(size))?;
            // SAFETY: all of it is mapped, which is at least `size` bytes. No other thread has it
            // yet.
            unsafe { start.write_bytes(0, length) };
            made.mapping = NonNull::new(start.cast()).map(Mapping);
        }
        Ok(Buffer(Arc::new(made)))
    }

    fn too_large(&self, size: u64) -> Error {
        let asked = format!("make a buffer of {size} bytes");
        Error::unsupported(
            self.object(),
            asked,
            "no memory heap of the device is so large",
        )
    }

    fn memory_properties(&self) -> vk::PhysicalDeviceMemoryProperties {
        // SAFETY: the physical device belongs to the instance, and the device keeps both.
        unsafe {
            self.instance()
                .get_physical_device_memory_properties(self.physical())
        }
    }

    /// The first allowed memory type with the preferred properties, else with the required ones.
    ///
    /// Its heap has at least `bytes` bytes.
    fn memory_type(&self, allowed: u32, bytes: u64, kind: MemoryKind<'_>) -> Result<u32> {
        use vk::MemoryPropertyFlags as P;
        let preference: &[P] = match kind {
            MemoryKind::Host => &[
                P::from_raw(
                    P::HOST_VISIBLE.as_raw() | P::HOST_COHERENT.as_raw() | P::HOST_CACHED.as_raw(),
                ),
                P::from_raw(P::HOST_VISIBLE.as_raw() | P::HOST_COHERENT.as_raw()),
            ],
            MemoryKind::Device | MemoryKind::Exportable | MemoryKind::Imported(_) => {
                &[P::DEVICE_LOCAL, P::empty()]
            }
        };
        let properties = self.memory_properties();
        let types = properties.memory_types_as_slice();
        let heap_size = |of: &vk::MemoryType| properties.memory_heaps[of.heap_index as usize].size;
        preference
            .iter()
            .find_map(|&wanted| {
                (0..).zip(types).find_map(|(index, memory_type)| {
                    let fits = allowed & (1 << index) != 0
                        && memory_type.property_flags.contains(wanted)
                        && !memory_type.property_flags.intersects(UNUSABLE)
                        && bytes <= heap_size(memory_type);
                    fits.then_some(index)
                })
            })
            .ok_or_else(|| {
                let reason =
                    "no memory type of the device allows it, in a heap that is large enough";
                Error::unsupported(self.object(), "make such a buffer", reason)
            })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let Some(device) = self.device.for_destroy() else {
            return;
        };
        // SAFETY: both were created here on this device, which is alive. Nothing uses them, because
        // each submission in flight keeps an `Arc` of this. Null memory is ignored.
        unsafe {
            device.destroy_buffer(self.buffer, None);
            device.free_memory(self.memory, None);
        }
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({} bytes)", self.0.object, self.0.size)
    }
}
