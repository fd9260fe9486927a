//! Images of exported and imported memory, and the table of them that the CUDA driver reads.
//!
//! Such an image is one for memory of the host below the layer. When it is bound, the layer asks
//! the driver where it lays the texels, and adds the image to the table of the memory
//! ([`software::Image`]).
#![allow(
    unsafe_code,
    reason = "is called by the application, and calls the driver"
)]

use std::io::Write as _;
use std::sync::Arc;

use ash::vk;
use syncline_software_payload as software;

use crate::chain::{self, Copied, known, slice};
use crate::device::Device;
use crate::instance::INSTANCES;
use crate::memory::{OPAQUE, below, serves};

/// Formats of two aspects, whose layouts may differ. Ownership of such images is not followed.
const HAS_STENCIL_TOO: [vk::Format; 3] = [
    vk::Format::D16_UNORM_S8_UINT,
    vk::Format::D24_UNORM_S8_UINT,
    vk::Format::D32_SFLOAT_S8_UINT,
];

/// What the layer keeps for an image that descriptors of memory are for.
pub(crate) struct Image {
    /// Without its offset, and with a place of zeroes for each level.
    described: software::Image,
    /// Its entry in the table of its memory. `None` before it is bound.
    bound: Option<software::BoundImage>,
}

impl Image {
    fn new(info: &vk::ImageCreateInfo<'_>) -> Self {
        let vk::Extent3D {
            width,
            height,
            depth,
        } = info.extent;
        let nowhere = software::Level {
            offset: 0,
            row_pitch: 0,
            slice_pitch: 0,
        };
        Self {
            described: software::Image {
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
                levels: vec![nowhere; info.mip_levels as usize],
            },
            bound: None,
        }
    }

    /// Adds the image to the table of the memory that it is about to be bound to.
    fn bind(
        &mut self,
        device: &Device,
        raw: vk::Image,
        memory: &Arc<software::Memory>,
        offset: u64,
    ) -> Result<(), software::MemoryError> {
        let mut described = self.described.clone();
        described.offset = offset;
        for (level, place) in (0..).zip(&mut described.levels) {
            let layout = |layer| layout(device, raw, described.format, level, layer);
            let first = layout(0);
            *place = software::Level {
                offset: first.offset + border(device, &self.described, level, first.row_pitch),
                row_pitch: first.row_pitch,
                slice_pitch: match described.layers {
                    1 => first.depth_pitch,
                    _ => layout(1).offset.saturating_sub(first.offset),
                },
            };
        }
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

/// Returns where the driver lays a layer of a level, counted from the beginning of the image.
fn layout(
    device: &Device,
    image: vk::Image,
    format: u32,
    level: u32,
    layer: u32,
) -> vk::SubresourceLayout {
    let subresource = vk::ImageSubresource {
        aspect_mask: match vk::Format::from_raw(format.cast_signed()) {
            vk::Format::S8_UINT => vk::ImageAspectFlags::STENCIL,
            vk::Format::D16_UNORM
            | vk::Format::X8_D24_UNORM_PACK32
            | vk::Format::D32_SFLOAT
            | vk::Format::D16_UNORM_S8_UINT
            | vk::Format::D24_UNORM_S8_UINT
            | vk::Format::D32_SFLOAT_S8_UINT => vk::ImageAspectFlags::DEPTH,
            _ => vk::ImageAspectFlags::COLOR,
        },
        mip_level: level,
        array_layer: layer,
    };
    let mut layout = vk::SubresourceLayout::default();
    // SAFETY: a live image with this level and this layer. Both software drivers answer for images
    // of any tiling, although the specification allows the question for linear images alone.
    unsafe {
        let get = device.driver.get_image_subresource_layout;
        get(
            device.driver.device,
            image,
            &raw const subresource,
            &raw mut layout,
        );
    }
    layout
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
            device.images().insert(*image, Image::new(&given));
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
            .map_or(Ok(()), |image| image.bind(device, raw, &memory, offset))
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
