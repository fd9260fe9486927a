//! Which memory type a buffer's memory has.

use ash::vk;
use syncline_core::backend::kit::{memory_refused, size_refused};
use syncline_core::handle::MemoryFd;
use syncline_core::{Error, Result};

use crate::device::open::Device;
use crate::memory::allocation::MemoryKind;

/// Properties of memory types that buffers and images must not use.
///
/// These properties need a feature that is not enabled, or do not apply to them.
const UNUSABLE: vk::MemoryPropertyFlags = vk::MemoryPropertyFlags::from_raw(
    vk::MemoryPropertyFlags::PROTECTED.as_raw()
        | vk::MemoryPropertyFlags::LAZILY_ALLOCATED.as_raw()
        | vk::MemoryPropertyFlags::DEVICE_COHERENT_AMD.as_raw()
        | vk::MemoryPropertyFlags::DEVICE_UNCACHED_AMD.as_raw()
        | vk::MemoryPropertyFlags::RDMA_CAPABLE_NV.as_raw(),
);

impl Device {
    /// The memory type with which a handle is imported: the exporter's.
    ///
    /// For memory that CUDA has made it is one of `allowed`, which a buffer can have.
    ///
    /// # Errors
    /// [`Error::Import`] if it is not known, or if the device does not have it. The errors of
    /// `allowed`.
    pub(crate) fn imported_type(
        &self,
        handle: &MemoryFd,
        allowed: impl FnOnce() -> Result<u32>,
    ) -> Result<u32> {
        let (info, count) = (handle.info(), self.memory_properties().memory_type_count);
        let reason = match info.memory_type {
            // CUDA's memory has no memory type of Vulkan. An H200 imports it with each type that a
            // buffer can have.
            None if is_made_by_cuda(handle) => {
                return self.memory_type(allowed()?, info.size, MemoryKind::Imported(handle, None));
            }
            Some(index) if u32::from(index) < count => return Ok(index.into()),
            Some(index) => format!("it has memory type {index}, and the device has {count} types"),
            None => "its memory type is not known".into(),
        };
        Err(memory_refused(self.object(), handle, reason))
    }

    pub(crate) fn too_large(&self, size: u64) -> Error {
        let reason = "no memory heap of the device is so large";
        size_refused(self.object(), size, reason)
    }

    pub(crate) fn memory_properties(&self) -> &vk::PhysicalDeviceMemoryProperties {
        self.inner().memory_pool().memory()
    }

    /// The first allowed memory type with the preferred properties, else with the required ones.
    ///
    /// Its heap has at least `bytes` bytes.
    pub(crate) fn memory_type(
        &self,
        allowed: u32,
        bytes: u64,
        kind: MemoryKind<'_>,
    ) -> Result<u32> {
        use vk::MemoryPropertyFlags as P;
        let preference: &[P] = match kind {
            MemoryKind::Host => &[
                P::from_raw(
                    P::HOST_VISIBLE.as_raw() | P::HOST_COHERENT.as_raw() | P::HOST_CACHED.as_raw(),
                ),
                P::from_raw(P::HOST_VISIBLE.as_raw() | P::HOST_COHERENT.as_raw()),
            ],
            MemoryKind::Device | MemoryKind::Exportable | MemoryKind::Imported(..) => {
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
                size_refused(self.object(), bytes, reason)
            })
    }
}

/// True if the handle's origin is CUDA, whose driver has no UUID.
///
/// Each Vulkan driver has one, so memory that Vulkan has made never looks like this.
pub(crate) fn is_made_by_cuda(handle: &MemoryFd) -> bool {
    let info = handle.info();
    handle.origin().driver_uuid.is_none() && info.memory_type.is_none() && !info.dedicated
}
