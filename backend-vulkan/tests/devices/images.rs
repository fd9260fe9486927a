//! Images that two `VkDevice`s share, in memory of their own and at offsets.
#![allow(unsafe_code, reason = "records barriers, and makes images by hand")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

use std::sync::Arc;
use std::sync::atomic::Ordering;

use syncline_core::backend::{Device as _, Queue as _};
use syncline_core::handle::MemoryContent;
use syncline_core::image::{Extent, Format, ImageInfo, ImageType, ImageUsage};
use syncline_core::{Error, QueueKind, Result};
use syncline_vulkan::ash::vk;
use syncline_vulkan::{Buffer, Contents, Device, Image, Recorder};

use crate::allocations::{SIZE, adopted, shares_memory};
use crate::common::{
    self, Stall, TIMEOUT, on_each_candidate, on_each_device, on_two_of_each_device,
};

const GENERAL: vk::ImageLayout = vk::ImageLayout::GENERAL;

/// An image that every driver has.
const PLAIN: ImageInfo = ImageInfo::d2(Format::Rgba8Unorm, 61, 37, ImageUsage::SAMPLED);

/// Different images, all of which can be shared if the driver has them.
fn samples() -> Vec<ImageInfo> {
    let formats = [
        (Format::R8Unorm, ImageUsage::STORAGE),
        (Format::Rgba8Unorm, ImageUsage::COLOR_ATTACHMENT),
        (Format::Bgra8Srgb, ImageUsage::SAMPLED),
        (Format::Rgba16Sfloat, ImageUsage::STORAGE),
        (Format::R32Uint, ImageUsage::STORAGE),
        (Format::Rgba32Sfloat, ImageUsage::empty()),
        (Format::D16Unorm, ImageUsage::DEPTH_ATTACHMENT),
        (Format::D32Sfloat, ImageUsage::DEPTH_ATTACHMENT),
        (Format::Bc1RgbaUnorm, ImageUsage::SAMPLED),
    ];
    let flat = formats.map(|(format, usage)| ImageInfo::d2(format, 61, 37, usage));
    let of = |image_type, (width, height, depth), levels, layers| {
        let mut info = PLAIN;
        info.image_type = image_type;
        info.extent = Extent {
            width,
            height,
            depth,
        };
        (info.levels, info.layers) = (levels, layers);
        info
    };
    let shapes = [
        of(ImageType::D2, (61, 37, 1), 4, 1),
        of(ImageType::D2, (61, 37, 1), 1, 3),
        of(ImageType::D1, (100, 1, 1), 1, 1),
        of(ImageType::D1, (100, 1, 1), 3, 1),
        of(ImageType::D3, (9, 7, 5), 1, 1),
        of(ImageType::D3, (16, 16, 16), 3, 1),
        of(ImageType::Cube, (32, 32, 1), 1, 6),
        // Only `VkDevice`s share these.
        of(ImageType::D2, (61, 37, 1), 4, 3),
        of(ImageType::Cube, (32, 32, 1), 3, 6),
    ];
    flat.into_iter().chain(shapes).collect()
}

/// A buffer for a level, in which all words differ. They are numbers between 0 and 1 for depth.
fn pattern(device: &Device, info: &ImageInfo, level: u32, seed: u32) -> Buffer {
    let count = info.level_size(level).div_ceil(4);
    let buffer = common::words(device, count);
    for (n, word) in (0..).zip(buffer.as_words().unwrap()) {
        let value = match info.format.is_depth() {
            true => ((n + seed) as f32 / 65536.0).to_bits(),
            false => (n + 1).wrapping_mul(0x9e37_79b1) ^ seed,
        };
        word.store(value, Ordering::Relaxed);
    }
    buffer
}

/// The bytes of a level.
fn bytes(buffer: &Buffer, info: &ImageInfo, level: u32) -> Vec<u8> {
    let words = buffer.as_words().unwrap().iter();
    let all = words.flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes());
    all.take(info.level_size(level) as usize).collect()
}

fn run(device: &Device, work: impl FnOnce(&mut Recorder<'_>) -> Result<()> + Send + 'static) {
    let queue = device.queue(QueueKind::Graphics, "draws").unwrap();
    queue.submit(&[], work, &[]).unwrap();
    queue.idle(TIMEOUT).unwrap();
}

/// Writes a level with a pattern. Returns its bytes.
fn write(device: &Device, image: &Image, level: u32, seed: u32) -> Vec<u8> {
    let from = pattern(device, image.info(), level, seed);
    let (source, to) = (from.clone(), image.clone());
    run(device, move |r| r.copy_buffer_to_image(&source, &to, level));
    bytes(&from, image.info(), level)
}

fn read(device: &Device, image: &Image, level: u32) -> Vec<u8> {
    let info = *image.info();
    let to = common::words(device, info.level_size(level).div_ceil(4));
    let (from, target) = (image.clone(), to.clone());
    run(device, move |r| {
        r.copy_image_to_buffer(&from, level, &target)
    });
    bytes(&to, &info, level)
}

fn is_unsupported<T: std::fmt::Debug>(result: Result<T>, what: &str) -> String {
    match result {
        Err(error @ Error::Unsupported { .. }) => {
            let text = error.to_string();
            assert!(text.contains(what), "{text}");
            text
        }
        other => panic!("{what}: {other:?}"),
    }
}

fn texels_are_the_same_on_both_devices() {
    on_two_of_each_device(|ours, theirs| {
        if !shares_memory(ours) {
            return common::skip("it shares no memory");
        }
        let mut shared = Vec::new();
        for info in samples() {
            let exported = ours.export_image(&info);
            let Ok((image, handle)) = exported else {
                println!("{}", is_unsupported(exported, "share an image with"));
                continue;
            };
            let facts = handle.info();
            let image_alone = (MemoryContent::Image(info), true);
            assert_eq!((facts.content, facts.dedicated), image_alone);
            // By its handle, or within this process.
            let imported = match shared.len() % 2 {
                0 => theirs.import_image(handle, &info).unwrap(),
                _ => theirs.import_image_of(&image).unwrap(),
            };
            // Within this process either side may be the first one to write.
            let mut sides = [(ours, &image), (theirs, &imported)];
            if !shared.len().is_multiple_of(2) {
                sides.reverse();
            }
            let [(first, one), (second, other)] = sides;
            let levels = || 0..info.levels;
            let written: Vec<_> = levels().map(|n| write(first, one, n, 7 + n)).collect();
            let seen: Vec<_> = levels().map(|n| read(second, other, n)).collect();
            assert!(written == seen, "{info:?}");
            // Back, with other texels.
            let written: Vec<_> = levels().map(|n| write(second, other, n, 99)).collect();
            assert!(written != seen, "{info:?}");
            let seen: Vec<_> = levels().map(|n| read(first, one, n)).collect();
            assert!(written == seen, "{info:?}");
            shared.push(info);
        }
        println!("{} images", shared.len());
        let shapes = samples()
            .into_iter()
            .filter(|info| info.format == PLAIN.format);
        for info in shapes {
            assert!(shared.contains(&info), "{info:?}");
        }
    });
}

/// A `VkImage` that the application makes and destroys.
struct Raw(Device, vk::Image);

impl Raw {
    fn new(device: &Device, info: &ImageInfo) -> Self {
        let mut external = vk::ExternalMemoryImageCreateInfo::default()
            .handle_types(vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD);
        let transfers = vk::ImageUsageFlags::TRANSFER_SRC | vk::ImageUsageFlags::TRANSFER_DST;
        let create = vk::ImageCreateInfo::default()
            .image_type(vk::ImageType::TYPE_2D)
            .format(vk::Format::from_raw(info.format.to_vk() as i32))
            .extent(vk::Extent3D {
                width: info.extent.width,
                height: info.extent.height,
                depth: 1,
            })
            .mip_levels(info.levels)
            .array_layers(info.layers)
            .samples(vk::SampleCountFlags::TYPE_1)
            .usage(transfers | vk::ImageUsageFlags::from_raw(info.usage.bits()))
            .push_next(&mut external);
        // SAFETY: a valid description of an image that the driver has.
        let raw = unsafe { device.raw().create_image(&create, None) }.unwrap();
        Self(device.clone(), raw)
    }

    fn needs(&self) -> vk::MemoryRequirements {
        // SAFETY: a live image.
        unsafe { self.0.raw().get_image_memory_requirements(self.1) }
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // SAFETY: nothing uses it: what does keeps the owner.
        unsafe { self.0.raw().destroy_image(self.1, None) };
    }
}

fn properties(device: &Device) -> vk::PhysicalDeviceProperties {
    // SAFETY: the physical device of this instance.
    unsafe {
        let physical = device.physical();
        device.instance().get_physical_device_properties(physical)
    }
}

fn granularity(device: &Device) -> u64 {
    properties(device).limits.buffer_image_granularity
}

/// A buffer, an image of Syncline, one of the application, and a buffer.
fn images_lie_beside_buffers_in_one_allocation() {
    on_two_of_each_device(|ours, theirs| {
        if !shares_memory(ours) {
            return common::skip("it shares no memory");
        }
        let (allocation, memory_owner) = adopted(ours);
        let imported = theirs.import_allocation_of(&allocation).unwrap();
        let raw = Arc::new(Raw::new(ours, &PLAIN));
        let needs = raw.needs();
        let step = needs.alignment.max(granularity(ours)).max(256);
        let first = step;
        let second = (first + needs.size).next_multiple_of(step);
        let behind = (second + needs.size).next_multiple_of(step);
        // SAFETY: an image without memory, which this allocation has room for.
        unsafe {
            let memory = allocation.raw();
            ours.raw().bind_image_memory(raw.1, memory, second).unwrap();
        }
        let owner: Arc<Raw> = raw.clone();
        // SAFETY: bound above, made with these properties, and kept by its owner. The first
        // submission that uses it discards the contents.
        let adopted = unsafe { allocation.adopt_image(raw.1, second, &PLAIN, Some(owner)) };
        let images = [allocation.image(first, &PLAIN).unwrap(), adopted.unwrap()];
        let places = images.each_ref().map(Image::offset_in_allocation);
        assert_eq!(places, [first, second]);
        let fill = |of: &syncline_vulkan::Allocation, offset| {
            of.buffer(offset, 256, Default::default()).unwrap()
        };
        let buffers = [0, behind].map(|offset| fill(&allocation, offset));
        let (to, targets) = (buffers.clone(), images.clone());
        let sources = [1, 2].map(|seed| pattern(ours, &PLAIN, 0, seed));
        let written = sources.each_ref().map(|buffer| bytes(buffer, &PLAIN, 0));
        run(ours, move |r| {
            r.fill_buffer(&to[0], 5)?;
            r.fill_buffer(&to[1], 6)?;
            r.copy_buffer_to_image(&sources[0], &targets[0], 0)?;
            r.copy_buffer_to_image(&sources[1], &targets[1], 0)
        });
        let others = [first, second].map(|offset| imported.image(offset, &PLAIN).unwrap());
        let seen = others.each_ref().map(|image| read(theirs, image, 0));
        assert!(written == seen, "an image is not where it should be");
        let mapped = [64, 64].map(|count| common::words(theirs, count));
        let from = [0, behind].map(|offset| fill(&imported, offset));
        let to = mapped.clone();
        run(theirs, move |r| {
            r.copy_buffer(&from[0], &to[0])?;
            r.copy_buffer(&from[1], &to[1])
        });
        assert_eq!(mapped.each_ref().map(common::all_words), [5, 6]);
        // Other texels in one image leave the other one alone.
        write(theirs, &others[0], 0, 3);
        assert_eq!(read(ours, &images[1], 0), written[1]);
        assert_ne!(read(ours, &images[0], 0), written[0]);
        // The images keep the memory, and the adopted one its owner.
        drop((allocation, imported, buffers, others));
        assert!(Arc::strong_count(&memory_owner) > 1);
        assert_eq!(Arc::strong_count(&raw), 2);
        drop(images);
        common::wait_until_alone(&raw);
        common::wait_until_alone(&memory_owner);
    });
}

/// Two imports of one allocation may be the same memory. Memory for one image alone is not.
fn an_image_is_not_copied_onto_itself() {
    on_two_of_each_device(|ours, theirs| {
        if !shares_memory(ours) {
            return common::skip("it shares no memory");
        }
        let (allocation, _owner) = adopted(ours);
        let needs = Raw::new(ours, &PLAIN).needs();
        let at = needs.alignment.max(granularity(ours)).max(16 << 10);
        let image = allocation.image(at, &PLAIN).unwrap();
        let again = theirs.import_allocation_of(&allocation).unwrap();
        let imported = theirs.import_allocation_of(&allocation).unwrap();
        let other = imported.image(at, &PLAIN).unwrap();
        let alone = theirs.import_image_of(&ours.export_image(&PLAIN).unwrap().0);
        let alone = alone.unwrap();
        let size = PLAIN.level_size(0);
        let of = |memory: &syncline_vulkan::Allocation, offset, size| {
            memory.range(offset, size, Default::default()).unwrap()
        };
        let copies = |device: &Device, image: &Image, buffer: &Buffer, to_image: bool| {
            let (image, buffer) = (image.clone(), buffer.clone());
            let queue = device.queue(QueueKind::Graphics, "copies").unwrap();
            let work = move |r: &mut Recorder| {
                r.acquire_image(&image, Contents::Discard, GENERAL)?;
                match to_image {
                    true => r.copy_buffer_to_image(&buffer, &image, 0),
                    false => r.copy_image_to_buffer(&image, 0, &buffer),
                }
            };
            let submitted = queue.submit(&[], work, &[]).map(drop);
            queue.idle(TIMEOUT).unwrap();
            submitted
        };
        for to_image in [true, false] {
            for offset in [at - size + 4, at, at + needs.size - 4] {
                let buffer = of(&allocation, offset, size);
                let text = is_unsupported(copies(ours, &image, &buffer, to_image), "copy level 0");
                let places = format!("the buffer {offset} to {}", offset + size);
                assert!(text.contains(&places), "{text}");
                let buffer = of(&imported, offset, size);
                is_unsupported(copies(theirs, &other, &buffer, to_image), &places);
            }
            let beside = of(&again, 0, size);
            is_unsupported(copies(theirs, &other, &beside, to_image), "was imported");
            for (device, image, buffer) in [
                (ours, &image, of(&allocation, at - size, size)),
                (ours, &image, of(&allocation, at + needs.size, size)),
                (theirs, &other, of(&imported, at - size, size)),
                (theirs, &alone, beside),
            ] {
                copies(device, image, &buffer, to_image).unwrap();
            }
        }
    });
}

/// The first submission that acquires a new image discards its contents (X9).
fn the_contents_of_a_new_image_are_not_kept() {
    on_two_of_each_device(|ours, theirs| {
        if !shares_memory(ours) {
            return common::skip("it shares no memory");
        }
        let mut info = PLAIN;
        info.levels = 2;
        let (image, handle) = ours.export_image(&info).unwrap();
        let queue = ours.queue(QueueKind::Graphics, "q").unwrap();
        let to = common::words(ours, 61 * 37);
        let keeps = |image: &Image| {
            let image = image.clone();
            move |r: &mut Recorder| r.acquire_image(&image, Contents::Keep, GENERAL)
        };
        let refused = queue.submit(&[], keeps(&image), &[]).map(drop);
        is_unsupported(refused, "keep the contents");
        let (from, target) = (image.clone(), to.clone());
        let reads = move |r: &mut Recorder| r.copy_image_to_buffer(&from, 0, &target);
        is_unsupported(queue.submit(&[], reads, &[]).map(drop), "keep the contents");
        // A barrier that is not submitted does not count, nor an import within this process.
        let _ = image.acquire_barrier(queue.family(), Contents::Discard, GENERAL);
        let refused = queue.submit(&[], keeps(&image), &[]).map(drop);
        is_unsupported(refused, "keep the contents");
        let import = theirs.import_image_of(&image).unwrap();
        let elsewhere = theirs.queue(QueueKind::Graphics, "elsewhere").unwrap();
        let refused = elsewhere.submit(&[], keeps(&import), &[]).map(drop);
        is_unsupported(refused, "keep the contents");
        // A submission that is given up has not discarded them.
        let target = image.clone();
        let fails = move |r: &mut Recorder| {
            r.acquire_image(&target, Contents::Discard, GENERAL)?;
            r.acquire_image(&target, Contents::Keep, GENERAL)?;
            Err(Error::NothingToWaitFor)
        };
        queue.submit(&[], fails, &[]).map(drop).unwrap_err();
        let refused = queue.submit(&[], keeps(&image), &[]).map(drop);
        is_unsupported(refused, "keep the contents");
        // The first level discards the contents, the second keeps them.
        let written = [0, 1].map(|level| write(ours, &image, level, 4));
        queue.submit(&[], keeps(&image), &[]).unwrap();
        queue.idle(TIMEOUT).unwrap();
        assert_eq!([0, 1].map(|level| read(ours, &image, level)), written);
        // Elsewhere the contents may be there already.
        let other = theirs.import_image(handle, &info).unwrap();
        assert_eq!([0, 1].map(|level| read(theirs, &other, level)), written);
    });
}

/// A submission that is skipped leaves the contents and the state of its images (X9).
fn a_skipped_submission_leaves_its_images_as_they_were() {
    on_each_device(|ours| {
        if !shares_memory(ours) {
            return common::skip("it shares no memory");
        }
        let (image, _handle) = ours.export_image(&PLAIN).unwrap();
        let queue = ours.queue(QueueKind::Graphics, "q").unwrap();
        let skipped = || {
            let gate = ours.timeline("gate").unwrap();
            let (source, target) = (pattern(ours, &PLAIN, 0, 9), image.clone());
            let work = move |r: &mut Recorder| r.copy_buffer_to_image(&source, &target, 0);
            let submitted = queue.submit(&[gate.at(1)], work, &[]).unwrap();
            assert!(submitted.is_held());
            gate.fail(Error::NothingToWaitFor);
            let ended = submitted.wait_submitted(TIMEOUT).unwrap_err();
            assert!(matches!(ended, Error::Skipped { .. }), "{ended}");
        };
        let keeps = |image: &Image| {
            let image = image.clone();
            move |r: &mut Recorder| r.acquire_image(&image, Contents::Keep, GENERAL)
        };
        skipped();
        let refused = queue.submit(&[], keeps(&image), &[]).map(drop);
        is_unsupported(refused, "it is new");
        let written = write(ours, &image, 0, 4);
        skipped();
        assert_eq!(read(ours, &image, 0), written);
    });
}

/// A clear of a whole image, by a command of the application.
fn clear(r: &Recorder<'_>, commands: vk::CommandBuffer, image: vk::Image, to: f32) {
    let colour = vk::ClearColorValue { float32: [to; 4] };
    // SAFETY: the command buffer is begun, and the caller has brought the image into this layout.
    unsafe {
        let device = r.device();
        device.cmd_clear_color_image(commands, image, GENERAL, &colour, &[COLOUR]);
    }
}

/// All of an image with one level and one layer.
const COLOUR: vk::ImageSubresourceRange = vk::ImageSubresourceRange {
    aspect_mask: vk::ImageAspectFlags::COLOR,
    base_mip_level: 0,
    level_count: 1,
    base_array_layer: 0,
    layer_count: 1,
};

/// The first submission that acquires an adopted image keeps what was released, or discards (X9).
fn an_adopted_image_is_as_the_application_left_it() {
    on_two_of_each_device(|ours, theirs| {
        if !shares_memory(ours) {
            return common::skip("it shares no memory");
        }
        for releases in [true, false] {
            let (allocation, _owner) = adopted(ours);
            let raw = Arc::new(Raw::new(ours, &PLAIN));
            // SAFETY: an image without memory, which this allocation has room for.
            unsafe {
                let memory = allocation.raw();
                ours.raw().bind_image_memory(raw.1, memory, 0).unwrap();
            }
            let owner: Arc<Raw> = raw.clone();
            // SAFETY: bound above, made with these properties, and kept by its owner. It is
            // released before its contents are kept.
            let image = unsafe { allocation.adopt_image(raw.1, 0, &PLAIN, Some(owner)) }.unwrap();
            let queue = ours.queue(QueueKind::Graphics, "own").unwrap();
            let (target, family) = (image.clone(), queue.family());
            // The application draws in it. Syncline does not know of that.
            let draws = move |r: &mut Recorder| {
                let commands = r.command_buffer()?;
                let barrier = |barrier: vk::ImageMemoryBarrier<'_>| {
                    let all = vk::PipelineStageFlags::ALL_COMMANDS;
                    let none = vk::DependencyFlags::empty();
                    // SAFETY: the command buffer is begun, and the image is of this device.
                    unsafe {
                        let device = r.device();
                        device.cmd_pipeline_barrier(commands, all, all, none, &[], &[], &[barrier]);
                    }
                };
                let first = vk::ImageMemoryBarrier::default()
                    .image(target.raw())
                    .subresource_range(COLOUR)
                    .dst_access_mask(vk::AccessFlags::MEMORY_WRITE)
                    .src_queue_family_index(vk::QUEUE_FAMILY_IGNORED)
                    .dst_queue_family_index(vk::QUEUE_FAMILY_IGNORED)
                    .new_layout(GENERAL);
                barrier(first);
                clear(r, commands, target.raw(), 1.0);
                if releases {
                    barrier(target.release_barrier(family, GENERAL).into());
                }
                r.keep(Arc::new(target.clone()));
                Ok(())
            };
            queue.submit(&[], draws, &[]).unwrap();
            queue.idle(TIMEOUT).unwrap();
            let other = theirs.import_image_of(&image).unwrap();
            if releases {
                // Either device finds the texels.
                assert_eq!(read(ours, &image, 0), vec![255; 61 * 37 * 4]);
                assert_eq!(read(theirs, &other, 0), vec![255; 61 * 37 * 4]);
            } else {
                // A copy to all texels discards them, so the image need not be released.
                let written = write(ours, &image, 0, 6);
                assert_eq!(read(theirs, &other, 0), written);
            }
        }
    });
}

/// An image keeps its device, and the device of its import its own.
fn images_outlive_the_handles_of_their_devices() {
    on_each_candidate(|candidate| {
        let [ours, theirs] = [(); 2].map(|()| candidate.open().unwrap());
        if !shares_memory(&ours) {
            return common::skip("it shares no memory");
        }
        let (image, handle) = ours.export_image(&PLAIN).unwrap();
        let other = theirs.import_image(handle, &PLAIN).unwrap();
        let (allocation, owner) = adopted(&ours);
        let inside = allocation.image(0, &PLAIN).unwrap();
        let written = [&image, &inside].map(|image| write(&ours, image, 0, 1));
        drop((ours, theirs, allocation, owner));
        let device = other.allocation().device();
        assert_eq!(read(&device, &other, 0), written[0]);
        let device = inside.allocation().device();
        assert_eq!(read(&device, &inside, 0), written[1]);
        drop((device, other, image, inside));
    });
}

/// The same image in several layouts, by the recorder and by commands of the application.
fn an_image_is_released_from_the_layout_that_it_is_left_in() {
    on_two_of_each_device(|ours, theirs| {
        if !shares_memory(ours) {
            return common::skip("it shares no memory");
        }
        let mut info = PLAIN;
        info.usage |= ImageUsage::COLOR_ATTACHMENT;
        let (image, handle) = ours.export_image(&info).unwrap();
        let other = theirs.import_image(handle, &info).unwrap();
        let clears = |r: &Recorder, commands, image: &Image, layout, to: f32| {
            let colour = vk::ClearColorValue { float32: [to; 4] };
            let range = vk::ImageSubresourceRange::default()
                .aspect_mask(vk::ImageAspectFlags::COLOR)
                .level_count(1)
                .layer_count(1);
            // SAFETY: the command buffer is begun, and the image is acquired in this layout.
            unsafe {
                let raw = image.raw();
                r.device()
                    .cmd_clear_color_image(commands, raw, layout, &colour, &[range]);
            }
        };
        let whole = |of: u8| vec![of; 61 * 37 * 4];
        let (target, source) = (image.clone(), pattern(ours, &info, 0, 1));
        run(ours, move |r| {
            let image = &target;
            let (first, second) = (
                vk::ImageLayout::TRANSFER_DST_OPTIMAL,
                vk::ImageLayout::COLOR_ATTACHMENT_OPTIMAL,
            );
            r.acquire_image(image, Contents::Discard, second)?;
            // A copy gives the layout back.
            r.copy_buffer_to_image(&source, image, 0)?;
            r.acquire_image(image, Contents::Discard, first)?;
            let commands = r.command_buffer()?;
            clears(r, commands, image, first, 1.0);
            // What a render pass would do: its final layout.
            let barrier = vk::ImageMemoryBarrier::default()
                .image(image.raw())
                .subresource_range(
                    vk::ImageSubresourceRange::default()
                        .aspect_mask(vk::ImageAspectFlags::COLOR)
                        .level_count(1)
                        .layer_count(1),
                )
                .src_access_mask(vk::AccessFlags::MEMORY_WRITE)
                .old_layout(first)
                .new_layout(vk::ImageLayout::SHADER_READ_ONLY_OPTIMAL);
            let all = vk::PipelineStageFlags::ALL_COMMANDS;
            // SAFETY: as above.
            unsafe {
                let none = vk::DependencyFlags::empty();
                r.device()
                    .cmd_pipeline_barrier(commands, all, all, none, &[], &[], &[barrier]);
                r.note_layout(image, vk::ImageLayout::SHADER_READ_ONLY_OPTIMAL)
            }
        });
        assert!(read(theirs, &other, 0) == whole(255), "the first clear");
        // Barriers of the application's own, in both forms.
        for newer in [false, true] {
            let target = other.clone();
            let to = if newer { 0.0 } else { 1.0 };
            if newer && properties(theirs).api_version < vk::API_VERSION_1_3 {
                continue;
            }
            let queue = theirs.queue(QueueKind::Graphics, "own").unwrap();
            let family = queue.family();
            let work = move |r: &mut Recorder| {
                let layout = vk::ImageLayout::TRANSFER_DST_OPTIMAL;
                let begin = target.acquire_barrier(family, Contents::Discard, layout);
                let end = target.release_barrier(family, layout);
                let commands = r.command_buffer()?;
                let barrier = |r: &Recorder, barrier: syncline_vulkan::ImageBarrier| {
                    let all = vk::PipelineStageFlags::ALL_COMMANDS;
                    let none = vk::DependencyFlags::empty();
                    let second = [barrier.into()];
                    let dependency = vk::DependencyInfo::default().image_memory_barriers(&second);
                    let first = [barrier.into()];
                    let (device, no) = (r.device(), none);
                    // SAFETY: the command buffer is begun, and the device has the feature.
                    unsafe {
                        match newer {
                            true => device.cmd_pipeline_barrier2(commands, &dependency),
                            false => device.cmd_pipeline_barrier(
                                commands,
                                all,
                                all,
                                no,
                                &[],
                                &[],
                                &first,
                            ),
                        }
                    }
                };
                barrier(r, begin);
                clears(r, commands, &target, layout, to);
                barrier(r, end);
                r.keep(Arc::new(target.clone()));
                Ok(())
            };
            queue.submit(&[], work, &[]).unwrap();
            queue.idle(TIMEOUT).unwrap();
            assert!(read(ours, &image, 0) == whole(if newer { 0 } else { 255 }));
        }
    });
}

fn what_an_image_cannot_do_is_refused() {
    on_two_of_each_device(|ours, theirs| {
        if !shares_memory(ours) {
            return common::skip("it shares no memory");
        }
        let (image, handle) = ours.export_image(&PLAIN).unwrap();
        let of = |change: fn(&mut ImageInfo)| {
            let mut info = PLAIN;
            change(&mut info);
            info
        };
        // Refused before a driver call, and then by the driver.
        let wrong = [
            (of(|i| i.extent.height = 0), "extent.height 0"),
            (of(|i| i.levels = 7), "mipLevels 7"),
            (of(|i| i.extent.width = 1 << 24), "extent.width 16777216"),
            (of(|i| i.layers = 1 << 24), "arrayLayers 16777216"),
        ];
        for (info, field) in wrong {
            is_unsupported(ours.export_image(&info).map(drop), field);
        }
        // Formats that the driver does not have with each usage.
        for format in Format::ALL {
            for usage in ImageUsage::all().iter() {
                let info = ImageInfo::d2(*format, 8, 8, usage);
                if let Err(error) = ours.export_image(&info) {
                    let text = is_unsupported::<()>(Err(error), "share an image with");
                    println!("{text}");
                }
            }
        }
        // No driver has colours in blocks that are written, nor depths that a shader stores.
        for format in [Format::Bc1RgbaUnorm, Format::D32Sfloat] {
            let info = ImageInfo::d2(format, 8, 8, ImageUsage::STORAGE);
            is_unsupported(ours.export_image(&info).map(drop), "STORAGE");
        }
        let everything = ImageUsage::all();
        let odd = ImageInfo::d2(Format::Bc1RgbaSrgb, 8, 8, everything);
        is_unsupported(ours.export_image(&odd).map(drop), "usage");
        // Handles of something else.
        let other = of(|i| i.format = Format::Rgba8Srgb);
        let rejected = theirs.import_image(handle, &other).unwrap_err();
        let text = rejected.error.to_string();
        assert!(text.contains("it was made for another image"), "{text}");
        let rejected = theirs.import_buffer(rejected.handle).unwrap_err();
        let text = rejected.error.to_string();
        assert!(text.contains("it was made for an image"), "{text}");
        let rejected = theirs.import_allocation(rejected.handle).unwrap_err();
        assert!(matches!(rejected.error, Error::Import { .. }));
        let imported = theirs.import_image(rejected.handle, &PLAIN).unwrap();
        is_unsupported(imported.export(), "not allocated for export");
        let (_buffer, handle) = ours.export_buffer(61 * 37 * 4).unwrap();
        let rejected = theirs.import_image(handle, &PLAIN).unwrap_err();
        let text = rejected.error.to_string();
        assert!(text.contains("it was not made for an image"), "{text}");
        // Places.
        let (allocation, _owner) = adopted(ours);
        let needs = Raw::new(ours, &PLAIN).needs();
        let (step, last) = (needs.alignment.max(granularity(ours)), SIZE - needs.size);
        let last = last / step * step;
        allocation.image(last, &PLAIN).unwrap();
        for offset in [last + step, SIZE, u64::MAX / step * step] {
            is_unsupported(allocation.image(offset, &PLAIN), "the allocation has");
        }
        if step > 1 {
            let text = is_unsupported(allocation.image(1, &PLAIN), "at offset 1");
            println!("{text}");
        }
        let dedicated = image.allocation();
        is_unsupported(dedicated.image(0, &PLAIN), "alone");
        let private = ours.device_buffer(1 << 20, Default::default()).unwrap();
        is_unsupported(private.allocation().image(0, &PLAIN), "exported");
        let raw = Raw::new(ours, &PLAIN);
        // SAFETY: refused, because the memory ends before it.
        let behind = unsafe { allocation.adopt_image(raw.1, SIZE, &PLAIN, None) };
        is_unsupported(behind, "the allocation has");
        // Recording.
        let queue = ours.queue(QueueKind::Graphics, "q").unwrap();
        let (small, level) = (
            common::words(ours, 61 * 37 - 1),
            common::words(ours, 61 * 37),
        );
        type Work = Box<dyn FnOnce(&mut Recorder<'_>) -> Result<()> + Send>;
        let [a, b, c, d, e] = [(); 5].map(|()| image.clone());
        let layout = vk::ImageLayout::COLOR_ATTACHMENT_OPTIMAL;
        let works: [(Work, &str); 5] = [
            (
                Box::new(move |r| r.copy_buffer_to_image(&small, &a, 0)),
                "the buffer",
            ),
            (
                Box::new(move |r| r.copy_buffer_to_image(&level, &b, 1)),
                "it has 1 levels",
            ),
            (
                Box::new(move |r| r.acquire_image(&c, Contents::Discard, layout)),
                "the layout needs",
            ),
            (
                Box::new(move |r| {
                    let layout = vk::ImageLayout::UNDEFINED;
                    r.acquire_image(&d, Contents::Discard, layout)
                }),
                "no image",
            ),
            (
                Box::new(move |r| {
                    // SAFETY: refused, because it is not acquired.
                    unsafe { r.note_layout(&e, GENERAL) }
                }),
                "has not acquired",
            ),
        ];
        for (work, what) in works {
            is_unsupported(queue.submit(&[], work, &[]).map(drop), what);
        }
        let queue = theirs.queue(QueueKind::Graphics, "q").unwrap();
        let work = move |r: &mut Recorder| r.acquire_image(&image, Contents::Discard, GENERAL);
        let error = queue.submit(&[], work, &[]).map(drop).unwrap_err();
        assert!(matches!(error, Error::WrongDevice { .. }), "{error}");
    });
}

/// The error names what makes the image so large, or the memory.
fn an_image_that_is_too_large_is_refused() {
    const MEMORY: &str = "make memory of";
    on_each_device(|device| {
        if !shares_memory(device) {
            return common::skip("it shares no memory");
        }
        let mut info = ImageInfo::d2(Format::Rgba32Sfloat, 8192, 8192, ImageUsage::SAMPLED);
        info.layers = 2048;
        let text = is_unsupported(device.export_image(&info), "");
        let fields = "8192×8192×1, mipLevels 1, arrayLayers 2048, format Rgba32Sfloat";
        assert!(text.contains(fields) || text.contains(MEMORY), "{text}");
        let buffer = device.device_buffer(1 << 46, Default::default());
        is_unsupported(buffer, MEMORY);
    });
}

/// A submission keeps its images, and each of two devices its own.
fn images_are_dropped_in_any_order() {
    on_each_device(|ours| {
        if !shares_memory(ours) {
            return common::skip("it shares no memory");
        }
        for order in 0..4 {
            let (image, handle) = ours.export_image(&PLAIN).unwrap();
            let queue = ours.queue(QueueKind::Graphics, "q").unwrap();
            let (from, to) = (
                pattern(ours, &PLAIN, 0, order),
                common::words(ours, 61 * 37),
            );
            let expected = bytes(&from, &PLAIN, 0);
            let stall = Stall::on(ours, &queue);
            let (source, target) = (image.clone(), to.clone());
            let work = move |r: &mut Recorder| {
                r.copy_buffer_to_image(&from, &source, 0)?;
                r.copy_image_to_buffer(&source, 0, &target)
            };
            queue.submit(&[], work, &[]).unwrap();
            match order {
                0 => drop((image, handle)),
                1 => {
                    let imported = ours.import_image(handle, &PLAIN).unwrap();
                    drop((image, imported));
                }
                2 => {
                    let imported = ours.import_image(handle, &PLAIN).unwrap();
                    drop((imported, image));
                }
                _ => drop((handle, image)),
            }
            stall.release();
            queue.idle(TIMEOUT).unwrap();
            assert_eq!(bytes(&to, &PLAIN, 0), expected);
        }
    });
}

/// The images belong to the parent.
fn a_forked_child_destroys_no_image() {
    on_each_device(|ours| {
        if !shares_memory(ours) {
            return common::skip("it shares no memory");
        }
        let (image, handle) = ours.export_image(&PLAIN).unwrap();
        let (allocation, _owner) = adopted(ours);
        let other = allocation.image(0, &PLAIN).unwrap();
        let written = [&image, &other].map(|image| write(ours, image, 0, 1));
        // SAFETY: the child only drops its copies, and ends below.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // A child that waits for a lock of another thread is killed.
            // SAFETY: sets a timer of this process.
            unsafe { libc::alarm(TIMEOUT.as_secs() as u32) };
            let is_older = |error| matches!(error, Error::MadeBeforeFork { .. });
            let raw = image.raw();
            // SAFETY: refused, because the parent has made the device.
            let adopted = unsafe { allocation.adopt_image(raw, 0, &PLAIN, None) };
            let refused = [
                ours.export_image(&PLAIN).map(drop),
                ours.import_image(handle, &PLAIN)
                    .map(drop)
                    .map_err(|rejected| rejected.error),
                allocation.image(0, &PLAIN).map(drop),
                adopted.map(drop),
            ];
            let is_well = refused.into_iter().all(|one| one.is_err_and(is_older));
            drop((image, other, allocation));
            // SAFETY: ends the child without running anything else.
            unsafe { libc::_exit(i32::from(!is_well)) };
        }
        let mut status = 0;
        // SAFETY: waits for the child, and writes to a variable.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "the child");
        let seen = [&image, &other].map(|image| read(ours, image, 0));
        assert!(written == seen);
    });
}

pub(crate) fn tests() -> Vec<(&'static str, fn())> {
    crate::common::trials![
        texels_are_the_same_on_both_devices,
        images_lie_beside_buffers_in_one_allocation,
        an_image_is_not_copied_onto_itself,
        the_contents_of_a_new_image_are_not_kept,
        a_skipped_submission_leaves_its_images_as_they_were,
        an_adopted_image_is_as_the_application_left_it,
        images_outlive_the_handles_of_their_devices,
        an_image_is_released_from_the_layout_that_it_is_left_in,
        what_an_image_cannot_do_is_refused,
        an_image_that_is_too_large_is_refused,
        images_are_dropped_in_any_order,
        a_forked_child_destroys_no_image,
    ]
}
