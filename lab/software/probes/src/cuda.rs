//! The driver's functions, with results as plain integers.
//!
//! A probe passes wrong arguments on purpose. So these functions are safe to call in this program
//! only because each probe has a process of its own: where a driver crashes, that is the answer.

use std::ffi::{CStr, c_char};
use std::sync::OnceLock;

use libloading::Library;

/// An object of the driver, or 0.
pub(crate) type Handle = usize;

/// A function that the driver calls, with its argument.
pub(crate) type HostFunction = unsafe extern "C" fn(usize);

/// The result of a function that this driver does not have.
const MISSING: u32 = u32::MAX;

/// `CUipcEventHandle`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct EventHandle(pub(crate) [u8; 64]);

/// `CUstreamBatchMemOpParams`, of a wait or a write.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct MemOp {
    pub(crate) operation: u32,
    pub(crate) padding: u32,
    pub(crate) address: u64,
    pub(crate) value: u64,
    pub(crate) flags: u32,
    pub(crate) padding_too: u32,
    pub(crate) unused: [u64; 2],
}

/// `CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC`, of a file descriptor.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct SemaphoreDesc {
    pub(crate) kind: u32,
    pub(crate) padding: u32,
    pub(crate) fd: i32,
    pub(crate) rest: [u32; 3],
    pub(crate) flags: u32,
    pub(crate) reserved: [u32; 17],
}

/// `CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS` and `..._WAIT_PARAMS`, of a fence.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct SemaphoreParams {
    pub(crate) value: u64,
    pub(crate) rest: [u64; 17],
}

/// `CUDA_EXT_SEM_SIGNAL_NODE_PARAMS` and `CUDA_EXT_SEM_WAIT_NODE_PARAMS`.
#[repr(C)]
pub(crate) struct SemaphoreNode {
    pub(crate) semaphores: *const Handle,
    pub(crate) params: *const SemaphoreParams,
    pub(crate) count: u32,
}

/// `CUDA_BATCH_MEM_OP_NODE_PARAMS`.
#[repr(C)]
pub(crate) struct MemoryNode {
    pub(crate) context: Handle,
    pub(crate) count: u32,
    pub(crate) ops: *const MemOp,
    pub(crate) flags: u32,
}

/// `CUDA_EXTERNAL_MEMORY_HANDLE_DESC`, of a file descriptor.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct MemoryDesc {
    pub(crate) kind: u32,
    pub(crate) padding: u32,
    pub(crate) fd: i32,
    pub(crate) rest: [u32; 3],
    pub(crate) size: u64,
    pub(crate) flags: u32,
    pub(crate) reserved: [u32; 17],
}

/// `CUDA_EXTERNAL_MEMORY_BUFFER_DESC`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct BufferDesc {
    pub(crate) offset: u64,
    pub(crate) size: u64,
    pub(crate) flags: u32,
    pub(crate) reserved: [u32; 17],
}

/// `CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ArrayDesc {
    pub(crate) offset: u64,
    pub(crate) extent: [usize; 3],
    pub(crate) format: u32,
    pub(crate) channels: u32,
    pub(crate) flags: u32,
    pub(crate) padding: u32,
    pub(crate) levels: u32,
    pub(crate) reserved: [u32; 16],
}

/// One side of a `CUDA_MEMCPY3D`: memory of the host (1), or an array (3).
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct CopySide {
    /// In bytes, rows and slices; and the level, which is 0.
    pub(crate) start: [usize; 4],
    pub(crate) kind: u32,
    pub(crate) padding: u32,
    pub(crate) host: usize,
    pub(crate) device: u64,
    pub(crate) array: Handle,
    pub(crate) reserved: usize,
    pub(crate) pitch: usize,
    pub(crate) height: usize,
}

/// `CUDA_MEMCPY3D`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Copy3d {
    pub(crate) from: CopySide,
    pub(crate) to: CopySide,
    /// In bytes, rows and slices.
    pub(crate) extent: [usize; 3],
}

/// `CUDA_RESOURCE_DESC`, of an array (0) or of an array with levels (1).
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct ResourceDesc {
    pub(crate) kind: u32,
    pub(crate) padding: u32,
    pub(crate) array: Handle,
    pub(crate) rest: [u64; 15],
    pub(crate) flags: u64,
}

/// `CUDA_TEXTURE_DESC`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct TextureDesc {
    pub(crate) address_modes: [u32; 3],
    pub(crate) filter: u32,
    pub(crate) flags: u32,
    pub(crate) anisotropy: u32,
    pub(crate) mipmap_filter: u32,
    pub(crate) bias: f32,
    /// The least and the greatest level.
    pub(crate) levels: [f32; 2],
    pub(crate) border: [f32; 4],
    pub(crate) reserved: [u32; 12],
}

/// `CUmemAllocationProp`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct AllocationProp {
    pub(crate) kind: u32,
    pub(crate) handles: u32,
    /// The type of the location, and its number.
    pub(crate) location: [u32; 2],
    pub(crate) rest: [u64; 2],
}

/// `CUmemAccessDesc`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct AccessDesc {
    pub(crate) location: [u32; 2],
    pub(crate) flags: u32,
}

const _: () = assert!(size_of::<ArrayDesc>() == 120, "as cuda.h has it");
const _: () = assert!(size_of::<Copy3d>() == 200, "as cuda.h has it");
const _: () = assert!(size_of::<ResourceDesc>() == 144, "as cuda.h has it");
const _: () = assert!(size_of::<TextureDesc>() == 104, "as cuda.h has it");
const _: () = assert!(size_of::<AllocationProp>() == 32, "as cuda.h has it");
const _: () = assert!(size_of::<AccessDesc>() == 12, "as cuda.h has it");
const _: () = assert!(size_of::<MemOp>() == 48, "as cuda.h has it");
const _: () = assert!(size_of::<SemaphoreDesc>() == 96, "as cuda.h has it");
const _: () = assert!(size_of::<SemaphoreParams>() == 144, "as cuda.h has it");
const _: () = assert!(size_of::<MemoryDesc>() == 104, "as cuda.h has it");
const _: () = assert!(size_of::<BufferDesc>() == 88, "as cuda.h has it");

/// What a function of the driver returned.
#[derive(Clone, Copy)]
pub(crate) struct Code {
    pub(crate) function: &'static str,
    pub(crate) number: u32,
}

impl PartialEq<u32> for Code {
    fn eq(&self, number: &u32) -> bool {
        self.number == *number
    }
}

/// In digits.
impl std::fmt::Display for Code {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.number {
            MISSING => to.write_str("missing"),
            number => number.fmt(to),
        }
    }
}

macro_rules! functions {
    ($($name:ident($($arg:ident: $type:ty),*) = $symbol:literal;)*) => {$(
        #[allow(clippy::too_many_arguments, reason = "as the driver has it")]
        pub(crate) fn $name($($arg: $type),*) -> Code {
            type Function = unsafe extern "system" fn($($type),*) -> u32;
            static FUNCTION: OnceLock<Option<Function>> = OnceLock::new();
            let function = FUNCTION.get_or_init(|| {
                // SAFETY: cuda.h declares the function with these arguments.
                unsafe { library().get::<Function>($symbol.as_bytes()) }.ok().map(|found| *found)
            });
            // SAFETY: results go to references. What else is passed is judged by the driver, or
            // ends this process, as the head of the file says.
            let number = function.map_or(MISSING, |call| unsafe { call($($arg),*) });
            Code { function: $symbol, number }
        }
    )*};
}

functions! {
    init(flags: u32) = "cuInit";
    driver_get_version(version: &mut i32) = "cuDriverGetVersion";
    get_error_name(code: u32, name: &mut usize) = "cuGetErrorName";
    get_error_string(code: u32, text: &mut usize) = "cuGetErrorString";
    device_get_count(count: &mut i32) = "cuDeviceGetCount";
    device_get(device: &mut i32, ordinal: i32) = "cuDeviceGet";
    device_get_name(name: &mut [u8; 256], length: i32, device: i32) = "cuDeviceGetName";
    device_get_uuid_v1(uuid: &mut [u8; 16], device: i32) = "cuDeviceGetUuid";
    device_get_uuid(uuid: &mut [u8; 16], device: i32) = "cuDeviceGetUuid_v2";
    device_get_attribute(value: &mut i32, attribute: u32, device: i32) = "cuDeviceGetAttribute";
    primary_retain(context: &mut Handle, device: i32) = "cuDevicePrimaryCtxRetain";
    primary_release(device: i32) = "cuDevicePrimaryCtxRelease_v2";
    primary_reset(device: i32) = "cuDevicePrimaryCtxReset_v2";
    ctx_create(context: &mut Handle, flags: u32, device: i32) = "cuCtxCreate_v2";
    ctx_destroy(context: Handle) = "cuCtxDestroy_v2";
    ctx_synchronize() = "cuCtxSynchronize";
    ctx_get_device(device: &mut i32) = "cuCtxGetDevice";
    ctx_get_current(context: &mut Handle) = "cuCtxGetCurrent";
    ctx_set_current(context: Handle) = "cuCtxSetCurrent";
    ctx_push_current(context: Handle) = "cuCtxPushCurrent_v2";
    ctx_pop_current(context: &mut Handle) = "cuCtxPopCurrent_v2";
    ctx_priority_range(least: &mut i32, greatest: &mut i32) = "cuCtxGetStreamPriorityRange";
    thread_exchange(mode: &mut u32) = "cuThreadExchangeStreamCaptureMode";
    event_create(event: &mut Handle, flags: u32) = "cuEventCreate";
    event_destroy(event: Handle) = "cuEventDestroy_v2";
    event_record(event: Handle, stream: Handle) = "cuEventRecord";
    record_with_flags(event: Handle, stream: Handle, flags: u32) = "cuEventRecordWithFlags";
    event_query(event: Handle) = "cuEventQuery";
    event_synchronize(event: Handle) = "cuEventSynchronize";
    event_elapsed_time(milliseconds: &mut f32, start: Handle, end: Handle) = "cuEventElapsedTime";
    stream_create(stream: &mut Handle, flags: u32) = "cuStreamCreate";
    create_with_priority(stream: &mut Handle, flags: u32, priority: i32)
        = "cuStreamCreateWithPriority";
    stream_get_priority(stream: Handle, priority: &mut i32) = "cuStreamGetPriority";
    stream_destroy(stream: Handle) = "cuStreamDestroy_v2";
    stream_query(stream: Handle) = "cuStreamQuery";
    stream_synchronize(stream: Handle) = "cuStreamSynchronize";
    stream_wait_event(stream: Handle, event: Handle, flags: u32) = "cuStreamWaitEvent";
    stream_get_ctx(stream: Handle, context: &mut Handle) = "cuStreamGetCtx";
    stream_begin_capture(stream: Handle, mode: u32) = "cuStreamBeginCapture_v2";
    stream_end_capture(stream: Handle, graph: &mut Handle) = "cuStreamEndCapture";
    stream_is_capturing(stream: Handle, status: &mut u32) = "cuStreamIsCapturing";
    capture_info(
        stream: Handle, status: &mut u32, id: &mut u64, graph: &mut Handle,
        dependencies: usize, count: usize
    ) = "cuStreamGetCaptureInfo_v2";
    launch_host_func(stream: Handle, function: HostFunction, data: usize) = "cuLaunchHostFunc";
    user_object_create(
        object: &mut Handle, data: usize, destroy: HostFunction, references: u32, flags: u32
    ) = "cuUserObjectCreate";
    user_object_release(object: Handle, references: u32) = "cuUserObjectRelease";
    retain_user_object(graph: Handle, object: Handle, references: u32, flags: u32)
        = "cuGraphRetainUserObject";
    graph_create(graph: &mut Handle, flags: u32) = "cuGraphCreate";
    graph_destroy(graph: Handle) = "cuGraphDestroy";
    graph_get_nodes(graph: Handle, nodes: usize, count: &mut usize) = "cuGraphGetNodes";
    graph_node_get_type(node: Handle, kind: &mut u32) = "cuGraphNodeGetType";
    graph_instantiate(exec: &mut Handle, graph: Handle, flags: u64) = "cuGraphInstantiateWithFlags";
    graph_launch(exec: Handle, stream: Handle) = "cuGraphLaunch";
    graph_exec_destroy(exec: Handle) = "cuGraphExecDestroy";
    graph_set_signal(exec: Handle, node: Handle, params: &SemaphoreNode)
        = "cuGraphExecExternalSemaphoresSignalNodeSetParams";
    graph_set_wait(exec: Handle, node: Handle, params: &SemaphoreNode)
        = "cuGraphExecExternalSemaphoresWaitNodeSetParams";
    graph_set_mem_op(exec: Handle, node: Handle, params: &MemoryNode)
        = "cuGraphExecBatchMemOpNodeSetParams";
    graph_set_record(exec: Handle, node: Handle, event: Handle)
        = "cuGraphExecEventRecordNodeSetEvent";
    graph_set_event_wait(exec: Handle, node: Handle, event: Handle)
        = "cuGraphExecEventWaitNodeSetEvent";
    mem_alloc(pointer: &mut u64, bytes: usize) = "cuMemAlloc_v2";
    mem_free(pointer: u64) = "cuMemFree_v2";
    mem_host_alloc(pointer: &mut usize, bytes: usize, flags: u32) = "cuMemHostAlloc";
    mem_free_host(pointer: usize) = "cuMemFreeHost";
    mem_host_register(memory: usize, bytes: usize, flags: u32) = "cuMemHostRegister_v2";
    mem_host_unregister(memory: usize) = "cuMemHostUnregister";
    device_pointer(to: &mut u64, of: usize, flags: u32)
        = "cuMemHostGetDevicePointer_v2";
    mem_alloc_managed(to: &mut u64, bytes: usize, flags: u32) = "cuMemAllocManaged";
    pointer_get_attributes(count: u32, numbers: usize, to: usize, address: u64)
        = "cuPointerGetAttributes";
    memcpy_dtoh(to: usize, from: u64, bytes: usize) = "cuMemcpyDtoH_v2";
    memcpy_htod(to: u64, from: usize, bytes: usize) = "cuMemcpyHtoD_v2";
    memcpy_htod_async(to: u64, from: usize, bytes: usize, stream: Handle)
        = "cuMemcpyHtoDAsync_v2";
    memcpy_dtod_async(to: u64, from: u64, bytes: usize, stream: Handle) = "cuMemcpyDtoDAsync_v2";
    memset_d8_async(to: u64, value: u8, bytes: usize, stream: Handle) = "cuMemsetD8Async";
    memset_d32_async(to: u64, value: u32, words: usize, stream: Handle) = "cuMemsetD32Async";
    module_load_data(module: &mut Handle, image: usize) = "cuModuleLoadData";
    module_unload(module: Handle) = "cuModuleUnload";
    get_function(function: &mut Handle, module: Handle, name: usize)
        = "cuModuleGetFunction";
    func_load(function: Handle) = "cuFuncLoad";
    launch_kernel(
        function: Handle, grid_x: u32, grid_y: u32, grid_z: u32,
        block_x: u32, block_y: u32, block_z: u32, shared_bytes: u32,
        stream: Handle, params: usize, extra: usize
    ) = "cuLaunchKernel";
    import_semaphore(semaphore: &mut Handle, desc: &SemaphoreDesc) = "cuImportExternalSemaphore";
    destroy_semaphore(semaphore: Handle) = "cuDestroyExternalSemaphore";
    wait_semaphores(semaphores: *const Handle, params: *const SemaphoreParams, count: u32, stream: Handle)
        = "cuWaitExternalSemaphoresAsync";
    signal_semaphores(semaphores: *const Handle, params: *const SemaphoreParams, count: u32, stream: Handle)
        = "cuSignalExternalSemaphoresAsync";
    import_memory(memory: &mut Handle, desc: &MemoryDesc) = "cuImportExternalMemory";
    mapped_buffer(pointer: &mut u64, memory: Handle, desc: &BufferDesc)
        = "cuExternalMemoryGetMappedBuffer";
    mapped_array(array: &mut Handle, memory: Handle, desc: &ArrayDesc)
        = "cuExternalMemoryGetMappedMipmappedArray";
    array_level(level: &mut Handle, array: Handle, number: u32) = "cuMipmappedArrayGetLevel";
    surface_create(surface: &mut u64, resource: &ResourceDesc) = "cuSurfObjectCreate";
    texture_create(
        texture: &mut u64, resource: &ResourceDesc, desc: &TextureDesc, view: usize
    ) = "cuTexObjectCreate";
    memcpy_3d(copy: &Copy3d) = "cuMemcpy3D_v2";
    memcpy_3d_async(copy: &Copy3d, stream: Handle) = "cuMemcpy3DAsync_v2";
    destroy_memory(memory: Handle) = "cuDestroyExternalMemory";
    mem_granularity(bytes: &mut usize, prop: &AllocationProp, option: u32)
        = "cuMemGetAllocationGranularity";
    mem_create(handle: &mut Handle, bytes: usize, prop: &AllocationProp, flags: u64)
        = "cuMemCreate";
    mem_release(handle: Handle) = "cuMemRelease";
    mem_export(fd: &mut i32, handle: Handle, kind: u32, flags: u64)
        = "cuMemExportToShareableHandle";
    mem_import(handle: &mut Handle, fd: usize, kind: u32) = "cuMemImportFromShareableHandle";
    address_reserve(address: &mut u64, bytes: usize, alignment: usize, hint: u64, flags: u64)
        = "cuMemAddressReserve";
    address_free(address: u64, bytes: usize) = "cuMemAddressFree";
    mem_map(address: u64, bytes: usize, offset: usize, handle: Handle, flags: u64) = "cuMemMap";
    mem_unmap(address: u64, bytes: usize) = "cuMemUnmap";
    mem_set_access(address: u64, bytes: usize, access: &AccessDesc, count: usize)
        = "cuMemSetAccess";
    wait_value32(stream: Handle, address: u64, value: u32, flags: u32)
        = "cuStreamWaitValue32_v2";
    wait_value64(stream: Handle, address: u64, value: u64, flags: u32)
        = "cuStreamWaitValue64_v2";
    write_value32(stream: Handle, address: u64, value: u32, flags: u32)
        = "cuStreamWriteValue32_v2";
    write_value64(stream: Handle, address: u64, value: u64, flags: u32)
        = "cuStreamWriteValue64_v2";
    batch_mem_op(stream: Handle, count: u32, ops: usize, flags: u32)
        = "cuStreamBatchMemOp_v2";
    get_event_handle(handle: &mut EventHandle, event: Handle) = "cuIpcGetEventHandle";
    open_event_handle(event: &mut Handle, handle: EventHandle) = "cuIpcOpenEventHandle";
}

static LIBRARY: OnceLock<Library> = OnceLock::new();

/// Loads the driver. It is never unloaded, because it has threads of its own.
pub(crate) fn load(path: &str) -> Result<(), String> {
    // SAFETY: the path of a CUDA driver, whose initializers only prepare its state.
    let library = unsafe { Library::new(path) }.map_err(|error| error.to_string())?;
    let _ = LIBRARY.set(library);
    Ok(())
}

/// The loaded driver. Without one every function is missing.
fn library() -> &'static Library {
    LIBRARY.get_or_init(|| Library::from(libloading::os::unix::Library::this()))
}

/// A string of the driver.
pub(crate) fn text(pointer: usize) -> String {
    if pointer == 0 {
        return "(null)".into();
    }
    // SAFETY: not null, so a static string of the driver.
    unsafe { CStr::from_ptr(pointer as *const c_char) }
        .to_string_lossy()
        .into_owned()
}
