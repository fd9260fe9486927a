//! Memory that the application's own allocator gives, and what is to be given back to it.
#![allow(unsafe_code, reason = "declares what a source guarantees")]

use std::any::Any;
use std::ffi::c_void;
use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

use ash::vk;
use syncline_core::backend::kit::Mutex;
use syncline_core::internal::DroppedByMaker;

/// An allocator of the application, for [`Device::use_memory`](crate::Device::use_memory).
///
/// Both methods are called only by these calls of the application, on the thread that makes them:
/// the methods of [`ApplicationMemory`](crate::ApplicationMemory), and `Device::trim`. No lock of
/// Syncline is held meanwhile. So an implementation may take locks of the application. The methods
/// may be called on several threads at once.
///
/// # Safety
/// A range that `allocate` returns is of the `VkDevice` that the source is used with. It satisfies
/// the request, overlaps no other range, and is not freed before it is given to `free`. If the
/// request is for the host, the range is mapped at the address that it names, until then.
pub unsafe trait MemorySource: Send + Sync + 'static {
    /// Allocates memory.
    ///
    /// # Errors
    /// A code of `vkAllocateMemory` or `vkMapMemory`.
    fn allocate(&self, request: &MemoryRequest) -> Result<MemoryRange, vk::Result>;

    /// Frees a range that [`MemorySource::allocate`] has returned.
    ///
    /// Nothing uses it any more: its buffer is destroyed. `VkDevice` is alive.
    fn free(&self, range: MemoryRange);
}

/// What a [`MemorySource`] is asked for.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct MemoryRequest {
    /// The size, the alignment, and one bit: the memory type that Syncline has chosen.
    ///
    /// The alignment is at least 64 and `nonCoherentAtomSize`.
    pub requirements: vk::MemoryRequirements,
    /// The buffer that is bound to the memory.
    pub buffer: vk::Buffer,
    /// True if the driver requires or prefers a dedicated allocation for the buffer.
    pub dedicated: bool,
    /// True if the range must be mapped. Its memory type is host-visible and coherent.
    pub host: bool,
}

/// A range of a `VkDeviceMemory`, from a [`MemorySource`].
pub struct MemoryRange {
    /// The memory.
    pub memory: vk::DeviceMemory,
    /// Where the range begins in the memory, in bytes.
    pub offset: u64,
    /// The address of the range, if it is mapped.
    pub mapped: Option<NonNull<c_void>>,
    /// What the source needs to free the range.
    pub token: Box<dyn Any + Send + Sync>,
}

// SAFETY: a mapping belongs to the process and not to a thread. The other fields are `Send`.
unsafe impl Send for MemoryRange {}
// SAFETY: as above. Nothing is read through the address.
unsafe impl Sync for MemoryRange {}

impl fmt::Debug for MemoryRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryRange")
            .field("memory", &self.memory)
            .field("offset", &self.offset)
            .field("mapped", &self.mapped)
            .finish_non_exhaustive()
    }
}

/// A source, with the ranges that are to be given back to it.
///
/// The drop of either may call the driver. A forked child does not drop them, because a lock of the
/// application may be held there.
pub(crate) struct Source(DroppedByMaker<OfApplication>);

struct OfApplication {
    freed: Mutex<Vec<MemoryRange>>,
    source: Box<dyn MemorySource>,
}

impl Source {
    pub(crate) fn new(source: impl MemorySource) -> Self {
        Self(DroppedByMaker::new(OfApplication {
            freed: Mutex::default(),
            source: Box::new(source),
        }))
    }

    /// Gives back what is to be freed, and then allocates. Called by calls of the application.
    pub(crate) fn allocate(&self, request: &MemoryRequest) -> Result<MemoryRange, vk::Result> {
        self.give_back();
        self.0.source.allocate(request)
    }

    /// Notes that a range is to be freed. Called on any thread.
    pub(crate) fn free_later(&self, range: MemoryRange) {
        self.0.freed.lock().push(range);
    }

    /// Frees what is to be freed. Called by calls of the application.
    pub(crate) fn give_back(&self) {
        let freed = std::mem::take(&mut *self.0.freed.lock());
        for range in freed {
            self.0.source.free(range);
        }
    }
}

/// The sources that are used with a device.
#[derive(Default)]
pub(crate) struct Sources(Mutex<Vec<Weak<Source>>>);

impl Sources {
    pub(crate) fn add(&self, source: &Arc<Source>) {
        let mut sources = self.0.lock();
        sources.retain(|source| source.strong_count() > 0);
        sources.push(Arc::downgrade(source));
    }

    /// See [`Source::give_back`].
    pub(crate) fn give_back(&self) {
        let sources: Vec<_> = self.0.lock().iter().filter_map(Weak::upgrade).collect();
        for source in sources {
            source.give_back();
        }
    }
}
