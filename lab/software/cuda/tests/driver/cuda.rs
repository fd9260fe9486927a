//! The driver's functions, loaded by path as in a C program.

use std::ffi::{CString, c_char, c_void};
use std::path::PathBuf;
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use libloading::Library;

pub(crate) type Handle = usize;
pub(crate) type Callback = extern "C" fn(*mut c_void);

macro_rules! functions {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {
        #[allow(non_snake_case, reason = "the driver API's names")]
        struct Table {
            $($name: unsafe extern "C" fn($($type),*) -> u32,)*
        }

        impl Table {
            fn load(library: &Library) -> Self {
                Self {
                    $(
                        // SAFETY: cuda.h declares the function so.
                        $name: *unsafe { library.get(stringify!($name).as_bytes()) }
                            .unwrap_or_else(|error| panic!("{error}")),
                    )*
                }
            }
        }

        $(
            #[allow(non_snake_case, clippy::too_many_arguments, reason = "the driver API's own")]
            pub(crate) fn $name($($argument: $type),*) -> u32 {
                // SAFETY: the tests pass what cuda.h asks for, or what must be refused.
                unsafe { (table().$name)($($argument),*) }
            }
        )*
    };
}

functions! {
    cuInit(flags: u32);
    cuDriverGetVersion(version: *mut i32);
    cuGetErrorName(code: u32, name: *mut *const c_char);
    cuDeviceGetCount(count: *mut i32);
    cuDeviceGet(device: *mut i32, ordinal: i32);
    cuDeviceGetName(name: *mut u8, length: i32, device: i32);
    cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: i32);
    cuDeviceGetAttribute(value: *mut i32, attribute: i32, device: i32);
    cuDevicePrimaryCtxRetain(context: *mut Handle, device: i32);
    cuDevicePrimaryCtxRelease_v2(device: i32);
    cuDevicePrimaryCtxReset_v2(device: i32);
    cuCtxCreate_v2(context: *mut Handle, flags: u32, device: i32);
    cuCtxDestroy_v2(context: Handle);
    cuCtxGetCurrent(context: *mut Handle);
    cuCtxSetCurrent(context: Handle);
    cuCtxSynchronize();
    cuMemAlloc_v2(address: *mut u64, bytes: usize);
    cuMemFree_v2(address: u64);
    cuMemHostAlloc(pointer: *mut *mut c_void, bytes: usize, flags: u32);
    cuMemFreeHost(pointer: *mut c_void);
    cuMemHostRegister_v2(pointer: *mut c_void, bytes: usize, flags: u32);
    cuMemHostUnregister(pointer: *mut c_void);
    cuMemHostGetDevicePointer_v2(address: *mut u64, pointer: *mut c_void, flags: u32);
    cuMemcpyHtoD_v2(to: u64, from: *const c_void, bytes: usize);
    cuMemcpyDtoH_v2(to: *mut c_void, from: u64, bytes: usize);
    cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, stream: Handle);
    cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, stream: Handle);
    cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: Handle);
    cuMemsetD8Async(to: u64, value: u8, count: usize, stream: Handle);
    cuMemsetD32Async(to: u64, value: u32, count: usize, stream: Handle);
    cuStreamCreate(stream: *mut Handle, flags: u32);
    cuStreamDestroy_v2(stream: Handle);
    cuStreamQuery(stream: Handle);
    cuStreamSynchronize(stream: Handle);
    cuStreamWaitEvent(stream: Handle, event: Handle, flags: u32);
    cuStreamWaitValue64_v2(stream: Handle, address: u64, value: u64, flags: u32);
    cuStreamWriteValue64_v2(stream: Handle, address: u64, value: u64, flags: u32);
    cuLaunchHostFunc(stream: Handle, function: Callback, data: *mut c_void);
    cuEventCreate(event: *mut Handle, flags: u32);
    cuEventDestroy_v2(event: Handle);
    cuEventRecord(event: Handle, stream: Handle);
    cuEventRecordWithFlags(event: Handle, stream: Handle, flags: u32);
    cuEventQuery(event: Handle);
    cuEventSynchronize(event: Handle);
    cuIpcGetEventHandle(handle: *mut [u8; 64], event: Handle);
    cuIpcOpenEventHandle(event: *mut Handle, handle: IpcHandle);
    cuModuleLoad(module: *mut Handle, path: *const c_char);
    cuModuleLoadData(module: *mut Handle, image: *const c_char);
    cuModuleLoadDataEx(
        module: *mut Handle,
        image: *const c_char,
        count: u32,
        options: *const u32,
        values: *mut usize
    );
    cuModuleUnload(module: Handle);
    cuModuleGetFunction(function: *mut Handle, module: Handle, name: *const c_char);
    cuLaunchKernel(
        function: Handle, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32,
        block_z: u32, shared: u32, stream: Handle, params: *mut *mut c_void, extra: *mut *mut c_void
    );
    cuImportExternalSemaphore(semaphore: *mut Handle, desc: *const SemaphoreDesc);
    cuDestroyExternalSemaphore(semaphore: Handle);
    cuSignalExternalSemaphoresAsync(
        semaphores: *const Handle, params: *const SemaphoreParams, count: u32, stream: Handle
    );
    cuWaitExternalSemaphoresAsync(
        semaphores: *const Handle, params: *const SemaphoreParams, count: u32, stream: Handle
    );
    cuImportExternalMemory(memory: *mut Handle, desc: *const MemoryDesc);
    cuDestroyExternalMemory(memory: Handle);
    cuExternalMemoryGetMappedMipmappedArray(
        array: *mut Handle, memory: Handle, desc: *const MappedArrayDesc
    );
    cuMipmappedArrayGetLevel(array: *mut Handle, mipmapped: Handle, level: u32);
    cuMipmappedArrayDestroy(mipmapped: Handle);
    cuArrayGetDescriptor_v2(desc: *mut ArrayDesc, array: Handle);
    cuArray3DGetDescriptor_v2(desc: *mut Array3dDesc, array: Handle);
    cuSurfObjectCreate(surface: *mut u64, resource: *const Resource);
    cuSurfObjectDestroy(surface: u64);
    cuSurfObjectGetResourceDesc(resource: *mut Resource, surface: u64);
    cuTexObjectCreate(
        texture: *mut u64, resource: *const Resource, desc: *const [u32; 26], view: *const c_void
    );
    cuTexObjectDestroy(texture: u64);
    cuMemcpy2D_v2(copy: *const Copy2d);
    cuMemcpy2DAsync_v2(copy: *const Copy2d, stream: Handle);
    cuMemcpy3D_v2(copy: *const Copy3d);
    cuMemcpy3DAsync_v2(copy: *const Copy3d, stream: Handle);
    cuMemGetAllocationGranularity(to: *mut usize, prop: *const AllocationProp, option: u32);
    cuMemCreate(handle: *mut Handle, bytes: usize, prop: *const AllocationProp, flags: u64);
    cuMemRelease(handle: Handle);
    cuMemGetAllocationPropertiesFromHandle(prop: *mut AllocationProp, handle: Handle);
    cuMemExportToShareableHandle(to: *mut i32, handle: Handle, kind: u32, flags: u64);
    cuMemImportFromShareableHandle(handle: *mut Handle, descriptor: usize, kind: u32);
    cuMemAddressReserve(
        address: *mut u64, bytes: usize, alignment: usize, hint: u64, flags: u64
    );
    cuMemAddressFree(address: u64, bytes: usize);
    cuMemMap(address: u64, bytes: usize, offset: usize, handle: Handle, flags: u64);
    cuMemUnmap(address: u64, bytes: usize);
    cuMemSetAccess(address: u64, bytes: usize, access: *const AccessDesc, count: usize);
    cuStreamBeginCapture_v2(stream: Handle, mode: u32);
    cuStreamEndCapture(stream: Handle, graph: *mut Handle);
    cuStreamGetCaptureInfo_v2(
        stream: Handle, status: *mut u32, id: *mut u64, graph: *mut Handle,
        nodes: *mut c_void, count: *mut usize
    );
    cuGraphCreate(graph: *mut Handle, flags: u32);
    cuGraphInstantiateWithFlags(executable: *mut Handle, graph: Handle, flags: u64);
    cuGraphLaunch(graph: Handle, stream: Handle);
    cuGraphExecEventRecordNodeSetEvent(executable: Handle, node: Handle, event: Handle);
    cuGraphGetNodes(graph: Handle, nodes: *mut Handle, count: *mut usize);
    cuGraphDestroy(graph: Handle);
    cuUserObjectCreate(
        object: *mut Handle, pointer: *mut c_void, destroy: Callback, references: u32, flags: u32
    );
    cuGraphRetainUserObject(graph: Handle, object: Handle, count: u32, flags: u32);
    synclineSoftwareDriver();
}

/// `CUipcEventHandle`, which goes by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct IpcHandle(pub(crate) [u64; 8]);

/// `CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC`.
#[repr(C)]
pub(crate) struct SemaphoreDesc {
    pub(crate) kind: u32,
    pub(crate) padding: u32,
    pub(crate) descriptor: i32,
    pub(crate) rest: [u32; 3 + 1 + 16 + 1],
}

/// `CUDA_EXTERNAL_MEMORY_HANDLE_DESC`.
#[repr(C)]
pub(crate) struct MemoryDesc {
    pub(crate) kind: u64,
    pub(crate) descriptor: i64,
    pub(crate) unused: u64,
    pub(crate) size: u64,
    pub(crate) rest: [u64; 9],
}

/// `CUDA_ARRAY_DESCRIPTOR`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ArrayDesc {
    pub(crate) extent: [usize; 2],
    pub(crate) format: u32,
    pub(crate) channels: u32,
}

/// `CUDA_ARRAY3D_DESCRIPTOR`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Array3dDesc {
    pub(crate) extent: [usize; 3],
    pub(crate) format: u32,
    pub(crate) channels: u32,
    pub(crate) flags: u32,
}

/// `CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct MappedArrayDesc {
    pub(crate) offset: u64,
    pub(crate) array: Array3dDesc,
    pub(crate) levels: u32,
    pub(crate) rest: [u32; 16],
}

/// `CUDA_RESOURCE_DESC` of an array (0) or a mipmapped array (1).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Resource {
    pub(crate) kind: u32,
    pub(crate) array: Handle,
    pub(crate) rest: [u64; 15],
    pub(crate) flags: u32,
}

/// `CU_MEMORYTYPE_HOST` and the other types.
pub(crate) const HOST: u32 = 1;
pub(crate) const DEVICE: u32 = 2;
pub(crate) const ARRAY: u32 = 3;

/// One side of a `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Side2d {
    pub(crate) start: [usize; 2],
    pub(crate) kind: u32,
    pub(crate) host: usize,
    pub(crate) device: u64,
    pub(crate) array: Handle,
    pub(crate) pitch: usize,
}

/// `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Copy2d {
    pub(crate) from: Side2d,
    pub(crate) to: Side2d,
    pub(crate) extent: [usize; 2],
}

/// One side of a `CUDA_MEMCPY3D`. The last of `start` is the level, which is 0.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Side3d {
    pub(crate) start: [usize; 4],
    pub(crate) kind: u32,
    pub(crate) host: usize,
    pub(crate) device: u64,
    pub(crate) array: Handle,
    pub(crate) reserved: usize,
    pub(crate) pitch: usize,
    pub(crate) height: usize,
}

/// `CUDA_MEMCPY3D`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Copy3d {
    pub(crate) from: Side3d,
    pub(crate) to: Side3d,
    pub(crate) extent: [usize; 3],
}

/// `CUmemAllocationProp`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AllocationProp {
    pub(crate) kind: u32,
    pub(crate) handles: u32,
    pub(crate) location: [u32; 2],
    pub(crate) rest: [u64; 2],
}

/// `CUmemAccessDesc`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct AccessDesc {
    pub(crate) location: [u32; 2],
    pub(crate) flags: u32,
}

/// `CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS` and `…_WAIT_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct SemaphoreParams {
    pub(crate) value: u64,
    pub(crate) rest: [u64; 17],
}

pub(crate) const fn value(value: u64) -> SemaphoreParams {
    SemaphoreParams {
        value,
        rest: [0; 17],
    }
}

/// Cargo builds the library of a dependency beside the test.
pub(crate) fn path() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().join("libsyncline_software_cuda.so")
}

fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| {
        // SAFETY: the library has no initializers.
        let library = unsafe { Library::new(path()) }.unwrap();
        let table = Table::load(&library);
        // Its threads continue.
        std::mem::forget(library);
        table
    })
}

/// Returns the number of live objects.
pub(crate) fn live_objects() -> u64 {
    // SAFETY: the library is loaded, and the function is declared so.
    unsafe {
        let library = Library::new(path()).unwrap();
        let count = library
            .get::<unsafe extern "C" fn() -> u64>(b"synclineSoftwareLiveObjects")
            .unwrap();
        count()
    }
}

#[track_caller]
pub(crate) fn ok(code: u32) {
    assert_eq!(code, 0);
}

/// Calls a function that writes one result.
#[track_caller]
pub(crate) fn made<T: Default>(make: impl FnOnce(*mut T) -> u32) -> T {
    let mut result = T::default();
    ok(make(&raw mut result));
    result
}

/// A context that is current on this thread. Each test has its own.
pub(crate) struct Context(pub(crate) Handle);

impl Context {
    pub(crate) fn new() -> Self {
        ok(cuInit(0));
        Self(made(|to| cuCtxCreate_v2(to, 0, 0)))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // It waits for the work of the context, which may wait for a step that a failed test skips.
        if !std::thread::panicking() {
            let _ = cuCtxDestroy_v2(self.0);
        }
    }
}

pub(crate) fn stream() -> Handle {
    made(|to| cuStreamCreate(to, 1))
}

pub(crate) fn event() -> Handle {
    made(|to| cuEventCreate(to, 2))
}

/// Words of memory that the host and devices can access.
pub(crate) struct Pinned {
    pub(crate) pointer: *mut c_void,
    words: usize,
}

impl Pinned {
    pub(crate) fn new(words: usize) -> Self {
        let mut pointer = null_mut();
        ok(cuMemHostAlloc(&raw mut pointer, words * 8, 3));
        Self { pointer, words }
    }

    pub(crate) fn address(&self) -> u64 {
        made(|to| cuMemHostGetDevicePointer_v2(to, self.pointer, 0))
    }

    pub(crate) fn words(&self) -> &[std::sync::atomic::AtomicU64] {
        // SAFETY: pinned, of so many words, and any bytes are atomics.
        unsafe { std::slice::from_raw_parts(self.pointer.cast(), self.words) }
    }

    pub(crate) fn get(&self) -> u64 {
        self.words()[0].load(std::sync::atomic::Ordering::Acquire)
    }

    pub(crate) fn set(&self, value: u64) {
        self.words()[0].store(value, std::sync::atomic::Ordering::Release);
    }
}

pub(crate) fn function(text: &str, name: &str) -> Handle {
    let (text, name) = (CString::new(text).unwrap(), CString::new(name).unwrap());
    let module = made(|to| cuModuleLoadData(to, text.as_ptr()));
    made(|to| cuModuleGetFunction(to, module, name.as_ptr()))
}

/// Launches one thread of a kernel with these parameters.
pub(crate) fn launch(function: Handle, stream: Handle, params: &[u64]) -> u32 {
    let mut pointers: Vec<*mut c_void> = params
        .iter()
        .map(|param| (&raw const *param).cast_mut().cast())
        .collect();
    let params = pointers.as_mut_ptr();
    cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params, null_mut())
}

/// Waits until the condition is true, for a limited time.
#[track_caller]
pub(crate) fn eventually(is_true: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_true() {
        assert!(start.elapsed() < Duration::from_secs(60), "it never is");
        std::thread::sleep(Duration::from_millis(1));
    }
}
