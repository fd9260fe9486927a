//! Images of exported and imported memory, and the table of them that the CUDA driver reads.
//!
//! Such an image is one for memory of the host below the layer. When it is bound, the layer asks
//! the driver where it lays the texels, and adds the image to the table of the memory
//! ([`software::Image`]).
#![allow(
    unsafe_code,
    reason = "is called by the application, and calls the driver"
)]

use std::ffi::CStr;
use std::io::Write as _;
use std::sync::Arc;

use ash::vk;
use syncline_software_payload as software;

use crate::chain::{self, Copied, known, slice};
use crate::device::Device;
use crate::instance::{INSTANCES, next};
use crate::memory::{OPAQUE, below, serves};

/// Formats of two aspects, whose layouts may differ. Ownership of such images is not followed.
const HAS_STENCIL_TOO: [vk::Format; 3] = [
    vk::Format::D16_UNORM_S8_UINT,
    vk::Format::D24_UNORM_S8_UINT,
    vk::Format::D32_SFLOAT_S8_UINT,
];

/// What the layer keeps for an image that descriptors of memory are for.
pub(crate) struct Image {
    /// Counted from the beginning of the image.
    described: software::Image,
    /// Its entry in the table of its memory. `None` before it is bound.
    bound: Option<software::BoundImage>,
}

impl Image {
    /// Describes an image with these properties. Returns what the driver returns.
    ///
    /// # Safety
    /// `info` is valid for a driver that has made such an image.
    unsafe fn new(device: &Device, info: &vk::ImageCreateInfo<'_>) -> Result<Self, vk::Result> {
        let vk::Extent3D {
            width,
            height,
            depth,
        } = info.extent;
        let mut described = software::Image {
            offset: 0,
            format: info.format.as_raw().cast_unsigned(),
            dimensions: match info.image_type {
                vk::ImageType::TYPE_1D => 1,
                vk::ImageType::TYPE_2D => 2,
                _ => 3,
            },
            extent: [width, height, depth],
            layers: info.array_layers,
            samples: info.samples.as_raw(),
            is_cube: info.flags.contains(vk::ImageCreateFlags::CUBE_COMPATIBLE),
            is_linear: info.tiling == vk::ImageTiling::LINEAR,
            levels: Vec::new(),
        };
        // SAFETY: by this function's contract.
        let places = unsafe { device.layouts.of(info) }?;
        let places = (0..).zip(places).map(|(level, [first, second])| {
            let border = border(device, &described, level, first.row_pitch);
            software::Level {
                offset: first.offset + border,
                row_pitch: first.row_pitch,
                slice_pitch: match described.layers {
                    1 => first.depth_pitch,
                    _ => second.offset.saturating_sub(first.offset),
                },
            }
        });
        described.levels = places.collect();
        let bound = None;
        Ok(Self { described, bound })
    }

    /// Adds the image to the table of the memory that it is about to be bound to.
    fn bind(
        &mut self,
        memory: &Arc<software::Memory>,
        offset: u64,
    ) -> Result<(), software::MemoryError> {
        let mut described = self.described.clone();
        described.offset = offset;
        self.bound = Some(memory.add_image(&described)?);
        Ok(())
    }
}

/// Returns the bytes before the first texel of a layer, which the driver does not count.
///
/// SwiftShader keeps texels of the other faces around each face of a cube. It copies them there at
/// each of its own commands.
fn border(device: &Device, image: &software::Image, level: u32, row_pitch: u64) -> u64 {
    let heaps = device.heaps.as_ref();
    let has_borders = heaps.is_some_and(|heaps| heaps.twin == software::Twin::SwiftShader);
    let is_compressed = image.format >= vk::Format::BC1_RGB_UNORM_BLOCK.as_raw().cast_unsigned();
    if !has_borders || !image.is_cube || is_compressed {
        return 0;
    }
    // One row above the face, and one texel before each row. A row has an even number of texels.
    let texels = (image.extent[0] >> level).max(1).saturating_add(3) & !1;
    row_pitch + row_pitch / u64::from(texels)
}

/// Functions of the driver itself, below all layers, by which it tells where it lays texels.
///
/// Vulkan allows `vkGetImageSubresourceLayout` for linear images alone. Both software drivers
/// answer for images of any tiling, but a validation layer in between would report the call.
pub(crate) struct Layouts {
    device: vk::Device,
    create_image: vk::PFN_vkCreateImage,
    destroy_image: vk::PFN_vkDestroyImage,
    get_image_subresource_layout: vk::PFN_vkGetImageSubresourceLayout,
}

impl Layouts {
    /// Returns `None` if a function is missing.
    ///
    /// # Safety
    /// `get` is the function below all layers, and `device` was made by it.
    pub(crate) unsafe fn load(
        get: vk::PFN_vkGetDeviceProcAddr,
        device: vk::Device,
    ) -> Option<Self> {
        // SAFETY: by this function's contract; each function is taken as the type of its name.
        unsafe {
            Some(Self {
                device,
                create_image: next!(get, device, PFN_vkCreateImage, c"vkCreateImage")?,
                destroy_image: next!(get, device, PFN_vkDestroyImage, c"vkDestroyImage")?,
                get_image_subresource_layout: next!(
                    get,
                    device,
                    PFN_vkGetImageSubresourceLayout,
                    c"vkGetImageSubresourceLayout"
                )?,
            })
        }
    }

    /// Returns the layouts of the first two layers of each level of an image with these properties.
    ///
    /// Makes such an image for the question, because other layers may give images other handles.
    /// An image with one layer has its layout twice.
    ///
    /// # Safety
    /// `info` is valid for a driver that has made such an image.
    unsafe fn of(
        &self,
        info: &vk::ImageCreateInfo<'_>,
    ) -> Result<Vec<[vk::SubresourceLayout; 2]>, vk::Result> {
        let mut image = vk::Image::null();
        // SAFETY: by this function's contract.
        let made = unsafe {
            let create = self.create_image;
            create(self.device, info, std::ptr::null(), &raw mut image)
        };
        made.result()?;
        let layout = |mip_level, array_layer| {
            let subresource = vk::ImageSubresource {
                aspect_mask: aspect(info.format),
                mip_level,
                array_layer,
            };
            let mut layout = vk::SubresourceLayout::default();
            // SAFETY: a live image with this level and this layer, of a driver that answers.
            unsafe {
                let get = self.get_image_subresource_layout;
                get(self.device, image, &raw const subresource, &raw mut layout);
            }
            layout
        };
        let second = u32::from(info.array_layers > 1);
        let layouts = (0..info.mip_levels).map(|level| [0, second].map(|at| layout(level, at)));
        let layouts = layouts.collect();
        // SAFETY: made above, and used no more.
        unsafe { (self.destroy_image)(self.device, image, std::ptr::null()) };
        Ok(layouts)
    }
}

/// The aspect whose layout is told.
fn aspect(format: vk::Format) -> vk::ImageAspectFlags {
    match format {
        vk::Format::S8_UINT => vk::ImageAspectFlags::STENCIL,
        vk::Format::D16_UNORM
        | vk::Format::X8_D24_UNORM_PACK32
        | vk::Format::D32_SFLOAT
        | vk::Format::D16_UNORM_S8_UINT
        | vk::Format::D24_UNORM_S8_UINT
        | vk::Format::D32_SFLOAT_S8_UINT => vk::ImageAspectFlags::DEPTH,
        _ => vk::ImageAspectFlags::COLOR,
    }
}

/// `vkCreateImage`: an image for descriptors is one for memory of the host below.
pub(crate) unsafe extern "system" fn create_image(
    raw: vk::Device,
    info: *const vk::ImageCreateInfo<'_>,
    allocator: *const vk::AllocationCallbacks<'_>,
    image: *mut vk::Image,
) -> vk::Result {
    // SAFETY: valid usage: a live device, and a valid create info.
    let (device, mut given) = unsafe { (Device::of(raw), *info) };
    let Some(device) = device else {
        return vk::Result::ERROR_INITIALIZATION_FAILED;
    };
    let create = device.driver.create_image;
    let sizes = known![
        vk::ExternalMemoryImageCreateInfo<'_>,
        vk::ImageFormatListCreateInfo<'_>,
        vk::ImageStencilUsageCreateInfo<'_>,
        vk::ImageDrmFormatModifierListCreateInfoEXT<'_>,
        vk::ImageDrmFormatModifierExplicitCreateInfoEXT<'_>,
        vk::ImageCompressionControlEXT<'_>,
    ];
    // SAFETY: valid usage: a valid chain. The copy lives until the call has ended.
    unsafe {
        let external = chain::find::<vk::ExternalMemoryImageCreateInfo<'_>>(given.p_next);
        let is_shared = external.is_some_and(|external| external.handle_types.contains(OPAQUE));
        if device.heaps.is_none() || !is_shared {
            return create(raw, info, allocator, image);
        }
        let mut copied = Copied::of(given.p_next, &sizes);
        if let Some(external) = copied.get::<vk::ExternalMemoryImageCreateInfo<'_>>() {
            external.handle_types = below(external.handle_types);
        }
        given.p_next = copied.first();
        let result = create(raw, &raw const given, allocator, image);
        // CUDA knows no format of later versions. Some have planes, which are bound apart.
        let is_known = given.format.as_raw() <= vk::Format::ASTC_12X12_SRGB_BLOCK.as_raw();
        if result == vk::Result::SUCCESS && is_known {
            let described = match Image::new(&device, &given) {
                Ok(described) => described,
                Err(code) => {
                    (device.driver.destroy_image)(raw, *image, allocator);
                    return code;
                }
            };
            device.images().insert(*image, described);
            if !HAS_STENCIL_TOO.contains(&given.format) {
                let (levels, layers) = (given.mip_levels, given.array_layers);
                device.ownership.add_image(*image, levels, layers);
            }
        }
        result
    }
}

/// `vkDestroyImage`: the table no longer has it.
pub(crate) unsafe extern "system" fn destroy_image(
    raw: vk::Device,
    image: vk::Image,
    allocator: *const vk::AllocationCallbacks<'_>,
) {
    // SAFETY: valid usage: a live device, and null or an image that is used no more.
    unsafe {
        let Some(device) = Device::of(raw) else {
            return;
        };
        if device.heaps.is_some() {
            // Before the driver may give the handle to another thread.
            device.images().remove(&image);
            device.ownership.remove_image(image);
        }
        (device.driver.destroy_image)(raw, image, allocator);
    }
}

/// An image, its memory, and its offset there.
type Bind = (vk::Image, vk::DeviceMemory, vk::DeviceSize);

/// Adds images to the tables of their memory, and binds them.
///
/// What is bound to other memory, or was not made for descriptors, is in no table.
fn bind(device: &Device, all: &[Bind], next: impl FnOnce() -> vk::Result) -> vk::Result {
    if device.heaps.is_none() {
        return next();
    }
    let added = all.iter().try_for_each(|&(raw, memory, offset)| {
        let Some(memory) = device.with_memory(memory, |shared| shared.memory.clone()) else {
            return Ok(());
        };
        device
            .images()
            .get_mut(&raw)
            .map_or(Ok(()), |image| image.bind(&memory, offset))
    });
    let result = match added {
        Ok(()) => next(),
        Err(reason) => {
            // Not `eprintln!`, which panics if standard error cannot be written.
            let _ = writeln!(
                std::io::stderr(),
                "software layer: an image is not bound: {reason}"
            );
            vk::Result::ERROR_OUT_OF_DEVICE_MEMORY
        }
    };
    if result == vk::Result::SUCCESS {
        for &(raw, memory, _) in all {
            device.ownership.bind_image(raw, memory);
        }
    } else {
        let mut images = device.images();
        for (raw, ..) in all {
            if let Some(image) = images.get_mut(raw) {
                image.bound = None;
            }
        }
    }
    result
}

/// `vkBindImageMemory`.
pub(crate) unsafe extern "system" fn bind_image_memory(
    raw: vk::Device,
    image: vk::Image,
    memory: vk::DeviceMemory,
    offset: vk::DeviceSize,
) -> vk::Result {
    // SAFETY: valid usage: a live device.
    let Some(device) = (unsafe { Device::of(raw) }) else {
        return vk::Result::ERROR_INITIALIZATION_FAILED;
    };
    bind(&device, &[(image, memory, offset)], || {
        // SAFETY: valid usage.
        unsafe { (device.driver.bind_image_memory)(raw, image, memory, offset) }
    })
}

/// `vkBindImageMemory2`.
pub(crate) unsafe extern "system" fn bind_image_memory2(
    raw: vk::Device,
    count: u32,
    infos: *const vk::BindImageMemoryInfo<'_>,
) -> vk::Result {
    // SAFETY: valid usage: a live device.
    let Some(device) = (unsafe { Device::of(raw) }) else {
        return vk::Result::ERROR_INITIALIZATION_FAILED;
    };
    // The driver has the function, because the loader asks for no other.
    let Some(next) = device.driver.bind_image_memory2 else {
        return vk::Result::ERROR_INITIALIZATION_FAILED;
    };
    // SAFETY: valid usage: so many valid structures.
    let all = unsafe { slice(infos, count) }.iter();
    let all: Vec<Bind> = all
        .map(|info| (info.image, info.memory, info.memory_offset))
        .collect();
    // SAFETY: valid usage.
    bind(&device, &all, || unsafe { next(raw, count, infos) })
}

/// `vkGetPhysicalDeviceImageFormatProperties2`.
///
/// The layer answers what concerns opaque descriptors, and the driver the rest. Lavapipe crashes
/// without a structure for the answer, so the layer adds one.
pub(crate) unsafe extern "system" fn get_physical_device_image_format_properties2(
    physical: vk::PhysicalDevice,
    info: *const vk::PhysicalDeviceImageFormatInfo2<'_>,
    properties: *mut vk::ImageFormatProperties2<'_>,
) -> vk::Result {
    use vk::ExternalMemoryFeatureFlags as Features;
    type External<'a> = vk::PhysicalDeviceExternalImageFormatInfo<'a>;
    // SAFETY: valid usage: a live physical device and valid chains. Each structure is of the type
    // that its tag tells. The added one lives until the call has ended.
    unsafe {
        let Some(instance) = INSTANCES.get(physical) else {
            return vk::Result::ERROR_INITIALIZATION_FAILED;
        };
        let next = instance.get_physical_device_image_format_properties2;
        let external = chain::find::<External<'_>>((*info).p_next);
        let is_opaque = external.is_some_and(|external| external.handle_type == OPAQUE);
        let is_software = instance.twin(physical).is_some();
        if !is_opaque || !is_software || !serves(&instance, physical) {
            return next(physical, info, properties);
        }
        let mut answer = vk::ExternalImageFormatProperties::default();
        let given = (*properties).p_next;
        if chain::find::<vk::ExternalImageFormatProperties<'_>>(given).is_none() {
            answer.p_next = given;
            (*properties).p_next = (&raw mut answer).cast();
        }
        let result = next(physical, info, properties);
        (*properties).p_next = given;
        if result != vk::Result::SUCCESS {
            return result;
        }
        chain::for_each((*properties).p_next, |s_type, at| {
            if s_type == vk::StructureType::EXTERNAL_IMAGE_FORMAT_PROPERTIES {
                let told = at.cast::<vk::ExternalImageFormatProperties<'_>>();
                (*told).external_memory_properties = vk::ExternalMemoryProperties::default()
                    .external_memory_features(Features::EXPORTABLE | Features::IMPORTABLE)
                    .export_from_imported_handle_types(OPAQUE)
                    .compatible_handle_types(OPAQUE);
            }
        });
        result
    }
}
