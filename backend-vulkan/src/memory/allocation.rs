//! Device memory, which buffers and images are bound to.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use ash::vk;
use syncline_core::backend::kit::{ImportFd, TeardownGuard, memory_refused};
use syncline_core::handle::MemoryFd;
use syncline_core::internal::DroppedByMaker;
use syncline_core::{Error, Result, error::Object};

use crate::device::application_memory::{MemoryRange, MemoryRequest, Source};
use crate::device::inner::Inner;
use crate::device::memory_pool::Part;
use crate::device::open::Device;
use crate::memory::adopted::AllocationInfo;
use crate::memory::unbound::Resource;

/// A `VkDeviceMemory`, or a part of one. Cheap to clone.
///
/// It lives as long as a handle of it, or of a [`Buffer`](crate::Buffer) or
/// [`Image`](crate::Image) in it. A part is of a block that small private buffers share, and begins
/// at [`Allocation::offset`].
#[derive(Clone)]
pub struct Allocation(Arc<Memory>);

/// The memory behind an [`Allocation`].
struct Memory {
    object: Object,
    raw: vk::DeviceMemory,
    /// Where it begins in the `VkDeviceMemory`.
    offset: u64,
    size: u64,
    memory_type: u32,
    dedicated: bool,
    sharing: Sharing,
    mapping: Option<Mapping>,
    ownership: Ownership,
    /// The allocation of this process that was imported, if it was one.
    _exporter: Option<Allocation>,
    /// The last field. The drop of an application's source may free memory of the device.
    device: Arc<Inner>,
}

/// Whether another API or another `VkDevice` may use the memory too.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sharing {
    Private,
    Exportable,
    Imported,
}

/// What frees the memory.
enum Ownership {
    Ours,
    /// The device's pool. The part is taken when it is freed here.
    Pooled(Option<Part>),
    /// A source of the application. The range is taken when it goes to the source's list.
    Source(Arc<Source>, Option<MemoryRange>),
    /// The application. The owner, if there is one, is dropped here.
    Theirs(Option<DroppedByMaker<Arc<dyn Any + Send + Sync>>>),
}

/// The address where the memory is mapped until it is freed.
struct Mapping(NonNull<AtomicU32>);

// SAFETY: a mapping belongs to the process and not to a thread, and is lent out only as atomics.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// How memory is allocated.
#[derive(Clone, Copy)]
pub(crate) enum MemoryKind<'h> {
    Device,
    /// Device memory that can be exported.
    Exportable,
    /// The memory of a handle.
    Imported(&'h MemoryFd, Option<&'h Allocation>),
    /// Host-visible memory, mapped.
    Host,
}

impl MemoryKind<'_> {
    const fn sharing(self) -> Sharing {
        match self {
            Self::Device | Self::Host => Sharing::Private,
            Self::Exportable => Sharing::Exportable,
            Self::Imported(..) => Sharing::Imported,
        }
    }

    /// True if another API or another `VkDevice` may use the memory too.
    pub(crate) const fn is_shared(self) -> bool {
        !matches!(self.sharing(), Sharing::Private)
    }
}

impl Allocation {
    /// Calls `vkAllocateMemory`, and `vkMapMemory` for host memory, which it fills with zeroes.
    ///
    /// `dedicated` is the resource that the memory is for alone. Does not consume an imported
    /// handle, and keeps its exporter.
    ///
    /// # Safety
    /// `size` is at least what each resource needs that is bound to all of the memory, and exactly
    /// that for dedicated memory. `memory_type` is allowed for them.
    pub(crate) unsafe fn allocate(
        device: &Device,
        size: u64,
        memory_type: u32,
        dedicated: Option<Resource>,
        kind: MemoryKind<'_>,
    ) -> Result<Self> {
        let inner = device.inner();
        let failed = |call| move |code| inner.failed(inner.object(), call, code);
        let duplicate = match kind {
            // The driver takes the duplicate if the allocation succeeds. A later step may still
            // fail, so the handle itself is not passed.
            MemoryKind::Imported(handle, _) => {
                let duplicate = ImportFd::duplicate(handle);
                let refused = |error: std::io::Error| {
                    memory_refused(inner.object(), handle, error.to_string())
                };
                Some(duplicate.map_err(refused)?)
            }
            _ => None,
        };
        let handles = vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD;
        let mut import = vk::ImportMemoryFdInfoKHR::default()
            .handle_type(handles)
            .fd(duplicate.as_ref().map_or(-1, ImportFd::number));
        let mut export = vk::ExportMemoryAllocateInfo::default().handle_types(handles);
        let mut alone = vk::MemoryDedicatedAllocateInfo::default();
        match dedicated {
            Some(Resource::Buffer(raw)) => alone.buffer = raw,
            Some(Resource::Image(raw)) => alone.image = raw,
            None => {}
        }
        let mut info = vk::MemoryAllocateInfo::default()
            .allocation_size(size)
            .memory_type_index(memory_type);
        match kind {
            MemoryKind::Exportable => info = info.push_next(&mut export),
            MemoryKind::Imported(..) => info = info.push_next(&mut import),
            MemoryKind::Device | MemoryKind::Host => {}
        }
        if dedicated.is_some() {
            info = info.push_next(&mut alone);
        }
        // SAFETY: `info` is valid, as the caller guarantees for the size and the type. An imported
        // descriptor is open. `MemoryFd::from_fd` guarantees that it is memory of the same GPU and
        // driver. Its size, memory type and dedicated resource are those used here
        // (VUID-VkMemoryAllocateInfo-allocationSize-01742,
        // VUID-VkMemoryDedicatedAllocateInfo-buffer-01879,
        // VUID-VkMemoryDedicatedAllocateInfo-image-01878). The first rule is not about memory that
        // CUDA has made.
        let raw = unsafe { inner.raw().allocate_memory(&info, None) };
        let raw = raw.map_err(|code| match kind {
            MemoryKind::Imported(handle, _) => {
                let what = || format!("memory of {} bytes", handle.info().size);
                device.import_error("vkAllocateMemory", code, &what)
            }
            _ => failed("vkAllocateMemory")(code),
        })?;
        if let Some(duplicate) = duplicate {
            duplicate.taken();
        }
        // From here on dropping `made` frees it.
        let mut made = Memory {
            device: inner.clone(),
            object: Object::new("allocation", ""),
            raw,
            offset: 0,
            size,
            memory_type,
            dedicated: dedicated.is_some(),
            sharing: kind.sharing(),
            mapping: None,
            ownership: Ownership::Ours,
            _exporter: match kind {
                MemoryKind::Imported(_, exporter) => exporter.cloned(),
                _ => None,
            },
        };
        if matches!(kind, MemoryKind::Host) {
            let flags = vk::MemoryMapFlags::empty();
            // SAFETY: memory of a host-visible type, just allocated and not mapped yet. Freeing it
            // unmaps it.
            let start = unsafe { inner.raw().map_memory(raw, 0, vk::WHOLE_SIZE, flags) };
            let start = start.map_err(failed("vkMapMemory"))?.cast::<u8>();
            let length = usize::try_from(size).map_err(|_| device.too_large(size))?;
            // SAFETY: all of it is mapped. No other thread has it yet.
            unsafe { start.write_bytes(0, length) };
            made.mapping = NonNull::new(start.cast()).map(Mapping);
        }
        Ok(Self(Arc::new(made)))
    }

    /// Takes a part of a block of private memory, and fills it with zeroes if it is for the host.
    ///
    /// Returns `None` if such a buffer should have an allocation of its own, or if the driver gives
    /// no further block. See [`allocate`](crate::device::memory_pool::MemoryPool::allocate).
    pub(crate) fn from_pool(
        device: &Device,
        needs: &vk::MemoryRequirements,
        memory_type: u32,
        kind: MemoryKind<'_>,
    ) -> Option<Self> {
        let inner = device.inner();
        let part = inner.memory_pool().allocate(memory_type, needs)?;
        let (raw, offset, size, mapped) =
            (part.memory(), part.offset(), part.size(), part.mapped());
        // From here on dropping `made` frees the part.
        let mut made = Memory {
            device: inner.clone(),
            object: Object::new("allocation", ""),
            raw,
            offset,
            size,
            memory_type,
            dedicated: false,
            sharing: kind.sharing(),
            mapping: None,
            ownership: Ownership::Pooled(Some(part)),
            _exporter: None,
        };
        if matches!(kind, MemoryKind::Host) {
            let (start, length) = (mapped?, usize::try_from(size).ok()?);
            // SAFETY: all of the part is mapped. No other thread has it yet, and the device uses it
            // no more, because a part is freed after the last submission with its buffer.
            unsafe { start.cast::<u8>().write_bytes(0, length) };
            made.mapping = Some(Mapping(start));
        }
        Some(Self(Arc::new(made)))
    }

    /// Takes a range of an application's source, and fills it with zeroes if it is for the host.
    ///
    /// Called by calls of the application.
    pub(crate) fn from_source(
        device: &Device,
        source: &Arc<Source>,
        request: &MemoryRequest,
        kind: MemoryKind<'_>,
    ) -> Result<Self> {
        let inner = device.inner();
        let range = source
            .allocate(request)
            .map_err(|code| inner.failed(inner.object(), "vkAllocateMemory", code))?;
        let needs = request.requirements;
        let (raw, offset, mapped) = (range.memory, range.offset, range.mapped);
        // From here on dropping `made` frees the range.
        let mut made = Memory {
            device: inner.clone(),
            object: Object::new("allocation", "of a source"),
            raw,
            offset,
            size: needs.size,
            memory_type: needs.memory_type_bits.trailing_zeros(),
            dedicated: request.dedicated,
            sharing: kind.sharing(),
            mapping: None,
            ownership: Ownership::Source(source.clone(), Some(range)),
            _exporter: None,
        };
        let refused = |reason: &str| Error::unsupported(&made.object, "hold a buffer", reason);
        if !offset.is_multiple_of(needs.alignment) {
            return Err(refused(
                "the source has returned an offset that is not aligned",
            ));
        }
        if matches!(kind, MemoryKind::Host) {
            let start = mapped.map(NonNull::cast::<AtomicU32>);
            let start = start.filter(|start| start.as_ptr().addr().is_multiple_of(64));
            let (Some(start), Ok(length)) = (start, usize::try_from(needs.size)) else {
                return Err(refused("the source has not mapped it to a multiple of 64"));
            };
            // SAFETY: as the source guarantees, the whole range is mapped, and only it uses that.
            unsafe { start.cast::<u8>().write_bytes(0, length) };
            made.mapping = Some(Mapping(start));
        }
        Ok(Self(Arc::new(made)))
    }

    /// Memory of the application, which lives as long as `owner`.
    pub(crate) fn adopted(
        device: &Arc<Inner>,
        memory: vk::DeviceMemory,
        info: &AllocationInfo,
        owner: Option<Arc<dyn Any + Send + Sync>>,
    ) -> Self {
        Self(Arc::new(Memory {
            device: device.clone(),
            object: Object::new("allocation", "adopted"),
            raw: memory,
            offset: 0,
            size: info.size,
            memory_type: info.memory_type,
            dedicated: info.dedicated,
            sharing: match info.exportable {
                true => Sharing::Exportable,
                false => Sharing::Private,
            },
            mapping: None,
            ownership: Ownership::Theirs(owner.map(DroppedByMaker::new)),
            _exporter: None,
        }))
    }

    /// The raw memory, valid while a handle lives. The allocation begins at
    /// [`Allocation::offset`].
    #[must_use]
    pub fn raw(&self) -> vk::DeviceMemory {
        self.0.raw
    }

    /// Where the allocation begins in the `VkDeviceMemory`, in bytes.
    ///
    /// 0 unless it is a part of a block. Other buffers are in the rest of the block then.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.0.offset
    }

    /// The size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.0.size
    }

    /// The index of its memory type.
    #[must_use]
    pub fn memory_type(&self) -> u32 {
        self.0.memory_type
    }

    /// True if it is for one buffer or image alone (`VkMemoryDedicatedAllocateInfo`).
    #[must_use]
    pub fn is_dedicated(&self) -> bool {
        self.0.dedicated
    }

    /// True if it was allocated for export.
    pub(crate) fn is_exportable(&self) -> bool {
        self.0.sharing == Sharing::Exportable
    }

    /// True if it can be exported or was imported.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.0.sharing != Sharing::Private
    }

    /// The name in errors.
    #[must_use]
    pub fn object(&self) -> &Object {
        &self.0.object
    }

    /// The device that the memory belongs to.
    #[must_use]
    pub fn device(&self) -> Device {
        Device::of(self.0.device.clone())
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.0.device
    }

    /// True if another allocation may be the same memory, as far as drivers tell.
    pub(crate) fn may_alias(&self, other: &Self) -> bool {
        let is_imported = |of: &Self| of.0.sharing == Sharing::Imported;
        self.is_shared() && other.is_shared() && (is_imported(self) || is_imported(other))
    }

    /// `count` words at the offset `at`, if the memory is mapped.
    ///
    /// They lie within the memory, and `at` is a multiple of 4.
    pub(crate) fn words(&self, at: u64, count: usize) -> Option<&[AtomicU32]> {
        // A forked child need not inherit the driver's mappings.
        let mapping = self.0.mapping.as_ref();
        let Mapping(start) = mapping.filter(|_| !self.0.device.is_forked())?;
        let first = usize::try_from(at / 4).ok()?;
        // SAFETY: all of the memory is mapped until it is freed, which `self` prevents. Buffers lie
        // within it. It is aligned to at least 64 bytes: a mapping by `minMemoryMapAlignment`, and
        // each part of a block by the pool. It is initialized with zeroes, and the host accesses it
        // only through atomics.
        Some(unsafe { std::slice::from_raw_parts(start.as_ptr().add(first), count) })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        match &mut self.ownership {
            Ownership::Pooled(part) => {
                // In a forked child the blocks belong to the parent.
                if let Some(_device) = self.device.for_destroy()
                    && let Some(part) = part.take()
                {
                    self.device.memory_pool().free(part);
                }
            }
            Ownership::Source(source, range) => {
                if let Some(range) = range.take() {
                    match self.device.for_destroy() {
                        Some(_device) => source.free_later(range),
                        // The drop of its token may call the driver.
                        None => std::mem::forget(range),
                    }
                }
            }
            Ownership::Ours => {
                if let Some(device) = self.device.for_destroy() {
                    // SAFETY: allocated here on this device, which is alive. Nothing uses it,
                    // because each buffer and image in it keeps an `Arc` of this, and each
                    // submission in flight keeps its buffers and images.
                    unsafe { device.free_memory(self.raw, None) };
                }
            }
            Ownership::Theirs(owner) => {
                if let Some(owner) = owner.take() {
                    TeardownGuard::drop_owner(owner);
                }
            }
        }
    }
}

impl std::fmt::Debug for Allocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({} bytes)", self.0.object, self.0.size)
    }
}
