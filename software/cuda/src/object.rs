//! Surface objects and texture objects, through which kernels access arrays.
#![allow(unsafe_code, reason = "accesses memory that devices reach")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use syncline_software_ptx::Geometry;

use crate::array::{Array, Mipmapped, SURFACE};
use crate::code::{Answer, Code};
use crate::context::Context;
use crate::external::is_lenient;
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
        let order = Ordering::Relaxed;
        let address = self.address(at, bytes)?;
        // SAFETY: `address` has found so many bytes, which are there as long as `self`. Any bytes
        // are atomics, if they are aligned.
        Some(unsafe {
            match bytes {
                _ if !address.addr().is_multiple_of(bytes as usize) => {
                    let mut word = [0; 8];
                    address.copy_to(word.as_mut_ptr(), bytes as usize);
                    u64::from_le_bytes(word)
                }
                1 => AtomicU8::from_ptr(address).load(order).into(),
                2 => AtomicU16::from_ptr(address.cast()).load(order).into(),
                4 => AtomicU32::from_ptr(address.cast()).load(order).into(),
                _ => AtomicU64::from_ptr(address.cast()).load(order),
            }
        })
    }

    /// Stores the low 1, 2, 4 or 8 bytes of a value in a surface.
    pub(crate) fn store(&self, at: [u32; 3], bytes: u32, value: u64) -> Option<()> {
        let order = Ordering::Relaxed;
        let address = self.address(at, bytes)?;
        // SAFETY: as for `load`.
        unsafe {
            match bytes {
                _ if !address.addr().is_multiple_of(bytes as usize) => {
                    address.copy_from(value.to_le_bytes().as_ptr(), bytes as usize);
                }
                1 => AtomicU8::from_ptr(address).store(value as u8, order),
                2 => AtomicU16::from_ptr(address.cast()).store(value as u16, order),
                4 => AtomicU32::from_ptr(address.cast()).store(value as u32, order),
                _ => AtomicU64::from_ptr(address.cast()).store(value, order),
            }
        }
        Some(())
    }

    /// Reads a texel. Components that it does not have are 0.
    ///
    /// `None` for compressed texels and for those that are converted to floating-point numbers.
    pub(crate) fn texel(&self, level: u32, [x, y, z]: [u32; 3]) -> Option<[u32; 4]> {
        let array = self.level(level)?;
        let (bytes, is_signed) = array.shape.component(self.reads_integers)?;
        let pixel = bytes * array.shape.channels;
        let first = [u64::from(x) * u64::from(pixel), y.into(), z.into()];
        let address = array.address(first, [pixel.into(), 1, 1])?;
        let mut texel = [0; 16];
        // SAFETY: `address` has found so many bytes, at most 16, which are there as long as `self`.
        unsafe { address.copy_to(texel.as_mut_ptr(), pixel as usize) };
        let mut components = [0; 4];
        for (word, component) in components
            .iter_mut()
            .zip(texel[..pixel as usize].chunks(bytes as usize))
        {
            let fill = if is_signed && component.last().is_some_and(|last| *last > 127) {
                0xff
            } else {
                0
            };
            let mut extended = [fill; 4];
            extended[..component.len()].copy_from_slice(component);
            *word = u32::from_le_bytes(extended);
        }
        Some(components)
    }
}

/// Removes the objects of a context.
pub(crate) fn forget(context: u64) {
    SURFACES.retain(|surface| surface.context != context);
    TEXTURES.retain(|texture| texture.context != context);
}
