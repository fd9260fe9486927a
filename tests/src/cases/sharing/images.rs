//! X9, D4, E5: images that two devices share.

use std::any::Any;
use std::sync::atomic::Ordering;

use syncline::backend::{Device as _, Queue as _};
use syncline::image::{Format, ImageInfo, ImageType, ImageUsage};
use syncline::{Buffer, Device, Error, Image, QueueKind, Recorder, SharedImage, vulkan};

use super::super::devices::{look, open_again};
use super::super::{DELAY, LONG_DELAY, let_go, shows};
use super::Pair;
use super::lost::can_be_lost;
use crate::arena::{Arena, exports_images};
use crate::case::{Stop, Verdict, check, check_eq, check_error, note};
use crate::footprint::grows_nothing;
use crate::texels::{PLAIN, SHAPES, cut, shape, texels, used, words_of};
use crate::user::Queue;
use crate::workload::Equipped;
use crate::{Subject as _, World, patience};

native_cases! {
    "share.images_have_the_same_texels": [X9 Q9] => same_texels;
    "share.images_of_every_format": [X9] => every_format;
    "share.image_with_the_wait_is_right": [X9 Q9] => with_wait;
    "share.image_without_the_wait_is_wrong": [X9] => without_wait;
    "share.images_are_described_exactly": [X9 E5] => described;
    "share.images_are_kept": [X9 D4] => kept;
    "share.new_images_are_discarded_first": [X9 E5] => discarded;
    "share.image_of_the_application": [X9 D4] => application;
    "share.image_views_outlive_devices": [X9 D4] => views_outlive;
    "share.image_of_a_lost_device": [X9 E3] => lost;
    "share.images_are_not_copied_onto_themselves": [X9 E5] => overlapping;
}

/// Formats of each size of a texel, which every pair shares that shares images at all.
const FORMATS: [Format; 8] = [
    Format::R8Unorm,
    Format::R16Uint,
    Format::Rgba8Unorm,
    Format::Bgra8Unorm,
    Format::R32Sfloat,
    Format::Rgba16Sfloat,
    Format::Rg32Uint,
    Format::Rgba32Uint,
];

/// Makes an image, or skips the case if the pair shares none.
fn image(world: &World<Equipped>, info: &ImageInfo) -> Result<[Image; 2], Stop> {
    match Pair::of(world)?.link.image(info) {
        Err(error @ Error::CannotShare { .. }) => Stop::skip(error.to_string()),
        other => Ok(views(&other?)),
    }
}

/// The number of the side that is Vulkan's: it takes a new image first.
fn vulkan_side(world: &World<Equipped>) -> usize {
    usize::from(!matches!(world.left.library(), Device::Vulkan(_)))
}

fn views(of: &SharedImage) -> [Image; 2] {
    [of.left().clone(), of.right().clone()]
}

/// The side that is Vulkan's, and its device.
fn vulkan(world: &World<Equipped>) -> Result<(usize, &vulkan::Device), Stop> {
    let side = vulkan_side(world);
    match [world.left.library(), world.right.library()][side] {
        Device::Vulkan(device) => Ok((side, device)),
        _ => Stop::skip("only Vulkan's images are adopted"),
    }
}

fn store(to: &Buffer, words: &[u32]) {
    for (to, word) in to.words().unwrap_or_default().iter().zip(words) {
        to.store(*word, Ordering::Relaxed);
    }
}

fn upload(world: &World<Equipped>, side: usize, words: &[u32]) -> Result<Buffer, Stop> {
    let buffer = [&world.left, &world.right][side].buffer(words.len())?;
    store(&buffer, words);
    Ok(buffer)
}

/// Memory of a side for a copy of [`PLAIN`].
fn target(world: &World<Equipped>, side: usize) -> Result<Buffer, Stop> {
    upload(world, side, &vec![0; words_of(&PLAIN, 0)])
}

/// Returns work that writes the first level.
fn writing(
    from: &Buffer,
    to: &Image,
) -> impl FnOnce(&mut Recorder<'_>) -> syncline::Result<()> + Send + 'static {
    let (from, to) = (from.clone(), to.clone());
    move |recorder| recorder.copy_to_image(&from, &to, 0)
}

/// Returns work that reads the first level.
fn reading(
    from: &Image,
    to: &Buffer,
) -> impl FnOnce(&mut Recorder<'_>) -> syncline::Result<()> + Send + 'static {
    let (from, to) = (from.clone(), to.clone());
    move |recorder| recorder.copy_from_image(&from, 0, &to)
}

fn has_texels(buffer: &Buffer, round: u32) -> Verdict {
    check!(Equipped::read(buffer) == texels(&PLAIN, 0, round));
    Ok(())
}

/// A queue of each side. Copies to images of depth need one for graphics on Vulkan.
fn queues(world: &World<Equipped>) -> syncline::Result<[Queue<Equipped>; 2]> {
    let queue = |side: &crate::user::Device<Equipped>, label| {
        let kind = match side.library() {
            Device::Vulkan(_) => QueueKind::Graphics,
            _ => QueueKind::Compute,
        };
        side.queue(kind, label)
    };
    Ok([queue(&world.left, "left")?, queue(&world.right, "right")?])
}

/// Memory of a side's device that the host does not see.
fn device_memory(world: &World<Equipped>, side: usize, words: usize) -> Result<Buffer, Stop> {
    let size = 4 * words as u64;
    Ok(match [&world.left, &world.right][side].library() {
        #[cfg(feature = "cuda")]
        Device::Cuda(device) => Buffer::Cuda(device.buffer(size)?),
        Device::Vulkan(device) => Buffer::Vulkan(device.device_buffer(size, Default::default())?),
        _ => return Stop::fail("the host has no images"),
    })
}

/// One side writes all levels, the other side reads them, and the other way round.
///
/// Every other pair of rounds goes through memory of the devices.
fn exchange(world: &World<Equipped>, images: &[Image; 2], rounds: u32) -> Verdict {
    let info = *images[0].info();
    let line = Pair::of(world)?.line("line")?;
    let queues = queues(world)?;
    let first = vulkan_side(world);
    for round in 0..rounds {
        let writer = (round as usize + first) % 2;
        let reader = 1 - writer;
        let value = 2 * u64::from(round);
        let (mut sources, mut between) = (Vec::new(), [Vec::new(), Vec::new()]);
        let mut targets = Vec::new();
        for level in 0..info.levels {
            let words = words_of(&info, level);
            sources.push(upload(world, writer, &texels(&info, level, round))?);
            targets.push(upload(world, reader, &vec![0; words])?);
            if round & 2 == 0 {
                for (memory, side) in between.iter_mut().zip([writer, reader]) {
                    memory.push(device_memory(world, side, words)?);
                }
            }
        }
        let to = images[writer].clone();
        let [written, read] = between;
        let work = move |recorder: &mut Recorder<'_>| {
            for (level, source) in (0..).zip(&sources) {
                let from = written.get(level as usize).unwrap_or(source);
                if !written.is_empty() {
                    recorder.copy(source, from)?;
                }
                recorder.copy_to_image(from, &to, level)?;
            }
            Ok(())
        };
        queues[writer].submit(&[line.at(value)], work, &[line.signal_at(value + 1)])?;
        let (from, to) = (images[reader].clone(), targets.clone());
        let work = move |recorder: &mut Recorder<'_>| {
            for (level, target) in (0..).zip(&to) {
                let to = read.get(level as usize).unwrap_or(target);
                recorder.copy_from_image(&from, level, to)?;
                if !read.is_empty() {
                    recorder.copy(to, target)?;
                }
            }
            Ok(())
        };
        let waits = [line.at(value + 1)];
        queues[reader].submit(&waits, work, &[line.signal_at(value + 2)])?;
        line.at(value + 2).wait(patience())?;
        for (level, target) in (0..).zip(&targets) {
            let found = cut(Equipped::read(target), &info, level);
            let expected = cut(texels(&info, level, round), &info, level);
            let mut pairs = found.iter().zip(&expected);
            let wrong = pairs.position(|(one, two)| one != two);
            check_eq!(wrong, None, "{info:?}, round {round}, level {level}");
        }
    }
    Ok(())
}

fn same_texels(world: &World<Equipped>) -> Verdict {
    for info in SHAPES {
        let images = image(world, &info)?;
        check_eq!(*images[0].info(), info);
        exchange(world, &images, 4)?;
    }
    Ok(())
}

/// CUDA makes surfaces of all formats but those of blocks.
fn surfaces_are_not_compressed(image: &Image) -> Verdict {
    #[cfg(feature = "cuda")]
    if let Image::Cuda(image) = image {
        let format = image.info().format;
        match image.surface(0) {
            Ok(_) => check!(!format.is_compressed(), "{format:?} is a surface"),
            Err(Error::Unsupported { asked, .. }) if format.is_compressed() => {
                check!(asked.contains("format"), "{format:?}: {asked}");
            }
            Err(error) => return Stop::fail(format!("{format:?}: {error}")),
        }
    }
    let _ = image;
    Ok(())
}

/// Each format that Vulkan's device exports is shared. The others are refused by their name.
fn every_format(world: &World<Equipped>) -> Verdict {
    image(world, &PLAIN)?;
    let (_, device) = vulkan(world)?;
    let link = Pair::of(world)?.link;
    let mut count = 0;
    for &format in Format::ALL {
        let info = used(format, PLAIN.usage);
        let is_needed = exports_images(device, &info) || FORMATS.contains(&format);
        match link.image(&info) {
            Ok(shared) => {
                check!(is_needed, "{format:?}");
                let images = views(&shared);
                exchange(world, &images, 2)?;
                images.iter().try_for_each(surfaces_are_not_compressed)?;
                count += 1;
            }
            Err(Error::Unsupported { asked, .. }) if !is_needed => {
                check!(asked.contains("format"), "{format:?}: {asked}");
            }
            Err(error) => return Stop::fail(format!("{format:?}: {error}")),
        }
    }
    note(format!("{count} of {} formats", Format::ALL.len()));
    Ok(())
}

/// Vulkan's side writes the image behind long work, and the other side reads it.
fn carry(world: &World<Equipped>, synchronized: bool) -> Result<Vec<u32>, Stop> {
    let images = image(world, &PLAIN)?;
    let pair = Pair::of(world)?;
    let line = pair.line("line")?;
    let writer = vulkan_side(world);
    let seen = target(world, 1 - writer)?;
    let delay = if synchronized { DELAY } else { LONG_DELAY };
    // The first round is without a delay: the image has texels then.
    for (round, word) in [(0, 1), (1, 2)] {
        let at = 2 * round;
        let from = upload(world, writer, &vec![word; words_of(&PLAIN, 0)])?;
        let (device, write) = (
            pair.devices()[writer].clone(),
            writing(&from, &images[writer]),
        );
        let work = move |recorder: &mut Recorder<'_>| {
            if round > 0 {
                device.busy(recorder, delay)?;
            }
            write(recorder)
        };
        pair.queues[writer].submit(&[line.at(at)], work, &[line.signal_at(at + 1)])?;
        let ready = match synchronized || round == 0 {
            true => line.at(at + 1),
            false => world.left.empty_point(),
        };
        let read = reading(&images[1 - writer], &seen);
        let read = pair.queues[1 - writer].submit(&[ready], read, &[])?;
        read.end().wait(patience())?;
        line.at(at + 1).wait(patience())?;
        // The next round's signal needs one in between.
        line.signal(at + 2)?;
    }
    Ok(Equipped::read(&seen))
}

fn with_wait(world: &World<Equipped>) -> Verdict {
    check!(carry(world, true)?.iter().all(|&word| word == 2));
    Ok(())
}

/// The control of the case above.
fn without_wait(world: &World<Equipped>) -> Verdict {
    shows(
        || Ok(carry(world, false)?.contains(&1)),
        "nothing went wrong without a wait: this pair cannot show a missing one",
    )
}

/// Properties that cannot be shared are refused before anything is made.
fn described(world: &World<Equipped>) -> Verdict {
    image(world, &PLAIN)?;
    let link = Pair::of(world)?.link;
    let d2 = |size, levels, layers| shape(ImageType::D2, size, levels, layers);
    let large = 1 << 30;
    let bad = [
        (d2([0, 37, 1], 1, 1), "extent.width 0"),
        (d2([61, 0, 1], 1, 1), "extent.height 0"),
        (d2([61, 37, 0], 1, 1), "extent.depth 0"),
        (d2([61, 37, 2], 1, 1), "extent.depth 2"),
        (d2([61, 37, 1], 7, 1), "mipLevels 7"),
        (d2([61, 37, 1], 0, 1), "mipLevels 0"),
        (d2([61, 37, 1], 1, 0), "arrayLayers 0"),
        (d2([large, 1, 1], 1, 1), "extent.width"),
        (d2([61, 37, 1], 1, large), "arrayLayers"),
        (shape(ImageType::Cube, [32, 32, 1], 1, 5), "arrayLayers 5"),
        (
            shape(ImageType::Cube, [32, 16, 1], 1, 6),
            "extent.height 16",
        ),
        (shape(ImageType::D1, [61, 2, 1], 1, 1), "extent.height 2"),
        (shape(ImageType::D3, [31, 17, 5], 1, 2), "arrayLayers 2"),
        (used(PLAIN.format, ImageUsage::DEPTH_ATTACHMENT), "usage"),
        (used(Format::Bc1RgbaUnorm, ImageUsage::STORAGE), "format"),
    ];
    let never = |of: &Format| of.is_depth() || of.is_compressed();
    // CUDA lays these out differently. Two `VkDevice`s share them.
    let both = d2([61, 37, 1], 2, 3);
    let libraries = [world.left.library(), world.right.library()];
    let has_cuda = !libraries.iter().all(|of| matches!(of, Device::Vulkan(_)));
    let more = has_cuda.then_some((both, "mipLevels 2, arrayLayers 3"));
    if !has_cuda {
        exchange(world, &views(&link.image(&both)?), 2)?;
    }
    grows_nothing(|| {
        for (info, field) in bad.into_iter().chain(more) {
            check_error!(
                link.image(&info),
                Error::Unsupported { asked, .. } if asked.contains(field)
            );
        }
        // Of the formats of colours, drivers have some without this usage.
        for format in Format::ALL {
            let usage = ImageUsage::STORAGE;
            match link.image(&ImageInfo::d2(*format, 61, 37, usage)) {
                Ok(_) => check!(!never(format), "{format:?} is stored"),
                Err(Error::Unsupported { asked, .. }) => {
                    let is_named = asked.contains("format") && asked.contains("STORAGE");
                    check!(is_named, "{format:?}: {asked}");
                }
                Err(error) => return Stop::fail(format!("{format:?}: {error}")),
            }
        }
        Ok(())
    })
}

/// Images come and go in any order, while submissions use them.
///
/// In half of the rounds no handle is left while the submissions wait for long work. Another image
/// ends meanwhile.
fn kept(world: &World<Equipped>) -> Verdict {
    image(world, &PLAIN)?;
    let pair = Pair::of(world)?;
    let first = vulkan_side(world);
    let (device, second) = (pair.devices()[first], 1 - first);
    grows_nothing(|| {
        for nth in 0..8 {
            let line = pair.line("line")?;
            let images = image(world, &PLAIN)?;
            let from = upload(world, first, &texels(&PLAIN, 0, nth))?;
            let seen = target(world, second)?;
            let (write, read) = (
                writing(&from, &images[first]),
                reading(&images[second], &seen),
            );
            let mut images = images.map(Some);
            let is_busy = nth & 4 != 0;
            let device = device.clone();
            let work = move |recorder: &mut Recorder<'_>| {
                if is_busy {
                    device.busy(recorder, DELAY)?;
                }
                write(recorder)
            };
            pair.queues[first].submit(&[], work, &[line.signal_at(1)])?;
            if nth & 1 == 0 {
                images[first] = None;
            }
            let read = pair.queues[second].submit(&[line.at(1)], read, &[])?;
            if nth & 2 == 0 {
                images.reverse();
            }
            let [one, mut two] = images;
            drop(one);
            if is_busy {
                two = None;
                drop(image(world, &PLAIN)?);
            }
            read.end().wait(patience())?;
            drop(two);
            has_texels(&seen, nth)?;
        }
        pair.idle()?;
        #[cfg(feature = "cuda")]
        if let Device::Cuda(device) = pair.devices()[second].library() {
            device.free_what_is_due()?;
        }
        Ok(())
    })
}

/// A submission of Vulkan that would keep undefined contents is refused. Later ones are not.
fn discarded(world: &World<Equipped>) -> Verdict {
    use vulkan::Contents;
    use vulkan::ash::vk::ImageLayout;

    let images = image(world, &PLAIN)?;
    let side = vulkan_side(world);
    let pair = Pair::of(world)?;
    let queue = &pair.queues[side];
    let image = &images[side];
    let acquire = |contents| {
        let image = image.clone();
        move |recorder: &mut Recorder<'_>| {
            let (recorder, image) = (recorder.vulkan()?, image.vulkan()?);
            recorder.acquire_image(image, contents, ImageLayout::TRANSFER_DST_OPTIMAL)
        }
    };
    check_error!(
        queue.submit(&[], acquire(Contents::Keep), &[]),
        Error::Unsupported { reason, .. } if reason.contains("it is new")
    );
    for contents in [Contents::Discard, Contents::Keep, Contents::Discard] {
        queue.submit(&[], acquire(contents), &[])?;
        queue.idle(patience())?;
    }
    exchange(world, &images, 2)
}

/// Both sides use an image in memory of the application, at its offset. The memory is kept.
fn application(world: &World<Equipped>) -> Verdict {
    let (side, device) = vulkan(world)?;
    image(world, &PLAIN)?;
    let link = Pair::of(world)?.link;
    let both = |info| [(info, false), (info, true)];
    for (info, alone) in [PLAIN, SHAPES[2], SHAPES[3]].into_iter().flat_map(both) {
        let (adopted, is_dropped) = Arena::image(device, info, &info, alone)?;
        let offset = adopted.offset_in_allocation();
        check!((offset == 0) == alone, "it is at {offset}");
        let images = views(&link.share_image(&adopted)?);
        drop(adopted);
        exchange(world, &images, 4)?;
        let other = images[1 - side].clone();
        drop(images);
        check!(is_dropped.strong_count() > 0);
        drop(other);
        let_go(&is_dropped)?;
    }
    // An image of a third device, in memory that was made for it.
    let again = open_again([&world.left, &world.right][side], &look())?;
    let Device::Vulkan(third) = again else {
        return Stop::fail("another backend has the same device");
    };
    let (stranger, _handle) = third.export_image(&PLAIN)?;
    check_error!(link.share_image(&stranger), WrongDevice);
    Ok(())
}

/// Views keep what they need when every other handle is gone, also those of the devices.
fn views_outlive(world: &World<Equipped>) -> Verdict {
    image(world, &PLAIN)?;
    let inventory = look();
    let open = |side| open_again(side, &inventory);
    let devices = [open(&world.left)?, open(&world.right)?];
    let shared = super::linked(&devices[0], &devices[1]).image(&PLAIN)?;
    let writer = vulkan_side(world);
    let sides = views(&shared);
    drop((devices, shared));
    let words = words_of(&PLAIN, 0);
    let mut kept = Vec::new();
    for side in [writer, 1 - writer] {
        let image = sides[side].clone();
        let (device, view): (_, Option<Box<dyn Any>>) = match &image {
            #[cfg(feature = "cuda")]
            Image::Cuda(image) => {
                let surface = image.surface(0)?;
                check_error!(
                    image.surface(1),
                    Error::Unsupported { reason, .. } if reason.contains("it has 1 levels")
                );
                let device = surface.image().allocation().device().clone();
                (Device::Cuda(device), Some(Box::new(surface)))
            }
            Image::Vulkan(image) => (Device::Vulkan(image.allocation().device()), None),
            _ => return Stop::fail("the host has no images"),
        };
        kept.push(view);
        let queue = device.queue(QueueKind::Compute, "late")?;
        let buffer = Buffer::host_visible(&device, 4 * words as u64)?;
        if side == writer {
            store(&buffer, &texels(&PLAIN, 0, 1));
            queue.submit(&[], writing(&buffer, &image), &[])?;
        } else {
            queue.submit(&[], reading(&image, &buffer), &[])?;
        }
        queue.idle(patience())?;
        has_texels(&buffer, 1)?;
    }
    drop(sides);
    // A surface alone keeps its image.
    drop(kept);
    let said = inventory.validation_errors();
    check!(said.is_empty(), "validation: {}", said.join("; "));
    Ok(())
}

/// Vulkan's device is lost in a submission that has the image. The other side goes on with it.
fn lost(world: &World<Equipped>) -> Verdict {
    let left = world.left.subject();
    if !matches!(world.left.library(), Device::Vulkan(_)) {
        return Stop::skip("only Vulkan's submissions acquire images");
    }
    can_be_lost(left)?;
    let images = image(world, &PLAIN)?;
    let line = Pair::of(world)?.line("line")?;
    let from = upload(world, 0, &texels(&PLAIN, 0, 0))?;
    let (write, loss, subject) = (writing(&from, &images[0]), left.loss()?, left.clone());
    let blocks = loss.clone();
    let losing = world.left.queue(QueueKind::Graphics, "losing")?;
    let work = move |recorder: &mut Recorder<'_>| {
        write(recorder)?;
        subject.block_until_lost(recorder, &blocks)
    };
    losing.submit(&[], work, &[line.signal_at(1)])?;
    left.lose(&loss)?;
    let ended = line.at(1).wait(patience());
    check_error!(ended, error if matches!(error.root(), Error::DeviceLost { .. }));
    // All texels are written again, so nothing is kept.
    let from = upload(world, 1, &texels(&PLAIN, 0, 1))?;
    let seen = target(world, 1)?;
    let (write, read) = (writing(&from, &images[1]), reading(&images[1], &seen));
    let work = move |recorder: &mut Recorder<'_>| write(recorder).and_then(|()| read(recorder));
    let queue = &queues(world)?[1];
    queue.submit(&[], work, &[])?.end().wait(patience())?;
    has_texels(&seen, 1)
}

/// Copies between an image and buffers with bytes of it are refused. Those beside it are not.
fn overlapping(world: &World<Equipped>) -> Verdict {
    /// More than a copied level has.
    const NEAR: u64 = 16 << 10;
    let (_, device) = vulkan(world)?;
    image(world, &PLAIN)?;
    let (adopted, _) = Arena::image(device, PLAIN, &PLAIN, false)?;
    let (at, size) = (adopted.offset_in_allocation(), PLAIN.level_size(0));
    let images = views(&Pair::of(world)?.link.share_image(&adopted)?);
    // The image has contents then, which a copy from it may keep.
    exchange(world, &images, 2)?;
    let queues = queues(world)?;
    for (queue, image) in queues.iter().zip(&images) {
        let buffer = |offset| buffer_beside(image, offset, size);
        for offset in [at - size + 4, at, at + 64] {
            for to_image in [true, false] {
                let buffer = buffer(offset)?;
                let refused = match to_image {
                    true => queue.submit(&[], writing(&buffer, image), &[]),
                    false => queue.submit(&[], reading(image, &buffer), &[]),
                };
                check_error!(
                    refused,
                    Error::Unsupported { asked, reason, .. }
                        if asked.contains("copy level 0") && reason.contains(&offset.to_string())
                );
            }
        }
        queue.submit(&[], reading(image, &buffer(at - NEAR)?), &[])?;
        queue.idle(patience())?;
    }
    exchange(world, &images, 2)
}

/// A buffer at an offset in an image's memory.
fn buffer_beside(image: &Image, offset: u64, size: u64) -> syncline::Result<Buffer> {
    Ok(match image {
        #[cfg(feature = "cuda")]
        Image::Cuda(image) => Buffer::Cuda(image.allocation().buffer(offset, size)?),
        other => {
            let memory = other.vulkan()?.allocation();
            Buffer::Vulkan(memory.range(offset, size, Default::default())?)
        }
    })
}
