//! Devices whose memory can be shared.

use syncline_core::{backend, host};

use crate::any::Device;
#[cfg(feature = "vulkan")]
use crate::any_image::Image;
use crate::buffer::Buffer;
#[cfg(feature = "cuda")]
use crate::cuda;
#[cfg(feature = "vulkan")]
use crate::vulkan;

/// A device of this library, with the type of the memory that it shares.
///
/// The host has memory of any device, so its type is [`Buffer`].
pub trait MemoryDevice: backend::Device + Into<Device> {
    /// The device's view of a [`SharedBuffer`](crate::SharedBuffer).
    type Buffer: Clone + Send + Sync + TryFrom<Buffer> + 'static;

    /// The device's view of a [`SharedImage`](crate::SharedImage).
    #[cfg(feature = "vulkan")]
    type Image: Clone + Send + Sync + TryFrom<Image> + 'static;
}

impl MemoryDevice for Device {
    type Buffer = Buffer;
    #[cfg(feature = "vulkan")]
    type Image = Image;
}

impl MemoryDevice for host::Device {
    type Buffer = Buffer;
    #[cfg(feature = "vulkan")]
    type Image = Image;
}

#[cfg(feature = "cuda")]
impl MemoryDevice for cuda::Device {
    type Buffer = cuda::Buffer;
    #[cfg(feature = "vulkan")]
    type Image = cuda::Image;
}

#[cfg(feature = "vulkan")]
impl MemoryDevice for vulkan::Device {
    type Buffer = vulkan::Buffer;
    type Image = vulkan::Image;
}
