//! Buffers with memory of their own.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::any::Any;
use std::os::fd::{AsFd, AsRawFd, IntoRawFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use ash::vk;
use syncline_core::{Error, MemoryFd, Object, Result};

use crate::device::open::{Device, Inner};
use crate::driver::error::unsupported;

/// What every buffer can do, whatever else it was made for.
pub(crate) const TRANSFERS: vk::BufferUsageFlags = vk::BufferUsageFlags::from_raw(
    vk::BufferUsageFlags::TRANSFER_SRC.as_raw() | vk::BufferUsageFlags::TRANSFER_DST.as_raw(),
);

/// The usages of Vulkan 1.0, none of which needs a feature or an extension. Buffers that leave or enter have them all,
/// because both sides must make the same buffer of the same memory.
pub(crate) const PLAIN: vk::BufferUsageFlags = vk::BufferUsageFlags::from_raw(
    TRANSFERS.as_raw()
        | vk::BufferUsageFlags::UNIFORM_TEXEL_BUFFER.as_raw()
        | vk::BufferUsageFlags::STORAGE_TEXEL_BUFFER.as_raw()
        | vk::BufferUsageFlags::UNIFORM_BUFFER.as_raw()
        | vk::BufferUsageFlags::STORAGE_BUFFER.as_raw()
        | vk::BufferUsageFlags::INDEX_BUFFER.as_raw()
        | vk::BufferUsageFlags::VERTEX_BUFFER.as_raw()
        | vk::BufferUsageFlags::INDIRECT_BUFFER.as_raw(),
);

/// Properties of memory types that need a feature which is not enabled, or that no buffer here can have.
const UNUSABLE: vk::MemoryPropertyFlags = vk::MemoryPropertyFlags::from_raw(
    vk::MemoryPropertyFlags::PROTECTED.as_raw()
        | vk::MemoryPropertyFlags::LAZILY_ALLOCATED.as_raw()
        | vk::MemoryPropertyFlags::DEVICE_COHERENT_AMD.as_raw()
        | vk::MemoryPropertyFlags::DEVICE_UNCACHED_AMD.as_raw()
        | vk::MemoryPropertyFlags::RDMA_CAPABLE_NV.as_raw(),
);

/// Whatever a shader or a transfer does to a buffer.
const EVERYTHING: vk::AccessFlags = vk::AccessFlags::from_raw(
    vk::AccessFlags::MEMORY_READ.as_raw() | vk::AccessFlags::MEMORY_WRITE.as_raw(),
);

/// A `VkBuffer` bound to a `VkDeviceMemory` of its own; all queue families may use it at once, so no
/// ownership is transferred. Cheap to clone; freed with the last handle.
#[derive(Clone)]
pub struct Buffer(Arc<Memory>);

/// What a [`Buffer`] is a handle of.
pub(crate) struct Memory {
    pub(crate) device: Arc<Inner>,
    pub(crate) object: Object,
    buffer: vk::Buffer,
    pub(crate) memory: vk::DeviceMemory,
    size: u64,
    /// Bytes of the whole allocation.
    pub(crate) allocated: u64,
    pub(crate) dedicated: bool,
    shared: bool,
    concurrent: bool,
    mapping: Option<Mapping>,
}

/// Where the memory is mapped, until it is freed.
struct Mapping(NonNull<AtomicU32>);

// SAFETY: a mapping is the process's and not a thread's, and it is lent out as atomics alone.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// Where a buffer's memory lies.
#[derive(Clone, Copy)]
pub(crate) enum Place<'h> {
    Device,
    /// On the device, and can be exported.
    Exportable,
    /// The memory behind a handle, which an exportable buffer was made with.
    Imported(&'h MemoryFd),
    /// Mapped.
    Host,
}

impl Place<'_> {
    /// True if another API or another `VkDevice` may have the memory, too.
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

    /// Bytes that it holds.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.0.size
    }

    /// Its words as the host sees them, if it is mapped; a last odd byte or three are left out. What
    /// the device has written is there once the point that follows the writing is reached.
    #[must_use]
    pub fn as_words(&self) -> Option<&[AtomicU32]> {
        let words = usize::try_from(self.0.size / 4).ok()?;
        let Mapping(start) = self.0.mapping.as_ref()?;
        // SAFETY: the whole of the memory is mapped until it is freed, which `self` prevents, and it is at least as large
        // as the buffer. It is aligned to 64 bytes at least (`minMemoryMapAlignment`), was written with zeroes, and the host
        // touches it through atomics alone.
        Some(unsafe { std::slice::from_raw_parts(start.as_ptr(), words) })
    }

    /// Its name in errors.
    #[must_use]
    pub fn object(&self) -> &Object {
        &self.0.object
    }

    /// Something for a submission to keep.
    pub(crate) fn memory(&self) -> Arc<dyn Any + Send + Sync> {
        self.0.clone()
    }

    pub(crate) fn parts(&self) -> &Memory {
        &self.0
    }

    pub(crate) fn device(&self) -> &Arc<Inner> {
        &self.0.device
    }

    /// True if another API or another `VkDevice` may hold it, as it was exported or imported: an application's own commands take it from `VK_QUEUE_FAMILY_EXTERNAL` first
    /// ([`Buffer::acquire_barrier`]) and give it back ([`Buffer::release_barrier`]), as
    /// [`Recorder::acquire`](crate::Recorder::acquire) does.
    #[must_use]
    pub fn is_exported(&self) -> bool {
        self.0.shared
    }

    /// What takes the buffer from the other API, at the beginning of an application's own commands for a queue of this
    /// family: for `vkCmdPipelineBarrier`, with all commands as the stages on both sides. `None` for a buffer that is not
    /// exported, which needs nothing.
    ///
    /// See the ownership transfer to `VK_QUEUE_FAMILY_EXTERNAL` (Vulkan 1.3, 7.7.4).
    #[must_use]
    pub fn acquire_barrier(&self, family: u32) -> Option<vk::BufferMemoryBarrier<'static>> {
        let barrier = self.transfer_barrier()?;
        Some(
            barrier
                .dst_access_mask(EVERYTHING)
                .src_queue_family_index(vk::QUEUE_FAMILY_EXTERNAL)
                .dst_queue_family_index(self.family_in_transfers(family)),
        )
    }

    /// What gives it back at the end; see [`Buffer::acquire_barrier`].
    #[must_use]
    pub fn release_barrier(&self, family: u32) -> Option<vk::BufferMemoryBarrier<'static>> {
        let barrier = self.transfer_barrier()?;
        Some(
            barrier
                .src_access_mask(EVERYTHING)
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

    /// A buffer of several families belongs to none of them.
    fn family_in_transfers(&self, family: u32) -> u32 {
        if self.0.concurrent {
            vk::QUEUE_FAMILY_IGNORED
        } else {
            family
        }
    }

    /// True if queues of several families use it without handing it over: in a transfer of ownership its own family is
    /// `VK_QUEUE_FAMILY_IGNORED` then. So it is where the physical device has more than one family for graphics,
    /// compute or transfer, whatever queues the `VkDevice` has.
    #[must_use]
    pub fn is_concurrent(&self) -> bool {
        self.0.concurrent
    }
}

impl Device {
    /// A buffer of zeroes in host-visible, coherent memory, cached where there is such, and mapped for
    /// good. Transfers are always among its uses.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a size of 0, and for a usage that is not one of Vulkan 1.0: others need features or
    /// extensions, which the device may not have enabled. A driver error.
    pub fn host_buffer(&self, size: u64, usage: vk::BufferUsageFlags) -> Result<Buffer> {
        self.make_buffer(size, usage, Place::Host)
    }

    /// A buffer in device-local memory, which stays in this process. Transfers are always among its uses.
    ///
    /// # Errors
    /// As [`Device::host_buffer`].
    pub fn device_buffer(&self, size: u64, usage: vk::BufferUsageFlags) -> Result<Buffer> {
        self.make_buffer(size, usage, Place::Device)
    }

    /// `vkCreateBuffer`, `vkAllocateMemory`, `vkBindBufferMemory`, `vkMapMemory`. Does not consume an imported handle.
    pub(crate) fn make_buffer(
        &self,
        size: u64,
        usage: vk::BufferUsageFlags,
        place: Place<'_>,
    ) -> Result<Buffer> {
        let object = Object::new("buffer", "");
        if size == 0 {
            return Err(unsupported(
                &object,
                "be empty",
                "a VkBuffer has at least one byte",
            ));
        }
        // No allocation is larger than its heap (VUID-vkAllocateMemory-pAllocateInfo-01713), and drivers add to sizes unchecked.
        let properties = self.memory_properties();
        let heaps = properties.memory_heaps_as_slice().iter();
        if heaps.map(|heap| heap.size).max().unwrap_or(0) < size {
            return Err(self.too_large(size));
        }
        let others = usage & !PLAIN;
        if !others.is_empty() {
            return Err(unsupported(
                &object,
                format!("be used as {others:?}"),
                "that needs a feature or an extension, which the device is not known to have enabled",
            ));
        }
        let usage = match place.is_shared() {
            true => PLAIN,
            false => usage | TRANSFERS,
        };
        let device = &self.0;
        let failed = |call| move |code| device.failed(&device.object, call, code);
        let handles = match place.is_shared() {
            true => vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD,
            false => vk::ExternalMemoryHandleTypeFlags::empty(),
        };

        // Families of the physical device, and not those with queues on this `VkDevice`: the device that
        // imports the memory may have other queues, and must make an identical buffer.
        let families = device.families.as_slice();
        let concurrent = families.len() > 1;
        let mut external = vk::ExternalMemoryBufferCreateInfo::default().handle_types(handles);
        let mut info = vk::BufferCreateInfo::default().size(size).usage(usage);
        if concurrent {
            info = info
                .sharing_mode(vk::SharingMode::CONCURRENT)
                .queue_family_indices(families);
        }
        if place.is_shared() {
            info = info.push_next(&mut external);
        }
        // SAFETY: `info` is valid: the size is not 0, and the usages need no feature. Each family is one of the physical
        // device's, and there once; it need not have a queue (VUID-VkBufferCreateInfo-sharingMode-01419). The callers
        // have checked that the device exports or imports buffers of these usages as these handles.
        let buffer =
            unsafe { device.raw().create_buffer(&info, None) }.map_err(failed("vkCreateBuffer"))?;
        // From here on `made` cleans up.
        let mut made = Memory {
            device: device.clone(),
            object,
            buffer,
            memory: vk::DeviceMemory::null(),
            size,
            allocated: 0,
            dedicated: false,
            shared: place.is_shared(),
            concurrent,
            mapping: None,
        };

        let mut dedicated = vk::MemoryDedicatedRequirements::default();
        let mut needs = vk::MemoryRequirements2::default().push_next(&mut dedicated);
        let question = vk::BufferMemoryRequirementsInfo2::default().buffer(buffer);
        // SAFETY: the buffer was just made on this device, and the structures chained are those that the call fills.
        unsafe {
            device
                .raw()
                .get_buffer_memory_requirements2(&question, &mut needs)
        };
        let needs = needs.memory_requirements;
        if needs.size < size {
            // Rounded up beyond the largest number.
            return Err(self.too_large(size));
        }
        let required = dedicated.requires_dedicated_allocation == vk::TRUE;
        made.dedicated = match place {
            // As it was allocated.
            Place::Imported(handle) => handle.dedicated(),
            // Exporters and importers agree more often on dedicated memory, so what is exported always has it.
            Place::Exportable => true,
            _ => required || dedicated.prefers_dedicated_allocation == vk::TRUE,
        };
        made.allocated = needs.size;
        let mut duplicate = None;
        if let Place::Imported(handle) = place {
            let refused = |reason: String| Error::Import {
                object: self.object().clone(),
                what: format!("memory of {} bytes", handle.size()),
                reason,
            };
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
            // The driver takes it if the allocation succeeds, and a later step may fail.
            let twin = handle.as_fd().try_clone_to_owned();
            duplicate = Some(twin.map_err(|error| refused(error.to_string()))?);
        }
        let fd = duplicate.as_ref().map_or(-1, AsRawFd::as_raw_fd);
        let mut import = vk::ImportMemoryFdInfoKHR::default()
            .handle_type(handles)
            .fd(fd);
        let mut export = vk::ExportMemoryAllocateInfo::default().handle_types(handles);
        let mut alone = vk::MemoryDedicatedAllocateInfo::default().buffer(buffer);
        let mut info = vk::MemoryAllocateInfo::default()
            .allocation_size(made.allocated)
            .memory_type_index(self.memory_type(needs.memory_type_bits, made.allocated, place)?);
        match place {
            Place::Exportable => info = info.push_next(&mut export),
            Place::Imported(_) => info = info.push_next(&mut import),
            Place::Device | Place::Host => {}
        }
        if made.dedicated {
            info = info.push_next(&mut alone);
        }
        // SAFETY: `info` is valid: the size is at least what the buffer requires, and exactly that in dedicated memory. The
        // memory type is allowed for the buffer. An imported descriptor is open, and by the contract of
        // `MemoryFd::from_fd` memory of the same GPU and driver, whose size, memory type and dedicated buffer are those
        // used here (VUID-VkMemoryAllocateInfo-allocationSize-01742, VUID-VkMemoryDedicatedAllocateInfo-buffer-01879).
        let allocated = unsafe { device.raw().allocate_memory(&info, None) };
        made.memory = allocated.map_err(|code| match place {
            Place::Imported(handle) => {
                let what = || format!("memory of {} bytes", handle.size());
                self.import_error("vkAllocateMemory", code, &what)
            }
            _ => failed("vkAllocateMemory")(code),
        })?;
        // The driver owns it from now on.
        let _ = duplicate.map(IntoRawFd::into_raw_fd);
        // SAFETY: both were just made on this device and for each other; the buffer is bound once, to all of its memory.
        unsafe { device.raw().bind_buffer_memory(buffer, made.memory, 0) }
            .map_err(failed("vkBindBufferMemory"))?;
        if matches!(place, Place::Host) {
            // SAFETY: memory of a host-visible type, which was just allocated and is not mapped yet; freeing it unmaps it.
            let start = unsafe {
                device
                    .raw()
                    .map_memory(made.memory, 0, vk::WHOLE_SIZE, vk::MemoryMapFlags::empty())
            };
            let start = start.map_err(failed("vkMapMemory"))?.cast::<u8>();
            let length = usize::try_from(size).map_err(|_| self.too_large(size))?;
            // SAFETY: mapped from its start to its end, which is at least `size` bytes, and no other thread has it yet.
            unsafe { start.write_bytes(0, length) };
            made.mapping = NonNull::new(start.cast()).map(Mapping);
        }
        Ok(Buffer(Arc::new(made)))
    }

    fn too_large(&self, size: u64) -> Error {
        let asked = format!("make a buffer of {size} bytes");
        unsupported(
            self.object(),
            asked,
            "no memory heap of the device is so large",
        )
    }

    fn memory_properties(&self) -> vk::PhysicalDeviceMemoryProperties {
        let native = &self.0.native;
        // SAFETY: the physical device is the instance's, and the device keeps both.
        unsafe {
            native
                .instance
                .get_physical_device_memory_properties(native.physical)
        }
    }

    /// The first allowed memory type with the properties wanted most, else with those needed, in a heap of so many bytes.
    fn memory_type(&self, allowed: u32, bytes: u64, place: Place<'_>) -> Result<u32> {
        use vk::MemoryPropertyFlags as P;
        let preference: &[P] = match place {
            Place::Host => &[
                P::from_raw(
                    P::HOST_VISIBLE.as_raw() | P::HOST_COHERENT.as_raw() | P::HOST_CACHED.as_raw(),
                ),
                P::from_raw(P::HOST_VISIBLE.as_raw() | P::HOST_COHERENT.as_raw()),
            ],
            Place::Device | Place::Exportable | Place::Imported(_) => {
                &[P::DEVICE_LOCAL, P::empty()]
            }
        };
        let properties = self.memory_properties();
        let types = properties.memory_types_as_slice();
        let heap = |kind: &vk::MemoryType| properties.memory_heaps[kind.heap_index as usize].size;
        preference
            .iter()
            .find_map(|&wanted| {
                (0..).zip(types).find_map(|(index, kind)| {
                    let fits = allowed & (1 << index) != 0
                        && kind.property_flags.contains(wanted)
                        && !kind.property_flags.intersects(UNUSABLE)
                        && bytes <= heap(kind);
                    fits.then_some(index)
                })
            })
            .ok_or_else(|| {
                let reason =
                    "no memory type of the device allows it, in a heap that is large enough";
                unsupported(self.object(), "make such a buffer", reason)
            })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let device = self.device.raw();
        // SAFETY: both were made here on this device, which is alive. Nothing uses them: each submission in flight keeps an
        // `Arc` of this. Null memory is ignored.
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
