//! Images that two devices share.

use std::fmt;

use syncline_core::backend::Device as _;
use syncline_core::image::ImageInfo;
use syncline_core::{Error, Result};

use crate::another_backend::another_backend;
use crate::any::Device;
use crate::any_image::Image;
use crate::memory_device::MemoryDevice;
use crate::negotiate::Mechanism;
use crate::pass::Pass;
use crate::vulkan;

/// An image that both sides of a [`Link`](crate::Link) use.
///
/// The application must order all accesses with timelines of the link. Work of Vulkan acquires the
/// image: see [`vulkan::Recorder::acquire_image`].
pub struct SharedImage<A: MemoryDevice = Device, B: MemoryDevice = Device> {
    left: A::Image,
    right: B::Image,
    info: ImageInfo,
}

impl<A: MemoryDevice, B: MemoryDevice> Clone for SharedImage<A, B> {
    fn clone(&self) -> Self {
        Self {
            left: self.left.clone(),
            right: self.right.clone(),
            info: self.info,
        }
    }
}

impl<A: MemoryDevice, B: MemoryDevice> SharedImage<A, B> {
    /// Makes an image of two devices that synchronize by `mechanism`.
    ///
    /// `None` if none of the two is a Vulkan device whose images the other one imports.
    pub(crate) fn new(
        left: &A,
        right: &B,
        mechanism: Mechanism,
        info: &ImageInfo,
    ) -> Result<Option<Self>> {
        let (left, right): (Device, Device) = (left.clone().into(), right.clone().into());
        for (from, to, from_left) in [(&left, &right, true), (&right, &left, false)] {
            let Some(pass) = Pass::of(mechanism, from, to) else {
                continue;
            };
            if let Some((exported, imported)) = pass.make_image(info)? {
                return Self::of(exported, imported, from_left).map(Some);
            }
        }
        Ok(None)
    }

    /// Shares an image of the application. `None` if the other device cannot import its memory.
    pub(crate) fn of_exported(
        left: &A,
        right: &B,
        mechanism: Mechanism,
        image: &vulkan::Image,
    ) -> Result<Option<Self>> {
        let (left, right): (Device, Device) = (left.clone().into(), right.clone().into());
        let owner = Device::Vulkan(image.allocation().device());
        let (from_left, to) = match (owner.id() == left.id(), owner.id() == right.id()) {
            (true, _) => (true, &right),
            (_, true) => (false, &left),
            _ => {
                let (owner, wanted) = (owner.object(), left.object());
                return Err(Error::wrong_device(image.object(), owner, wanted));
            }
        };
        let Some(pass) = Pass::of(mechanism, &owner, to) else {
            return Ok(None);
        };
        let imported = pass.import_image(image)?;
        Self::of(Image::Vulkan(image.clone()), imported, from_left).map(Some)
    }

    fn of(exported: Image, imported: Image, from_left: bool) -> Result<Self> {
        let info = *exported.info();
        let (left, right) = match from_left {
            true => (exported, imported),
            false => (imported, exported),
        };
        let other_type = |object| another_backend(object, "its own type of image");
        Ok(Self {
            left: A::Image::try_from(left.clone()).map_err(|_| other_type(left.object()))?,
            right: B::Image::try_from(right.clone()).map_err(|_| other_type(right.object()))?,
            info,
        })
    }

    /// The properties of the image.
    #[must_use]
    pub const fn info(&self) -> &ImageInfo {
        &self.info
    }

    /// The left device's view.
    #[must_use]
    pub const fn left(&self) -> &A::Image {
        &self.left
    }

    /// The right device's view.
    #[must_use]
    pub const fn right(&self) -> &B::Image {
        &self.right
    }
}

impl<A: MemoryDevice, B: MemoryDevice> fmt::Debug for SharedImage<A, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedImage({:?})", self.info)
    }
}
