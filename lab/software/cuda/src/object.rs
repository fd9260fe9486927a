//! Surface objects and texture objects, through which kernels access arrays.
#![allow(unsafe_code, reason = "accesses memory that devices reach")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use syncline_software_ptx::Geometry;

use crate::array::{Array, Mipmapped, SURFACE};
use crate::code::{Answer, Code};
use crate::context::Context;
use crate::external::is_lenient;
use crate::kernel::{load, store};
use crate::table::Table;

/// All surface objects.
pub(crate) static SURFACES: Table<Object> = Table::new();
/// All texture objects.
pub(crate) static TEXTURES: Table<Object> = Table::new();

/// `CU_TRSF_READ_AS_INTEGER`.
const READ_AS_INTEGER: u32 = 1;

/// `CUDA_RESOURCE_DESC` of an array or a mipmapped array.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Resource {
    /// A value of `CUresourcetype`.
    pub(crate) kind: u32,
    pub(crate) handle: usize,
    /// The rest of the union.
    _rest: [u64; 15],
    pub(crate) flags: u32,
}

const _: () = assert!(size_of::<Resource>() == 144);

/// A surface object or a texture object.
pub(crate) struct Object {
    context: u64,
    pub(crate) resource: Resource,
    /// The levels of a texture, or the array of a surface.
    levels: Vec<Arc<Array>>,
    /// Texels of 8 or 16 bits are read as integers.
    reads_integers: bool,
    is_destroyed: AtomicBool,
}

impl Object {
    fn new(
        context: &Context,
        resource: Resource,
        levels: Vec<Arc<Array>>,
        flags: u32,
    ) -> Arc<Self> {
        Arc::new(Self {
            context: context.id,
            resource,
            levels,
            reads_integers: flags & READ_AS_INTEGER != 0,
            is_destroyed: AtomicBool::new(false),
        })
    }

    /// `cuSurfObjectCreate`.
    pub(crate) fn surface(context: &Context, resource: Resource) -> Answer<usize> {
        if resource.kind != 0 || resource.flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let array = Array::find(resource.handle)?;
        // An H200 needs no flag.
        if !array.shape.has(SURFACE) && !is_lenient() {
            return Err(Code::INVALID_VALUE);
        }
        let surface = Self::new(context, resource, vec![array], 0);
        Ok(SURFACES.add(surface))
    }

    /// `cuTexObjectCreate`, with the flags of its texture descriptor.
    pub(crate) fn texture(context: &Context, resource: Resource, flags: u32) -> Answer<usize> {
        if resource.flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let levels = match resource.kind {
            0 => vec![Array::find(resource.handle)?],
            1 => Mipmapped::find(resource.handle)?,
            // Memory without an array.
            2 | 3 => return Err(Code::NOT_SUPPORTED),
            _ => return Err(Code::INVALID_VALUE),
        };
        Ok(TEXTURES.add(Self::new(context, resource, levels, flags)))
    }

    /// Removes an object of a table.
    pub(crate) fn destroy(table: &Table<Self>, handle: usize) -> Answer {
        let object = table.remove(handle).map_err(|_| Code::INVALID_VALUE)?;
        object.is_destroyed.store(true, Ordering::Release);
        Ok(())
    }

    /// False once the application has destroyed the object.
    pub(crate) fn is_alive(&self) -> bool {
        !self.is_destroyed.load(Ordering::Acquire)
    }

    /// Returns a level, if it is there and its array is not destroyed.
    fn level(&self, level: u32) -> Option<&Arc<Array>> {
        let array = self.levels.get(level as usize)?;
        array.is_usable().then_some(array)
    }

    /// Returns the extent of a surface: bytes of a row, rows, and slices or layers.
    ///
    /// Without its number, the slice or layer is the first one.
    pub(crate) fn surface_extent(&self, geometry: Geometry) -> Option<[u32; 3]> {
        let array = self.level(0)?;
        let is_right = match array.shape.geometry() {
            Geometry::Row | Geometry::Rows => matches!(geometry, Geometry::Row | Geometry::Rows),
            Geometry::Plane | Geometry::Planes => {
                matches!(geometry, Geometry::Plane | Geometry::Planes)
            }
            Geometry::Volume => matches!(geometry, Geometry::Plane | Geometry::Volume),
        };
        is_right.then(|| array.rows().map(|size| size as u32))
    }

    /// Returns the extent of a level of a texture in texels.
    ///
    /// It is zero for a geometry in which a GPU reads no texels. Faces of a cube are no layers.
    pub(crate) fn texture_extent(&self, geometry: Geometry, level: u32) -> Option<[u32; 3]> {
        let first = &self.level(0)?.shape;
        let is_right = match first.geometry() {
            Geometry::Planes => {
                !first.is_cube() && matches!(geometry, Geometry::Plane | Geometry::Planes)
            }
            own => own == geometry,
        };
        let level = self.level(level).filter(|_| is_right);
        let extent = level.map(|level| level.shape.extent.map(|size| size.max(1) as u32));
        Some(extent.unwrap_or_default())
    }

    /// Returns the address of bytes of a surface.
    fn address(&self, at: [u32; 3], bytes: u32) -> Option<*mut u8> {
        let array = self.level(0)?;
        array.address(at.map(u64::from), [bytes.into(), 1, 1])
    }

    /// Loads 1, 2, 4 or 8 bytes of a surface.
    pub(crate) fn load(&self, at: [u32; 3], bytes: u32) -> Option<u64> {
        let at = self.address(at, bytes)?;
        let piece = piece(at, bytes);
        // SAFETY: `address` has found so many bytes, which are there as long as `self`. A piece is
        // aligned.
        let load = |skipped: u32| unsafe { load(at.wrapping_add(skipped as usize), piece) };
        let pieces = (0..bytes).step_by(piece as usize);
        Some(pieces.fold(0, |value, skipped| value | load(skipped) << (8 * skipped)))
    }

    /// Stores the low 1, 2, 4 or 8 bytes of a value in a surface.
    pub(crate) fn store(&self, at: [u32; 3], bytes: u32, value: u64) -> Option<()> {
        let at = self.address(at, bytes)?;
        let piece = piece(at, bytes);
        for skipped in (0..bytes).step_by(piece as usize) {
            let at = at.wrapping_add(skipped as usize);
            // SAFETY: as for `load`.
            unsafe { store(at, piece, value >> (8 * skipped)) };
        }
        Some(())
    }

    /// Reads a texel. Components that it does not have are 0.
    ///
    /// `None` for compressed texels and for those that are not exact as floating-point numbers.
    pub(crate) fn texel(&self, level: u32, [x, y, z]: [u32; 3]) -> Option<[u32; 4]> {
        let array = self.level(level)?;
        let component = Component::of(array.shape.format, self.reads_integers)?;
        let bytes = component.bytes();
        let pixel = bytes * array.shape.channels;
        let first = [u64::from(x) * u64::from(pixel), y.into(), z.into()];
        let address = array.address(first, [pixel.into(), 1, 1])?;
        let mut components = [0; 4];
        for (number, to) in (0..array.shape.channels).zip(&mut components) {
            let at = address.wrapping_add((number * bytes) as usize);
            // SAFETY: `address` has found all components, which are there as long as `self`.
            *to = component.extend(unsafe { load(at, bytes) } as u32);
        }
        Some(components)
    }
}

/// Returns how many of the bytes are accessed at once. Rows of images may be aligned less.
fn piece(at: *mut u8, bytes: u32) -> u32 {
    let aligned = 1 << at.addr().trailing_zeros().min(3);
    bytes.min(aligned)
}

/// How a component of a texel becomes a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Component {
    Unsigned(u32),
    Signed(u32),
    Half,
}

impl Component {
    /// `None` for compressed texels and for those that are not exact as floating-point numbers.
    const fn of(format: u32, reads_integers: bool) -> Option<Self> {
        Some(match format {
            0x01 if reads_integers => Self::Unsigned(1),
            0x02 if reads_integers => Self::Unsigned(2),
            0x08 if reads_integers => Self::Signed(1),
            0x09 if reads_integers => Self::Signed(2),
            // Integers and floating-point numbers of 32 bits.
            0x03 | 0x0a | 0x20 => Self::Unsigned(4),
            0x10 => Self::Half,
            _ => return None,
        })
    }

    const fn bytes(self) -> u32 {
        match self {
            Self::Unsigned(bytes) | Self::Signed(bytes) => bytes,
            Self::Half => 2,
        }
    }

    fn extend(self, value: u32) -> u32 {
        match self {
            Self::Unsigned(_) => value,
            Self::Signed(bytes) => {
                let unused = 32 - 8 * bytes;
                ((value << unused).cast_signed() >> unused).cast_unsigned()
            }
            Self::Half => {
                let (exponent, fraction) = (value >> 10 & 0x1f, value & 0x3ff);
                let magnitude = match exponent {
                    // A multiple of 2^-24.
                    0 => (fraction as f32 * f32::from_bits(0x3380_0000)).to_bits(),
                    0x1f => 0x7f80_0000 | fraction << 13,
                    _ => (exponent + 112) << 23 | fraction << 13,
                };
                magnitude | (value & 0x8000) << 16
            }
        }
    }
}

/// Removes the objects of a context.
pub(crate) fn forget(context: u64) {
    SURFACES.retain(|surface| surface.context != context);
    TEXTURES.retain(|texture| texture.context != context);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_become_words() {
        let extended = |format, value| Component::of(format, true).map(|it| it.extend(value));
        for (format, value, expected) in [
            (0x01, 0xfe, 0xfe),
            (0x02, 0xfffe, 0xfffe),
            (0x03, 0xffff_fffe, 0xffff_fffe),
            (0x08, 0xfe, 0xffff_fffe),
            (0x08, 0x7e, 0x7e),
            (0x09, 0xfffe, 0xffff_fffe),
            (0x0a, 0xffff_fffe, 0xffff_fffe),
            (0x10, 0x3c00, 1_f32.to_bits()),
            (0x10, 0xc100, (-2.5_f32).to_bits()),
            (0x10, 0x7bff, 65504_f32.to_bits()),
            (0x10, 0x0001, 2_f32.powi(-24).to_bits()),
            (0x10, 0x83ff, (-1023. * 2_f32.powi(-24)).to_bits()),
            (0x10, 0x8000, (-0_f32).to_bits()),
            (0x10, 0xfc00, f32::NEG_INFINITY.to_bits()),
            (0x20, 0x3f80_0000, 1_f32.to_bits()),
        ] {
            assert_eq!(
                extended(format, value),
                Some(expected),
                "{format:#x} {value:#x}"
            );
        }
        // Normalized integers are floating-point numbers, and blocks are compressed.
        for format in [0x01, 0x02, 0x08, 0x09, 0x91] {
            assert_eq!(Component::of(format, false), None, "{format:#x}");
        }
        assert_eq!(Component::of(0x91, true), None);
    }
}
