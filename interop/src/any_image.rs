//! Images of any backend.

use syncline_core::error::Object;
use syncline_core::image::ImageInfo;
use syncline_core::{Error, Result};

#[cfg(feature = "cuda")]
use crate::another_backend::another_backend;
#[cfg(feature = "cuda")]
use crate::cuda;
use crate::vulkan;

/// An image as one device sees it. Cheap to clone.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Image {
    /// An array of CUDA.
    #[cfg(feature = "cuda")]
    Cuda(cuda::Image),
    /// A Vulkan image.
    Vulkan(vulkan::Image),
}

impl Image {
    /// Its properties, which are the same on all sides.
    #[must_use]
    pub fn info(&self) -> &ImageInfo {
        match self {
            #[cfg(feature = "cuda")]
            Self::Cuda(image) => image.info(),
            Self::Vulkan(image) => image.info(),
        }
    }

    /// The name in errors.
    #[must_use]
    pub fn object(&self) -> &Object {
        match self {
            #[cfg(feature = "cuda")]
            Self::Cuda(image) => image.object(),
            Self::Vulkan(image) => image.object(),
        }
    }

    /// The image as one of CUDA.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for an image of another backend.
    #[cfg(feature = "cuda")]
    pub fn cuda(&self) -> Result<&cuda::Image> {
        match self {
            Self::Cuda(image) => Ok(image),
            Self::Vulkan(image) => Err(another_backend(image.object(), "CUDA")),
        }
    }

    /// The image as one of Vulkan.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for an image of another backend.
    pub fn vulkan(&self) -> Result<&vulkan::Image> {
        match self {
            Self::Vulkan(image) => Ok(image),
            #[cfg(feature = "cuda")]
            Self::Cuda(image) => Err(another_backend(image.object(), "Vulkan")),
        }
    }
}

#[cfg(feature = "cuda")]
impl TryFrom<Image> for cuda::Image {
    type Error = Error;

    fn try_from(image: Image) -> Result<Self> {
        image.cuda().cloned()
    }
}

impl TryFrom<Image> for vulkan::Image {
    type Error = Error;

    fn try_from(image: Image) -> Result<Self> {
        image.vulkan().cloned()
    }
}
