//! Images of Vulkan in imported memory, which CUDA uses as arrays, surfaces and textures.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::any::Any;
use std::ptr::{null, null_mut};
use std::sync::Arc;

use cudarc::driver::sys;
use syncline_core::image::{Extent, Format, ImageInfo, ImageType, ImageUsage};
use syncline_core::{Error, Result, error::Object, info::DeviceId};

use crate::device::context::Context;
use crate::device::deferred_free::Resource;
use crate::driver::array::{ArrayDesc, Copy3d, CopySide, MipmappedArrayDesc, ResourceDesc};
use crate::driver::table::{Code, Driver, Raw, require_function};
use crate::memory::allocation::Allocation;
use crate::memory::buffer::Buffer;

/// An image in imported memory: a `CUmipmappedArray` with an array for each level. Cheap to clone.
///
/// It keeps its [`Allocation`]. Its [surfaces](Image::surface), its [textures](Image::texture) and
/// submissions that copy it keep the image. Work of your own that uses an array, a surface or a
/// texture must [keep](crate::Recorder::keep) it. It is destroyed like a [`Buffer`].
///
/// CUDA gets the bytes of each texel and converts nothing. The channels of BGRA formats stay in
/// that order, and a texel of UNORM and SRGB formats is of unsigned integers.
#[derive(Clone)]
pub struct Image(Arc<Mapped>);

struct Mapped {
    object: Object,
    info: ImageInfo,
    /// Where it begins in the allocation.
    at: u64,
    raw: Raw<sys::CUmipmappedArray_st>,
    /// One for each level. The mipmapped array owns them.
    arrays: Vec<Raw<sys::CUarray_st>>,
    allocation: Allocation,
}

/// A level of an image as a `CUsurfObject`, which kernels read and write. Cheap to clone.
///
/// It keeps the image. Kernels that use it must [keep](crate::Recorder::keep) it.
#[derive(Clone)]
pub struct Surface(Arc<View>);

/// An image as a `CUtexObject`, which kernels read. Cheap to clone.
///
/// It keeps the image. Kernels that use it must [keep](crate::Recorder::keep) it.
#[derive(Clone)]
pub struct Texture(Arc<View>);

/// A surface or a texture.
struct View {
    raw: u64,
    /// What frees it.
    resource: fn(u64) -> Resource,
    image: Image,
}

impl Allocation {
    /// Maps the image at `offset`, which keeps the memory.
    ///
    /// Vulkan has made the image there with these properties. No driver checks that. With other
    /// properties the texels are elsewhere. Calls `cuExternalMemoryGetMappedMipmappedArray`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for an image that cannot be shared ([`ImageInfo::check`]) or cannot
    /// be at this offset, or if the driver maps no images. All of these are found before any driver
    /// call. A driver error.
    pub fn image(&self, offset: u64, info: &ImageInfo) -> Result<Image> {
        let context = self.device().context();
        let array = describe(info, context.driver(), self.object())?;
        self.require_offset(offset)?;
        self.require_made_for(Some(info))?;
        require_place(self.object(), self.size(), offset, info)?;
        let desc = MipmappedArrayDesc::new(offset, array, info.levels);
        let _bound = context.bind_outside_capture()?;
        let mut raw = null_mut();
        context.allocate(|driver| {
            // SAFETY: imported memory of the current context, which `self` keeps. Writes one
            // handle.
            let mapped = unsafe {
                driver.external_memory_get_mapped_mipmapped_array(
                    &raw mut raw,
                    self.raw(),
                    &raw const desc,
                )
            };
            require_function(mapped, "cuExternalMemoryGetMappedMipmappedArray")
        })?;
        // From here on dropping `made` destroys it.
        let mut made = Mapped {
            object: Object::new("image", "imported"),
            info: *info,
            at: offset,
            raw: Raw(raw),
            arrays: Vec::new(),
            allocation: self.clone(),
        };
        for level in 0..info.levels {
            let mut array = null_mut();
            // SAFETY: just mapped in the current context, with this many levels. Writes one handle.
            let found = unsafe {
                let driver = context.driver();
                driver.mipmapped_array_get_level(&raw mut array, raw, level)
            };
            require_function(found, "cuMipmappedArrayGetLevel")
                .map_err(|code| context.error_on(&made.object, code))?;
            made.arrays.push(Raw(array));
        }
        Ok(Image(Arc::new(made)))
    }
}

/// Refuses an image where no driver has one in memory of `whole` bytes.
///
/// So the error has the offset and both sizes. An H200 returns a bare
/// `CUDA_ERROR_INVALID_VALUE` for what its own layout has no room for.
pub(crate) fn require_place(
    object: &Object,
    whole: u64,
    offset: u64,
    info: &ImageInfo,
) -> Result<()> {
    // Drivers need more than this, but not all the same.
    const ALIGNMENT: u64 = 16;
    let size = info.size();
    let reason = if !offset.is_multiple_of(ALIGNMENT) {
        format!("no driver has one that is not at a multiple of {ALIGNMENT}")
    } else if offset.saturating_add(size) > whole {
        format!("it has {whole} bytes")
    } else {
        return Ok(());
    };
    let asked = format!("hold an image of {size} bytes at offset {offset}");
    Err(Error::unsupported(object, asked, reason))
}

/// What CUDA is told of an image, as an H200 takes it.
///
/// # Errors
/// [`Error::Unsupported`] for an image that CUDA cannot share, or if the driver maps no images.
pub(crate) fn describe(info: &ImageInfo, driver: &Driver, object: &Object) -> Result<ArrayDesc> {
    info.check(object)?;
    let refused = |asked: String, reason: String| Error::unsupported(object, asked, reason);
    if let Some(missing) = driver.missing_for_images() {
        let reason = format!("the driver has no {missing}");
        return Err(refused("hold an image".into(), reason));
    }
    let format = format(info.format).ok_or_else(|| {
        let asked = format!("hold an image with format {:?}", info.format);
        refused(asked, "CUDA has no such format".into())
    })?;
    let is_cube = info.image_type == ImageType::Cube;
    let layers = (info.layers > 1).then_some(info.layers);
    let Extent {
        width,
        height,
        depth,
    } = info.extent;
    let (height, depth) = match info.image_type {
        ImageType::D1 => (0, layers.unwrap_or(0)),
        ImageType::D3 => (height, depth),
        _ => (height, layers.unwrap_or(0)),
    };
    // A flag, and whether the array has it.
    let flags = [
        (
            sys::CUDA_ARRAY3D_LAYERED,
            info.layers > if is_cube { 6 } else { 1 },
        ),
        (sys::CUDA_ARRAY3D_SURFACE_LDST, !info.format.is_compressed()),
        (sys::CUDA_ARRAY3D_CUBEMAP, is_cube),
        (
            sys::CUDA_ARRAY3D_COLOR_ATTACHMENT,
            info.usage.contains(ImageUsage::COLOR_ATTACHMENT),
        ),
    ];
    let flags = flags.map(|(flag, has)| if has { flag } else { 0 });
    let extent = [width, height, depth].map(|size| size as usize);
    Ok(ArrayDesc::new(extent, format, flags.iter().sum()))
}

/// The `CUarray_format` with the same bytes, and the number of channels.
const fn format(format: Format) -> Option<(u32, u32)> {
    use Format as F;
    use sys::CUarray_format as A;
    const UNSIGNED_INT8: u32 = A::CU_AD_FORMAT_UNSIGNED_INT8 as u32;
    const UNSIGNED_INT16: u32 = A::CU_AD_FORMAT_UNSIGNED_INT16 as u32;
    const UNSIGNED_INT32: u32 = A::CU_AD_FORMAT_UNSIGNED_INT32 as u32;
    const SIGNED_INT8: u32 = A::CU_AD_FORMAT_SIGNED_INT8 as u32;
    const SIGNED_INT16: u32 = A::CU_AD_FORMAT_SIGNED_INT16 as u32;
    const SIGNED_INT32: u32 = A::CU_AD_FORMAT_SIGNED_INT32 as u32;
    const HALF: u32 = A::CU_AD_FORMAT_HALF as u32;
    const FLOAT: u32 = A::CU_AD_FORMAT_FLOAT as u32;
    // `CU_AD_FORMAT_BC1_UNORM`, which older versions of cuda.h lack. The formats from this one on
    // are in Vulkan's order.
    const BC1_UNORM: u32 = 0x91;
    let block = BC1_UNORM.wrapping_add(format.to_vk().wrapping_sub(F::Bc1RgbaUnorm.to_vk()));
    Some(match format {
        F::R8Unorm | F::R8Uint => (UNSIGNED_INT8, 1),
        F::R8Snorm | F::R8Sint => (SIGNED_INT8, 1),
        F::Rg8Unorm | F::Rg8Uint => (UNSIGNED_INT8, 2),
        F::Rg8Snorm | F::Rg8Sint => (SIGNED_INT8, 2),
        F::Rgba8Unorm | F::Rgba8Uint | F::Rgba8Srgb | F::Bgra8Unorm | F::Bgra8Srgb => {
            (UNSIGNED_INT8, 4)
        }
        F::Rgba8Snorm | F::Rgba8Sint => (SIGNED_INT8, 4),
        F::R16Unorm | F::R16Uint | F::D16Unorm => (UNSIGNED_INT16, 1),
        F::R16Snorm | F::R16Sint => (SIGNED_INT16, 1),
        F::R16Sfloat => (HALF, 1),
        F::Rg16Unorm | F::Rg16Uint => (UNSIGNED_INT16, 2),
        F::Rg16Snorm | F::Rg16Sint => (SIGNED_INT16, 2),
        F::Rg16Sfloat => (HALF, 2),
        F::Rgba16Unorm | F::Rgba16Uint => (UNSIGNED_INT16, 4),
        F::Rgba16Snorm | F::Rgba16Sint => (SIGNED_INT16, 4),
        F::Rgba16Sfloat => (HALF, 4),
        F::R32Uint | F::A2b10g10r10Unorm | F::B10g11r11Ufloat => (UNSIGNED_INT32, 1),
        F::R32Sint => (SIGNED_INT32, 1),
        F::R32Sfloat | F::D32Sfloat => (FLOAT, 1),
        F::Rg32Uint => (UNSIGNED_INT32, 2),
        F::Rg32Sint => (SIGNED_INT32, 2),
        F::Rg32Sfloat => (FLOAT, 2),
        F::Rgba32Uint => (UNSIGNED_INT32, 4),
        F::Rgba32Sint => (SIGNED_INT32, 4),
        F::Rgba32Sfloat => (FLOAT, 4),
        F::Bc1RgbaUnorm | F::Bc2Unorm | F::Bc3Unorm | F::Bc7Unorm => (block, 4),
        F::Bc1RgbaSrgb | F::Bc2Srgb | F::Bc3Srgb | F::Bc7Srgb => (block, 4),
        F::Bc4Unorm | F::Bc4Snorm => (block, 1),
        F::Bc5Unorm | F::Bc5Snorm => (block, 2),
        _ => return None,
    })
}

impl Image {
    /// The properties of the image.
    #[must_use]
    pub fn info(&self) -> &ImageInfo {
        &self.0.info
    }

    /// The memory that the image is in.
    #[must_use]
    pub fn allocation(&self) -> &Allocation {
        &self.0.allocation
    }

    /// The name in errors.
    #[must_use]
    pub fn object(&self) -> &Object {
        &self.0.object
    }

    /// The raw array of all levels, valid while a handle lives.
    #[must_use]
    pub fn mipmapped_array(&self) -> sys::CUmipmappedArray {
        self.0.raw.0
    }

    /// The raw array of a level, valid while a handle of the image lives.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the image does not have the level.
    pub fn array(&self, level: u32) -> Result<sys::CUarray> {
        let array = self.0.arrays.get(level as usize);
        array.map(|array| array.0).ok_or_else(|| {
            let reason = format!("it has {} levels", self.info().levels);
            Error::unsupported(self.object(), format!("use level {level}"), reason)
        })
    }

    /// Makes a surface of a level, with all its layers.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the image does not have the level, or for a compressed format. A
    /// driver error.
    pub fn surface(&self, level: u32) -> Result<Surface> {
        let of = ResourceDesc::array(self.array(level)?);
        if self.info().format.is_compressed() {
            let asked = format!("be a surface with format {:?}", self.info().format);
            let reason = "CUDA reads compressed formats only as textures";
            return Err(Error::unsupported(self.object(), asked, reason));
        }
        self.view(Resource::Surface, |driver, raw| {
            // SAFETY: an array of the current context, which the image keeps. Writes one handle.
            let made = unsafe { driver.surf_object_create(raw, &raw const of) };
            require_function(made, "cuSurfObjectCreate")
        })
        .map(Surface)
    }

    /// Makes a texture of all levels and layers.
    ///
    /// An image of one level is read as an array, so its coordinates need not be normalized. The
    /// driver reads integers of 8 and 16 bits as fractions, unless the flags have
    /// `CU_TRSF_READ_AS_INTEGER`. It decodes SRGB formats only with `CU_TRSF_SRGB`.
    ///
    /// # Errors
    /// A driver error, also for a description that the format does not allow.
    pub fn texture(&self, desc: &sys::CUDA_TEXTURE_DESC) -> Result<Texture> {
        let of = match self.0.arrays.as_slice() {
            [array] => ResourceDesc::array(array.0),
            _ => ResourceDesc::mipmapped_array(self.mipmapped_array()),
        };
        self.view(Resource::Texture, |driver, raw| {
            // SAFETY: an array of the current context, which the image keeps. `desc` is borrowed
            // for the call. Writes one handle.
            let made = unsafe { driver.tex_object_create(raw, &raw const of, desc, null()) };
            require_function(made, "cuTexObjectCreate")
        })
        .map(Texture)
    }

    fn view(
        &self,
        resource: fn(u64) -> Resource,
        make: impl Fn(&Driver, *mut u64) -> Result<(), Code>,
    ) -> Result<Arc<View>> {
        let mut raw = 0;
        let context = self.context();
        let _bound = context.bind_outside_capture()?;
        context.allocate(|driver| make(driver, &raw mut raw))?;
        Ok(Arc::new(View {
            raw,
            resource,
            image: self.clone(),
        }))
    }

    fn context(&self) -> &Context {
        self.allocation().device().context()
    }

    /// A copy between a level and a buffer without gaps, from the image or to it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the image does not have the level, if the buffer is too small, or
    /// if both have bytes of one allocation in common. The image has at least the bytes of its
    /// levels. CUDA does not tell how many more.
    pub(crate) fn copy(&self, level: u32, buffer: &Buffer, is_source: bool) -> Result<Copy3d> {
        let info = self.info();
        let array = CopySide::array(self.array(level)?);
        let size = info.level_size(level);
        if size > buffer.size() {
            return Err(Error::unsupported(
                buffer.object(),
                format!(
                    "hold the {size} bytes of level {level} of {}",
                    self.object()
                ),
                format!("it holds {}", buffer.size()),
            ));
        }
        let ((memory, at), own) = (buffer.place(), self.allocation().address());
        let (start, end) = (self.0.at, self.0.at + info.size());
        if memory == own && at < end && start < at + size {
            return Err(Error::unsupported(
                self.object(),
                format!("copy level {level} to or from {}", buffer.object()),
                format!(
                    "they overlap in their memory: the image has bytes {start} to {end}, the \
                     buffer {at} to {}",
                    at + size
                ),
            ));
        }
        let Extent {
            width,
            height,
            depth,
        } = info.extent.level(level);
        let edge = if info.format.is_compressed() { 4 } else { 1 };
        let row = width.div_ceil(edge) as usize * info.format.block_size() as usize;
        let height = height.div_ceil(edge) as usize;
        let memory = CopySide::memory(buffer.pointer(), row, height);
        let (from, to) = match is_source {
            true => (array, memory),
            false => (memory, array),
        };
        let extent = [row, height, depth as usize * info.layers as usize];
        Ok(Copy3d::new(from, to, extent))
    }

    /// Rejects an image of another device.
    ///
    /// # Errors
    /// [`Error::WrongDevice`].
    pub(crate) fn require_device(&self, device: DeviceId, asked: &Object) -> Result<()> {
        let own = self.allocation().device();
        if own.id() == device {
            return Ok(());
        }
        Err(Error::wrong_device(self.object(), own.object(), asked))
    }

    pub(crate) fn keep(&self) -> Arc<dyn Any + Send + Sync> {
        self.0.clone()
    }
}

impl Surface {
    /// The raw surface, for parameters of kernels. Valid while a handle lives.
    #[must_use]
    pub fn raw(&self) -> sys::CUsurfObject {
        self.0.raw
    }

    /// The image.
    #[must_use]
    pub fn image(&self) -> &Image {
        &self.0.image
    }
}

impl Texture {
    /// The raw texture, for parameters of kernels. Valid while a handle lives.
    #[must_use]
    pub fn raw(&self) -> sys::CUtexObject {
        self.0.raw
    }

    /// The image.
    #[must_use]
    pub fn image(&self) -> &Image {
        &self.0.image
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // Surfaces and textures keep the image, so they were freed or deferred before.
        let array = Resource::MipmappedArray(Raw(self.raw.0));
        self.allocation.device().context().free_or_defer(array, 0);
    }
}

impl Drop for View {
    fn drop(&mut self) {
        let resource = (self.resource)(self.raw);
        self.image.context().free_or_defer(resource, 0);
    }
}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({:?})", self.object(), self.info())
    }
}

impl std::fmt::Debug for Surface {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Surface({:#x})", self.raw())
    }
}

impl std::fmt::Debug for Texture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Texture({:#x})", self.raw())
    }
}

#[cfg(test)]
mod tests;
