//! The functions of the driver library, and what their results mean.
//!
//! Every function returns a plain integer here. A newer driver may return codes that no Rust enum
//! has, and reading such a value from C as an enum is undefined behaviour.
#![allow(unsafe_code, reason = "declares and calls the driver's functions")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fmt;
use std::ptr::null;
use std::sync::Arc;

use cudarc::driver::sys;
use libloading::Library;
use syncline_core::internal::MakerProcess;
use syncline_core::{
    Error, Result,
    error::Object,
    info::{BackendKind, Uuid},
};

use crate::driver::array::{Copy3d, MipmappedArrayDesc, ResourceDesc};
use crate::driver::virtual_memory::{AccessDesc, AllocationProp};

/// The CUDA driver of this machine. Cheap to clone.
#[derive(Clone)]
pub struct Driver(Arc<Loaded>);

struct Loaded {
    /// The process that initialized the driver. No other process calls it.
    maker: MakerProcess,
    symbols: Symbols,
    optional: Optional,
    software: bool,
}

/// A raw handle of the driver. Any thread may use any handle at any time.
#[derive(Debug)]
pub(crate) struct Raw<T>(pub(crate) *mut T);

// SAFETY: the CUDA driver API is thread-safe, and handles are not bound to threads. Rust code
// follows such a pointer only to pinned memory, and only through atomics
// (`Buffer::as_words`).
unsafe impl<T> Send for Raw<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Raw<T> {}

/// An error code of the driver, and the function that returned it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Code {
    pub(crate) call: &'static str,
    pub(crate) code: u32,
}

impl Code {
    const INVALID_VALUE: u32 = 1;
    const OUT_OF_MEMORY: u32 = 2;
    pub(crate) const STUB_LIBRARY: u32 = 34;
    pub(crate) const NO_DEVICE: u32 = 100;
    const NOT_READY: u32 = 600;
    const CAPTURE_IMPLICIT: u32 = 906;
    /// No code of CUDA: the driver was not called, because this is a forked child.
    const MADE_BEFORE_FORK: u32 = u32::MAX;
    /// `CUDA_ERROR_NOT_SUPPORTED`: the driver or the platform does not support the call at all.
    pub(crate) const NOT_SUPPORTED: u32 = 801;

    /// The error for a function that the driver does not have.
    pub(crate) const fn not_supported(call: &'static str) -> Self {
        Self {
            call,
            code: Self::NOT_SUPPORTED,
        }
    }

    /// True if the queried work has not finished.
    pub(crate) const fn is_not_ready(self) -> bool {
        self.code == Self::NOT_READY
    }

    /// True if the driver has no more memory of the requested kind.
    pub(crate) const fn is_out_of_memory(self) -> bool {
        self.code == Self::OUT_OF_MEMORY
    }

    /// True if the legacy default stream was used during a capture that synchronizes with it.
    pub(crate) const fn is_capture_implicit(self) -> bool {
        self.code == Self::CAPTURE_IMPLICIT
    }

    /// True if every later call in the context will fail too.
    ///
    /// These are the errors that the driver documents as sticky, and the errors of a destroyed
    /// context or an unloaded driver. 999 (unknown) is not among them, because the driver also
    /// returns it for a rejected import.
    pub(crate) const fn is_lost(self) -> bool {
        matches!(
            self.code,
            4 | 214 | 220 | 226 | 700 | 702 | 709 | 710 | 714..=719 | 721
        )
    }
}

macro_rules! symbols {
    (
        required { $($name:ident($($arg:ident: $type:ty),* $(,)?) = $symbol:literal;)* }
        optional { $($may:ident($($may_arg:ident: $may_type:ty),* $(,)?) = $may_symbol:literal;)* }
    ) => {
        pub(crate) struct Symbols {
            $(pub(crate) $name: unsafe extern "system" fn($($type),*) -> u32,)*
        }

        pub(crate) struct Optional {
            $(pub(crate) $may: Option<unsafe extern "system" fn($($may_type),*) -> u32>,)*
        }

        impl Symbols {
            /// Finds every required function.
            ///
            /// # Errors
            /// The name of a function that the library does not have.
            pub(crate) fn resolve(library: &Library) -> Result<Self, &'static str> {
                Ok(Self {
                    $(
                        // SAFETY: cuda.h declares the function with these arguments. Its result is
                        // a C enum, which has the size of an unsigned integer. The pointer stays
                        // valid, because a library in use is never unloaded.
                        $name: *unsafe { library.get($symbol.as_bytes()) }.map_err(|_| $symbol)?,
                    )*
                })
            }
        }

        impl Optional {
            /// The first of these functions that the driver does not have.
            fn missing(&self, symbols: &[&'static str]) -> Option<&'static str> {
                let has = |symbol: &str| match symbol {
                    $($may_symbol => self.$may.is_some(),)*
                    _ => false,
                };
                symbols.iter().copied().find(|symbol| !has(symbol))
            }
        }

        #[cfg(test)]
        impl Symbols {
            /// Functions that do nothing and return success.
            pub(crate) fn idle() -> Self {
                Self {
                    $(
                        $name: {
                            #[allow(clippy::too_many_arguments, reason = "the driver's own")]
                            unsafe extern "system" fn nothing($(_: $type),*) -> u32 {
                                0
                            }
                            nothing
                        },
                    )*
                }
            }
        }

        #[cfg(test)]
        impl Optional {
            pub(crate) fn none() -> Self {
                Self { $($may: None,)* }
            }
        }

        impl Optional {
            pub(crate) fn resolve(library: &Library) -> Self {
                Self {
                    $(
                        // SAFETY: as for the required functions.
                        $may: unsafe { library.get($may_symbol.as_bytes()) }.ok().map(|symbol| *symbol),
                    )*
                }
            }
        }

        // The driver's functions under their own names, without the prefix.
        //
        // A forked child never reaches the driver of its parent. Each function returns
        // `Code::MADE_BEFORE_FORK` there, also for destroying an object (P3).
        //
        // Safety of each function: the arguments are valid for the function of the CUDA driver API.
        impl Driver {
            $(
                #[allow(clippy::too_many_arguments, reason = "the driver's own")]
                #[inline]
                pub(crate) unsafe fn $name(&self, $($arg: $type),*) -> Result<(), Code> {
                    self.require_maker($symbol)?;
                    // SAFETY: the caller guarantees it.
                    check($symbol, unsafe { (self.0.symbols.$name)($($arg),*) })
                }
            )*
            $(
                /// `None` if this driver does not have the function.
                pub(crate) unsafe fn $may(&self, $($may_arg: $may_type),*) -> Option<Result<(), Code>> {
                    self.0.optional.$may.map(|call| {
                        self.require_maker($may_symbol)?;
                        // SAFETY: the caller guarantees it.
                        check($may_symbol, unsafe { call($($may_arg),*) })
                    })
                }
            )*
        }
    };
}

/// Reports a missing function as an error.
///
/// A device does not promise what needs a function that is missing, so this does not happen.
pub(crate) fn require_function(
    call: Option<Result<(), Code>>,
    name: &'static str,
) -> Result<(), Code> {
    call.unwrap_or(Err(Code::not_supported(name)))
}

#[inline]
const fn check(call: &'static str, code: u32) -> Result<(), Code> {
    if code == 0 {
        Ok(())
    } else {
        Err(Code { call, code })
    }
}

symbols! {
    required {
        init(flags: c_uint) = "cuInit";
        driver_get_version(version: *mut c_int) = "cuDriverGetVersion";
        get_error_name(code: u32, name: *mut *const c_char) = "cuGetErrorName";
        device_get_count(count: *mut c_int) = "cuDeviceGetCount";
        device_get(device: *mut sys::CUdevice, ordinal: c_int) = "cuDeviceGet";
        device_get_name(name: *mut c_char, length: c_int, device: sys::CUdevice) = "cuDeviceGetName";
        device_get_uuid(uuid: *mut sys::CUuuid, device: sys::CUdevice) = "cuDeviceGetUuid_v2";
        device_get_attribute(value: *mut c_int, attribute: c_uint, device: sys::CUdevice)
            = "cuDeviceGetAttribute";
        device_primary_ctx_retain(context: *mut sys::CUcontext, device: sys::CUdevice)
            = "cuDevicePrimaryCtxRetain";
        device_primary_ctx_release(device: sys::CUdevice) = "cuDevicePrimaryCtxRelease_v2";
        ctx_get_device(device: *mut sys::CUdevice) = "cuCtxGetDevice";
        ctx_get_current(context: *mut sys::CUcontext) = "cuCtxGetCurrent";
        ctx_set_current(context: sys::CUcontext) = "cuCtxSetCurrent";
        ctx_push_current(context: sys::CUcontext) = "cuCtxPushCurrent_v2";
        ctx_pop_current(context: *mut sys::CUcontext) = "cuCtxPopCurrent_v2";
        thread_exchange_stream_capture_mode(mode: *mut c_uint) = "cuThreadExchangeStreamCaptureMode";
        event_create(event: *mut sys::CUevent, flags: c_uint) = "cuEventCreate";
        event_destroy(event: sys::CUevent) = "cuEventDestroy_v2";
        event_record(event: sys::CUevent, stream: sys::CUstream) = "cuEventRecord";
        event_record_with_flags(event: sys::CUevent, stream: sys::CUstream, flags: c_uint)
            = "cuEventRecordWithFlags";
        event_query(event: sys::CUevent) = "cuEventQuery";
        event_elapsed_time(milliseconds: *mut f32, start: sys::CUevent, end: sys::CUevent)
            = "cuEventElapsedTime";
        stream_create(stream: *mut sys::CUstream, flags: c_uint) = "cuStreamCreate";
        stream_create_with_priority(stream: *mut sys::CUstream, flags: c_uint, priority: c_int)
            = "cuStreamCreateWithPriority";
        ctx_get_stream_priority_range(least: *mut c_int, greatest: *mut c_int)
            = "cuCtxGetStreamPriorityRange";
        stream_destroy(stream: sys::CUstream) = "cuStreamDestroy_v2";
        stream_query(stream: sys::CUstream) = "cuStreamQuery";
        stream_synchronize(stream: sys::CUstream) = "cuStreamSynchronize";
        stream_wait_event(stream: sys::CUstream, event: sys::CUevent, flags: c_uint)
            = "cuStreamWaitEvent";
        stream_get_ctx(stream: sys::CUstream, context: *mut sys::CUcontext) = "cuStreamGetCtx";
        stream_get_capture_info(
            stream: sys::CUstream, status: *mut c_uint, id: *mut u64, graph: *mut sys::CUgraph,
            dependencies: *mut c_void, count: *mut c_void,
        ) = "cuStreamGetCaptureInfo_v2";
        user_object_create(
            object: *mut sys::CUuserObject, pointer: *mut c_void,
            destroy: unsafe extern "C" fn(*mut c_void), references: c_uint, flags: c_uint,
        ) = "cuUserObjectCreate";
        user_object_release(object: sys::CUuserObject, references: c_uint) = "cuUserObjectRelease";
        graph_retain_user_object(
            graph: sys::CUgraph, object: sys::CUuserObject, references: c_uint, flags: c_uint,
        ) = "cuGraphRetainUserObject";
        graph_launch(graph: sys::CUgraphExec, stream: sys::CUstream) = "cuGraphLaunch";
        mem_alloc(pointer: *mut sys::CUdeviceptr, bytes: usize) = "cuMemAlloc_v2";
        mem_free(pointer: sys::CUdeviceptr) = "cuMemFree_v2";
        mem_host_alloc(pointer: *mut *mut c_void, bytes: usize, flags: c_uint) = "cuMemHostAlloc";
        mem_free_host(pointer: *mut c_void) = "cuMemFreeHost";
        mem_host_register(memory: *mut c_void, bytes: usize, flags: c_uint) = "cuMemHostRegister_v2";
        mem_host_unregister(memory: *mut c_void) = "cuMemHostUnregister";
        mem_host_get_device_pointer(to: *mut sys::CUdeviceptr, of: *mut c_void, flags: c_uint)
            = "cuMemHostGetDevicePointer_v2";
        memcpy_dtoh(to: *mut c_void, from: sys::CUdeviceptr, bytes: usize) = "cuMemcpyDtoH_v2";
        memcpy_htod(to: sys::CUdeviceptr, from: *const c_void, bytes: usize) = "cuMemcpyHtoD_v2";
        memcpy_dtod_async(
            to: sys::CUdeviceptr, from: sys::CUdeviceptr, bytes: usize, stream: sys::CUstream,
        ) = "cuMemcpyDtoDAsync_v2";
        memset_d32_async(to: sys::CUdeviceptr, value: c_uint, words: usize, stream: sys::CUstream)
            = "cuMemsetD32Async";
        module_load_data_ex(
            module: *mut sys::CUmodule, image: *const c_void,
            count: c_uint, options: *mut sys::CUjit_option, values: *mut *mut c_void,
        ) = "cuModuleLoadDataEx";
        module_unload(module: sys::CUmodule) = "cuModuleUnload";
        module_get_function(
            function: *mut sys::CUfunction, module: sys::CUmodule, name: *const c_char,
        ) = "cuModuleGetFunction";
        launch_kernel(
            function: sys::CUfunction,
            grid_x: c_uint, grid_y: c_uint, grid_z: c_uint,
            block_x: c_uint, block_y: c_uint, block_z: c_uint,
            shared_bytes: c_uint, stream: sys::CUstream,
            params: *mut *mut c_void, extra: *mut *mut c_void,
        ) = "cuLaunchKernel";
        launch_host_func(
            stream: sys::CUstream, function: unsafe extern "C" fn(*mut c_void), data: *mut c_void,
        ) = "cuLaunchHostFunc";
        import_external_semaphore(
            semaphore: *mut sys::CUexternalSemaphore,
            handle: *const sys::CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC,
        ) = "cuImportExternalSemaphore";
        destroy_external_semaphore(semaphore: sys::CUexternalSemaphore)
            = "cuDestroyExternalSemaphore";
        wait_external_semaphores_async(
            semaphores: *const sys::CUexternalSemaphore,
            params: *const sys::CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS,
            count: c_uint, stream: sys::CUstream,
        ) = "cuWaitExternalSemaphoresAsync";
        signal_external_semaphores_async(
            semaphores: *const sys::CUexternalSemaphore,
            params: *const sys::CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS,
            count: c_uint, stream: sys::CUstream,
        ) = "cuSignalExternalSemaphoresAsync";
        import_external_memory(
            memory: *mut sys::CUexternalMemory,
            handle: *const sys::CUDA_EXTERNAL_MEMORY_HANDLE_DESC,
        ) = "cuImportExternalMemory";
        external_memory_get_mapped_buffer(
            pointer: *mut sys::CUdeviceptr, memory: sys::CUexternalMemory,
            buffer: *const sys::CUDA_EXTERNAL_MEMORY_BUFFER_DESC,
        ) = "cuExternalMemoryGetMappedBuffer";
        destroy_external_memory(memory: sys::CUexternalMemory) = "cuDestroyExternalMemory";
    }
    optional {
        whole_device_get_uuid(uuid: *mut sys::CUuuid, device: sys::CUdevice) = "cuDeviceGetUuid";
        device_get_luid(luid: *mut c_char, mask: *mut c_uint, device: sys::CUdevice)
            = "cuDeviceGetLuid";
        stream_wait_value64(
            stream: sys::CUstream, address: sys::CUdeviceptr, value: u64, flags: c_uint,
        ) = "cuStreamWaitValue64_v2";
        stream_write_value64(
            stream: sys::CUstream, address: sys::CUdeviceptr, value: u64, flags: c_uint,
        ) = "cuStreamWriteValue64_v2";
        stream_batch_mem_op(
            stream: sys::CUstream, count: c_uint, ops: *mut MemOp, flags: c_uint,
        ) = "cuStreamBatchMemOp_v2";
        pointer_get_attributes(
            count: c_uint, attributes: *const c_uint, values: *const *mut c_void,
            address: sys::CUdeviceptr,
        ) = "cuPointerGetAttributes";
        ipc_get_event_handle(handle: *mut EventHandle, event: sys::CUevent) = "cuIpcGetEventHandle";
        ipc_open_event_handle(event: *mut sys::CUevent, handle: EventHandle)
            = "cuIpcOpenEventHandle";
        func_load(function: sys::CUfunction) = "cuFuncLoad";
        launch_kernel_ex(
            config: *const LaunchConfig, function: sys::CUfunction,
            params: *mut *mut c_void, extra: *mut *mut c_void,
        ) = "cuLaunchKernelEx";
        mem_get_allocation_granularity(
            to: *mut usize, properties: *const AllocationProp, option: c_uint,
        ) = "cuMemGetAllocationGranularity";
        mem_create(handle: *mut u64, bytes: usize, properties: *const AllocationProp, flags: u64)
            = "cuMemCreate";
        mem_release(handle: u64) = "cuMemRelease";
        mem_export_to_shareable_handle(to: *mut c_void, handle: u64, kind: c_uint, flags: u64)
            = "cuMemExportToShareableHandle";
        mem_address_reserve(
            to: *mut sys::CUdeviceptr, bytes: usize, alignment: usize, hint: sys::CUdeviceptr,
            flags: u64,
        ) = "cuMemAddressReserve";
        mem_address_free(address: sys::CUdeviceptr, bytes: usize) = "cuMemAddressFree";
        mem_map(address: sys::CUdeviceptr, bytes: usize, offset: usize, handle: u64, flags: u64)
            = "cuMemMap";
        mem_unmap(address: sys::CUdeviceptr, bytes: usize) = "cuMemUnmap";
        mem_set_access(
            address: sys::CUdeviceptr, bytes: usize, access: *const AccessDesc, count: usize,
        ) = "cuMemSetAccess";
        external_memory_get_mapped_mipmapped_array(
            array: *mut sys::CUmipmappedArray, memory: sys::CUexternalMemory,
            desc: *const MipmappedArrayDesc,
        ) = "cuExternalMemoryGetMappedMipmappedArray";
        mipmapped_array_get_level(
            array: *mut sys::CUarray, of: sys::CUmipmappedArray, level: c_uint,
        ) = "cuMipmappedArrayGetLevel";
        mipmapped_array_destroy(array: sys::CUmipmappedArray) = "cuMipmappedArrayDestroy";
        surf_object_create(surface: *mut sys::CUsurfObject, of: *const ResourceDesc)
            = "cuSurfObjectCreate";
        surf_object_destroy(surface: sys::CUsurfObject) = "cuSurfObjectDestroy";
        tex_object_create(
            texture: *mut sys::CUtexObject, of: *const ResourceDesc,
            desc: *const sys::CUDA_TEXTURE_DESC, view: *const c_void,
        ) = "cuTexObjectCreate";
        tex_object_destroy(texture: sys::CUtexObject) = "cuTexObjectDestroy";
        memcpy_3d_async(copy: *const Copy3d, stream: sys::CUstream) = "cuMemcpy3DAsync_v2";
        graph_get_nodes(graph: sys::CUgraph, nodes: *mut sys::CUgraphNode, count: *mut usize)
            = "cuGraphGetNodes";
        graph_exec_set_wait(
            graph: sys::CUgraphExec, node: sys::CUgraphNode,
            params: *const SemaphoreNodeParams<sys::CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS>,
        ) = "cuGraphExecExternalSemaphoresWaitNodeSetParams";
        graph_exec_set_signal(
            graph: sys::CUgraphExec, node: sys::CUgraphNode,
            params: *const SemaphoreNodeParams<sys::CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS>,
        ) = "cuGraphExecExternalSemaphoresSignalNodeSetParams";
        graph_exec_set_mem_op(
            graph: sys::CUgraphExec, node: sys::CUgraphNode, params: *const MemOpNodeParams,
        ) = "cuGraphExecBatchMemOpNodeSetParams";
        graph_exec_set_event_wait(
            graph: sys::CUgraphExec, node: sys::CUgraphNode, event: sys::CUevent,
        ) = "cuGraphExecEventWaitNodeSetEvent";
        graph_exec_set_event_record(
            graph: sys::CUgraphExec, node: sys::CUgraphNode, event: sys::CUevent,
        ) = "cuGraphExecEventRecordNodeSetEvent";
    }
}

/// `CUDA_EXT_SEM_WAIT_NODE_PARAMS` and `CUDA_EXT_SEM_SIGNAL_NODE_PARAMS`.
#[repr(C)]
pub(crate) struct SemaphoreNodeParams<P> {
    semaphores: *const sys::CUexternalSemaphore,
    params: *const P,
    count: c_uint,
}

impl<P> SemaphoreNodeParams<P> {
    /// The parameters of a node with one semaphore. They point to the arguments.
    pub(crate) const fn new(semaphores: &[sys::CUexternalSemaphore; 1], params: &[P; 1]) -> Self {
        Self {
            semaphores: semaphores.as_ptr(),
            params: params.as_ptr(),
            count: 1,
        }
    }
}

/// `CUDA_BATCH_MEM_OP_NODE_PARAMS`.
#[repr(C)]
pub(crate) struct MemOpNodeParams {
    context: sys::CUcontext,
    count: c_uint,
    ops: *mut MemOp,
    flags: c_uint,
}

impl MemOpNodeParams {
    /// The parameters of a node with one operation. They point to the operation.
    pub(crate) const fn new(context: sys::CUcontext, op: &mut MemOp) -> Self {
        Self {
            context,
            count: 1,
            ops: std::ptr::from_mut(op),
            flags: 0,
        }
    }
}

/// `CUipcEventHandle`, which is passed by value.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EventHandle(pub(crate) [u8; 64]);

/// `CUstreamBatchMemOpParams` of a wait or write.
///
/// Declared here because cudarc's `union` differs between versions.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemOp {
    pub(crate) operation: c_uint,
    _padding: c_uint,
    pub(crate) address: sys::CUdeviceptr,
    pub(crate) value: u64,
    pub(crate) flags: c_uint,
    _padding_too: c_uint,
    _unused: [u64; 2],
}

const _: () = assert!(
    size_of::<MemOp>() == 48,
    "the size of CUstreamBatchMemOpParams in cuda.h"
);

impl MemOp {
    /// `CU_STREAM_MEM_OP_WAIT_VALUE_64`.
    pub(crate) const WAIT: c_uint = 4;
    /// `CU_STREAM_MEM_OP_WRITE_VALUE_64`.
    pub(crate) const WRITE: c_uint = 5;
    /// `CU_STREAM_MEM_OP_WAIT_VALUE_32`.
    pub(crate) const WAIT_32: c_uint = 1;
    /// `CU_STREAM_MEM_OP_WRITE_VALUE_32`.
    pub(crate) const WRITE_32: c_uint = 2;

    /// Waits until the word has reached the value (`CU_STREAM_WAIT_VALUE_GEQ` is 0).
    pub(crate) const fn wait(address: sys::CUdeviceptr, value: u64, flags: c_uint) -> Self {
        Self::new(Self::WAIT, address, value, flags)
    }

    /// Writes the value after a memory fence.
    pub(crate) const fn write(address: sys::CUdeviceptr, value: u64) -> Self {
        Self::new(Self::WRITE, address, value, 0)
    }

    /// The same for a word of 32 bits, with the low half of the value.
    pub(crate) const fn narrowed(self) -> Self {
        let operation = match self.operation {
            Self::WAIT => Self::WAIT_32,
            _ => Self::WRITE_32,
        };
        Self {
            operation,
            value: self.value & u32::MAX as u64,
            ..self
        }
    }

    const fn new(operation: c_uint, address: sys::CUdeviceptr, value: u64, flags: c_uint) -> Self {
        Self {
            operation,
            _padding: 0,
            address,
            value,
            flags,
            _padding_too: 0,
            _unused: [0; 2],
        }
    }
}

/// `CUlaunchConfig` of cuda.h since 11.8. Declared here to build with older toolkits too.
#[repr(C)]
pub(crate) struct LaunchConfig {
    pub(crate) grid: [c_uint; 3],
    pub(crate) block: [c_uint; 3],
    pub(crate) shared_bytes: c_uint,
    pub(crate) stream: sys::CUstream,
    pub(crate) attributes: *const LaunchAttribute,
    pub(crate) count: c_uint,
}

/// `CUlaunchAttribute`, for attributes whose value is one integer.
#[repr(C, align(8))]
pub(crate) struct LaunchAttribute {
    id: c_uint,
    _padding: c_uint,
    value: [c_int; 16],
}

impl LaunchAttribute {
    /// `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`.
    ///
    /// The kernel may start before the previous kernel of its stream has ended. The kernel waits
    /// for that end itself.
    pub(crate) const BEGINS_EARLY: Self = {
        let mut value = [0; 16];
        value[0] = 1;
        Self {
            id: 6,
            _padding: 0,
            value,
        }
    };
}

impl Driver {
    pub(crate) fn new(symbols: Symbols, optional: Optional, software: bool) -> Self {
        Self(Arc::new(Loaded {
            maker: MakerProcess::this(),
            symbols,
            optional,
            software,
        }))
    }

    /// A driver with these functions.
    #[cfg(test)]
    pub(crate) fn of(symbols: Symbols, optional: Optional) -> Self {
        Self::new(symbols, optional, false)
    }

    /// The process that initialized the driver.
    pub(crate) fn maker(&self) -> MakerProcess {
        self.0.maker
    }

    /// True in a forked child of the process that initialized the driver.
    pub(crate) fn is_forked(&self) -> bool {
        !self.maker().is_this()
    }

    /// Refuses `call` in a forked child. One load.
    #[inline]
    fn require_maker(&self, call: &'static str) -> Result<(), Code> {
        if self.0.maker.is_this() {
            return Ok(());
        }
        Err(Code {
            call,
            code: Code::MADE_BEFORE_FORK,
        })
    }

    /// The driver's name for an error code.
    pub(crate) fn name_of(&self, code: u32) -> String {
        let mut name = null();
        // SAFETY: writes a pointer to a static string, or null for an unknown code.
        let asked = unsafe { self.get_error_name(code, &raw mut name) };
        if asked.is_err() || name.is_null() {
            return "a code that this driver does not name".into();
        }
        // SAFETY: not null, so it is a static nul-terminated string of the driver.
        unsafe { CStr::from_ptr(name) }
            .to_string_lossy()
            .into_owned()
    }

    /// Converts an error code of a call on `object` to the typed error.
    pub(crate) fn error(&self, object: &Object, Code { call, code }: Code) -> Error {
        if code == Code::MADE_BEFORE_FORK {
            return self.0.maker.refusal(object);
        }
        let name = self.name_of(code);
        let lost = Code { call, code }.is_lost();
        let code = i64::from(code);
        if lost {
            Error::device_lost(object, call, code, name)
        } else {
            Error::native(object, call, code, name)
        }
    }

    /// True if the driver says that it runs on the host's processors instead of a GPU.
    pub(crate) fn is_software(&self) -> bool {
        self.0.software
    }

    /// The address of `cuInit`, which identifies the driver library.
    pub(crate) fn address(&self) -> *const c_void {
        self.0.symbols.init as *const c_void
    }

    pub(crate) fn version(&self) -> Result<i32, Code> {
        let mut version = 0;
        // SAFETY: writes one integer. Allowed before initialization.
        unsafe { self.driver_get_version(&raw mut version) }.map(|()| version)
    }

    /// The version as text, for example "CUDA 12.4".
    pub(crate) fn description(&self) -> String {
        self.version().map_or_else(
            |_| "CUDA of unknown version".into(),
            |version| format!("CUDA {}", words(version)),
        )
    }

    /// Every device, in the driver's order.
    pub(crate) fn raw_devices(&self) -> Result<Vec<sys::CUdevice>, Code> {
        let mut count = 0;
        // SAFETY: writes one integer.
        unsafe { self.device_get_count(&raw mut count) }?;
        (0..count)
            .map(|ordinal| {
                let mut device = 0;
                // SAFETY: writes one integer.
                unsafe { self.device_get(&raw mut device, ordinal) }.map(|()| device)
            })
            .collect()
    }

    pub(crate) fn device_name(&self, device: sys::CUdevice) -> Result<String, Code> {
        let mut name = [0_u8; 256];
        // SAFETY: writes at most the given number of bytes, the last of them 0.
        unsafe { self.device_get_name(name.as_mut_ptr().cast(), 256, device) }?;
        let name = CStr::from_bytes_until_nul(&name).unwrap_or_default();
        Ok(name.to_string_lossy().into_owned())
    }

    /// The UUID of the device. A MIG partition has its own UUID.
    pub(crate) fn device_uuid(&self, device: sys::CUdevice) -> Result<Uuid, Code> {
        let mut uuid = sys::CUuuid { bytes: [0; 16] };
        // SAFETY: writes 16 bytes.
        unsafe { self.device_get_uuid(&raw mut uuid, device) }?;
        Ok(plain(uuid))
    }

    /// The UUID of the whole GPU, from the first version of `cuDeviceGetUuid`.
    pub(crate) fn whole_uuid(&self, device: sys::CUdevice) -> Option<Uuid> {
        let mut uuid = sys::CUuuid { bytes: [0; 16] };
        // SAFETY: writes 16 bytes.
        unsafe { self.whole_device_get_uuid(&raw mut uuid, device) }?.ok()?;
        Some(plain(uuid))
    }

    pub(crate) fn device_luid(&self, device: sys::CUdevice) -> Option<[u8; 8]> {
        let (mut luid, mut mask) = ([0_u8; 8], 0);
        // SAFETY: writes 8 bytes and one integer.
        unsafe { self.device_get_luid(luid.as_mut_ptr().cast(), &raw mut mask, device) }?.ok()?;
        // On platforms other than Windows some drivers succeed and write zeroes.
        Some(luid).filter(|luid| *luid != [0; 8])
    }

    /// The first missing function of those by which streams wait for 64-bit words and write them.
    pub(crate) fn missing_for_memory_ops(&self) -> Option<&'static str> {
        self.0.optional.missing(&[
            "cuStreamWaitValue64_v2",
            "cuStreamWriteValue64_v2",
            "cuStreamBatchMemOp_v2",
        ])
    }

    /// The first missing function of those that make memory apart from its addresses, and export
    /// it.
    pub(crate) fn missing_for_exportable_memory(&self) -> Option<&'static str> {
        self.0.optional.missing(&[
            "cuMemGetAllocationGranularity",
            "cuMemCreate",
            "cuMemRelease",
            "cuMemExportToShareableHandle",
            "cuMemAddressReserve",
            "cuMemAddressFree",
            "cuMemMap",
            "cuMemUnmap",
            "cuMemSetAccess",
        ])
    }

    /// The first missing function of those that map images in imported memory.
    pub(crate) fn missing_for_images(&self) -> Option<&'static str> {
        self.0.optional.missing(&[
            "cuExternalMemoryGetMappedMipmappedArray",
            "cuMipmappedArrayGetLevel",
            "cuMipmappedArrayDestroy",
            "cuSurfObjectCreate",
            "cuSurfObjectDestroy",
            "cuTexObjectCreate",
            "cuTexObjectDestroy",
            "cuMemcpy3DAsync_v2",
        ])
    }

    /// The first missing function of those that set what nodes of graphs wait for and signal.
    pub(crate) fn missing_for_slots(&self) -> Option<&'static str> {
        self.0.optional.missing(&[
            "cuGraphGetNodes",
            "cuGraphExecExternalSemaphoresWaitNodeSetParams",
            "cuGraphExecExternalSemaphoresSignalNodeSetParams",
            "cuGraphExecEventWaitNodeSetEvent",
            "cuGraphExecEventRecordNodeSetEvent",
        ])
    }

    /// The function that sets what nodes do with words of memory, if it is missing.
    pub(crate) fn missing_for_word_slots(&self) -> Option<&'static str> {
        let symbols = ["cuGraphExecBatchMemOpNodeSetParams"];
        self.0.optional.missing(&symbols)
    }

    /// The first missing function of those that open events of other processes and export own ones.
    pub(crate) fn missing_for_interprocess_events(&self) -> Option<&'static str> {
        let symbols = ["cuIpcGetEventHandle", "cuIpcOpenEventHandle"];
        self.0.optional.missing(&symbols)
    }

    /// The value of an attribute, or 0 if the driver does not know it. Then the feature is missing.
    ///
    /// # Errors
    /// Same errors as [`Driver::known_attribute`].
    pub(crate) fn attribute(&self, device: sys::CUdevice, attribute: u32) -> Result<i32, Code> {
        Ok(self.known_attribute(device, attribute)?.unwrap_or(0))
    }

    /// The value of an attribute, or `None` if the driver does not know it.
    ///
    /// # Errors
    /// The driver's error, unless it rejects the attribute itself.
    pub(crate) fn known_attribute(
        &self,
        device: sys::CUdevice,
        attribute: u32,
    ) -> Result<Option<i32>, Code> {
        let mut value = 0;
        // SAFETY: writes one integer. An unknown attribute is an error and not undefined behaviour.
        match unsafe { self.device_get_attribute(&raw mut value, attribute, device) } {
            Ok(()) => Ok(Some(value)),
            Err(code) if code.code == Code::INVALID_VALUE => Ok(None),
            Err(code) => Err(code),
        }
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Driver({})", self.description())
    }
}

fn plain(uuid: sys::CUuuid) -> Uuid {
    Uuid(uuid.bytes.map(|byte| u8::from_ne_bytes(byte.to_ne_bytes())))
}

pub(crate) fn words(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

pub(crate) fn unavailable(reason: String) -> Error {
    Error::unavailable(BackendKind::Cuda, reason)
}
