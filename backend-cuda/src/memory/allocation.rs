//! Imported memory, in which buffers and images are mapped.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::sync::Arc;

use cudarc::driver::sys;
use syncline_core::backend::kit::require_range;
use syncline_core::handle::{MemoryContent, MemoryInfo};
use syncline_core::image::ImageInfo;
use syncline_core::{Error, Result, error::Object};

use crate::device::context::Owner;
use crate::device::deferred_free::Resource;
use crate::device::open::Device;
use crate::driver::table::Raw;
use crate::memory::buffer::Buffer;

/// A `CUexternalMemory`: memory of another API or another device. Cheap to clone.
///
/// It lives as long as a handle of it, or of a [`Buffer`] or an [`Image`](crate::Image) in it. The
/// last one frees it like a buffer.
#[derive(Clone)]
pub struct Allocation(Arc<Memory>);

/// The memory behind an [`Allocation`].
struct Memory {
    object: Object,
    raw: Raw<sys::CUextMemory_st>,
    info: MemoryInfo,
    /// What the memory belongs to. Kept at least until the free is deferred.
    _owner: Owner,
    device: Device,
}

impl Allocation {
    /// # Safety
    /// `raw` was imported in the device's context with these properties. Nothing else owns it.
    pub(crate) unsafe fn imported(
        device: &Device,
        raw: sys::CUexternalMemory,
        info: MemoryInfo,
        owner: Owner,
    ) -> Self {
        Self(Arc::new(Memory {
            object: Object::new("allocation", "imported"),
            raw: Raw(raw),
            info,
            _owner: owner,
            device: device.clone(),
        }))
    }

    /// Maps a range of the memory as a buffer, which keeps the memory.
    ///
    /// Calls `cuExternalMemoryGetMappedBuffer`. Ranges may overlap, and have one address each.
    ///
    /// # Errors
    /// [`Error::Unsupported`] unless both numbers are multiples of 4, `size` is positive, and the
    /// range ends within the memory. The offset is 0 in memory that is for one buffer alone, and
    /// memory of one image alone has no buffer. A driver error.
    pub fn buffer(&self, offset: u64, size: u64) -> Result<Buffer> {
        require_range(self.object(), self.size(), offset, size)?;
        self.map(offset, size)
    }

    /// Same as [`Allocation::buffer`], for any size. The range ends within the memory.
    pub(crate) fn map(&self, offset: u64, size: u64) -> Result<Buffer> {
        self.require_offset(offset)?;
        self.require_made_for(None)?;
        // The driver maps such memory as a whole.
        let mapped = if self.0.info.dedicated {
            self.size()
        } else {
            size
        };
        let desc = sys::CUDA_EXTERNAL_MEMORY_BUFFER_DESC {
            offset,
            size: mapped,
            flags: 0,
            reserved: [0; 16],
        };
        let context = self.0.device.context();
        let _bound = context.bind_outside_capture()?;
        let mut pointer = 0;
        // SAFETY: imported memory of the current context, which `self` keeps. The range is within
        // it. Writes one address.
        context.allocate(|driver| unsafe {
            driver.external_memory_get_mapped_buffer(&raw mut pointer, self.raw(), &raw const desc)
        })?;
        let device_ref = self.0.device.inner().device_ref();
        // SAFETY: just mapped with at least this size, and owned by nothing else. `cuMemFree` frees
        // such a mapping.
        let buffer = unsafe { Buffer::new(&device_ref, pointer, size, Resource::Device(pointer)) };
        Ok(buffer.in_allocation(self.clone(), offset))
    }

    /// Refuses offsets in memory that is for one buffer or image alone.
    pub(crate) fn require_offset(&self, offset: u64) -> Result<()> {
        if offset == 0 || !self.0.info.dedicated {
            return Ok(());
        }
        let asked = format!("give memory at offset {offset}");
        let reason = "it is for one buffer or image alone, which begins at offset 0";
        Err(Error::unsupported(self.object(), asked, reason))
    }

    /// Refuses a buffer, or another image, in memory that was made for one image (X9).
    pub(crate) fn require_made_for(&self, image: Option<&ImageInfo>) -> Result<()> {
        match &self.0.info.content {
            MemoryContent::Image(made) if image != Some(made) => {
                let asked = match image {
                    Some(image) => format!("hold the image {image:?}"),
                    None => "hold a buffer".to_owned(),
                };
                let reason = format!("it was made for the image {made:?}");
                Err(Error::unsupported(self.object(), asked, reason))
            }
            _ => Ok(()),
        }
    }

    /// The raw memory, valid while a handle lives.
    #[must_use]
    pub fn raw(&self) -> sys::CUexternalMemory {
        self.0.raw.0
    }

    /// The size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.0.info.size
    }

    /// The name in errors.
    #[must_use]
    pub fn object(&self) -> &Object {
        &self.0.object
    }

    /// The device that has imported the memory.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// Identifies the memory as long as `self` exists.
    pub(crate) fn address(&self) -> *const () {
        Arc::as_ptr(&self.0).cast()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // All that is mapped keeps the memory, so it was freed or deferred before.
        let memory = Resource::ExternalMemory(Raw(self.raw.0));
        self.device.context().free_or_defer(memory, self.info.size);
    }
}

impl std::fmt::Debug for Allocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({} bytes)", self.object(), self.size())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test's")]

    use std::any::Any;
    use std::sync::Weak;

    use super::*;
    use crate::driver::emulated::{self, freed, import_allocation, refuse_map_after};

    fn plain(device: &Device) -> Allocation {
        import_allocation(device, 64, false, None)
    }

    fn address(allocation: &Allocation) -> u64 {
        allocation.raw().addr() as u64
    }

    #[test]
    fn memory_is_freed_after_all_its_buffers() {
        let device = emulated::device();
        let allocation = plain(&device);
        let memory = address(&allocation);
        let (one, two) = (
            allocation.buffer(0, 16).unwrap(),
            allocation.buffer(48, 16).unwrap(),
        );
        let [first, second] = [&one, &two].map(Buffer::pointer);
        let view = one.view(4, 4).unwrap();
        drop((allocation, one));
        assert_eq!(freed(), []);
        drop(view);
        assert_eq!(freed(), [first]);
        drop(two);
        assert_eq!(freed(), [second, memory]);
    }

    #[test]
    fn the_owner_lives_as_long_as_the_last_buffer() {
        let device = emulated::device();
        let owner: Arc<dyn Any + Send + Sync> = Arc::new(());
        let watched: Weak<_> = Arc::downgrade(&owner);
        let allocation = import_allocation(&device, 64, false, Some(owner));
        let buffer = allocation.buffer(0, 4).unwrap();
        drop(allocation);
        assert!(watched.upgrade().is_some());
        drop(buffer);
        assert!(watched.upgrade().is_none());
    }

    #[rstest::rstest]
    #[case::behind_the_end(false, 48, 20, "it has 64 bytes")]
    #[case::wraps(false, u64::MAX - 3, 8, "it has 64 bytes")]
    #[case::nothing(false, 0, 0, "whole 32-bit words")]
    #[case::alone(true, 4, 4, "begins at offset 0")]
    fn a_wrong_range_is_refused_without_a_driver_call(
        #[case] dedicated: bool,
        #[case] offset: u64,
        #[case] size: u64,
        #[case] reason: &str,
    ) {
        let device = emulated::device();
        let allocation = import_allocation(&device, 64, dedicated, None);
        refuse_map_after(0);
        let error = allocation.buffer(offset, size).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        assert!(error.to_string().contains(reason), "{error}");
        // The driver's refusal is still to come.
        let error = allocation.buffer(0, 64).unwrap_err();
        assert!(matches!(error, Error::Native { code: 1, .. }), "{error}");
        let memory = address(&allocation);
        drop(allocation);
        assert_eq!(freed(), [memory]);
    }

    /// They are two addresses of one memory.
    #[test]
    fn buffers_of_one_allocation_know_that_they_overlap() {
        let device = emulated::device();
        let (allocation, another) = (plain(&device), plain(&device));
        let part = |of: &Allocation, offset| of.buffer(offset, 16).unwrap();
        let one = part(&allocation, 16);
        assert!(one.overlaps(&part(&allocation, 28), 16));
        assert!(!one.overlaps(&part(&allocation, 28), 8));
        assert!(!one.overlaps(&part(&allocation, 32), 16));
        assert!(!one.overlaps(&part(&another, 16), 16));
    }
}
