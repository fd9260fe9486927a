#![allow(unsafe_code, reason = "makes handles of memory that is none")]
#![allow(clippy::unwrap_used, reason = "a test's")]

use rstest::rstest;
use syncline_core::backend::{Device as _, Queue as _};
use syncline_core::handle::{MemoryContent, MemoryFd, MemoryInfo, Origin};
use syncline_core::{Error, QueueKind};

use super::*;
use crate::device::open::Device;
use crate::driver::emulated::{
    self, copies, freed, import_allocation, imported_files, mapped_arrays, refuse_map_after,
    refuse_memory, views,
};

const PLAIN: ImageInfo = ImageInfo::d2(Format::Rgba8Unorm, 61, 37, ImageUsage::STORAGE);

fn with(change: impl FnOnce(&mut ImageInfo)) -> ImageInfo {
    let mut info = PLAIN;
    change(&mut info);
    info
}

fn levels() -> ImageInfo {
    with(|info| info.levels = 3)
}

fn memory(device: &Device) -> Allocation {
    import_allocation(device, 1 << 20, false, None)
}

fn handle(device: &Device, size: u64) -> MemoryFd {
    handle_of(device, size, MemoryContent::Whole)
}

fn handle_of(device: &Device, size: u64, content: MemoryContent) -> MemoryFd {
    let (end, _) = std::io::pipe().unwrap();
    let mut info = MemoryInfo::new(size, content);
    info.dedicated = true;
    // SAFETY: the emulated driver does not use the memory.
    unsafe { MemoryFd::from_fd(end.into(), Origin::of(device.info()), info) }
}

fn texture_desc() -> sys::CUDA_TEXTURE_DESC {
    sys::CUDA_TEXTURE_DESC {
        addressMode: [sys::CUaddress_mode::CU_TR_ADDRESS_MODE_CLAMP; 3],
        filterMode: sys::CUfilter_mode::CU_TR_FILTER_MODE_POINT,
        flags: 0,
        maxAnisotropy: 0,
        mipmapFilterMode: sys::CUfilter_mode::CU_TR_FILTER_MODE_POINT,
        mipmapLevelBias: 0.0,
        minMipmapLevelClamp: 0.0,
        maxMipmapLevelClamp: 0.0,
        borderColor: [0.0; 4],
        reserved: [0; 12],
    }
}

/// The descriptions are those that an H200 takes (`image.*` in `results/h200/probes.txt`).
#[rstest]
#[case::plain(PLAIN, [61, 37, 0], 2)]
#[case::attachment(with(|i| i.usage |= ImageUsage::COLOR_ATTACHMENT), [61, 37, 0], 0x22)]
#[case::levels(levels(), [61, 37, 0], 2)]
#[case::layers(with(|i| i.layers = 3), [61, 37, 3], 3)]
#[case::one_dimension(line(1, 1), [61, 0, 0], 2)]
#[case::one_dimension_levels(line(4, 1), [61, 0, 0], 2)]
#[case::one_dimension_layers(line(1, 3), [61, 0, 3], 3)]
#[case::three_dimensions(solid(5), [61, 37, 5], 2)]
#[case::three_dimensions_flat(solid(1), [61, 37, 1], 2)]
#[case::cube(cube(6), [64, 64, 6], 6)]
#[case::cubes(cube(12), [64, 64, 12], 7)]
#[case::compressed(compressed(), [61, 37, 0], 0)]
fn an_image_is_described_as_a_gpu_takes_it(
    #[case] info: ImageInfo,
    #[case] extent: [usize; 3],
    #[case] flags: u32,
) {
    let device = emulated::device();
    let _image = memory(&device).image(1024, &info).unwrap();
    let array = ArrayDesc::new(extent, format(info.format).unwrap(), flags);
    let desc = MipmappedArrayDesc::new(1024, array, info.levels);
    assert_eq!(mapped_arrays(), [desc]);
}

fn line(levels: u32, layers: u32) -> ImageInfo {
    with(|info| {
        info.image_type = ImageType::D1;
        info.extent.height = 1;
        (info.levels, info.layers) = (levels, layers);
    })
}

fn solid(depth: u32) -> ImageInfo {
    with(|info| (info.image_type, info.extent.depth) = (ImageType::D3, depth))
}

fn cube(layers: u32) -> ImageInfo {
    with(|info| {
        (info.image_type, info.layers) = (ImageType::Cube, layers);
        (info.extent.width, info.extent.height) = (64, 64);
    })
}

fn compressed() -> ImageInfo {
    with(|info| (info.format, info.usage) = (Format::Bc1RgbaUnorm, ImageUsage::SAMPLED))
}

/// The name of a format tells the kind of numbers.
#[test]
fn a_format_of_cuda_has_the_bytes_of_the_texel() {
    for of in Format::ALL.iter().filter(|of| !of.is_compressed()) {
        let (code, channels) = format(*of).unwrap();
        let name = format!("{of:?}");
        let bytes = match code {
            1 | 8 => 1,
            2 | 9 | 0x10 => 2,
            3 | 10 | 0x20 => 4,
            _ => panic!("{name}: {code}"),
        };
        assert_eq!(of.block_size(), bytes * channels, "{name}");
        let is_signed = name.contains("Snorm") || name.contains("Sint");
        assert_eq!(is_signed, matches!(code, 8..=10), "{name}");
        let is_float = name.contains("Sfloat");
        assert_eq!(is_float, matches!(code, 0x10 | 0x20), "{name}");
    }
}

#[rstest]
#[case(Format::Bc1RgbaUnorm, 0x91, 4)]
#[case(Format::Bc1RgbaSrgb, 0x92, 4)]
#[case(Format::Bc2Unorm, 0x93, 4)]
#[case(Format::Bc2Srgb, 0x94, 4)]
#[case(Format::Bc3Unorm, 0x95, 4)]
#[case(Format::Bc3Srgb, 0x96, 4)]
#[case(Format::Bc4Unorm, 0x97, 1)]
#[case(Format::Bc4Snorm, 0x98, 1)]
#[case(Format::Bc5Unorm, 0x99, 2)]
#[case(Format::Bc5Snorm, 0x9a, 2)]
#[case(Format::Bc7Unorm, 0x9d, 4)]
#[case(Format::Bc7Srgb, 0x9e, 4)]
fn compressed_formats_are_those_of_cuda_h(
    #[case] of: Format,
    #[case] code: u32,
    #[case] channels: u32,
) {
    assert_eq!(format(of), Some((code, channels)));
}

#[test]
fn every_format_has_one_of_cuda() {
    assert!(Format::ALL.iter().all(|of| format(*of).is_some()));
}

#[rstest]
#[case::not_shared(0, with(|i| (i.levels, i.layers) = (2, 3)), "lay out images")]
#[case::nothing(0, with(|i| i.extent.width = 0), "it is at least 1")]
#[case::misaligned(8, PLAIN, "at a multiple of 16")]
#[case::behind_the_end((1 << 20) - 9024, PLAIN, "it has 1048576 bytes")]
#[case::wraps(u64::MAX - 15, PLAIN, "it has 1048576 bytes")]
#[case::too_large(0, with(|i| i.extent.width = 10_000), "it has 1048576 bytes")]
#[case::too_many_layers(0, with(|i| i.layers = u32::MAX), "it has 1048576 bytes")]
fn what_cannot_be_right_is_refused_without_a_driver_call(
    #[case] offset: u64,
    #[case] info: ImageInfo,
    #[case] reason: &str,
) {
    let device = emulated::device();
    refuse_map_after(0);
    let is_refused = |error: Error| {
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        assert!(error.to_string().contains(reason), "{error}");
    };
    is_refused(memory(&device).image(offset, &info).unwrap_err());
    assert_eq!((mapped_arrays(), freed().len()), (vec![], 1));
    imported_files();
    if offset == 0 {
        let rejected = device.import_image(handle(&device, 1 << 20), &info);
        is_refused(rejected.unwrap_err().error);
        assert_eq!(imported_files(), []);
    }
    // The driver's refusal is still to come.
    memory(&device).image(0, &PLAIN).unwrap_err();
    memory(&device).image((1 << 20) - 9040, &PLAIN).unwrap();
}

#[test]
fn memory_of_one_image_alone_has_it_at_its_beginning() {
    let device = emulated::device();
    let alone = import_allocation(&device, 1 << 20, true, None);
    let error = alone.image(1024, &PLAIN).unwrap_err().to_string();
    assert!(error.contains("begins at offset 0"), "{error}");
    device.import_image(handle(&device, 9028), &PLAIN).unwrap();
    let rejected = device.import_image(handle(&device, 9027), &PLAIN);
    let error = rejected.unwrap_err().error.to_string();
    assert!(error.contains("it has 9027 bytes"), "{error}");
}

#[test]
fn a_handle_of_another_image_is_refused() {
    let device = emulated::device();
    let of_image = || handle_of(&device, 1 << 20, MemoryContent::Image(PLAIN));
    let other = with(|info| info.format = Format::Rgba8Srgb);
    let errors = [
        device.import_image(of_image(), &other).unwrap_err().error,
        device.import_memory(of_image()).unwrap_err().error,
    ];
    for error in errors {
        assert!(matches!(error, Error::Import { .. }), "{error}");
        assert!(error.to_string().contains("made for the image"), "{error}");
    }
    assert_eq!(imported_files(), []);
    device.import_image(of_image(), &PLAIN).unwrap();
    let allocation = device.import_allocation(of_image(), None).unwrap();
    let errors = [
        allocation.image(0, &other).unwrap_err().to_string(),
        allocation.buffer(0, 64).unwrap_err().to_string(),
    ];
    for error in errors {
        assert!(error.contains("made for the image"), "{error}");
    }
    allocation.image(0, &PLAIN).unwrap();
}

#[test]
fn a_driver_without_the_functions_maps_no_image() {
    let device = emulated::device_without_platform();
    let error = memory(&device).image(0, &PLAIN).unwrap_err().to_string();
    let missing = "the driver has no cuExternalMemoryGetMappedMipmappedArray";
    assert!(error.contains(missing), "{error}");
}

#[test]
fn an_image_is_not_copied_onto_itself() {
    let device = emulated::device();
    let queue = device.queue(QueueKind::Compute, "q").unwrap();
    let allocation = memory(&device);
    let image = allocation.image(32 << 10, &PLAIN).unwrap();
    let size = PLAIN.level_size(0);
    let copies = |buffer: &Buffer, to_image: bool| {
        let (image, buffer) = (image.clone(), buffer.clone());
        let work = move |recorder: &mut crate::Recorder<'_>| match to_image {
            true => recorder.copy_buffer_to_image(&buffer, &image, 0),
            false => recorder.copy_image_to_buffer(&image, 0, &buffer),
        };
        queue.submit(&[], work, &[]).map(drop)
    };
    // All of the first two, and the part of the third that is copied, are beside the image.
    let beside = [
        allocation.buffer((32 << 10) - size, size).unwrap(),
        allocation.buffer((32 << 10) + size, size).unwrap(),
        allocation.buffer((32 << 10) - size, 2 * size).unwrap(),
        memory(&device).buffer(32 << 10, size).unwrap(),
    ];
    for to_image in [true, false] {
        for buffer in &beside {
            copies(buffer, to_image).unwrap();
        }
        for offset in [4, size, 2 * size - 4].map(|after| (32 << 10) - size + after) {
            let buffer = allocation.buffer(offset, size).unwrap();
            let error = copies(&buffer, to_image).unwrap_err();
            assert!(matches!(error, Error::Unsupported { .. }), "{error}");
            let places = format!("the buffer {offset} to {}", offset + size);
            assert!(error.to_string().contains(&places), "{error}");
            assert!(
                error
                    .to_string()
                    .contains("the image has bytes 32768 to 41796"),
                "{error}"
            );
        }
    }
}

/// Objects that were dropped in any order are freed in the driver's order.
#[rstest]
#[case([0, 1, 2, 3])]
#[case([3, 2, 1, 0])]
#[case([2, 3, 0, 1])]
#[case([1, 3, 2, 0])]
fn an_image_is_destroyed_after_its_views_and_before_its_memory(#[case] order: [usize; 4]) {
    let device = emulated::device();
    let allocation = memory(&device);
    let image = allocation.image(0, &levels()).unwrap();
    let (surface, texture) = (
        image.surface(1).unwrap(),
        image.texture(&texture_desc()).unwrap(),
    );
    let views = [surface.raw(), texture.raw()];
    let rest = [
        image.mipmapped_array().addr() as u64,
        allocation.raw().addr() as u64,
    ];
    let mut objects: [Option<Box<dyn Any>>; 4] = [
        Some(Box::new(allocation)),
        Some(Box::new(image)),
        Some(Box::new(surface)),
        Some(Box::new(texture)),
    ];
    for object in order {
        objects[object] = None;
    }
    let freed = freed();
    let (first, last) = freed.split_at(2);
    assert!(views.iter().all(|view| first.contains(view)), "{first:?}");
    assert_eq!(last, rest);
}

/// A finished submission drops the surface in a call that frees nothing.
#[test]
fn a_deferred_surface_is_destroyed_before_its_image() {
    let device = emulated::device();
    let queue = device.queue(QueueKind::Compute, "q").unwrap();
    let image = memory(&device).image(0, &PLAIN).unwrap();
    let surface = image.surface(0).unwrap();
    let order = [
        surface.raw(),
        image.mipmapped_array().addr() as u64,
        image.allocation().raw().addr() as u64,
    ];
    let keep = move |recorder: &mut crate::Recorder<'_>| {
        recorder.keep(Arc::new(surface));
        Ok(())
    };
    let end = queue.submit(&[], keep, &[]).unwrap().end();
    emulated::finish(&queue, emulated::put(&queue));
    assert!(end.is_reached().unwrap());
    queue.submit(&[], |_| Ok(()), &[]).unwrap();
    assert_eq!(freed(), []);
    drop(image);
    assert_eq!(freed(), order);
}

#[rstest]
#[case::the_array(0, 1)]
#[case::the_first_level(1, 2)]
#[case::the_last_level(3, 2)]
fn a_failed_call_leaves_nothing(#[case] calls_before: u32, #[case] made: usize) {
    let device = emulated::device();
    refuse_map_after(calls_before);
    let rejected = device.import_image(handle(&device, 1 << 20), &levels());
    let error = rejected.unwrap_err().error;
    assert!(matches!(error, Error::Native { code: 1, .. }), "{error}");
    assert_eq!(freed().len(), made);
}

#[test]
fn views_are_of_levels_or_of_the_whole_image() {
    let device = emulated::device();
    let image = memory(&device).image(0, &levels()).unwrap();
    assert_eq!(
        image.array(2).unwrap().addr(),
        image.mipmapped_array().addr() + 3
    );
    let _surface = image.surface(2).unwrap();
    let _texture = image.texture(&texture_desc()).unwrap();
    let one = memory(&device).image(0, &PLAIN).unwrap();
    let _plain = one.texture(&texture_desc()).unwrap();
    let expected = [
        ResourceDesc::array(image.array(2).unwrap()),
        ResourceDesc::mipmapped_array(image.mipmapped_array()),
        ResourceDesc::array(one.array(0).unwrap()),
    ];
    assert_eq!(views(), expected);
    for error in [image.array(3).unwrap_err(), image.surface(3).unwrap_err()] {
        assert!(error.to_string().contains("it has 3 levels"), "{error}");
    }
    let blocks = memory(&device).image(0, &compressed()).unwrap();
    let error = blocks.surface(0).unwrap_err().to_string();
    assert!(error.contains("format Bc1RgbaUnorm"), "{error}");
    blocks.texture(&texture_desc()).unwrap();
    // The failed call makes nothing.
    freed();
    refuse_memory(1);
    let error = one.surface(0).unwrap_err();
    assert!(matches!(error, Error::Native { code: 2, .. }), "{error}");
    assert_eq!(freed(), []);
}

#[rstest]
#[case::plain(PLAIN, 0, [244, 37, 1])]
#[case::level(levels(), 2, [60, 9, 1])]
#[case::layers(with(|i| i.layers = 3), 0, [244, 37, 3])]
#[case::one_dimension(line(1, 3), 0, [244, 1, 3])]
#[case::three_dimensions(solid(5), 0, [244, 37, 5])]
#[case::blocks(compressed(), 0, [128, 10, 1])]
fn a_copy_has_all_rows_of_a_level_without_gaps(
    #[case] info: ImageInfo,
    #[case] level: u32,
    #[case] extent: [usize; 3],
) {
    let device = emulated::device();
    let queue = device.queue(QueueKind::Compute, "q").unwrap();
    let image = memory(&device).image(0, &info).unwrap();
    let buffer = device.buffer(info.level_size(level)).unwrap();
    let (to, of) = (buffer.clone(), image.clone());
    let work = move |recorder: &mut crate::Recorder<'_>| {
        recorder.copy_image_to_buffer(&of, level, &to)?;
        recorder.copy_buffer_to_image(&to, &of, level)
    };
    queue.submit(&[], work, &[]).unwrap();
    let [row, height, _] = extent;
    let (there, here) = (
        CopySide::array(image.array(level).unwrap()),
        CopySide::memory(buffer.pointer(), row, height),
    );
    let copy = |from, to| Copy3d::new(from, to, extent);
    assert_eq!(copies(), [copy(there, here), copy(here, there)]);
    // The submission keeps the image.
    drop(image);
    assert_eq!(freed(), []);
}

#[test]
fn a_wrong_copy_is_refused_without_a_driver_call() {
    let device = emulated::device();
    let queue = device.queue(QueueKind::Compute, "q").unwrap();
    let image = memory(&device).image(0, &PLAIN).unwrap();
    let other = emulated::device();
    let theirs = memory(&other).image(0, &PLAIN).unwrap();
    let (small, large) = (device.buffer(9024).unwrap(), device.buffer(9028).unwrap());
    let refused = |image: &Image, buffer: &Buffer, level| {
        let (image, buffer) = (image.clone(), buffer.clone());
        let copy = move |recorder: &mut crate::Recorder<'_>| {
            let error = recorder.copy_image_to_buffer(&image, level, &buffer);
            assert_eq!(
                error.as_ref().unwrap_err().to_string(),
                recorder
                    .copy_buffer_to_image(&buffer, &image, level)
                    .unwrap_err()
                    .to_string()
            );
            error
        };
        queue.submit(&[], copy, &[]).unwrap_err().to_string()
    };
    let error = refused(&image, &small, 0);
    assert!(error.contains("it holds 9024"), "{error}");
    let error = refused(&image, &large, 1);
    assert!(error.contains("it has 1 levels"), "{error}");
    let error = refused(&theirs, &large, 0);
    assert!(error.contains("belongs to"), "{error}");
    assert_eq!(copies(), []);
}
