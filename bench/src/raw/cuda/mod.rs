//! CUDA by hand: direct calls of the driver's functions.
//!
//! They are resolved once, from the library that is already loaded.
#![allow(unsafe_code, reason = "calls the driver, as the baseline")]

mod chain;
#[cfg(test)]
pub(crate) mod emulated;
#[cfg(feature = "vulkan")]
mod graph;
#[cfg(feature = "vulkan")]
mod image;
mod kernel;
mod table;
mod words;

use std::cell::RefCell;
use std::ffi::c_uint;
use std::ffi::c_void;
use std::ops::Deref;
#[cfg(feature = "vulkan")]
use std::os::fd::{AsRawFd as _, IntoRawFd as _, OwnedFd};
use std::ptr::null_mut;

use cudarc::driver::sys;
use syncline::cuda::{Buffer, Device, Function};

pub(crate) use chain::Chain;
#[cfg(feature = "vulkan")]
pub(crate) use image::Image;
pub(crate) use kernel::Small;
pub(crate) use words::Words;

use crate::side::Outcome;
use table::{Table, failed, judge, table};

const NOT_READY: u32 = 600;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
const RELAXED: c_uint = 2;
/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: c_uint = 1;
/// `CU_EVENT_DISABLE_TIMING`.
const NO_TIMING: c_uint = 2;
/// `CU_EVENT_BLOCKING_SYNC`.
const BLOCKING: c_uint = 1;
/// `CUDA_EXT_SEM_WAIT_NODE_PARAMS` and `CUDA_EXT_SEM_SIGNAL_NODE_PARAMS`.
#[repr(C)]
pub(crate) struct NodeParams {
    semaphores: *const sys::CUexternalSemaphore,
    params: *const c_void,
    count: c_uint,
}

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

impl Deref for Hand {
    type Target = Calls;

    fn deref(&self) -> &Calls {
        &self.calls
    }
}

/// Streams, events and semaphores of a context that is current on this thread while this lives.
///
/// They must not be used after the hand is dropped.
pub(crate) struct Hand {
    calls: Calls,
    device: Device,
    before: sys::CUcontext,
    streams: RefCell<Vec<Stream>>,
    events: RefCell<Vec<Event>>,
    #[cfg(feature = "vulkan")]
    externals: RefCell<Vec<External>>,
}

impl Hand {
    pub(crate) fn new(device: &Device) -> Outcome<Self> {
        let calls = Calls::new(device)?;
        let mut before = null_mut();
        // SAFETY: writes one handle.
        judge("cuCtxGetCurrent", unsafe {
            (calls.table.ctx_get_current)(&raw mut before)
        })?;
        // SAFETY: the context of the device, which this keeps alive.
        judge("cuCtxSetCurrent", unsafe {
            (calls.table.ctx_set_current)(calls.context)
        })?;
        Ok(Self {
            calls,
            device: device.clone(),
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
        let event = self.calls.create(timed)?;
        self.events.borrow_mut().push(event);
        Ok(event)
    }

    /// `cuEventCreate` of an event for which `cuEventSynchronize` sleeps instead of polling.
    pub(crate) fn blocking_event(&self) -> Outcome<Event> {
        let event = self.calls.create_with(NO_TIMING | BLOCKING)?;
        self.events.borrow_mut().push(event);
        Ok(event)
    }

    /// Makes this many events.
    pub(crate) fn events(&self, count: u64, timed: bool) -> Outcome<Vec<Event>> {
        (0..count).map(|_| self.event(timed)).collect()
    }
}

/// The driver's functions for one context, usable from any thread.
#[derive(Clone, Copy)]
pub(crate) struct Calls {
    table: &'static Table,
    context: sys::CUcontext,
}

// SAFETY: the driver's functions may be called from any thread. The context is only an argument of
// them.
unsafe impl Send for Calls {}
// SAFETY: as for sending.
unsafe impl Sync for Calls {}

/// Makes the context of some [`Calls`] current on this thread, and restores the last one on drop.
pub(crate) struct Current(Option<(&'static Table, sys::CUcontext)>);

impl Drop for Current {
    #[inline]
    fn drop(&mut self) {
        if let Some((table, before)) = self.0 {
            // SAFETY: the context that was current before on this thread. The type contains a
            // pointer, so it is not sent to another thread.
            let _ = unsafe { (table.ctx_set_current)(before) };
        }
    }
}

impl Calls {
    /// The functions for the context of `device`, which lives as long as the device.
    fn new(device: &Device) -> Outcome<Self> {
        let (table, context) = (table()?, device.raw_context());
        Ok(Self { table, context })
    }

    /// `cuCtxGetCurrent`, and `cuCtxSetCurrent` if another context is current.
    #[inline]
    pub(crate) fn enter(&self) -> Outcome<Current> {
        let mut before = null_mut();
        // SAFETY: writes one handle.
        judge("cuCtxGetCurrent", unsafe {
            (self.table.ctx_get_current)(&raw mut before)
        })?;
        if before == self.context {
            return Ok(Current(None));
        }
        // SAFETY: the context of the device, which the caller keeps alive.
        judge("cuCtxSetCurrent", unsafe {
            (self.table.ctx_set_current)(self.context)
        })?;
        Ok(Current(Some((self.table, before))))
    }

    /// `cuEventCreate`. The event is returned to [`Calls::destroy`].
    pub(crate) fn create(&self, timed: bool) -> Outcome<Event> {
        self.create_with(if timed { 0 } else { NO_TIMING })
    }

    fn create_with(&self, flags: c_uint) -> Outcome<Event> {
        let mut event = null_mut();
        // SAFETY: writes one handle.
        judge("cuEventCreate", unsafe {
            (self.table.event_create)(&raw mut event, flags)
        })?;
        Ok(event)
    }

    /// `cuEventDestroy`.
    pub(crate) fn destroy(&self, event: Event) {
        // SAFETY: made by `create`, and no longer used.
        let _ = unsafe { (self.table.event_destroy)(event) };
    }

    /// [`Calls::query`] in the thread's relaxed capture mode, as a library must call it.
    ///
    /// Otherwise the query would break a capture that another thread has begun.
    #[inline]
    pub(crate) fn ask(&self, event: Event) -> Outcome<bool> {
        let exchange = |mode: &mut c_uint| {
            // SAFETY: reads and writes one integer.
            judge("cuThreadExchangeStreamCaptureMode", unsafe {
                (self.table.thread_exchange_capture_mode)(&raw mut *mode)
            })
        };
        let mut mode = RELAXED;
        exchange(&mut mode)?;
        let answer = self.query(event);
        exchange(&mut mode)?;
        answer
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

    /// `cuEventSynchronize`. It spins, except for an event of [`Hand::blocking_event`].
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

    /// `cuMemsetD32Async` of the whole buffer with 0. Rows keep the buffer until the stream is
    /// idle.
    #[inline]
    pub(crate) fn clear(&self, buffer: &Buffer, stream: Stream) -> Outcome<()> {
        let words = (buffer.size() / 4) as usize;
        // SAFETY: this many words of device memory, and a live stream of the current context.
        judge("cuMemsetD32Async", unsafe {
            (self.table.memset_d32_async)(buffer.pointer(), 0, words, stream)
        })
    }

    /// `cuLaunchKernel`.
    ///
    /// # Safety
    /// `params` have the number and types that the function declares. The work of the kernel is
    /// sound until the stream is past it.
    pub(crate) unsafe fn launch(
        &self,
        function: &Function,
        grid: [u32; 3],
        block: [u32; 3],
        params: &mut [*mut c_void],
        stream: Stream,
    ) -> Outcome<()> {
        let ([x, y, z], [a, b, c]) = (grid, block);
        // SAFETY: the caller promises it. The driver copies the parameters during the call.
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

    /// `cuStreamWaitValue64`, until the word is at or above `value`.
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

    /// `cuSignalExternalSemaphoresAsync` with parameters for each semaphore.
    #[cfg(feature = "vulkan")]
    #[inline]
    pub(crate) fn signal_external(
        &self,
        semaphores: &[External],
        params: &[SignalParams],
        stream: Stream,
    ) -> Outcome<()> {
        let count = semaphores.len().min(params.len()) as c_uint;
        // SAFETY: arrays of this length, live semaphores, and a live stream of the current context.
        judge("cuSignalExternalSemaphoresAsync", unsafe {
            (self.table.signal_external)(semaphores.as_ptr(), params.as_ptr(), count, stream)
        })
    }

    /// `cuWaitExternalSemaphoresAsync` with parameters for each semaphore.
    #[cfg(feature = "vulkan")]
    #[inline]
    pub(crate) fn wait_external(
        &self,
        semaphores: &[External],
        params: &[WaitParams],
        stream: Stream,
    ) -> Outcome<()> {
        let count = semaphores.len().min(params.len()) as c_uint;
        // SAFETY: as for signals.
        judge("cuWaitExternalSemaphoresAsync", unsafe {
            (self.table.wait_external)(semaphores.as_ptr(), params.as_ptr(), count, stream)
        })
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
        // SAFETY: an open descriptor of a timeline semaphore of the same GPU. The driver takes it
        // on success.
        judge("cuImportExternalSemaphore", unsafe {
            (self.table.import_external_semaphore)(&raw mut semaphore, &raw const desc)
        })?;
        // The driver owns it now.
        let _ = handle.into_raw_fd();
        self.externals.borrow_mut().push(semaphore);
        Ok(semaphore)
    }
}

/// Parameters that signal `value`.
#[cfg(feature = "vulkan")]
#[inline]
pub(crate) fn signal_params(value: u64) -> SignalParams {
    // SAFETY: integers, pointers and unions of them. The API requires zeros in unused fields.
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
            // SAFETY: made here, and no longer used. The work in it ends.
            let _ = unsafe { (self.table.stream_destroy)(stream) };
        }
        for event in self.events.take() {
            self.calls.destroy(event);
        }
        #[cfg(feature = "vulkan")]
        for semaphore in self.externals.take() {
            // SAFETY: imported here. Rows end their streams before.
            let _ = unsafe { (self.table.destroy_external_semaphore)(semaphore) };
        }
        // SAFETY: the context that was current before on this thread. The type is not sent to
        // another.
        let _ = unsafe { (self.table.ctx_set_current)(self.before) };
    }
}

/// Whether streams of the device can wait for and write 64-bit values in memory.
pub(crate) fn has_memory_operations(device: &Device) -> bool {
    use syncline::backend::Device as _;
    device.info().capabilities.stream_memory_ops
}
