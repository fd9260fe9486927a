//! Buffers and images without memory: what memory they need, and how they are bound to it.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use ash::vk;
use syncline_core::Result;
use syncline_core::backend::kit::{TeardownGuard, memory_refused};
use syncline_core::internal::DroppedByMaker;

use crate::device::inner::Inner;
use crate::device::open::Device;
use crate::memory::allocation::{Allocation, MemoryKind};

/// A `VkBuffer` or a `VkImage`.
#[derive(Clone, Copy)]
pub(crate) enum Resource {
    Buffer(vk::Buffer),
    Image(vk::Image),
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Buffer(_) => "buffer",
            Self::Image(_) => "image",
        })
    }
}

impl Resource {
    /// Calls `vkDestroyBuffer` or `vkDestroyImage`. Does nothing in a forked child.
    ///
    /// # Safety
    /// It was created on this device, and nothing uses it any more.
    unsafe fn destroy(self, device: &Inner) {
        let Some(device) = device.for_destroy() else {
            return;
        };
        // SAFETY: the caller guarantees it. The device is alive.
        unsafe {
            match self {
                Self::Buffer(raw) => device.destroy_buffer(raw, None),
                Self::Image(raw) => device.destroy_image(raw, None),
            }
        }
    }
}

/// What destroys a `VkBuffer` or `VkImage` that is bound.
pub(crate) enum Ownership {
    Ours,
    /// The application. The owner, if there is one, is dropped at the end.
    Theirs(Option<DroppedByMaker<Arc<dyn Any + Send + Sync>>>),
}

impl Ownership {
    pub(crate) fn theirs(owner: Option<Arc<dyn Any + Send + Sync>>) -> Self {
        Self::Theirs(owner.map(DroppedByMaker::new))
    }

    /// Destroys `resource`, or drops its owner.
    ///
    /// # Safety
    /// Same as [`Resource::destroy`], if it is ours.
    pub(crate) unsafe fn end(&mut self, resource: Resource, device: &Inner) {
        match self {
            // SAFETY: the caller guarantees it.
            Self::Ours => unsafe { resource.destroy(device) },
            Self::Theirs(owner) => {
                if let Some(owner) = owner.take() {
                    TeardownGuard::drop_owner(owner);
                }
            }
        }
    }
}

/// What the driver requires of the memory of a buffer or an image.
#[derive(Clone, Copy, Default)]
pub(crate) struct Needs {
    memory: vk::MemoryRequirements,
    /// True if the memory must be for this resource alone.
    dedicated: bool,
    /// True if the driver prefers that.
    prefers_dedicated: bool,
}

impl Needs {
    /// Size, alignment and memory types.
    pub(crate) const fn memory(&self) -> &vk::MemoryRequirements {
        &self.memory
    }

    /// True if memory for this resource alone is required or preferred.
    pub(crate) const fn is_better_dedicated(&self) -> bool {
        self.dedicated || self.prefers_dedicated
    }

    /// Asks the driver.
    ///
    /// # Safety
    /// The resource is a live one of this device.
    pub(crate) unsafe fn of(resource: Resource, device: &Inner) -> Self {
        let mut dedicated = vk::MemoryDedicatedRequirements::default();
        let mut needs = vk::MemoryRequirements2::default().push_next(&mut dedicated);
        // SAFETY: as the caller guarantees. The calls fill the chained structures.
        unsafe {
            match resource {
                Resource::Buffer(raw) => device.raw().get_buffer_memory_requirements2(
                    &vk::BufferMemoryRequirementsInfo2::default().buffer(raw),
                    &mut needs,
                ),
                Resource::Image(raw) => device.raw().get_image_memory_requirements2(
                    &vk::ImageMemoryRequirementsInfo2::default().image(raw),
                    &mut needs,
                ),
            }
        }
        Self {
            memory: needs.memory_requirements,
            dedicated: dedicated.requires_dedicated_allocation == vk::TRUE,
            prefers_dedicated: dedicated.prefers_dedicated_allocation == vk::TRUE,
        }
    }

    /// Refuses a place in memory that does not fit: type, end and alignment.
    ///
    /// # Errors
    /// The reason, for a `resource` at `offset` in `allocation`.
    pub(crate) fn fits(
        &self,
        resource: Resource,
        allocation: &Allocation,
        offset: u64,
    ) -> Result<(), String> {
        let vk::MemoryRequirements {
            size,
            alignment,
            memory_type_bits,
        } = self.memory;
        let (memory_type, has) = (allocation.memory_type(), allocation.size());
        if memory_type_bits & (1 << memory_type) == 0 {
            return Err(format!(
                "such a {resource} cannot have memory type {memory_type}"
            ));
        }
        if offset.checked_add(size).is_none_or(|end| end > has) {
            return Err(format!(
                "it needs {size} bytes, and the allocation has {has}"
            ));
        }
        // A part of a block need not be as aligned as this resource must be.
        if !(allocation.offset() + offset).is_multiple_of(alignment) {
            return Err(format!(
                "such a {resource} begins at a multiple of {alignment}"
            ));
        }
        Ok(())
    }
}

/// A `VkBuffer` or `VkImage` without memory, which is destroyed unless it is bound.
pub(crate) struct Unbound<'d> {
    device: &'d Device,
    resource: Resource,
    needs: Needs,
}

impl Drop for Unbound<'_> {
    fn drop(&mut self) {
        // SAFETY: created on this device, and never bound or used.
        unsafe { self.resource.destroy(self.device.inner()) };
    }
}

impl<'d> Unbound<'d> {
    /// Asks what memory the resource needs.
    ///
    /// # Safety
    /// It was just created on this device, and nothing else destroys it.
    pub(crate) unsafe fn new(device: &'d Device, resource: Resource) -> Self {
        // SAFETY: the caller guarantees it.
        let needs = unsafe { Needs::of(resource, device.inner()) };
        Self {
            device,
            resource,
            needs,
        }
    }

    pub(crate) const fn needs(&self) -> &Needs {
        &self.needs
    }

    /// Notes that the memory must be for this resource alone.
    pub(crate) const fn require_dedicated(&mut self) {
        self.needs.dedicated = true;
    }

    /// Allocates memory for it, or imports the memory of a handle. Does not consume the handle.
    pub(crate) fn allocate(&self, kind: MemoryKind<'_>) -> Result<Allocation> {
        let (device, resource, needs) = (self.device, self.resource, &self.needs);
        let (needed, allowed) = (needs.memory.size, needs.memory.memory_type_bits);
        let MemoryKind::Imported(handle, _) = kind else {
            let memory_type = device.memory_type(allowed, needed, kind)?;
            let is_private = !kind.is_shared();
            if is_private
                && !needs.is_better_dedicated()
                && let Some(part) = Allocation::from_pool(device, &needs.memory, memory_type, kind)
            {
                return Ok(part);
            }
            // A private allocation is for this resource alone. An exported one is too, because
            // exporters and importers agree on dedicated memory more often.
            let alone = Some(resource);
            // SAFETY: the size is what the resource needs. The memory type is one that it allows.
            return unsafe { Allocation::allocate(device, needed, memory_type, alone, kind) };
        };
        let refused = |reason: String| memory_refused(device.object(), handle, reason);
        let (size, is_dedicated) = (handle.info().size, handle.info().dedicated);
        if size < needed {
            return Err(refused(format!(
                "the {resource} needs {needed} bytes of it"
            )));
        }
        // VUID-VkMemoryDedicatedAllocateInfo-buffer-02965,
        // VUID-VkMemoryDedicatedAllocateInfo-image-02964.
        if is_dedicated && size != needed {
            return Err(refused(format!(
                "it was made for one {resource} alone, and the {resource} has {needed} bytes"
            )));
        }
        if needs.dedicated && !is_dedicated {
            return Err(refused(format!("it was not made for one {resource} alone")));
        }
        let memory_type = device.imported_type(handle, || Ok(allowed))?;
        if allowed & (1 << memory_type) == 0 {
            let reason = format!("the {resource} cannot have its memory type, {memory_type}");
            return Err(refused(reason));
        }
        // As the exporter allocated it.
        let alone = is_dedicated.then_some(resource);
        // SAFETY: the size is at least what the resource needs, and exactly that if it is
        // dedicated. The memory type is one that it allows.
        unsafe { Allocation::allocate(device, size, memory_type, alone, kind) }
    }

    /// Refuses a place in an allocation that holds several resources.
    ///
    /// # Errors
    /// The reason.
    pub(crate) fn fits(&self, allocation: &Allocation, offset: u64) -> Result<(), String> {
        if allocation.is_dedicated() {
            return Err("it is for one buffer or image alone".into());
        }
        let resource = self.resource;
        if self.needs.dedicated {
            return Err(format!(
                "the driver wants an allocation for such a {resource} alone"
            ));
        }
        self.needs.fits(resource, allocation, offset)
    }

    /// Calls `vkBindBufferMemory` or `vkBindImageMemory`.
    ///
    /// # Safety
    /// The memory is of the same device. Its type, and its size and alignment from `at` on, are
    /// what the resource needs, and it is dedicated to this resource or to none.
    pub(crate) unsafe fn bind(&self, allocation: &Allocation, at: u64) -> Result<()> {
        let device = self.device.inner();
        let (memory, offset) = (allocation.raw(), allocation.offset() + at);
        // SAFETY: the caller guarantees it. The resource is bound once.
        let (call, bound) = unsafe {
            match self.resource {
                Resource::Buffer(raw) => (
                    "vkBindBufferMemory",
                    device.raw().bind_buffer_memory(raw, memory, offset),
                ),
                Resource::Image(raw) => (
                    "vkBindImageMemory",
                    device.raw().bind_image_memory(raw, memory, offset),
                ),
            }
        };
        bound.map_err(|code| device.failed(device.object(), call, code))
    }

    /// Passes the destruction of the resource to what it is bound in.
    pub(crate) fn into_bound(self) {
        std::mem::forget(self);
    }
}
