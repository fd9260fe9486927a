//! Arrays: images of Vulkan that lie in imported memory.
//!
//! The Vulkan layer lists them in a table of the memory, with the places of their levels
//! ([`payload::Image`]). What is described otherwise than the table has it is refused in strict
//! mode. Else it gets rows without gaps, as an H200 gives such an array without an error.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use syncline_software_payload::{self as payload, Level};
use syncline_software_ptx::Geometry;

use crate::bug::Bug;
use crate::code::{Answer, Code};
use crate::context::Context;
use crate::device::Device;
use crate::external::{Memory, is_lenient};
use crate::settings::{Verbosity, explain};
use crate::table::Table;

/// All mipmapped arrays.
pub(crate) static MIPMAPPED: Table<Mipmapped> = Table::new();
/// All levels of mipmapped arrays, which are arrays themselves.
pub(crate) static ARRAYS: Table<Array> = Table::new();

/// `CUDA_ARRAY3D_LAYERED` and the other flags.
const LAYERED: u32 = 1;
pub(crate) const SURFACE: u32 = 2;
const CUBE: u32 = 4;
const GATHER: u32 = 8;
const COLOUR: u32 = 0x20;
/// `CUDA_ARRAY3D_DEPTH_TEXTURE`, which an H200 refuses for every image.
const DEPTH: u32 = 0x10;
/// The flags of images. An H200 ignores unknown ones.
const FLAGS: u32 = LAYERED | SURFACE | CUBE | GATHER | COLOUR;

/// What an array is like: `CUDA_ARRAY3D_DESCRIPTOR`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Width, height, and depth or layers. 0 for dimensions that it does not have.
    pub(crate) extent: [u64; 3],
    /// A value of `CUarray_format`.
    pub(crate) format: u32,
    pub(crate) channels: u32,
    pub(crate) flags: u32,
}

/// A texel, or a square of texels that are compressed together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Block {
    bytes: u64,
    /// Texels on its edge.
    edge: u64,
}

impl Block {
    const fn texel(bytes: u64) -> Self {
        Self { bytes, edge: 1 }
    }

    /// The block of an array, by its `CUarray_format` and channels.
    const fn of_array(format: u32, channels: u32) -> Answer<Self> {
        let channel = match format {
            // Integers of 8, 16 and 32 bits; half and float.
            0x01 | 0x08 => 1,
            0x02 | 0x09 | 0x10 => 2,
            0x03 | 0x0a | 0x20 => 4,
            // `CU_AD_FORMAT_UNORM_INT_101010_2`.
            0x50 if channels == 4 => return Ok(Self::texel(4)),
            // BC1 and BC4.
            0x91 | 0x92 | 0x97 | 0x98 => return Ok(Self { bytes: 8, edge: 4 }),
            // BC2, BC3, BC5, BC6H and BC7.
            0x93..=0x9e => return Ok(Self { bytes: 16, edge: 4 }),
            0xb0..=0xcb => return Err(Code::NOT_SUPPORTED),
            _ => return Err(Code::INVALID_VALUE),
        };
        match channels {
            1 | 2 | 4 => Ok(Self::texel(channel * channels as u64)),
            _ => Err(Code::INVALID_VALUE),
        }
    }

    /// The block of a `VkFormat` of Vulkan 1.0. `None` if CUDA has no such texels.
    const fn of_image(format: u32) -> Option<Self> {
        Some(match format {
            1 | 9..=15 | 127 => Self::texel(1),
            2..=8 | 16..=22 | 70..=76 | 124 => Self::texel(2),
            37..=69 | 77..=83 | 98..=100 | 122..=123 | 126 => Self::texel(4),
            91..=97 | 101..=103 => Self::texel(8),
            107..=109 => Self::texel(16),
            131..=134 | 139..=140 => Self { bytes: 8, edge: 4 },
            135..=138 | 141..=146 => Self { bytes: 16, edge: 4 },
            _ => return None,
        })
    }
}

impl Shape {
    pub(crate) const fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// True if the last size is of layers or faces, and not the depth.
    const fn has_layers(&self) -> bool {
        self.has(LAYERED | CUBE)
    }

    pub(crate) const fn is_cube(&self) -> bool {
        self.has(CUBE)
    }

    /// Refuses what no array is.
    fn check(&self, levels: u32) -> Answer<Block> {
        let block = Block::of_array(self.format, self.channels)?;
        let [width, height, depth] = self.extent;
        let is_cube = self.is_cube();
        let faces = width == height && depth.is_multiple_of(6);
        let is_known = self.flags & !FLAGS == 0 || is_lenient() && !self.has(DEPTH);
        let is_right = is_known
            && width > 0
            && (height > 0 || depth == 0 || self.has_layers())
            && (depth > 0 || !self.has_layers())
            && (!is_cube || faces && (depth == 6 || self.has(LAYERED)))
            && self.extent.iter().all(|size| *size <= 1 << 17);
        let depth = if self.has_layers() { 1 } else { depth };
        let most = width.max(height).max(depth).checked_ilog2();
        let is_right = is_right && levels > 0 && most.is_some_and(|most| levels <= most + 1);
        if !is_right {
            return Err(Code::INVALID_VALUE);
        }
        if block.edge > 1 && self.has(SURFACE) {
            return Err(Code::NOT_SUPPORTED);
        }
        Ok(block)
    }

    /// The shape of a level. Sizes of 0 stay so.
    fn level(mut self, level: u32) -> Self {
        let sides = if self.has_layers() { 2 } else { 3 };
        for size in self.extent.iter_mut().take(sides) {
            *size = (*size >> level).max(u64::from(*size > 0));
        }
        self
    }

    /// The coordinates with which kernels access it. A cube is six layers.
    pub(crate) const fn geometry(&self) -> Geometry {
        match self.extent {
            [_, 0, 0] => Geometry::Row,
            [_, 0, _] => Geometry::Rows,
            [_, _, 0] => Geometry::Plane,
            _ if self.has_layers() => Geometry::Planes,
            _ => Geometry::Volume,
        }
    }

    /// The extent in bytes of a row, rows of blocks, and slices or layers.
    fn rows(&self, block: Block) -> [u64; 3] {
        let [width, height, depth] = self.extent.map(|size| size.max(1));
        [
            width.div_ceil(block.edge) * block.bytes,
            height.div_ceil(block.edge),
            depth,
        ]
    }

    /// Returns what differs from an image of the table.
    fn difference(
        &self,
        levels: u32,
        block: Block,
        image: &payload::Image,
    ) -> Option<&'static str> {
        let [width, height, depth] = self.extent;
        let dimensions = match self.geometry() {
            Geometry::Row | Geometry::Rows => 1,
            Geometry::Plane | Geometry::Planes => 2,
            Geometry::Volume => 3,
        };
        let layers = if self.has_layers() { depth } else { 1 };
        let depth = if self.has_layers() { 1 } else { depth };
        let extent = [width, height, depth].map(|size| size.max(1));
        let differs = [
            (image.dimensions != dimensions, "dimensions"),
            (image.extent.map(u64::from) != extent, "extent"),
            (u64::from(image.layers) != layers, "layers"),
            (image.levels.len() as u64 != u64::from(levels), "levels"),
            (image.samples != 1, "samples"),
            (Block::of_image(image.format) != Some(block), "texel format"),
        ];
        let mut differs = differs.into_iter().filter(|(differs, _)| *differs);
        differs.next().map(|(_, what)| what)
    }
}

/// A mipmapped array: `CUmipmappedArray`.
pub(crate) struct Mipmapped {
    pub(crate) context: u64,
    /// The handle and the array of each level.
    levels: Vec<(usize, Arc<Array>)>,
}

/// A level of a mipmapped array: `CUarray`.
pub(crate) struct Array {
    pub(crate) context: u64,
    device: &'static Device,
    pub(crate) shape: Shape,
    block: Block,
    memory: Arc<Memory>,
    /// The place in the memory. Its offset is counted from the first byte of the memory.
    place: Level,
    is_destroyed: AtomicBool,
}

/// Tells why an array is refused.
fn refuse(code: Code, reason: std::fmt::Arguments<'_>) -> Code {
    explain(
        Verbosity::Modules,
        format_args!("an array is refused: {reason}"),
    );
    code
}

/// `cuExternalMemoryGetMappedMipmappedArray`.
pub(crate) fn map(
    context: &Context,
    memory: &Arc<Memory>,
    offset: u64,
    shape: Shape,
    levels: u32,
) -> Answer<usize> {
    if memory.context != context.id {
        return Err(Code::INVALID_CONTEXT);
    }
    let block = shape.check(levels)?;
    if shape.has(LAYERED) && levels > 1 {
        let reason = "levels with layers, which get wrong data without an error from an H200";
        return Err(refuse(Code::NOT_SUPPORTED, format_args!("{reason}")));
    }
    let places = places(memory, offset, &shape, levels, block)?;
    let offset = if Bug::ArrayIgnoresOffset.is_planted() {
        0
    } else {
        offset
    };
    let array = |(level, place): (u32, &Level)| {
        let shape = shape.level(level);
        let place = Level {
            offset: offset.checked_add(place.offset)?,
            ..*place
        };
        let end = end(&place, shape.rows(block))?;
        (end <= memory.usable()).then(|| {
            Arc::new(Array {
                context: context.id,
                device: context.device,
                shape,
                block,
                memory: memory.clone(),
                place,
                is_destroyed: AtomicBool::new(false),
            })
        })
    };
    let arrays: Option<Vec<_>> = (0..levels).zip(&places).map(array).collect();
    let arrays = arrays.ok_or(Code::INVALID_VALUE)?;
    if memory.is_dedicated && offset != 0 {
        return Err(Code::INVALID_VALUE);
    }
    let add = |array: Arc<Array>| (ARRAYS.add(array.clone()), array);
    Ok(MIPMAPPED.add(Arc::new(Mipmapped {
        context: context.id,
        levels: arrays.into_iter().map(add).collect(),
    })))
}

/// Returns the places of the levels: those of the table, or rows without gaps.
fn places(
    memory: &Memory,
    offset: u64,
    shape: &Shape,
    levels: u32,
    block: Block,
) -> Answer<Vec<Level>> {
    let listed = memory.images().into_iter();
    let listed: Vec<_> = listed.filter(|image| image.offset == offset).collect();
    let mut difference = None;
    for image in &listed {
        match shape.difference(levels, block, image) {
            None if !image.is_linear => return Ok(image.levels.clone()),
            None => difference = Some("tiling"),
            other => difference = other,
        }
    }
    if difference == Some("tiling") || !is_lenient() {
        let found = difference.map_or_else(
            || "no image".to_owned(),
            |other| format!("an image of another {other}"),
        );
        let reason = format_args!("Vulkan has bound {found} at offset {offset} of the memory");
        return Err(refuse(Code::INVALID_VALUE, reason));
    }
    let mut next = Some(0_u64);
    let tight = |level| {
        let [row, rows, slices] = shape.level(level).rows(block);
        let place = Level {
            offset: next?,
            row_pitch: row,
            slice_pitch: row.checked_mul(rows)?,
        };
        next = place
            .slice_pitch
            .checked_mul(slices)?
            .checked_add(place.offset);
        Some(place)
    };
    let places: Option<Vec<_>> = (0..levels).map(tight).collect();
    places.ok_or(Code::INVALID_VALUE)
}

/// Returns the end of so many rows at a place. `None` if it is behind all memory.
fn end(place: &Level, [row, rows, slices]: [u64; 3]) -> Option<u64> {
    let last_row = place.row_pitch.checked_mul(rows.checked_sub(1)?)?;
    let last_slice = place.slice_pitch.checked_mul(slices.checked_sub(1)?)?;
    let last = place
        .offset
        .checked_add(last_row)?
        .checked_add(last_slice)?;
    last.checked_add(row)
}

impl Mipmapped {
    /// `cuMipmappedArrayGetLevel`. A level has one handle.
    pub(crate) fn level(&self, level: u32) -> Answer<usize> {
        let level = level as usize;
        let wrong = (level + 1) % self.levels.len();
        let (handle, _) = self.levels.get(level).ok_or(Code::INVALID_VALUE)?;
        Ok(match Bug::WrongLevel.is_planted() {
            true => self.levels[wrong].0,
            false => *handle,
        })
    }

    /// Returns the levels of a handle, unless their memory is gone.
    pub(crate) fn find(handle: usize) -> Answer<Vec<Arc<Array>>> {
        let mipmapped = MIPMAPPED.get(handle)?;
        let levels = mipmapped.levels.iter();
        levels.map(|(level, _)| Array::find(*level)).collect()
    }

    /// Makes its arrays invalid.
    pub(crate) fn end(&self) {
        for (handle, array) in &self.levels {
            array.is_destroyed.store(true, Ordering::Release);
            let _ = ARRAYS.remove(*handle);
        }
    }
}

impl Array {
    /// Returns the array of a handle, unless its memory is gone.
    pub(crate) fn find(handle: usize) -> Answer<Arc<Self>> {
        let array = ARRAYS.get(handle)?;
        if !array.is_usable() {
            let reason = format_args!("its external memory is destroyed");
            return Err(refuse(Code::INVALID_HANDLE, reason));
        }
        Ok(array)
    }

    /// False once it is destroyed. In strict mode also once its external memory is destroyed.
    ///
    /// The bytes are there as long as `self`.
    pub(crate) fn is_usable(&self) -> bool {
        let is_gone = self.is_destroyed.load(Ordering::Acquire)
            || self.memory.is_destroyed() && !is_lenient();
        !is_gone
    }

    pub(crate) fn is_of(&self, device: &Device) -> bool {
        std::ptr::eq(self.device, device)
    }

    /// The extent in bytes of a row, rows of blocks, and slices or layers.
    pub(crate) fn rows(&self) -> [u64; 3] {
        self.shape.rows(self.block)
    }

    /// Bytes from one row to the next, and from one slice to the next.
    pub(crate) const fn pitches(&self) -> [u64; 2] {
        [self.place.row_pitch, self.place.slice_pitch]
    }

    /// Returns the address of a byte: its x in bytes, its row and its slice.
    ///
    /// `None` if the box of `extent` bytes, rows and slices from there on is not all within.
    pub(crate) fn address(&self, at: [u64; 3], extent: [u64; 3]) -> Option<*mut u8> {
        for ((at, extent), size) in at.iter().zip(extent).zip(self.rows()) {
            at.checked_add(extent).filter(|end| *end <= size)?;
        }
        let [x, row, slice] = at;
        let [row_pitch, slice_pitch] = self.pitches();
        let offset = self.place.offset + slice * slice_pitch + row * row_pitch + x;
        Some(self.memory.address().wrapping_add(offset as usize))
    }
}

/// Ends the arrays of a context. Only [`Bug::ArrayFreedEarly`] does that.
pub(crate) fn end_all(context: u64) {
    MIPMAPPED.retain(|mipmapped| {
        let is_other = mipmapped.context != context;
        if !is_other {
            mipmapped.end();
        }
        is_other
    });
}

/// Removes the arrays of a context.
pub(crate) fn forget(context: u64) {
    MIPMAPPED.retain(|mipmapped| mipmapped.context != context);
    ARRAYS.retain(|array| array.context != context);
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Shape = Shape {
        extent: [61, 37, 0],
        format: 1,
        channels: 4,
        flags: SURFACE,
    };

    fn check(shape: Shape, levels: u32) -> Result<(u64, u64), u32> {
        let block = shape.check(levels);
        block
            .map(|block| (block.bytes, block.edge))
            .map_err(Code::number)
    }

    #[test]
    fn shapes_are_checked() {
        let with = |extent, flags| Shape {
            extent,
            flags,
            ..PLAIN
        };
        assert_eq!(check(PLAIN, 6), Ok((4, 1)));
        assert_eq!(check(PLAIN, 7), Err(1));
        assert_eq!(check(PLAIN, 0), Err(1));
        for (extent, flags, is_right) in [
            ([61, 0, 0], 0, true),
            ([61, 0, 3], 0, false),
            ([61, 0, 3], LAYERED, true),
            ([61, 37, 0], LAYERED, false),
            ([0, 37, 0], 0, false),
            ([61, 37, 5], 0, true),
            ([64, 64, 6], CUBE, true),
            ([64, 64, 12], CUBE, false),
            ([64, 64, 12], CUBE | LAYERED, true),
            ([64, 32, 6], CUBE, false),
            ([64, 64, 5], CUBE | LAYERED, false),
            ([61, 37, 0], 0x10, false),
            ([61, 37, 0], 0x8000_0000, true),
            ([u64::MAX, 1, 0], 0, false),
        ] {
            assert_eq!(
                check(with(extent, flags), 1).is_ok(),
                is_right,
                "{extent:?} {flags}"
            );
        }
        // BC1, with and without surfaces; three channels; a format of video.
        let of = |format, channels, flags| Shape {
            format,
            channels,
            flags,
            ..PLAIN
        };
        assert_eq!(check(of(0x91, 4, 0), 1), Ok((8, 4)));
        assert_eq!(check(of(0x91, 4, SURFACE), 1), Err(801));
        assert_eq!(check(of(1, 3, 0), 1), Err(1));
        assert_eq!(check(of(0x50, 4, 0), 1), Ok((4, 1)));
        assert_eq!(check(of(0xb0, 1, 0), 1), Err(801));
        assert_eq!(check(of(7, 1, 0), 1), Err(1));
    }

    #[test]
    fn levels_halve_sides_and_not_layers() {
        let volume = Shape {
            extent: [61, 37, 5],
            ..PLAIN
        };
        assert_eq!(volume.level(2).extent, [15, 9, 1]);
        let cube = Shape {
            flags: CUBE,
            extent: [64, 64, 6],
            ..PLAIN
        };
        assert_eq!(cube.level(6).extent, [1, 1, 6]);
        let line = Shape {
            extent: [61, 0, 0],
            ..PLAIN
        };
        assert_eq!(line.level(5).extent, [1, 0, 0]);
        let compressed = Block { bytes: 8, edge: 4 };
        assert_eq!(volume.level(1).rows(compressed), [8 * 8, 5, 2]);
    }

    #[test]
    fn no_place_ends_behind_all_numbers() {
        let place = |offset, row_pitch, slice_pitch| Level {
            offset,
            row_pitch,
            slice_pitch,
        };
        assert_eq!(
            end(&place(1, 100, 1000), [7, 3, 2]),
            Some(1 + 200 + 1000 + 7)
        );
        assert_eq!(end(&place(0, u64::MAX, 0), [1, 3, 1]), None);
        assert_eq!(end(&place(u64::MAX, 0, 0), [1, 1, 1]), None);
        assert_eq!(end(&place(0, 0, 1 << 63), [1, 1, 3]), None);
    }
}
