//! The function table of the driver.
#![allow(unsafe_code, reason = "declares the driver's functions")]

use std::ffi::{c_uint, c_void};
use std::sync::OnceLock;

use cudarc::driver::sys;
use libloading::Library;

use super::{Event, NodeParams, Stream};
use crate::side::{Outcome, Stop};

macro_rules! table {
    ($($name:ident($($type:ty),* $(,)?) = $symbol:literal $(or $older:literal)?;)*) => {
        #[cfg_attr(not(feature = "vulkan"), allow(dead_code, reason = "for what CUDA shares with Vulkan"))]
        /// Results are integers: a newer driver has codes that no enum of today names.
        pub(super) struct Table {
            $(pub(super) $name: unsafe extern "system" fn($($type),*) -> u32,)*
        }

        impl Table {
            fn resolve(library: &Library) -> Result<Self, String> {
                Ok(Self {
                    $($name: {
                        // SAFETY: cuda.h declares the function with these arguments, and its result
                        // is a C enum, which has the size of an unsigned integer.
                        let found = unsafe { library.get($symbol.as_bytes()) };
                        $(
                            // SAFETY: the same function under the name that older drivers give it.
                            let found = found.or_else(|_| unsafe { library.get($older.as_bytes()) });
                        )?
                        *found.map_err(|_| concat!("the CUDA driver lacks ", $symbol).to_owned())?
                    },)*
                })
            }
        }
    };
}

table! {
    ctx_get_current(*mut sys::CUcontext) = "cuCtxGetCurrent";
    ctx_set_current(sys::CUcontext) = "cuCtxSetCurrent";
    thread_exchange_capture_mode(*mut c_uint) = "cuThreadExchangeStreamCaptureMode";
    stream_create(*mut Stream, c_uint) = "cuStreamCreate";
    stream_destroy(Stream) = "cuStreamDestroy_v2";
    stream_synchronize(Stream) = "cuStreamSynchronize";
    stream_wait_event(Stream, Event, c_uint) = "cuStreamWaitEvent";
    stream_wait_value(Stream, sys::CUdeviceptr, u64, c_uint) = "cuStreamWaitValue64_v2" or "cuStreamWaitValue64";
    stream_write_value(Stream, sys::CUdeviceptr, u64, c_uint) = "cuStreamWriteValue64_v2" or "cuStreamWriteValue64";
    event_create(*mut Event, c_uint) = "cuEventCreate";
    event_destroy(Event) = "cuEventDestroy_v2";
    event_record(Event, Stream) = "cuEventRecord";
    event_query(Event) = "cuEventQuery";
    event_synchronize(Event) = "cuEventSynchronize";
    memset_d32_async(sys::CUdeviceptr, c_uint, usize, Stream) = "cuMemsetD32Async";
    memcpy_dtod_async(sys::CUdeviceptr, sys::CUdeviceptr, usize, Stream) = "cuMemcpyDtoDAsync_v2";
    memcpy_3d_async(*const sys::CUDA_MEMCPY3D, Stream) = "cuMemcpy3DAsync_v2";
    launch_kernel(
        sys::CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Stream, *mut *mut c_void, *mut *mut c_void,
    ) = "cuLaunchKernel";
    mem_host_alloc(*mut *mut c_void, usize, c_uint) = "cuMemHostAlloc";
    mem_host_get_device_pointer(*mut sys::CUdeviceptr, *mut c_void, c_uint) = "cuMemHostGetDevicePointer_v2";
    mem_free_host(*mut c_void) = "cuMemFreeHost";
    import_external_memory(*mut sys::CUexternalMemory, *const sys::CUDA_EXTERNAL_MEMORY_HANDLE_DESC)
        = "cuImportExternalMemory";
    destroy_external_memory(sys::CUexternalMemory) = "cuDestroyExternalMemory";
    get_mapped_mipmapped_array(
        *mut sys::CUmipmappedArray, sys::CUexternalMemory, *const sys::CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC,
    ) = "cuExternalMemoryGetMappedMipmappedArray";
    mipmapped_array_get_level(*mut sys::CUarray, sys::CUmipmappedArray, c_uint) = "cuMipmappedArrayGetLevel";
    mipmapped_array_destroy(sys::CUmipmappedArray) = "cuMipmappedArrayDestroy";
    import_external_semaphore(*mut sys::CUexternalSemaphore, *const sys::CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC)
        = "cuImportExternalSemaphore";
    destroy_external_semaphore(sys::CUexternalSemaphore) = "cuDestroyExternalSemaphore";
    signal_external(
        *const sys::CUexternalSemaphore, *const sys::CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS, c_uint, Stream,
    ) = "cuSignalExternalSemaphoresAsync";
    wait_external(
        *const sys::CUexternalSemaphore, *const sys::CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS, c_uint, Stream,
    ) = "cuWaitExternalSemaphoresAsync";
    stream_begin_capture(Stream, c_uint) = "cuStreamBeginCapture_v2";
    stream_end_capture(Stream, *mut sys::CUgraph) = "cuStreamEndCapture";
    stream_get_capture_info(
        Stream, *mut c_uint, *mut u64, *mut sys::CUgraph, *mut c_void, *mut c_void,
    ) = "cuStreamGetCaptureInfo_v2";
    graph_instantiate(*mut sys::CUgraphExec, sys::CUgraph, u64) = "cuGraphInstantiateWithFlags";
    graph_launch(sys::CUgraphExec, Stream) = "cuGraphLaunch";
    graph_set_wait(sys::CUgraphExec, sys::CUgraphNode, *const NodeParams)
        = "cuGraphExecExternalSemaphoresWaitNodeSetParams";
    graph_set_signal(sys::CUgraphExec, sys::CUgraphNode, *const NodeParams)
        = "cuGraphExecExternalSemaphoresSignalNodeSetParams";
    graph_exec_destroy(sys::CUgraphExec) = "cuGraphExecDestroy";
    graph_destroy(sys::CUgraph) = "cuGraphDestroy";
}

/// The table, resolved once.
pub(super) fn table() -> Outcome<&'static Table> {
    static TABLE: OnceLock<Result<Table, String>> = OnceLock::new();
    let loaded = TABLE.get_or_init(|| {
        // SAFETY: NVIDIA's driver, which the CUDA backend has loaded already.
        let library = unsafe { Library::new("libcuda.so.1") }.map_err(|error| error.to_string())?;
        let table = Table::resolve(&library);
        // The driver is never unloaded, because it has threads of its own.
        std::mem::forget(library);
        table
    });
    loaded
        .as_ref()
        .map_err(|reason| Stop::Skipped(reason.clone()))
}

#[inline]
pub(super) fn judge(call: &'static str, code: u32) -> Outcome<()> {
    if code == 0 {
        Ok(())
    } else {
        Err(failed(call, code))
    }
}

#[cold]
pub(super) fn failed(call: &'static str, code: u32) -> Stop {
    Stop::Failed(format!("{call} returned {code}"))
}
