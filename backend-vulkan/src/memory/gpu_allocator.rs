//! An application's own `gpu-allocator` as a source of memory.
#![allow(unsafe_code, reason = "implements an unsafe trait")]

use std::sync::{Arc, Mutex, PoisonError};

use ash::vk;
use gpu_allocator::vulkan::{Allocation, AllocationCreateDesc, AllocationScheme, Allocator};
use gpu_allocator::{AllocationError, MemoryLocation};

use crate::device::application_memory::{MemoryRange, MemoryRequest, MemorySource};

/// A [`MemorySource`] over an allocator of the crate `gpu-allocator`.
///
/// Only with the feature `gpu-allocator`.
#[derive(Debug, Clone)]
pub struct GpuAllocator(Arc<Mutex<Allocator>>);

impl GpuAllocator {
    /// Uses `allocator`, whose lock is held during its calls only.
    ///
    /// # Safety
    /// The allocator is of the `VkDevice` that the source is used with.
    #[must_use]
    pub unsafe fn new(allocator: Arc<Mutex<Allocator>>) -> Self {
        Self(allocator)
    }
}

// SAFETY: the allocator gives ranges of its device that overlap no others. It frees their blocks
// when it is dropped, at the earliest, and `self` keeps it. It maps all host-visible memory.
unsafe impl MemorySource for GpuAllocator {
    fn allocate(&self, request: &MemoryRequest) -> Result<MemoryRange, vk::Result> {
        let mut allocator = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let allocated = allocator.allocate(&AllocationCreateDesc {
            name: "syncline",
            requirements: request.requirements,
            // The request names one memory type.
            location: MemoryLocation::Unknown,
            linear: true,
            allocation_scheme: match request.dedicated {
                true => AllocationScheme::DedicatedBuffer(request.buffer),
                false => AllocationScheme::GpuAllocatorManaged,
            },
        });
        let allocation = allocated.map_err(|error| match error {
            AllocationError::OutOfMemory => vk::Result::ERROR_OUT_OF_DEVICE_MEMORY,
            AllocationError::FailedToMap(_) => vk::Result::ERROR_MEMORY_MAP_FAILED,
            // The code of the driver is in a text.
            _ => vk::Result::ERROR_UNKNOWN,
        })?;
        Ok(MemoryRange {
            // SAFETY: the buffer is bound to it, and destroyed before the range is freed.
            memory: unsafe { allocation.memory() },
            offset: allocation.offset(),
            mapped: allocation.mapped_ptr(),
            token: Box::new(allocation),
        })
    }

    fn free(&self, range: MemoryRange) {
        if let Ok(allocation) = range.token.downcast::<Allocation>() {
            let mut allocator = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            // It fails only for an allocation of another allocator.
            let _ = allocator.free(*allocation);
        }
    }
}
