//! The size of offered memory and what is in it, as part of a message.

use std::fmt;

use syncline_core::error::Object;
use syncline_core::image::{self, Format, ImageInfo, ImageType, ImageUsage};

use super::wire::{Malformed, Reader, TooMuch, Writer};

/// The size of offered memory, and what is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Bytes of the whole allocation.
    pub(crate) size: u64,
    /// Where the resource begins.
    pub(crate) offset: u64,
    pub(crate) resource: Resource,
    /// The index of Vulkan's memory type, if it has one.
    pub(crate) memory_type: Option<u8>,
    /// True for a dedicated allocation.
    pub(crate) dedicated: bool,
}

/// A buffer or an image in offered memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resource {
    /// A buffer, or words of the host, of this many bytes.
    Buffer(u64),
    Image(ImageInfo),
}

impl Resource {
    /// The bytes that it has at least. A driver may need more for an image.
    fn size(&self) -> u64 {
        match self {
            Self::Buffer(size) => *size,
            Self::Image(info) => info.size(),
        }
    }
}

impl Resource {
    /// This and `other` for an error: two images by the first field that differs.
    pub(super) fn beside(&self, other: &Self) -> (String, String) {
        let (Self::Image(one), Self::Image(two)) = (self, other) else {
            return (self.to_string(), other.to_string());
        };
        let mut pairs = fields(one).into_iter().zip(fields(two));
        let pair = pairs.find(|(one, two)| one != two).unwrap_or_default();
        (
            format!("an image with {}", pair.0),
            format!("one with {}", pair.1),
        )
    }
}

/// The properties of an image with the names of their fields in `VkImageCreateInfo`.
fn fields(info: &ImageInfo) -> [String; 6] {
    let image::Extent {
        width,
        height,
        depth,
    } = info.extent;
    [
        format!("imageType {:?}", info.image_type),
        format!("format {:?}", info.format),
        format!("extent {width}×{height}×{depth}"),
        format!("mipLevels {}", info.levels),
        format!("arrayLayers {}", info.layers),
        format!("usage {:#x}", info.usage.bits()),
    ]
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Buffer(size) => write!(f, "{size} bytes"),
            Self::Image(_) => f.write_str("an image"),
        }
    }
}

impl Extent {
    pub(super) fn write(&self, to: &mut Writer<'_>) -> Result<(), TooMuch> {
        to.u64(self.size)?;
        to.u64(self.offset)?;
        to.flag(matches!(self.resource, Resource::Image(_)))?;
        match &self.resource {
            Resource::Buffer(size) => to.u64(*size)?,
            Resource::Image(info) => write_image(to, info)?,
        }
        to.flag(self.memory_type.is_some())?;
        if let Some(memory_type) = self.memory_type {
            to.u8(memory_type)?;
        }
        to.flag(self.dedicated)
    }

    pub(super) fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let extent = Self {
            size: from.u64("a size")?,
            offset: from.u64("an offset")?,
            resource: match from.flag("whether it is an image")? {
                false => Resource::Buffer(from.u64("a length")?),
                true => Resource::Image(read_image(from)?),
            },
            memory_type: match from.flag("a memory type or none")? {
                true => Some(from.u8("a memory type")?),
                false => None,
            },
            dedicated: from.flag("whether memory is dedicated")?,
        };
        let Self { size, offset, .. } = extent;
        let length = extent.resource.size();
        let end = offset.checked_add(length);
        // No allocation is that large. The bound lets callers add without overflow.
        if length == 0 || end.is_none_or(|end| end > size) || size > i64::MAX as u64 {
            let found = format_args!("{length} of {size} bytes, from {offset} on");
            return Err(Malformed::new("a size of memory", found));
        }
        Ok(extent)
    }
}

/// The types of images, in the order of their numbers from 1.
const TYPES: [ImageType; 4] = [ImageType::D1, ImageType::D2, ImageType::D3, ImageType::Cube];

fn write_image(to: &mut Writer<'_>, info: &ImageInfo) -> Result<(), TooMuch> {
    let number = (1..).zip(TYPES).find(|(_, of)| *of == info.image_type);
    let (number, _) = number.ok_or(TooMuch {
        what: "images of a type without a number",
        most: 0,
    })?;
    to.u8(number)?;
    to.u32(info.format.to_vk())?;
    to.u32(info.extent.width)?;
    to.u32(info.extent.height)?;
    to.u32(info.extent.depth)?;
    to.u32(info.levels)?;
    to.u32(info.layers)?;
    to.u32(info.usage.bits())
}

/// Reads the properties of an image that can be shared, as far as they tell.
fn read_image(from: &mut Reader<'_>) -> Result<ImageInfo, Malformed> {
    let number = from.u8("the type of an image")?;
    let image_type = (1..).zip(TYPES).find(|(of, _)| *of == number);
    let (_, image_type) =
        image_type.ok_or_else(|| Malformed::new("a known type of images", number))?;
    let format = from.u32("a format")?;
    let format = Format::from_vk(format)
        .ok_or_else(|| Malformed::new("a known format of images", format))?;
    let extent = image::Extent {
        width: from.u32("a width")?,
        height: from.u32("a height")?,
        depth: from.u32("a depth")?,
    };
    let mut info = ImageInfo::d2(format, extent.width, extent.height, ImageUsage::empty());
    (info.image_type, info.extent) = (image_type, extent);
    info.levels = from.u32("a count of levels")?;
    info.layers = from.u32("a count of layers")?;
    info.usage = ImageUsage::from_bits_retain(from.u32("the usage of an image")?);
    // Callers may then count up to the number of levels.
    let checked = info.check_within_vulkan(&Object::new("image", "offered"));
    checked.map_err(|error| Malformed::new("an image that can be shared", error))?;
    Ok(info)
}
