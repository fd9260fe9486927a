//! The driver library: the table of its functions, and what their results mean.
//!
//! Every function returns a plain integer here. A newer driver returns codes that no Rust enum of
//! today has, and such a value taken as an enum from C is undefined behaviour.
#![allow(unsafe_code, reason = "declares and calls the driver's functions")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fmt;
use std::ptr::null;
use std::sync::Arc;

use cudarc::driver::sys;
use libloading::Library;
use syncline_core::{BackendKind, Error, Object, Result, Uuid};

/// The CUDA driver of this machine. Cheap to clone.
#[derive(Clone)]
pub struct Driver(Arc<Loaded>);

struct Loaded {
    symbols: Symbols,
    optional: Optional,
    software: bool,
}

/// A driver's handle. The driver API lets any thread use any handle at any time.
#[derive(Debug)]
pub(crate) struct Raw<T>(pub(crate) *mut T);

// SAFETY: the driver locks its objects itself ("The CUDA driver API is thread-safe", and handles are
// not bound to threads). Rust code follows such a pointer only to pinned memory, through atomics
// (`DeviceBuffer::as_words`).
unsafe impl<T> Send for Raw<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Raw<T> {}

/// A result other than success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Code {
    pub(crate) call: &'static str,
    pub(crate) code: u32,
}

impl Code {
    const OUT_OF_MEMORY: u32 = 2;
    pub(crate) const STUB_LIBRARY: u32 = 34;
    pub(crate) const NO_DEVICE: u32 = 100;
    const NOT_READY: u32 = 600;
    const CAPTURE_IMPLICIT: u32 = 906;
    /// The driver, or the platform under it, does not do this at all.
    pub(crate) const NOT_SUPPORTED: u32 = 801;

    /// Of a function that the driver does not have.
    pub(crate) const fn not_supported(call: &'static str) -> Self {
        Self {
            call,
            code: Self::NOT_SUPPORTED,
        }
    }

    /// The work asked about has not finished.
    pub(crate) const fn is_not_ready(self) -> bool {
        self.code == Self::NOT_READY
    }

    /// The driver has no more memory of the kind that was asked for.
    pub(crate) const fn is_out_of_memory(self) -> bool {
        self.code == Self::OUT_OF_MEMORY
    }

    /// The legacy default stream was touched while a stream that it synchronizes with is captured.
    pub(crate) const fn is_capture_implicit(self) -> bool {
        self.code == Self::CAPTURE_IMPLICIT
    }

    /// The context will never answer otherwise: the errors that the driver documents as sticky, and
    /// those of a context or a driver that is gone. 999 (unknown) is none of them: a refused import
    /// reports it too.
    const fn is_lost(self) -> bool {
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
            /// # Errors
            /// The name of a function that the library does not have.
            pub(crate) fn resolve(library: &Library) -> Result<Self, &'static str> {
                Ok(Self {
                    $(
                        // SAFETY: cuda.h declares the function with these arguments, and its result
                        // is a C enum, which has the size of an unsigned integer. The pointer stays
                        // valid, as a library that is used is never unloaded.
                        $name: *unsafe { library.get($symbol.as_bytes()) }.map_err(|_| $symbol)?,
                    )*
                })
            }
        }

        #[cfg(test)]
        impl Symbols {
            /// Functions that do nothing, and say that it is done.
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

        /// The driver's functions under their own names, without the prefix.
        ///
        /// Safety, for all of them: what the CUDA driver API demands of the arguments.
        impl Driver {
            $(
                #[allow(clippy::too_many_arguments, reason = "the driver's own")]
                #[inline]
                pub(crate) unsafe fn $name(&self, $($arg: $type),*) -> Result<(), Code> {
                    // SAFETY: the caller's promise.
                    judge($symbol, unsafe { (self.0.symbols.$name)($($arg),*) })
                }
            )*
            $(
                /// `None` if this driver does not have the function.
                pub(crate) unsafe fn $may(&self, $($may_arg: $may_type),*) -> Option<Result<(), Code>> {
                    // SAFETY: the caller's promise.
                    self.0.optional.$may.map(|call| judge($may_symbol, unsafe { call($($may_arg),*) }))
                }
            )*
        }
    };
}

#[inline]
const fn judge(call: &'static str, code: u32) -> Result<(), Code> {
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
        module_load_data(module: *mut sys::CUmodule, image: *const c_void) = "cuModuleLoadData";
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
        ipc_get_event_handle(handle: *mut EventHandle, event: sys::CUevent) = "cuIpcGetEventHandle";
        ipc_open_event_handle(event: *mut sys::CUevent, handle: EventHandle)
            = "cuIpcOpenEventHandle";
        func_load(function: sys::CUfunction) = "cuFuncLoad";
        launch_kernel_ex(
            config: *const LaunchConfig, function: sys::CUfunction,
            params: *mut *mut c_void, extra: *mut *mut c_void,
        ) = "cuLaunchKernelEx";
    }
}

/// `CUipcEventHandle`, which goes by value.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EventHandle(pub(crate) [u8; 64]);

/// `CUstreamBatchMemOpParams`, of a wait or a write of 64 bits: no `union` of cudarc's, which differs between versions.
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

const _: () = assert!(size_of::<MemOp>() == 48, "six words, as cuda.h has it");

impl MemOp {
    /// `CU_STREAM_MEM_OP_WAIT_VALUE_64`.
    pub(crate) const WAIT: c_uint = 4;
    /// `CU_STREAM_MEM_OP_WRITE_VALUE_64`.
    pub(crate) const WRITE: c_uint = 5;

    /// Waits for the value, or one behind it (`CU_STREAM_WAIT_VALUE_GEQ` is 0).
    pub(crate) const fn wait(address: sys::CUdeviceptr, value: u64, flags: c_uint) -> Self {
        Self::new(Self::WAIT, address, value, flags)
    }

    /// Writes the value, behind a fence.
    pub(crate) const fn write(address: sys::CUdeviceptr, value: u64) -> Self {
        Self::new(Self::WRITE, address, value, 0)
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

/// `CUlaunchConfig`, as cuda.h has it since 11.8: this builds beside older toolkits, too.
#[repr(C)]
pub(crate) struct LaunchConfig {
    pub(crate) grid: [c_uint; 3],
    pub(crate) block: [c_uint; 3],
    pub(crate) shared_bytes: c_uint,
    pub(crate) stream: sys::CUstream,
    pub(crate) attributes: *const LaunchAttribute,
    pub(crate) count: c_uint,
}

/// `CUlaunchAttribute`, of a kind whose value is one integer.
#[repr(C, align(8))]
pub(crate) struct LaunchAttribute {
    id: c_uint,
    _padding: c_uint,
    value: [c_int; 16],
}

impl LaunchAttribute {
    /// `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`: the kernel may begin before the one in front of it in its stream has ended, if
    /// that is a kernel; what it waits for it says itself.
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
            symbols,
            optional,
            software,
        }))
    }

    /// A driver of these functions.
    #[cfg(test)]
    pub(crate) fn of(symbols: Symbols, optional: Optional) -> Self {
        Self::new(symbols, optional, false)
    }

    /// What the driver calls a result.
    pub(crate) fn name_of(&self, code: u32) -> String {
        let mut name = null();
        // SAFETY: writes a pointer to a static string, or null for a code that it does not know.
        let asked = unsafe { self.get_error_name(code, &raw mut name) };
        if asked.is_err() || name.is_null() {
            return "a code that this driver does not name".into();
        }
        // SAFETY: not null, so a static nul-terminated string of the driver.
        unsafe { CStr::from_ptr(name) }
            .to_string_lossy()
            .into_owned()
    }

    /// The typed error for a result on `object`.
    pub(crate) fn error(&self, object: &Object, Code { call, code }: Code) -> Error {
        let (object, name) = (object.clone(), self.name_of(code));
        let lost = Code { call, code }.is_lost();
        let code = i64::from(code);
        if lost {
            Error::DeviceLost {
                object,
                call,
                code,
                name,
            }
        } else {
            Error::Native {
                object,
                call,
                code,
                name,
            }
        }
    }

    /// True if the driver says that it computes on the host's processors in place of a GPU.
    pub(crate) fn is_software(&self) -> bool {
        self.0.software
    }

    /// The address of `cuInit`, which tells one driver from another.
    pub(crate) fn address(&self) -> *const c_void {
        self.0.symbols.init as *const c_void
    }

    pub(crate) fn version(&self) -> Result<i32, Code> {
        let mut version = 0;
        // SAFETY: writes one integer; allowed before initialization.
        unsafe { self.driver_get_version(&raw mut version) }.map(|()| version)
    }

    /// Its version in words.
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

    /// The device's UUID: a partition's own, where the device is one.
    pub(crate) fn device_uuid(&self, device: sys::CUdevice) -> Result<Uuid, Code> {
        let mut uuid = sys::CUuuid { bytes: [0; 16] };
        // SAFETY: writes 16 bytes.
        unsafe { self.device_get_uuid(&raw mut uuid, device) }?;
        Ok(plain(uuid))
    }

    /// The UUID of the whole GPU, as the driver's first version of the question answers.
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
        // Elsewhere than on Windows some drivers succeed with nothing.
        Some(luid).filter(|luid| *luid != [0; 8])
    }

    /// True if streams can be made to wait for 64 bits of memory and to write them, each and several in one call.
    pub(crate) fn has_memory_ops(&self) -> bool {
        let has = &self.0.optional;
        has.stream_wait_value64.is_some()
            && has.stream_write_value64.is_some()
            && has.stream_batch_mem_op.is_some()
    }

    /// True if events of other processes can be opened, and handles of own ones given away.
    pub(crate) fn has_interprocess_events(&self) -> bool {
        let has = &self.0.optional;
        has.ipc_get_event_handle.is_some() && has.ipc_open_event_handle.is_some()
    }

    /// An attribute; 0 if the driver does not know it, which then cannot do what it stands for.
    pub(crate) fn attribute(&self, device: sys::CUdevice, attribute: u32) -> i32 {
        self.known_attribute(device, attribute).unwrap_or(0)
    }

    /// An attribute; `None` if the driver does not know it.
    pub(crate) fn known_attribute(&self, device: sys::CUdevice, attribute: u32) -> Option<i32> {
        let mut value = 0;
        // SAFETY: writes one integer; an unknown attribute is an error, not undefined.
        let asked = unsafe { self.device_get_attribute(&raw mut value, attribute, device) };
        asked.ok().map(|()| value)
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
    Error::Unavailable {
        backend: BackendKind::Cuda,
        reason,
    }
}
