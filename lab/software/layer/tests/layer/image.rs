//! Images in exported and imported memory, and the table of them.
#![allow(unsafe_code, reason = "calls Vulkan")]

use std::os::fd::{AsFd, OwnedFd};

use ash::vk;
use syncline_software_payload::{self as software, Memory};

use crate::Case;
use crate::gpu::{Driver, Gpu, MEMORY};
use crate::memory::{How, allocate, export, free, set_word};
use crate::peer;

pub(crate) const CASES: &[(&str, Case)] = &[
    ("images_lie_where_the_table_says", places),
    ("the_table_has_bound_images_alone", bound),
    ("a_full_table_refuses_a_bind", full),
    ("two_processes_have_one_table", processes),
    ("images_are_exported_and_imported", properties),
];

/// What an image is like.
#[derive(Clone, Copy, Debug)]
struct Shape {
    format: vk::Format,
    /// Bytes of a texel.
    bytes: usize,
    dimensions: i32,
    extent: [u32; 3],
    levels: u32,
    layers: u32,
    is_cube: bool,
    is_linear: bool,
}

const PLAIN: Shape = Shape {
    format: vk::Format::R8G8B8A8_UNORM,
    bytes: 4,
    dimensions: 2,
    extent: [61, 37, 1],
    levels: 1,
    layers: 1,
    is_cube: false,
    is_linear: false,
};

impl Shape {
    fn aspect(&self) -> vk::ImageAspectFlags {
        match self.format {
            vk::Format::D32_SFLOAT => vk::ImageAspectFlags::DEPTH,
            _ => vk::ImageAspectFlags::COLOR,
        }
    }

    fn make(&self, gpu: &Gpu) -> vk::Image {
        let [width, height, depth] = self.extent;
        let mut external = vk::ExternalMemoryImageCreateInfo::default().handle_types(MEMORY);
        let info = vk::ImageCreateInfo::default()
            .flags(match self.is_cube {
                true => vk::ImageCreateFlags::CUBE_COMPATIBLE,
                false => vk::ImageCreateFlags::empty(),
            })
            .image_type(vk::ImageType::from_raw(self.dimensions - 1))
            .format(self.format)
            .extent(vk::Extent3D {
                width,
                height,
                depth,
            })
            .mip_levels(self.levels)
            .array_layers(self.layers)
            .samples(vk::SampleCountFlags::TYPE_1)
            .tiling(match self.is_linear {
                true => vk::ImageTiling::LINEAR,
                false => vk::ImageTiling::OPTIMAL,
            })
            .usage(vk::ImageUsageFlags::TRANSFER_DST | vk::ImageUsageFlags::SAMPLED)
            .push_next(&mut external);
        // SAFETY: a valid structure.
        unsafe { gpu.device.create_image(&info, None) }.unwrap()
    }

    fn extent(&self, level: u32) -> [usize; 3] {
        self.extent.map(|size| (size >> level).max(1) as usize)
    }

    /// The description without the places of the levels.
    fn described(&self, offset: u64) -> software::Image {
        software::Image {
            offset,
            format: self.format.as_raw().cast_unsigned(),
            dimensions: self.dimensions.cast_unsigned(),
            extent: self.extent,
            layers: self.layers,
            samples: 1,
            is_cube: self.is_cube,
            is_linear: self.is_linear,
            levels: Vec::new(),
        }
    }
}

fn needs(gpu: &Gpu, image: vk::Image) -> vk::MemoryRequirements {
    // SAFETY: a live image.
    unsafe { gpu.device.get_image_memory_requirements(image) }
}

fn destroy(gpu: &Gpu, image: vk::Image) {
    // SAFETY: an image of this device that nothing uses.
    unsafe { gpu.device.destroy_image(image, None) };
}

fn bind(gpu: &Gpu, image: vk::Image, memory: vk::DeviceMemory, at: u64) -> Result<(), vk::Result> {
    // SAFETY: memory with room for the image at this offset.
    unsafe { gpu.device.bind_image_memory(image, memory, at) }
}

/// Memory for export with this size, its descriptor, and its file.
fn memory(gpu: &Gpu, size: u64) -> (vk::DeviceMemory, OwnedFd, Memory) {
    let how = How {
        exports: true,
        ..How::default()
    };
    let memory = allocate(gpu, size, how).unwrap();
    let file = export(gpu, memory).unwrap();
    let opened = Memory::open(file.as_fd()).unwrap();
    (memory, file, opened)
}

/// A place of a level in the buffer from which all levels are copied.
fn starts(shape: &Shape) -> (Vec<usize>, usize) {
    let mut end = 0;
    let starts = (0..shape.levels).map(|level| {
        let start = end;
        let texels: usize = shape.extent(level).iter().product();
        end = (start + texels * shape.layers as usize * shape.bytes).next_multiple_of(16);
        start
    });
    (starts.collect(), end)
}

/// Copies a buffer to all levels of an image.
fn fill(gpu: &Gpu, shape: &Shape, image: vk::Image, from: vk::Buffer) {
    let (starts, _) = starts(shape);
    let regions: Vec<_> = (0..shape.levels)
        .zip(starts)
        .map(|(level, start)| {
            let [width, height, depth] = shape.extent(level).map(|size| size as u32);
            vk::BufferImageCopy::default()
                .buffer_offset(start as u64)
                .image_subresource(vk::ImageSubresourceLayers {
                    aspect_mask: shape.aspect(),
                    mip_level: level,
                    base_array_layer: 0,
                    layer_count: shape.layers,
                })
                .image_extent(vk::Extent3D {
                    width,
                    height,
                    depth,
                })
        })
        .collect();
    let layout = vk::ImageLayout::GENERAL;
    let barrier = vk::ImageMemoryBarrier::default()
        .new_layout(layout)
        .src_queue_family_index(vk::QUEUE_FAMILY_IGNORED)
        .dst_queue_family_index(vk::QUEUE_FAMILY_IGNORED)
        .dst_access_mask(vk::AccessFlags::TRANSFER_WRITE)
        .image(image)
        .subresource_range(vk::ImageSubresourceRange {
            aspect_mask: shape.aspect(),
            base_mip_level: 0,
            level_count: shape.levels,
            base_array_layer: 0,
            layer_count: shape.layers,
        });
    let all = vk::PipelineStageFlags::ALL_COMMANDS;
    let none = vk::DependencyFlags::empty();
    // SAFETY: a command buffer in recording, and regions within the image and the buffer.
    let commands = gpu.record(|commands| unsafe {
        let device = &gpu.device;
        device.cmd_pipeline_barrier(commands, all, all, none, &[], &[], &[barrier]);
        device.cmd_copy_buffer_to_image(commands, from, image, layout, &regions);
    });
    gpu.submit(&[], &[commands], &[]);
    gpu.idle();
}

fn bytes(memory: &Memory) -> &[u8] {
    // SAFETY: mapped with this size, and nothing writes it now.
    unsafe { std::slice::from_raw_parts(memory.address(), memory.size()) }
}

/// Vulkan writes texels, and the host finds each of them by the table.
fn places(driver: &Driver) {
    let gpu = driver.open();
    let float4 = Shape {
        format: vk::Format::R32G32B32A32_SFLOAT,
        bytes: 16,
        ..PLAIN
    };
    let levels = Shape { levels: 4, ..PLAIN };
    let shapes = [
        PLAIN,
        levels,
        Shape { layers: 3, ..PLAIN },
        Shape {
            layers: 3,
            ..levels
        },
        Shape {
            format: vk::Format::R8_UNORM,
            bytes: 1,
            extent: [515, 259, 1],
            ..levels
        },
        Shape {
            format: vk::Format::B8G8R8A8_SRGB,
            ..levels
        },
        Shape {
            format: vk::Format::D32_SFLOAT,
            ..PLAIN
        },
        Shape {
            dimensions: 1,
            extent: [61, 1, 1],
            layers: 2,
            ..levels
        },
        Shape {
            dimensions: 3,
            extent: [31, 17, 9],
            ..float4
        },
        Shape {
            dimensions: 3,
            extent: [31, 17, 9],
            levels: 3,
            ..float4
        },
        Shape {
            extent: [64, 64, 1],
            levels: 7,
            layers: 6,
            is_cube: true,
            ..PLAIN
        },
        Shape {
            format: vk::Format::R8_UNORM,
            bytes: 1,
            extent: [61, 61, 1],
            levels: 6,
            layers: 12,
            is_cube: true,
            ..PLAIN
        },
        Shape {
            is_linear: true,
            ..PLAIN
        },
    ];
    for shape in shapes {
        let image = shape.make(&gpu);
        let needs = needs(&gpu, image);
        let offset = needs.alignment.next_multiple_of(4096) * 3;
        let (raw, _file, opened) = memory(&gpu, offset + needs.size);
        bind(&gpu, image, raw, offset).unwrap();
        let [listed] = &opened.images()[..] else {
            panic!("{shape:?}: {:?}", opened.images());
        };
        let described = software::Image {
            levels: listed.levels.clone(),
            ..shape.described(offset)
        };
        assert_eq!(
            (listed, listed.levels.len()),
            (&described, shape.levels as usize)
        );
        let (starts, size) = starts(&shape);
        let (staging, _fd, from) = memory(&gpu, size as u64);
        for (at, number) in (0..size).step_by(4).zip(1_u16..) {
            // A number of D32 is between 0 and 1, and all words differ.
            let word = f32::from(number) / 65_536.0;
            set_word(&from, at, word.to_bits());
        }
        let buffer = gpu.external_buffer(size as u64);
        // SAFETY: memory with room for the buffer.
        unsafe { gpu.device.bind_buffer_memory(buffer, staging, 0) }.unwrap();
        fill(&gpu, &shape, image, buffer);
        for ((level, start), place) in (0..).zip(starts).zip(&listed.levels) {
            let [width, height, depth] = shape.extent(level);
            let row = width * shape.bytes;
            for slice in 0..depth * shape.layers as usize {
                for y in 0..height {
                    let at = start + (slice * height + y) * row;
                    let there = offset
                        + place.offset
                        + place.slice_pitch * slice as u64
                        + place.row_pitch * y as u64;
                    let there = usize::try_from(there).unwrap();
                    let (sent, found) = (&bytes(&from)[at..], &bytes(&opened)[there..]);
                    let where_ = (shape, level, slice, y);
                    assert_eq!(sent[..row], found[..row], "{where_:?}");
                }
            }
        }
        gpu.destroy_buffers();
        destroy(&gpu, image);
        free(&gpu, staging);
        free(&gpu, raw);
    }
}

/// An image that is not linear, bound to memory for export.
pub(crate) fn one(gpu: &Gpu) {
    let image = PLAIN.make(gpu);
    let (raw, _file, opened) = memory(gpu, needs(gpu, image).size);
    bind(gpu, image, raw, 0).unwrap();
    assert_eq!(opened.images().len(), 1);
    destroy(gpu, image);
    free(gpu, raw);
}

fn bound(driver: &Driver) {
    let (first, second) = driver.open_two();
    let (image, other) = (PLAIN.make(&first), PLAIN.make(&second));
    let size = needs(&first, image).size.next_multiple_of(4096);
    let (raw, file, opened) = memory(&first, 2 * size);
    assert!(opened.images().is_empty());
    let how = How {
        from: Some(&file),
        ..How::default()
    };
    let imported = allocate(&second, 2 * size, how).unwrap();
    bind(&first, image, raw, 0).unwrap();
    // The importer binds the same image, with the other function.
    let info = vk::BindImageMemoryInfo::default()
        .image(other)
        .memory(imported);
    // SAFETY: memory with room for the image.
    unsafe { second.device.bind_image_memory2(&[info]) }.unwrap();
    let listed = opened.images();
    assert!(listed.len() == 2 && listed[0] == listed[1], "{listed:?}");
    let behind = PLAIN.make(&second);
    bind(&second, behind, imported, size).unwrap();
    let offsets = || -> Vec<u64> { opened.images().iter().map(|image| image.offset).collect() };
    assert_eq!(offsets(), [0, 0, size]);
    destroy(&first, image);
    assert_eq!(offsets(), [0, size]);
    // Memory may be freed before its images.
    free(&second, imported);
    destroy(&second, other);
    destroy(&second, behind);
    assert!(opened.images().is_empty());
    // What is bound to other memory is in no table, and null is no image.
    let private = PLAIN.make(&first);
    let own = allocate(&first, size, How::default()).unwrap();
    let _ = bind(&first, private, own, 0);
    destroy(&first, private);
    destroy(&first, vk::Image::null());
    free(&first, own);
    free(&first, raw);
}

fn full(driver: &Driver) {
    let gpu = driver.open();
    let first = PLAIN.make(&gpu);
    let (raw, _file, opened) = memory(&gpu, needs(&gpu, first).size);
    let mut all = vec![first];
    bind(&gpu, first, raw, 0).unwrap();
    for _ in 1..128 {
        let image = PLAIN.make(&gpu);
        bind(&gpu, image, raw, 0).unwrap();
        all.push(image);
    }
    let image = PLAIN.make(&gpu);
    let refused = bind(&gpu, image, raw, 0);
    destroy(&gpu, image);
    assert_eq!(refused, Err(vk::Result::ERROR_OUT_OF_DEVICE_MEMORY));
    assert_eq!(opened.images().len(), 128);
    destroy(&gpu, all.swap_remove(7));
    let again = PLAIN.make(&gpu);
    bind(&gpu, again, raw, 0).unwrap();
    all.push(again);
    all.into_iter().for_each(|image| destroy(&gpu, image));
    assert!(opened.images().is_empty());
    free(&gpu, raw);
}

/// Binds images to the memory behind a descriptor. The last one lives as long as its device.
pub(crate) fn in_second_process(gpu: &Gpu, file: &OwnedFd) {
    let how = How {
        from: Some(file),
        ..How::default()
    };
    let size = needs(gpu, PLAIN.make(gpu)).size;
    let raw = allocate(gpu, size, how).unwrap();
    for _ in 0..200 {
        let image = PLAIN.make(gpu);
        bind(gpu, image, raw, 0).unwrap();
        destroy(gpu, image);
    }
    bind(gpu, PLAIN.make(gpu), raw, 0).unwrap();
}

fn processes(driver: &Driver) {
    let gpu = driver.open();
    let small = Shape {
        extent: [16, 16, 1],
        ..PLAIN
    };
    let (raw, file, opened) = memory(&gpu, needs(&gpu, PLAIN.make(&gpu)).size);
    let mut second = peer::start(driver, "images", &[&file]);
    let status = loop {
        let image = small.make(&gpu);
        bind(&gpu, image, raw, 0).unwrap();
        // Each entry that is seen is whole.
        for listed in opened.images() {
            let [expected, other] = [small, PLAIN].map(|shape| software::Image {
                levels: listed.levels.clone(),
                ..shape.described(0)
            });
            assert!(listed == expected || listed == other, "{listed:?}");
        }
        destroy(&gpu, image);
        if let Some(status) = second.try_wait().unwrap() {
            break status;
        }
    };
    assert!(status.success());
    assert!(opened.images().is_empty());
    free(&gpu, raw);
}

fn properties(driver: &Driver) {
    let (instance, physical) = driver.instance();
    for has_answer in [true, false] {
        let mut external = vk::PhysicalDeviceExternalImageFormatInfo::default().handle_type(MEMORY);
        let info = vk::PhysicalDeviceImageFormatInfo2::default()
            .format(vk::Format::R8G8B8A8_UNORM)
            .ty(vk::ImageType::TYPE_2D)
            .usage(vk::ImageUsageFlags::SAMPLED)
            .push_next(&mut external);
        let mut told = vk::ExternalImageFormatProperties::default();
        let mut all = vk::ImageFormatProperties2::default();
        if has_answer {
            all = all.push_next(&mut told);
        }
        let raw = &instance.raw;
        // SAFETY: a live physical device, and valid structures.
        let asked =
            unsafe { raw.get_physical_device_image_format_properties2(physical, &info, &mut all) };
        asked.unwrap();
        assert!(all.image_format_properties.max_extent.width >= 4096);
        let both =
            vk::ExternalMemoryFeatureFlags::EXPORTABLE | vk::ExternalMemoryFeatureFlags::IMPORTABLE;
        let told = told.external_memory_properties;
        if has_answer {
            assert_eq!(told.external_memory_features, both);
            assert_eq!(told.compatible_handle_types, MEMORY);
            assert_eq!(told.export_from_imported_handle_types, MEMORY);
        }
    }
    // What no driver has stays refused.
    let mut external = vk::PhysicalDeviceExternalImageFormatInfo::default().handle_type(MEMORY);
    let info = vk::PhysicalDeviceImageFormatInfo2::default()
        .format(vk::Format::R8G8B8_SSCALED)
        .ty(vk::ImageType::TYPE_2D)
        .usage(vk::ImageUsageFlags::COLOR_ATTACHMENT)
        .push_next(&mut external);
    let mut all = vk::ImageFormatProperties2::default();
    // SAFETY: as above.
    let asked = unsafe {
        let raw = &instance.raw;
        raw.get_physical_device_image_format_properties2(physical, &info, &mut all)
    };
    assert_eq!(asked, Err(vk::Result::ERROR_FORMAT_NOT_SUPPORTED));
}
