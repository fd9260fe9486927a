//! What a kernel sees of the machine, and how a kernel fails.

use thiserror::Error;

use crate::LaunchError;

/// The memory and the clock that a kernel sees.
///
/// The host and other kernels access the same memory at the same time. So an implementation uses
/// atomic operations, and an access of an aligned value of `bytes` (1, 2, 4 or 8) is never torn.
/// The interpreter has checked the alignment.
pub trait Machine: Sync {
    /// Loads a value of `bytes` bytes. The bits above are zero.
    ///
    /// # Errors
    ///
    /// [`Fault::Address`] if the kernel may not read there.
    fn load(&self, address: u64, bytes: u32) -> Result<u64, Fault>;

    /// Stores the low `bytes` bytes of `value`.
    ///
    /// # Errors
    ///
    /// [`Fault::Address`] if the kernel may not write there.
    fn store(&self, address: u64, bytes: u32, value: u64) -> Result<(), Fault>;

    /// Replaces a value of 4 or 8 bytes by `change` of it, and returns the value before.
    ///
    /// This is one atomic operation.
    ///
    /// `change` may be called several times. The operation orders memory as acquire and release.
    ///
    /// # Errors
    ///
    /// [`Fault::Address`] if the kernel may not write there.
    fn update(
        &self,
        address: u64,
        bytes: u32,
        change: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, Fault>;

    /// The time of `%globaltimer`, in nanoseconds. `%clock64` shows the same.
    fn global_timer(&self) -> u64;

    /// Lets other threads run. Returns true to stop the kernel.
    ///
    /// Called every few thousand instructions of a warp, after about a hundred rounds of a loop,
    /// and for `nanosleep`. The kernel must stop when its process or its context ends.
    fn pause(&self) -> bool;

    /// Orders all memory accesses before it and after it.
    ///
    /// Called for `fence` and `membar`, behind loads that acquire and before stores that release.
    fn fence(&self);

    /// Lets the kernels behind this kernel begin: `griddepcontrol.launch_dependents`.
    ///
    /// Called once, when every warp of the grid has made the instruction or has ended, and at
    /// least one warp has made it.
    fn launch_dependents(&self) {}

    /// Waits until the kernels before this kernel have ended: `griddepcontrol.wait`.
    ///
    /// The interpreter calls [`pause`](Self::pause) behind it. A machine whose process or context
    /// ends may therefore just return.
    fn wait_for_dependencies(&self) {}

    /// The surfaces and textures of the kernel. `None` if there are none at all.
    fn images(&self) -> Option<&dyn Images> {
        None
    }
}

/// The surfaces and textures that a kernel reaches through objects: handles of 64 bits.
///
/// A place is x, y and z. For an object with layers, z is the layer; for one without rows, y is 0.
/// The interpreter asks for the extent first, and then only for places within it. Loads and stores
/// of surfaces are never torn, as those of [`Machine`].
pub trait Images {
    /// The extent of a surface: the bytes of a row, the rows, and the slices or layers.
    ///
    /// # Errors
    ///
    /// [`Fault::Object`] if the object is no surface of this geometry.
    fn surface(&self, object: u64, geometry: Geometry) -> Result<[u32; 3], Fault>;

    /// Loads `bytes` bytes (1, 2, 4 or 8) of a surface. The bits above are zero.
    ///
    /// The x of the place is in bytes, and a multiple of `bytes`.
    ///
    /// # Errors
    ///
    /// [`Fault::Object`] if the surface cannot be read.
    fn load(&self, surface: u64, at: [u32; 3], bytes: u32) -> Result<u64, Fault>;

    /// Stores the low `bytes` bytes of `value`, at a place as for [`load`](Self::load).
    ///
    /// # Errors
    ///
    /// [`Fault::Object`] if the surface cannot be written.
    fn store(&self, surface: u64, at: [u32; 3], bytes: u32, value: u64) -> Result<(), Fault>;

    /// The extent of a level of a texture: the texels of a row, the rows, and the slices or layers.
    ///
    /// The extent of a level that the texture does not have is zero.
    ///
    /// # Errors
    ///
    /// [`Fault::Object`] if the object is no texture of this geometry.
    fn texture(&self, object: u64, geometry: Geometry, level: u32) -> Result<[u32; 3], Fault>;

    /// Reads a texel: the bits of its four components.
    ///
    /// A component of an integer is extended to 32 bits. A floating-point number has its 32 bits.
    ///
    /// # Errors
    ///
    /// [`Fault::Object`] if the texture has no such components.
    fn texel(&self, texture: u64, level: u32, at: [u32; 3]) -> Result<[u32; 4], Fault>;
}

/// The coordinates with which an instruction accesses a surface or a texture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Geometry {
    /// `.1d`: x.
    Row,
    /// `.2d`: x and y.
    Plane,
    /// `.3d`: x, y and z.
    Volume,
    /// `.a1d`: x in a layer.
    Rows,
    /// `.a2d`: x and y in a layer.
    Planes,
}

/// Why a kernel did not come to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Fault {
    /// The kernel may not access this memory.
    #[error("{} of {bytes} bytes at {address:#x}, where the kernel has no memory", access(*.write))]
    Address {
        /// The address.
        address: u64,
        /// The size of the access.
        bytes: u32,
        /// Whether the access is a store or an atomic operation.
        write: bool,
    },
    /// The address, or the x of a surface, is no multiple of the size of the access.
    #[error("misaligned {} of {bytes} bytes at {address:#x}", access(*.write))]
    Misaligned {
        /// The address.
        address: u64,
        /// The size of the access.
        bytes: u32,
        /// Whether the access is a store or an atomic operation.
        write: bool,
    },
    /// There is no such surface or texture, or it cannot be accessed in this way.
    #[error("{object:#x} is no surface or texture that the kernel may access like this")]
    Object {
        /// The object.
        object: u64,
    },
    /// An access with `.trap` is outside of its surface.
    #[error("{} of {bytes} bytes at {at:?}, outside of the surface {object:#x}", access(*.write))]
    Outside {
        /// The surface.
        object: u64,
        /// The place: x in bytes, y, and the slice or layer.
        at: [i64; 3],
        /// The size of the access.
        bytes: u32,
        /// Whether the access is a store.
        write: bool,
    },
    /// The kernel has executed `trap`.
    #[error("the kernel executed `trap`")]
    Trap,
    /// The machine has stopped the kernel: [`Machine::pause`].
    #[error("the kernel was stopped")]
    Stopped,
    /// The launch does not fit the kernel: [`Entry::check`](crate::Entry::check).
    #[error(transparent)]
    Launch(#[from] LaunchError),
}

const fn access(write: bool) -> &'static str {
    if write { "store" } else { "load" }
}
