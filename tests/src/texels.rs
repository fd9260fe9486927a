//! Shapes of images, and texels that differ everywhere.

use syncline::image::{Extent, Format, ImageInfo, ImageType, ImageUsage};

/// An image of this size has rows and levels of odd sizes.
pub(crate) const PLAIN: ImageInfo = used(Format::Rgba8Unorm, ImageUsage::empty());

pub(crate) const fn shape(
    image_type: ImageType,
    size: [u32; 3],
    levels: u32,
    layers: u32,
) -> ImageInfo {
    let mut info = PLAIN;
    info.image_type = image_type;
    info.extent = Extent {
        width: size[0],
        height: size[1],
        depth: size[2],
    };
    info.levels = levels;
    info.layers = layers;
    info
}

pub(crate) const fn used(format: Format, usage: ImageUsage) -> ImageInfo {
    ImageInfo::d2(format, 61, 37, usage)
}

/// The shapes that every pair shares that shares images at all.
pub(crate) const SHAPES: [ImageInfo; 12] = [
    PLAIN,
    shape(ImageType::D2, [515, 259, 1], 1, 1),
    shape(ImageType::D2, [61, 37, 1], 4, 1),
    shape(ImageType::D2, [61, 37, 1], 1, 3),
    shape(ImageType::D1, [61, 1, 1], 1, 1),
    shape(ImageType::D1, [61, 1, 1], 4, 1),
    shape(ImageType::D1, [61, 1, 1], 1, 3),
    shape(ImageType::D3, [31, 17, 5], 1, 1),
    shape(ImageType::D3, [31, 17, 5], 3, 1),
    shape(ImageType::Cube, [32, 32, 1], 1, 6),
    shape(ImageType::Cube, [32, 32, 1], 1, 12),
    used(
        Format::Rgba8Unorm,
        ImageUsage::COLOR_ATTACHMENT.union(ImageUsage::SAMPLED),
    ),
];

/// Levels with layers, which only `VkDevice`s share.
pub(crate) const LEVELS_AND_LAYERS: ImageInfo = shape(ImageType::D2, [61, 37, 1], 4, 3);

/// The words of a level. Its last word may be in part behind it.
pub(crate) fn words_of(info: &ImageInfo, level: u32) -> usize {
    info.level_size(level).div_ceil(4) as usize
}

/// Bytes that differ from level to level, from row to row and from round to round.
///
/// As depths they are between 0 and 1. Other bits are undefined there.
pub(crate) fn texels(info: &ImageInfo, level: u32, round: u32) -> Vec<u32> {
    let words = 0..words_of(info, level) as u32;
    let seed = (round * 16 + level + 1).wrapping_mul(0x9E37_79B9);
    let words = words.map(|word| (word ^ seed).wrapping_mul(0x85EB_CA6B).rotate_left(13));
    match info.format {
        Format::D32Sfloat => words.map(|word| word >> 9 | 0x3F00_0000).collect(),
        _ => words.collect(),
    }
}

/// The words up to the end of the level, and zeroes behind it, where device memory has anything.
pub(crate) fn cut(mut words: Vec<u32>, info: &ImageInfo, level: u32) -> Vec<u32> {
    let behind = words.len() as u64 * 4 - info.level_size(level);
    if let Some(last) = words.last_mut() {
        *last &= u32::MAX >> (8 * behind);
    }
    words
}
