//! Opaque file descriptors, whose kind cannot be checked.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::origin::Origin;
use crate::base::image::ImageInfo;

/// The properties of memory that a descriptor holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryInfo {
    /// The size of the whole allocation, in bytes.
    pub size: u64,
    /// What the memory was made for.
    pub content: MemoryContent,
    /// True for a dedicated allocation of one buffer or image. An importer must then say so, too.
    pub dedicated: bool,
    /// `VkMemoryAllocateInfo::memoryTypeIndex`, which is below 32. `None` if it is not known, and
    /// for memory that CUDA has made.
    pub memory_type: Option<u8>,
}

impl MemoryInfo {
    /// Memory that is not dedicated, and whose memory type is not known.
    #[must_use]
    pub const fn new(size: u64, content: MemoryContent) -> Self {
        Self {
            size,
            content,
            dedicated: false,
            memory_type: None,
        }
    }
}

/// What memory was made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemoryContent {
    /// Any buffers and images at offsets, which the importer knows.
    ///
    /// `import_allocation` takes such memory. `cuda::Device::import_memory` and
    /// `vulkan::Device::import_buffer` take it as one buffer of the whole size. The latter refuses
    /// it if it is dedicated, because it makes the buffer again.
    Whole,
    /// The buffer of so many bytes at its start. Drivers round allocations up.
    Buffer(u64),
    /// The image at its start.
    Image(ImageInfo),
}

macro_rules! handle {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty),* }
     $($(#[$safety:meta])+ unsafe)?) => {
        $(#[$doc])*
        ///
        /// Owned by exactly one party: a successful import consumes it, a failed import gives it
        /// back.
        #[derive(Debug)]
        pub struct $name {
            fd: OwnedFd,
            origin: Box<Origin>,
            $($(#[$field_doc])* $field: Box<$type>,)*
        }

        impl $name {
            /// Wraps a raw descriptor.
            ///
            /// # Safety
            /// `fd` must hold an object of the type's kind, exported by `origin`'s driver with the
            /// given properties. Drivers do not check it: a handle of another kind leads to
            /// undefined behaviour.
            $($(#[$safety])+)?
            #[allow(unsafe_code, reason = "the kind of a foreign descriptor cannot be checked")]
            #[must_use]
            pub unsafe fn from_fd(fd: OwnedFd, origin: Origin $(, $field: $type)*) -> Self {
                Self { fd, origin: Box::new(origin) $(, $field: Box::new($field))* }
            }

            /// The exporter.
            #[must_use]
            pub fn origin(&self) -> &Origin {
                &self.origin
            }

            $($(#[$field_doc])* #[must_use] pub fn $field(&self) -> $type { *self.$field })*

            /// Returns the raw descriptor, for a driver or for code that knows its kind.
            #[must_use]
            pub fn into_fd(self) -> OwnedFd {
                self.fd
            }
        }

        impl From<$name> for OwnedFd {
            fn from(handle: $name) -> Self {
                handle.fd
            }
        }

        impl AsFd for $name {
            fn as_fd(&self) -> BorrowedFd<'_> {
                self.fd.as_fd()
            }
        }
    };
}

handle! {
    /// An opaque file descriptor that holds a timeline semaphore.
    ///
    /// A handle of another kind does not compile in its place and cannot be converted to it. A raw
    /// descriptor needs `unsafe`, by which the caller guarantees the kind:
    ///
    /// ```compile_fail,E0308
    /// # extern crate syncline_core as syncline;
    /// # use syncline::{handle::{BinaryFd, TimelineFd}};
    /// fn import(handle: TimelineFd) {}
    /// fn pass(handle: BinaryFd) {
    ///     import(handle);
    /// }
    /// ```
    /// ```compile_fail,E0277
    /// # extern crate syncline_core as syncline;
    /// # use syncline::{handle::{BinaryFd, TimelineFd}};
    /// fn convert(handle: BinaryFd) -> TimelineFd {
    ///     handle.into()
    /// }
    /// ```
    /// ```compile_fail,E0133
    /// # extern crate syncline_core as syncline;
    /// # use std::os::fd::OwnedFd;
    /// # use syncline::{handle::{Origin, TimelineFd}};
    /// fn adopt(fd: OwnedFd, origin: Origin) -> TimelineFd {
    ///     TimelineFd::from_fd(fd, origin)
    /// }
    /// ```
    TimelineFd {}
}

handle! {
    /// An opaque file descriptor that holds a binary semaphore.
    ///
    /// A handle of another kind does not compile in its place and cannot be converted to it. A raw
    /// descriptor needs `unsafe`, by which the caller guarantees the kind:
    ///
    /// ```compile_fail,E0308
    /// # extern crate syncline_core as syncline;
    /// # use syncline::{handle::{BinaryFd, TimelineFd}};
    /// fn import(handle: BinaryFd) {}
    /// fn pass(handle: TimelineFd) {
    ///     import(handle);
    /// }
    /// ```
    /// ```compile_fail,E0277
    /// # extern crate syncline_core as syncline;
    /// # use syncline::{handle::{BinaryFd, TimelineFd}};
    /// fn convert(handle: TimelineFd) -> BinaryFd {
    ///     handle.into()
    /// }
    /// ```
    /// ```compile_fail,E0133
    /// # extern crate syncline_core as syncline;
    /// # use std::os::fd::OwnedFd;
    /// # use syncline::{handle::{BinaryFd, Origin}};
    /// fn adopt(fd: OwnedFd, origin: Origin) -> BinaryFd {
    ///     BinaryFd::from_fd(fd, origin)
    /// }
    /// ```
    BinaryFd {}
}

handle! {
    /// An opaque file descriptor that holds device memory.
    MemoryFd {
        /// The properties of the memory.
        info: MemoryInfo
    }
    ///
    /// Which properties must be right depends on the importer:
    ///
    /// * CUDA uses `size`, `content` and `dedicated`.
    /// * A `VkDevice` uses `memory_type` as well, and refuses memory of Vulkan without it
    ///   (VUID-VkMemoryAllocateInfo-allocationSize-01742). The memory was allocated without
    ///   a device mask (VUID-VkMemoryAllocateInfo-None-00643). An origin without `driver_uuid`
    ///   stands for CUDA, whose memory (`cuMemCreate`) has no memory type.
    /// * A `VkDevice` makes the buffer of a `dedicated` allocation again, and cannot query how
    ///   (VUID-VkMemoryDedicatedAllocateInfo-buffer-01879). That buffer must have the size that
    ///   `content` says, no flags, and all usages of Vulkan 1.0 and no other. Its external handle
    ///   type is the opaque file descriptor only. Its sharing mode is concurrent for all families
    ///   that [`Capabilities::queues`](crate::info::Capabilities::queues) lists, or exclusive if
    ///   there is only one family. Syncline makes its own exports like this.
    /// * If `content` is an image, it makes that image again instead
    ///   (VUID-VkMemoryDedicatedAllocateInfo-image-01878). The image must have these properties,
    ///   both usages for transfers, and no other usage. Its only flag is
    ///   `VK_IMAGE_CREATE_CUBE_COMPATIBLE_BIT`, for a cube. Its external handle type is the opaque
    ///   file descriptor only.
    unsafe
}
