//! Buffers with memory of their own.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use ash::vk;
use smallvec::SmallVec;
use syncline_core::backend::Device as _;
use syncline_core::{Object, Result};

use crate::device::{Device, Inner};
use crate::error::unsupported;

/// What every buffer can do, whatever else it was made for.
pub(crate) const TRANSFERS: vk::BufferUsageFlags = vk::BufferUsageFlags::from_raw(
    vk::BufferUsageFlags::TRANSFER_SRC.as_raw() | vk::BufferUsageFlags::TRANSFER_DST.as_raw(),
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
    exported: bool,
    concurrent: bool,
    mapping: Option<Mapping>,
}

/// Where the memory is mapped, until it is freed.
struct Mapping(NonNull<AtomicU32>);

// SAFETY: it is only ever lent out as atomics.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// Where a buffer's memory lies.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Device,
    /// On the device, and can be exported.
    Exportable,
    /// Mapped.
    Host,
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
        // SAFETY: mapped whole and at least 64-aligned until the memory is freed, which `self` prevents,
        // and only ever touched by the host through atomics.
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

    /// True if another API may hold it: an application's own commands take it from `VK_QUEUE_FAMILY_EXTERNAL` first
    /// ([`Buffer::acquire_barrier`]) and give it back ([`Buffer::release_barrier`]), as
    /// [`Recorder::acquire`](crate::Recorder::acquire) does.
    #[must_use]
    pub fn is_exported(&self) -> bool {
        self.0.exported
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
        self.0.exported.then_some(whole)
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
    /// `VK_QUEUE_FAMILY_IGNORED` then.
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
    /// [`Error::Unsupported`](syncline_core::Error::Unsupported) for a size of 0; a driver error.
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

    /// `vkCreateBuffer`, `vkAllocateMemory`, `vkBindBufferMemory`, `vkMapMemory`.
    pub(crate) fn make_buffer(
        &self,
        size: u64,
        usage: vk::BufferUsageFlags,
        place: Place,
    ) -> Result<Buffer> {
        let object = Object::new("buffer", "");
        if size == 0 {
            return Err(unsupported(
                &object,
                "be empty",
                "a VkBuffer has at least one byte",
            ));
        }
        let device = &self.0;
        let failed = |call| move |code| device.failed(&device.object, call, code);
        let exports = if place == Place::Exportable {
            vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD
        } else {
            vk::ExternalMemoryHandleTypeFlags::empty()
        };

        let mut families: SmallVec<[u32; 8]> = device
            .queues
            .iter()
            .map(|queue| queue.family.index)
            .collect();
        families.sort_unstable();
        families.dedup();
        let mut external = vk::ExternalMemoryBufferCreateInfo::default().handle_types(exports);
        let mut info = vk::BufferCreateInfo::default()
            .size(size)
            .usage(usage | TRANSFERS);
        if families.len() > 1 {
            info = info
                .sharing_mode(vk::SharingMode::CONCURRENT)
                .queue_family_indices(&families);
        }
        if !exports.is_empty() {
            info = info.push_next(&mut external);
        }
        // SAFETY: `info` is valid; handle types were checked by whoever asks for them.
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
            exported: place == Place::Exportable,
            concurrent: families.len() > 1,
            mapping: None,
        };

        let mut dedicated = vk::MemoryDedicatedRequirements::default();
        let mut needs = vk::MemoryRequirements2::default().push_next(&mut dedicated);
        let question = vk::BufferMemoryRequirementsInfo2::default().buffer(buffer);
        // SAFETY: the buffer is a fresh one of this device.
        unsafe {
            device
                .raw()
                .get_buffer_memory_requirements2(&question, &mut needs)
        };
        let needs = needs.memory_requirements;
        // Exporters and importers agree more often on dedicated memory, so what is shared always has it.
        made.dedicated = place == Place::Exportable
            || dedicated.requires_dedicated_allocation == vk::TRUE
            || dedicated.prefers_dedicated_allocation == vk::TRUE;
        made.allocated = needs.size;
        let mut export = vk::ExportMemoryAllocateInfo::default().handle_types(exports);
        let mut alone = vk::MemoryDedicatedAllocateInfo::default().buffer(buffer);
        let mut info = vk::MemoryAllocateInfo::default()
            .allocation_size(needs.size)
            .memory_type_index(self.memory_type(needs.memory_type_bits, place)?);
        if !exports.is_empty() {
            info = info.push_next(&mut export);
        }
        if made.dedicated {
            info = info.push_next(&mut alone);
        }
        // SAFETY: `info` is valid and as the requirements say; the buffer is bound once, to all of its memory.
        unsafe {
            made.memory = device
                .raw()
                .allocate_memory(&info, None)
                .map_err(failed("vkAllocateMemory"))?;
            device
                .raw()
                .bind_buffer_memory(buffer, made.memory, 0)
                .map_err(failed("vkBindBufferMemory"))?;
        }
        if place == Place::Host {
            // SAFETY: host-visible memory that is not mapped yet; freeing it unmaps it.
            let start = unsafe {
                device
                    .raw()
                    .map_memory(made.memory, 0, vk::WHOLE_SIZE, vk::MemoryMapFlags::empty())
            };
            let start = start.map_err(failed("vkMapMemory"))?.cast::<u8>();
            // SAFETY: mapped, at least `size` bytes long, and nobody else's yet.
            unsafe { start.write_bytes(0, usize::try_from(size).unwrap_or(0)) };
            made.mapping = NonNull::new(start.cast()).map(Mapping);
        }
        Ok(Buffer(Arc::new(made)))
    }

    /// The first allowed memory type with the properties wanted most, else with those needed.
    fn memory_type(&self, allowed: u32, place: Place) -> Result<u32> {
        use vk::MemoryPropertyFlags as P;
        let preference: &[P] = match place {
            Place::Host => &[
                P::from_raw(
                    P::HOST_VISIBLE.as_raw() | P::HOST_COHERENT.as_raw() | P::HOST_CACHED.as_raw(),
                ),
                P::from_raw(P::HOST_VISIBLE.as_raw() | P::HOST_COHERENT.as_raw()),
            ],
            Place::Device | Place::Exportable => &[P::DEVICE_LOCAL, P::empty()],
        };
        let native = &self.0.native;
        // SAFETY: the physical device is the instance's.
        let types = unsafe {
            native
                .instance
                .get_physical_device_memory_properties(native.physical)
        };
        let types = types.memory_types_as_slice();
        preference
            .iter()
            .find_map(|&wanted| {
                (0..).zip(types).find_map(|(index, kind)| {
                    let fits = allowed & (1 << index) != 0 && kind.property_flags.contains(wanted);
                    fits.then_some(index)
                })
            })
            .ok_or_else(|| {
                let reason = "no memory type of the device allows it";
                unsupported(self.object(), "make such a buffer", reason)
            })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let device = self.device.raw();
        // SAFETY: ours; submissions in flight that use it keep it. Null memory is ignored.
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
