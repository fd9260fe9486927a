//! CUDA by hand: the driver's functions, resolved once from the library that is loaded already, and called directly.
#![allow(unsafe_code, reason = "calls the driver, as the baseline")]

use std::cell::RefCell;
use std::ffi::{c_uint, c_void};
#[cfg(feature = "vulkan")]
use std::os::fd::{AsRawFd as _, IntoRawFd as _, OwnedFd};
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cudarc::driver::sys;
use libloading::Library;
#[cfg(feature = "vulkan")]
use syncline::cuda::Function;
use syncline::cuda::{Device, DeviceBuffer};

use crate::lab::{Outcome, Stop};

/// No wait here takes so long.
const LONG: Duration = Duration::from_secs(10);

const NOT_READY: u32 = 600;
/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: c_uint = 1;
/// `CU_EVENT_DISABLE_TIMING`.
const NO_TIMING: c_uint = 2;
/// `CU_MEMHOSTALLOC_DEVICEMAP` with `CU_MEMHOSTALLOC_PORTABLE`.
const MAPPED: c_uint = 3;
/// `CU_STREAM_WAIT_VALUE_GEQ`.
const AT_LEAST: c_uint = 0;

pub(crate) type Stream = sys::CUstream;
pub(crate) type Event = sys::CUevent;
#[cfg(feature = "vulkan")]
pub(crate) type External = sys::CUexternalSemaphore;
#[cfg(feature = "vulkan")]
pub(crate) type SignalParams = sys::CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS;
#[cfg(feature = "vulkan")]
pub(crate) type WaitParams = sys::CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS;

macro_rules! table {
    ($($name:ident($($type:ty),* $(,)?) = $symbol:literal $(or $older:literal)?;)*) => {
        #[cfg_attr(not(feature = "vulkan"), allow(dead_code, reason = "for what CUDA shares with Vulkan"))]
        /// Results are integers: a newer driver has codes that no enum of today names.
        struct Table {
            $($name: unsafe extern "system" fn($($type),*) -> u32,)*
        }

        impl Table {
            fn resolve(library: &Library) -> Result<Self, String> {
                Ok(Self {
                    $($name: {
                        // SAFETY: cuda.h declares the function with these arguments, and its result is a C enum, which has
                        // the size of an unsigned integer.
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
    launch_kernel(
        sys::CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Stream, *mut *mut c_void, *mut *mut c_void,
    ) = "cuLaunchKernel";
    mem_host_alloc(*mut *mut c_void, usize, c_uint) = "cuMemHostAlloc";
    mem_host_get_device_pointer(*mut sys::CUdeviceptr, *mut c_void, c_uint) = "cuMemHostGetDevicePointer_v2";
    mem_free_host(*mut c_void) = "cuMemFreeHost";
    import_external_semaphore(*mut sys::CUexternalSemaphore, *const sys::CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC)
        = "cuImportExternalSemaphore";
    destroy_external_semaphore(sys::CUexternalSemaphore) = "cuDestroyExternalSemaphore";
    signal_external(
        *const sys::CUexternalSemaphore, *const sys::CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS, c_uint, Stream,
    ) = "cuSignalExternalSemaphoresAsync";
    wait_external(
        *const sys::CUexternalSemaphore, *const sys::CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS, c_uint, Stream,
    ) = "cuWaitExternalSemaphoresAsync";
}

/// The table, resolved once.
fn table() -> Outcome<&'static Table> {
    static TABLE: OnceLock<Result<Table, String>> = OnceLock::new();
    let loaded = TABLE.get_or_init(|| {
        // SAFETY: NVIDIA's driver, which the CUDA backend has loaded already.
        let library = unsafe { Library::new("libcuda.so.1") }.map_err(|error| error.to_string())?;
        let table = Table::resolve(&library);
        // The driver is never unloaded; it has threads of its own.
        std::mem::forget(library);
        table
    });
    loaded
        .as_ref()
        .map_err(|reason| Stop::Skipped(reason.clone()))
}

#[inline]
fn judge(call: &'static str, code: u32) -> Outcome<()> {
    if code == 0 {
        Ok(())
    } else {
        Err(failed(call, code))
    }
}

#[cold]
fn failed(call: &'static str, code: u32) -> Stop {
    Stop::Failed(format!("{call} returned {code}"))
}

/// Streams, events and semaphores of a context, which is current on this thread as long as this lives. What it made is
/// not to be used after it has gone.
pub(crate) struct Hand {
    table: &'static Table,
    _device: Device,
    before: sys::CUcontext,
    streams: RefCell<Vec<Stream>>,
    events: RefCell<Vec<Event>>,
    #[cfg(feature = "vulkan")]
    externals: RefCell<Vec<External>>,
}

impl Hand {
    pub(crate) fn new(device: &Device) -> Outcome<Self> {
        let table = table()?;
        let mut before = null_mut();
        // SAFETY: writes one handle.
        judge("cuCtxGetCurrent", unsafe {
            (table.ctx_get_current)(&raw mut before)
        })?;
        // SAFETY: the device's context, which this keeps.
        judge("cuCtxSetCurrent", unsafe {
            (table.ctx_set_current)(device.raw_context())
        })?;
        Ok(Self {
            table,
            _device: device.clone(),
            before,
            streams: RefCell::default(),
            events: RefCell::default(),
            #[cfg(feature = "vulkan")]
            externals: RefCell::default(),
        })
    }

    /// `cuStreamCreate`.
    pub(crate) fn stream(&self) -> Outcome<Stream> {
        let mut stream = null_mut();
        // SAFETY: writes one handle.
        judge("cuStreamCreate", unsafe {
            (self.table.stream_create)(&raw mut stream, NON_BLOCKING)
        })?;
        self.streams.borrow_mut().push(stream);
        Ok(stream)
    }

    /// `cuEventCreate`.
    pub(crate) fn event(&self, timed: bool) -> Outcome<Event> {
        let flags = if timed { 0 } else { NO_TIMING };
        let mut event = null_mut();
        // SAFETY: writes one handle.
        judge("cuEventCreate", unsafe {
            (self.table.event_create)(&raw mut event, flags)
        })?;
        self.events.borrow_mut().push(event);
        Ok(event)
    }

    /// So many events.
    pub(crate) fn events(&self, count: u64, timed: bool) -> Outcome<Vec<Event>> {
        (0..count).map(|_| self.event(timed)).collect()
    }

    /// `cuEventRecord`.
    #[inline]
    pub(crate) fn record(&self, event: Event, stream: Stream) -> Outcome<()> {
        // SAFETY: live handles of the current context.
        judge("cuEventRecord", unsafe {
            (self.table.event_record)(event, stream)
        })
    }

    /// `cuStreamWaitEvent`.
    #[inline]
    pub(crate) fn wait_event(&self, stream: Stream, event: Event) -> Outcome<()> {
        // SAFETY: live handles of the current context.
        judge("cuStreamWaitEvent", unsafe {
            (self.table.stream_wait_event)(stream, event, 0)
        })
    }

    /// `cuEventQuery`: whether the event is complete.
    #[inline]
    pub(crate) fn query(&self, event: Event) -> Outcome<bool> {
        // SAFETY: a live handle of the current context.
        match unsafe { (self.table.event_query)(event) } {
            0 => Ok(true),
            NOT_READY => Ok(false),
            code => Err(failed("cuEventQuery", code)),
        }
    }

    /// `cuEventSynchronize`; the events here are made without blocking synchronization, so it spins.
    #[inline]
    pub(crate) fn synchronize(&self, event: Event) -> Outcome<()> {
        // SAFETY: a live handle of the current context.
        judge("cuEventSynchronize", unsafe {
            (self.table.event_synchronize)(event)
        })
    }

    /// `cuStreamSynchronize`.
    pub(crate) fn finish(&self, stream: Stream) -> Outcome<()> {
        // SAFETY: a live handle of the current context.
        judge("cuStreamSynchronize", unsafe {
            (self.table.stream_synchronize)(stream)
        })
    }

    /// `cuMemsetD32Async`: the whole buffer becomes 0. Rows keep it until the stream is idle.
    #[inline]
    pub(crate) fn clear(&self, buffer: &DeviceBuffer, stream: Stream) -> Outcome<()> {
        let words = (buffer.bytes() / 4) as usize;
        // SAFETY: so many words of device memory; a live stream of the current context.
        judge("cuMemsetD32Async", unsafe {
            (self.table.memset_d32_async)(buffer.pointer(), 0, words, stream)
        })
    }

    /// `cuMemcpyDtoDAsync`: as many bytes as both have. Whoever calls keeps both until the stream is idle.
    #[cfg(feature = "vulkan")]
    pub(crate) fn copy(
        &self,
        from: &DeviceBuffer,
        to: &DeviceBuffer,
        stream: Stream,
    ) -> Outcome<()> {
        let bytes = from.bytes().min(to.bytes()) as usize;
        // SAFETY: so many bytes of device memory on both sides; a live stream of the current context.
        judge("cuMemcpyDtoDAsync", unsafe {
            (self.table.memcpy_dtod_async)(to.pointer(), from.pointer(), bytes, stream)
        })
    }

    /// `cuLaunchKernel`.
    ///
    /// # Safety
    /// `params` are as many and of such types as the function declares; what it does with them is sound until the stream
    /// has got past it.
    #[cfg(feature = "vulkan")]
    pub(crate) unsafe fn launch(
        &self,
        function: &Function,
        grid: [u32; 3],
        block: [u32; 3],
        params: &mut [*mut c_void],
        stream: Stream,
    ) -> Outcome<()> {
        let ([x, y, z], [a, b, c]) = (grid, block);
        // SAFETY: the caller's promise. The driver copies the parameters during the call.
        judge("cuLaunchKernel", unsafe {
            (self.table.launch_kernel)(
                function.raw(),
                x,
                y,
                z,
                a,
                b,
                c,
                0,
                stream,
                params.as_mut_ptr(),
                null_mut(),
            )
        })
    }

    /// `cuStreamWaitValue64`: for the word to be at `value` or past it.
    #[inline]
    pub(crate) fn wait_value(
        &self,
        stream: Stream,
        word: &Words,
        at: usize,
        value: u64,
    ) -> Outcome<()> {
        // SAFETY: a live stream, and mapped memory that rows keep until their streams are idle.
        judge("cuStreamWaitValue64", unsafe {
            (self.table.stream_wait_value)(stream, word.address(at), value, AT_LEAST)
        })
    }

    /// `cuStreamWriteValue64`.
    #[inline]
    pub(crate) fn write_value(
        &self,
        stream: Stream,
        word: &Words,
        at: usize,
        value: u64,
    ) -> Outcome<()> {
        // SAFETY: as for waits.
        judge("cuStreamWriteValue64", unsafe {
            (self.table.stream_write_value)(stream, word.address(at), value, 0)
        })
    }

    /// `cuMemHostAlloc` of words that both sides see, all 0, each in a cache line of its own.
    pub(crate) fn words(&self, count: usize) -> Outcome<Words> {
        let mut host = null_mut();
        let bytes = count.max(1) * Words::STRIDE;
        // SAFETY: writes one pointer.
        judge("cuMemHostAlloc", unsafe {
            (self.table.mem_host_alloc)(&raw mut host, bytes, MAPPED)
        })?;
        let mut words = Words {
            table: self.table,
            host,
            device: 0,
            count,
        };
        // SAFETY: just allocated, and mapped.
        judge("cuMemHostGetDevicePointer", unsafe {
            (self.table.mem_host_get_device_pointer)(&raw mut words.device, host, 0)
        })?;
        for at in 0..count {
            words.word(at).store(0, Ordering::SeqCst);
        }
        Ok(words)
    }
}

#[cfg(feature = "vulkan")]
impl Hand {
    /// `cuImportExternalSemaphore` of a timeline semaphore.
    pub(crate) fn import(&self, handle: OwnedFd) -> Outcome<External> {
        let desc = sys::CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC {
            type_: sys::CUexternalSemaphoreHandleType::CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD,
            handle: sys::CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC_st__bindgen_ty_1 {
                fd: handle.as_raw_fd(),
            },
            flags: 0,
            reserved: [0; 16],
        };
        let mut semaphore = null_mut();
        // SAFETY: an open descriptor of a timeline semaphore of the same GPU, which the driver takes if it succeeds.
        judge("cuImportExternalSemaphore", unsafe {
            (self.table.import_external_semaphore)(&raw mut semaphore, &raw const desc)
        })?;
        // It is the driver's now.
        let _ = handle.into_raw_fd();
        self.externals.borrow_mut().push(semaphore);
        Ok(semaphore)
    }

    /// `cuSignalExternalSemaphoresAsync`, each semaphore with its parameters.
    #[inline]
    pub(crate) fn signal_external<const N: usize>(
        &self,
        semaphores: &[External; N],
        params: &[SignalParams; N],
        stream: Stream,
    ) -> Outcome<()> {
        // SAFETY: arrays of that length; live semaphores and a live stream of the current context.
        judge("cuSignalExternalSemaphoresAsync", unsafe {
            (self.table.signal_external)(semaphores.as_ptr(), params.as_ptr(), N as c_uint, stream)
        })
    }

    /// `cuWaitExternalSemaphoresAsync`, each semaphore with its parameters.
    #[inline]
    pub(crate) fn wait_external<const N: usize>(
        &self,
        semaphores: &[External; N],
        params: &[WaitParams; N],
        stream: Stream,
    ) -> Outcome<()> {
        // SAFETY: as for signals.
        judge("cuWaitExternalSemaphoresAsync", unsafe {
            (self.table.wait_external)(semaphores.as_ptr(), params.as_ptr(), N as c_uint, stream)
        })
    }
}

/// Parameters that signal `value`.
#[cfg(feature = "vulkan")]
#[inline]
pub(crate) fn signal_params(value: u64) -> SignalParams {
    // SAFETY: integers, pointers and unions of them; the API asks for zeroes in what is not used.
    let mut params: SignalParams = unsafe { std::mem::zeroed() };
    params.params.fence.value = value;
    params
}

/// Parameters that wait for `value`.
#[cfg(feature = "vulkan")]
#[inline]
pub(crate) fn wait_params(value: u64) -> WaitParams {
    // SAFETY: as for signals.
    let mut params: WaitParams = unsafe { std::mem::zeroed() };
    params.params.fence.value = value;
    params
}

impl Drop for Hand {
    fn drop(&mut self) {
        for stream in self.streams.take() {
            // SAFETY: made here, and no longer used; what is in it comes to its end.
            let _ = unsafe { (self.table.stream_destroy)(stream) };
        }
        for event in self.events.take() {
            // SAFETY: made here, and no longer used.
            let _ = unsafe { (self.table.event_destroy)(event) };
        }
        #[cfg(feature = "vulkan")]
        for semaphore in self.externals.take() {
            // SAFETY: imported here; rows let their streams end before.
            let _ = unsafe { (self.table.destroy_external_semaphore)(semaphore) };
        }
        // SAFETY: what was current before on this thread; the type is not sent to another.
        let _ = unsafe { (self.table.ctx_set_current)(self.before) };
    }
}

/// Words of mapped host memory.
pub(crate) struct Words {
    table: &'static Table,
    host: *mut c_void,
    device: sys::CUdeviceptr,
    count: usize,
}

impl Words {
    const STRIDE: usize = 128;

    fn address(&self, at: usize) -> sys::CUdeviceptr {
        debug_assert!(at < self.count, "word {at} of {}", self.count);
        self.device + (at * Self::STRIDE) as u64
    }

    /// One of them, as the host sees it.
    #[inline]
    pub(crate) fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at < self.count, "word {at} of {}", self.count);
        // SAFETY: within the allocation, which starts on a page, and lives as long as this.
        unsafe {
            &*self
                .host
                .cast::<u8>()
                .add(at * Self::STRIDE)
                .cast::<AtomicU64>()
        }
    }

    /// Looks until a word is at `value` or past it.
    #[inline]
    pub(crate) fn poll(&self, at: usize, value: u64) -> Outcome<()> {
        let word = self.word(at);
        let start = Instant::now();
        let mut looks = 0_u32;
        while word.load(Ordering::Acquire) < value {
            std::hint::spin_loop();
            looks += 1;
            if looks.is_multiple_of(1 << 20) && start.elapsed() > LONG {
                return Err(Stop::Failed("a word does not get to its value".into()));
            }
        }
        Ok(())
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        // SAFETY: allocated here; rows let their streams end before.
        let _ = unsafe { (self.table.mem_free_host)(self.host) };
    }
}

/// Whether streams of the device wait for and write 64-bit values in memory.
pub(crate) fn has_memory_operations(device: &Device) -> bool {
    use syncline::backend::Device as _;
    device.info().capabilities.stream_memory_ops
}
