//! What an image is like, in the words of `VkImageCreateInfo`.

use bitflags::bitflags;

use crate::base::error::{Error, Object, Result};

/// The number of dimensions of an image, and whether it is a cube.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ImageType {
    /// `VK_IMAGE_TYPE_1D`.
    D1,
    /// `VK_IMAGE_TYPE_2D`.
    D2,
    /// `VK_IMAGE_TYPE_3D`.
    D3,
    /// `VK_IMAGE_TYPE_2D` with `VK_IMAGE_CREATE_CUBE_COMPATIBLE_BIT`: six layers for each cube.
    Cube,
}

macro_rules! formats {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $bytes:literal, $kind:ident;)*) => {
        /// The format of a texel. Its number is that of the `VkFormat`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        #[repr(u32)]
        pub enum Format {
            $($(#[$doc])* $name = $number,)*
        }

        impl Format {
            /// All formats that images can be shared in.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The bytes of a texel, or of a compressed block of 4 by 4 texels.
            #[must_use]
            pub const fn block_size(self) -> u32 {
                match self { $(Self::$name => $bytes,)* }
            }

            const fn kind(self) -> FormatKind {
                match self { $(Self::$name => FormatKind::$kind,)* }
            }
        }
    };
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FormatKind {
    Colour,
    Depth,
    Compressed,
}

formats! {
    /// `VK_FORMAT_R8_UNORM`.
    R8Unorm = 9, 1, Colour;
    /// `VK_FORMAT_R8_SNORM`.
    R8Snorm = 10, 1, Colour;
    /// `VK_FORMAT_R8_UINT`.
    R8Uint = 13, 1, Colour;
    /// `VK_FORMAT_R8_SINT`.
    R8Sint = 14, 1, Colour;
    /// `VK_FORMAT_R8G8_UNORM`.
    Rg8Unorm = 16, 2, Colour;
    /// `VK_FORMAT_R8G8_SNORM`.
    Rg8Snorm = 17, 2, Colour;
    /// `VK_FORMAT_R8G8_UINT`.
    Rg8Uint = 20, 2, Colour;
    /// `VK_FORMAT_R8G8_SINT`.
    Rg8Sint = 21, 2, Colour;
    /// `VK_FORMAT_R8G8B8A8_UNORM`.
    Rgba8Unorm = 37, 4, Colour;
    /// `VK_FORMAT_R8G8B8A8_SNORM`.
    Rgba8Snorm = 38, 4, Colour;
    /// `VK_FORMAT_R8G8B8A8_UINT`.
    Rgba8Uint = 41, 4, Colour;
    /// `VK_FORMAT_R8G8B8A8_SINT`.
    Rgba8Sint = 42, 4, Colour;
    /// `VK_FORMAT_R8G8B8A8_SRGB`.
    Rgba8Srgb = 43, 4, Colour;
    /// `VK_FORMAT_B8G8R8A8_UNORM`.
    Bgra8Unorm = 44, 4, Colour;
    /// `VK_FORMAT_B8G8R8A8_SRGB`.
    Bgra8Srgb = 50, 4, Colour;
    /// `VK_FORMAT_A2B10G10R10_UNORM_PACK32`. CUDA gets one 32-bit word for each texel.
    A2b10g10r10Unorm = 64, 4, Colour;
    /// `VK_FORMAT_R16_UNORM`.
    R16Unorm = 70, 2, Colour;
    /// `VK_FORMAT_R16_SNORM`.
    R16Snorm = 71, 2, Colour;
    /// `VK_FORMAT_R16_UINT`.
    R16Uint = 74, 2, Colour;
    /// `VK_FORMAT_R16_SINT`.
    R16Sint = 75, 2, Colour;
    /// `VK_FORMAT_R16_SFLOAT`.
    R16Sfloat = 76, 2, Colour;
    /// `VK_FORMAT_R16G16_UNORM`.
    Rg16Unorm = 77, 4, Colour;
    /// `VK_FORMAT_R16G16_SNORM`.
    Rg16Snorm = 78, 4, Colour;
    /// `VK_FORMAT_R16G16_UINT`.
    Rg16Uint = 81, 4, Colour;
    /// `VK_FORMAT_R16G16_SINT`.
    Rg16Sint = 82, 4, Colour;
    /// `VK_FORMAT_R16G16_SFLOAT`.
    Rg16Sfloat = 83, 4, Colour;
    /// `VK_FORMAT_R16G16B16A16_UNORM`.
    Rgba16Unorm = 91, 8, Colour;
    /// `VK_FORMAT_R16G16B16A16_SNORM`.
    Rgba16Snorm = 92, 8, Colour;
    /// `VK_FORMAT_R16G16B16A16_UINT`.
    Rgba16Uint = 95, 8, Colour;
    /// `VK_FORMAT_R16G16B16A16_SINT`.
    Rgba16Sint = 96, 8, Colour;
    /// `VK_FORMAT_R16G16B16A16_SFLOAT`.
    Rgba16Sfloat = 97, 8, Colour;
    /// `VK_FORMAT_R32_UINT`.
    R32Uint = 98, 4, Colour;
    /// `VK_FORMAT_R32_SINT`.
    R32Sint = 99, 4, Colour;
    /// `VK_FORMAT_R32_SFLOAT`.
    R32Sfloat = 100, 4, Colour;
    /// `VK_FORMAT_R32G32_UINT`.
    Rg32Uint = 101, 8, Colour;
    /// `VK_FORMAT_R32G32_SINT`.
    Rg32Sint = 102, 8, Colour;
    /// `VK_FORMAT_R32G32_SFLOAT`.
    Rg32Sfloat = 103, 8, Colour;
    /// `VK_FORMAT_R32G32B32A32_UINT`.
    Rgba32Uint = 107, 16, Colour;
    /// `VK_FORMAT_R32G32B32A32_SINT`.
    Rgba32Sint = 108, 16, Colour;
    /// `VK_FORMAT_R32G32B32A32_SFLOAT`.
    Rgba32Sfloat = 109, 16, Colour;
    /// `VK_FORMAT_B10G11R11_UFLOAT_PACK32`. CUDA gets one 32-bit word for each texel.
    B10g11r11Ufloat = 122, 4, Colour;
    /// `VK_FORMAT_D16_UNORM`. CUDA gets one 16-bit word for each texel.
    D16Unorm = 124, 2, Depth;
    /// `VK_FORMAT_D32_SFLOAT`. CUDA gets one `float` for each texel.
    D32Sfloat = 126, 4, Depth;
    /// `VK_FORMAT_BC1_RGBA_UNORM_BLOCK`. CUDA only reads it, as a texture.
    Bc1RgbaUnorm = 133, 8, Compressed;
    /// `VK_FORMAT_BC1_RGBA_SRGB_BLOCK`. CUDA only reads it, as a texture.
    Bc1RgbaSrgb = 134, 8, Compressed;
    /// `VK_FORMAT_BC2_UNORM_BLOCK`. CUDA only reads it, as a texture.
    Bc2Unorm = 135, 16, Compressed;
    /// `VK_FORMAT_BC2_SRGB_BLOCK`. CUDA only reads it, as a texture.
    Bc2Srgb = 136, 16, Compressed;
    /// `VK_FORMAT_BC3_UNORM_BLOCK`. CUDA only reads it, as a texture.
    Bc3Unorm = 137, 16, Compressed;
    /// `VK_FORMAT_BC3_SRGB_BLOCK`. CUDA only reads it, as a texture.
    Bc3Srgb = 138, 16, Compressed;
    /// `VK_FORMAT_BC4_UNORM_BLOCK`. CUDA only reads it, as a texture.
    Bc4Unorm = 139, 8, Compressed;
    /// `VK_FORMAT_BC4_SNORM_BLOCK`. CUDA only reads it, as a texture.
    Bc4Snorm = 140, 8, Compressed;
    /// `VK_FORMAT_BC5_UNORM_BLOCK`. CUDA only reads it, as a texture.
    Bc5Unorm = 141, 16, Compressed;
    /// `VK_FORMAT_BC5_SNORM_BLOCK`. CUDA only reads it, as a texture.
    Bc5Snorm = 142, 16, Compressed;
    /// `VK_FORMAT_BC7_UNORM_BLOCK`. CUDA only reads it, as a texture.
    Bc7Unorm = 145, 16, Compressed;
    /// `VK_FORMAT_BC7_SRGB_BLOCK`. CUDA only reads it, as a texture.
    Bc7Srgb = 146, 16, Compressed;
}

impl Format {
    /// The format with a number of `VkFormat`, or `None` if images of it are not shared.
    #[must_use]
    pub fn from_vk(number: u32) -> Option<Self> {
        Self::ALL.iter().copied().find(|of| of.to_vk() == number)
    }

    /// The number of the `VkFormat`.
    #[must_use]
    pub const fn to_vk(self) -> u32 {
        self as u32
    }

    /// True for formats of depth, whose texels Vulkan has in the depth aspect.
    #[must_use]
    pub fn is_depth(self) -> bool {
        self.kind() == FormatKind::Depth
    }

    /// True for formats of blocks of 4 by 4 texels.
    #[must_use]
    pub fn is_compressed(self) -> bool {
        self.kind() == FormatKind::Compressed
    }
}

bitflags! {
    /// What Vulkan uses an image for. Its bits are those of `VkImageUsageFlags`.
    ///
    /// Every image that is shared can also be the source and the destination of transfers.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct ImageUsage: u32 {
        /// `VK_IMAGE_USAGE_SAMPLED_BIT`.
        const SAMPLED = 1 << 2;
        /// `VK_IMAGE_USAGE_STORAGE_BIT`.
        const STORAGE = 1 << 3;
        /// `VK_IMAGE_USAGE_COLOR_ATTACHMENT_BIT`.
        const COLOR_ATTACHMENT = 1 << 4;
        /// `VK_IMAGE_USAGE_DEPTH_STENCIL_ATTACHMENT_BIT`.
        const DEPTH_ATTACHMENT = 1 << 5;
        /// `VK_IMAGE_USAGE_INPUT_ATTACHMENT_BIT`.
        const INPUT_ATTACHMENT = 1 << 7;
    }
}

/// The size of an image in texels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Extent {
    /// At least 1.
    pub width: u32,
    /// 1 for images of one dimension.
    pub height: u32,
    /// 1 unless the image has three dimensions.
    pub depth: u32,
}

impl Extent {
    /// The size of a level, which is the whole size for level 0.
    #[must_use]
    pub const fn level(self, level: u32) -> Self {
        const fn half(size: u32, level: u32) -> u32 {
            match size.checked_shr(level) {
                None | Some(0) => 1,
                Some(size) => size,
            }
        }
        Self {
            width: half(self.width, level),
            height: half(self.height, level),
            depth: half(self.depth, level),
        }
    }
}

/// The properties of an image that devices share, in the words of `VkImageCreateInfo`.
///
/// Its tiling is `VK_IMAGE_TILING_OPTIMAL`, it has one sample for each texel, and its sharing mode
/// is `VK_SHARING_MODE_EXCLUSIVE`. All sides must use equal properties. For other images than those
/// of [`ImageInfo::d2`], change the fields of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct ImageInfo {
    /// `imageType`, and whether the image is a cube.
    pub image_type: ImageType,
    /// `format`.
    pub format: Format,
    /// `extent`: the size of level 0.
    pub extent: Extent,
    /// `mipLevels`, at least 1.
    pub levels: u32,
    /// `arrayLayers`, at least 1. A multiple of 6 for cubes.
    pub layers: u32,
    /// `usage`, without the transfers.
    pub usage: ImageUsage,
}

impl ImageInfo {
    /// An image of two dimensions with one level and one layer.
    #[must_use]
    pub const fn d2(format: Format, width: u32, height: u32, usage: ImageUsage) -> Self {
        Self {
            image_type: ImageType::D2,
            format,
            extent: Extent {
                width,
                height,
                depth: 1,
            },
            levels: 1,
            layers: 1,
            usage,
        }
    }

    /// The bytes of a level with all its layers, without gaps between rows.
    ///
    /// `u64::MAX` if the level has more.
    #[must_use]
    pub fn level_size(&self, level: u32) -> u64 {
        let Extent {
            width,
            height,
            depth,
        } = self.extent.level(level);
        let edge = if self.format.is_compressed() { 4 } else { 1 };
        let blocks = [width.div_ceil(edge), height.div_ceil(edge), depth];
        let counts = blocks.into_iter().chain([self.layers]);
        counts.fold(u64::from(self.format.block_size()), |size, count| {
            size.saturating_mul(count.into())
        })
    }

    /// The bytes of all levels, without gaps between rows. A driver may need more.
    ///
    /// `u64::MAX` if the image has more.
    #[must_use]
    pub fn size(&self) -> u64 {
        let levels = (0..self.levels).map(|level| self.level_size(level));
        levels.fold(0, u64::saturating_add)
    }

    /// Checks that devices can share such an image with the same texels on all sides (X9).
    ///
    /// # Errors
    /// [`Error::Unsupported`] that names the field and the reason.
    pub fn check(&self, object: &Object) -> Result<()> {
        self.check_within_vulkan(object)?;
        let (levels, layers) = (self.levels, self.layers);
        if levels > 1 && layers > 1 {
            let reason = "CUDA and Vulkan lay out images with both levels and layers differently";
            let field = format!("mipLevels {levels}, arrayLayers {layers}");
            return Err(refused(object, field, reason.into()));
        }
        Ok(())
    }

    /// Same as [`ImageInfo::check`], for an image that only `VkDevice`s share.
    ///
    /// Such an image may have both levels and layers.
    ///
    /// # Errors
    /// Same errors as [`ImageInfo::check`].
    pub fn check_within_vulkan(&self, object: &Object) -> Result<()> {
        match self.obstacle() {
            Some((field, reason)) => Err(refused(object, field, reason)),
            None => Ok(()),
        }
    }

    /// The first field that cannot be shared, with its value, and the reason.
    fn obstacle(&self) -> Option<(String, String)> {
        let Extent {
            width,
            height,
            depth,
        } = self.extent;
        let (levels, layers, usage) = (self.levels, self.layers, self.usage);
        let refused = |field: String, reason: &str| Some((field, reason.to_owned()));
        let counts = [
            ("extent.width", width),
            ("extent.height", height),
            ("extent.depth", depth),
            ("mipLevels", levels),
            ("arrayLayers", layers),
        ];
        if let Some((field, _)) = counts.into_iter().find(|(_, count)| *count == 0) {
            return refused(format!("{field} 0"), "it is at least 1");
        }
        let is_flat = self.image_type != ImageType::D3;
        if self.image_type == ImageType::D1 && height > 1 {
            let reason = "an image of one dimension has a height of 1";
            return refused(format!("extent.height {height}"), reason);
        }
        if is_flat && depth > 1 {
            let reason = "only an image of three dimensions has a depth";
            return refused(format!("extent.depth {depth}"), reason);
        }
        if !is_flat && layers > 1 {
            let reason = "an image of three dimensions has one layer";
            return refused(format!("arrayLayers {layers}"), reason);
        }
        if self.image_type == ImageType::Cube && width != height {
            let reason = format!("a cube is as high as it is wide, {width}");
            return refused(format!("extent.height {height}"), &reason);
        }
        if self.image_type == ImageType::Cube && !layers.is_multiple_of(6) {
            return refused(format!("arrayLayers {layers}"), "a cube has 6 layers");
        }
        let possible = width.max(height).max(depth).ilog2() + 1;
        if levels > possible {
            let reason = format!("an image of {width}×{height}×{depth} texels has {possible}");
            return refused(format!("mipLevels {levels}"), &reason);
        }
        self.obstacle_of_usage(usage)
    }

    fn obstacle_of_usage(&self, usage: ImageUsage) -> Option<(String, String)> {
        let (format, image_type) = (self.format, self.image_type);
        if let Some(unknown) = nonempty(usage.difference(ImageUsage::all())) {
            let field = format!("usage {:#x}", unknown.bits());
            return Some((field, "images with this usage are not shared".into()));
        }
        let colour = ImageUsage::COLOR_ATTACHMENT | ImageUsage::STORAGE;
        let never = match format.kind() {
            FormatKind::Colour => ImageUsage::DEPTH_ATTACHMENT,
            FormatKind::Depth => colour,
            FormatKind::Compressed => {
                colour | ImageUsage::DEPTH_ATTACHMENT | ImageUsage::INPUT_ATTACHMENT
            }
        };
        if let Some(wrong) = nonempty(usage & never) {
            let field = format!("usage {wrong:?}, format {format:?}");
            return Some((field, "such a format has no such usage".into()));
        }
        if format.kind() != FormatKind::Colour && image_type != ImageType::D2 {
            let field = format!("imageType {image_type:?}, format {format:?}");
            let reason = "images of this format are shared in two dimensions";
            return Some((field, reason.into()));
        }
        None
    }
}

fn refused(object: &Object, field: String, reason: String) -> Error {
    Error::unsupported(object, format!("share an image with {field}"), reason)
}

fn nonempty(usage: ImageUsage) -> Option<ImageUsage> {
    (!usage.is_empty()).then_some(usage)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: ImageInfo = ImageInfo::d2(Format::Rgba8Unorm, 61, 37, ImageUsage::STORAGE);

    #[test]
    fn a_format_has_the_number_of_vulkan() {
        for format in Format::ALL {
            assert_eq!(Format::from_vk(format.to_vk()), Some(*format));
        }
        assert_eq!(Format::from_vk(0), None);
        assert_eq!(Format::Rgba8Unorm.to_vk(), 37);
    }

    #[test]
    fn a_level_has_half_the_size_of_the_one_before() {
        let levels = [0, 1, 5, 6, 40].map(|level| PLAIN.extent.level(level));
        let sizes = levels.map(|level| (level.width, level.height, level.depth));
        assert_eq!(
            sizes,
            [(61, 37, 1), (30, 18, 1), (1, 1, 1), (1, 1, 1), (1, 1, 1)]
        );
        assert_eq!(PLAIN.level_size(1), 30 * 18 * 4);
        let levels = ImageInfo { levels: 2, ..PLAIN };
        assert_eq!(levels.size(), (61 * 37 + 30 * 18) * 4);
        let blocks = ImageInfo {
            format: Format::Bc1RgbaUnorm,
            layers: 3,
            ..PLAIN
        };
        assert_eq!(blocks.level_size(0), 16 * 10 * 8 * 3);
    }

    #[rstest::rstest]
    #[case::width(|i: &mut ImageInfo| i.extent.width = 0, "extent.width 0")]
    #[case::height(|i: &mut ImageInfo| i.extent.height = 0, "extent.height 0")]
    #[case::depth(|i: &mut ImageInfo| i.extent.depth = 0, "extent.depth 0")]
    #[case::levels(|i: &mut ImageInfo| i.levels = 0, "mipLevels 0")]
    #[case::layers(|i: &mut ImageInfo| i.layers = 0, "arrayLayers 0")]
    #[case::one_dimension(|i: &mut ImageInfo| i.image_type = ImageType::D1, "extent.height 37")]
    #[case::deep(|i: &mut ImageInfo| i.extent.depth = 2, "extent.depth 2")]
    #[case::deep_layers(
        |i: &mut ImageInfo| (i.image_type, i.layers) = (ImageType::D3, 2), "arrayLayers 2"
    )]
    #[case::cube(|i: &mut ImageInfo| i.image_type = ImageType::Cube, "extent.height 37")]
    #[case::cube_layers(
        |i: &mut ImageInfo| {
            (i.image_type, i.extent.height, i.layers) = (ImageType::Cube, 61, 8);
        },
        "arrayLayers 8"
    )]
    #[case::too_many_levels(|i: &mut ImageInfo| i.levels = 7, "mipLevels 7")]
    #[case::both(|i: &mut ImageInfo| (i.levels, i.layers) = (2, 3), "mipLevels 2, arrayLayers 3")]
    #[case::usage(|i: &mut ImageInfo| i.usage = ImageUsage::from_bits_retain(1 << 6), "usage 0x40")]
    #[case::depth_usage(
        |i: &mut ImageInfo| i.usage |= ImageUsage::DEPTH_ATTACHMENT,
        "usage ImageUsage(DEPTH_ATTACHMENT), format Rgba8Unorm"
    )]
    #[case::compressed(
        |i: &mut ImageInfo| i.format = Format::Bc1RgbaUnorm,
        "usage ImageUsage(STORAGE), format Bc1RgbaUnorm"
    )]
    fn what_cannot_be_shared_is_named(#[case] change: fn(&mut ImageInfo), #[case] field: &str) {
        let object = Object::new("device", "test");
        PLAIN.check(&object).unwrap();
        let mut changed = PLAIN;
        change(&mut changed);
        let Err(Error::Unsupported { asked, .. }) = changed.check(&object) else {
            panic!("{changed:?} is not refused");
        };
        assert_eq!(asked, format!("share an image with {field}"));
        // Levels with layers are CUDA's obstacle alone.
        let is_fine = changed.check_within_vulkan(&object).is_ok();
        assert_eq!(is_fine, changed.levels > 1 && changed.layers > 1);
    }
}
