//! CUDA by hand: direct calls of the driver's functions.
#![allow(unsafe_code, reason = "calls the driver, as the baseline")]

#[cfg(feature = "vulkan")]
mod graph;
mod words;

use std::cell::RefCell;
use std::ffi::c_uint;
#[cfg(feature = "vulkan")]
use std::os::fd::{AsRawFd as _, IntoRawFd as _, OwnedFd};
use std::ptr::null_mut;
use std::sync::{Mutex, PoisonError};

use cudarc::driver::sys;
use syncline::cuda::{Buffer, Device};

#[cfg(feature = "vulkan")]
pub(crate) use graph::Graph;
pub(crate) use words::{Words, has_memory_operations};

use crate::side::{Outcome, Stop};

/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: c_uint = 1;
/// `CU_EVENT_DISABLE_TIMING`.
const NO_TIMING: c_uint = 2;
/// `CU_EVENT_BLOCKING_SYNC`.
const BLOCKING: c_uint = 1;

pub(crate) type Stream = sys::CUstream;
pub(crate) type Event = sys::CUevent;
#[cfg(feature = "vulkan")]
pub(crate) type External = sys::CUexternalSemaphore;
#[cfg(feature = "vulkan")]
pub(crate) type SignalParams = sys::CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS;
#[cfg(feature = "vulkan")]
pub(crate) type WaitParams = sys::CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS;

/// Calls a function of the driver. An error names it.
macro_rules! call {
    ($name:ident($($argument:expr),* $(,)?)) => {
        $crate::raw::cuda::judge(stringify!($name), ::cudarc::driver::sys::$name($($argument),*))
    };
}
pub(crate) use call;

#[inline]
pub(crate) fn judge(call: &'static str, result: sys::CUresult) -> Outcome<()> {
    match result {
        sys::CUresult::CUDA_SUCCESS => Ok(()),
        result => Err(Stop::Failed(format!("{call} returned {}", result as u32))),
    }
}

/// Streams, events and semaphores of a context that is current on this thread while this lives.
///
/// They must not be used after the hand is dropped.
pub(crate) struct Hand {
    before: sys::CUcontext,
    streams: RefCell<Vec<Stream>>,
    events: RefCell<Vec<Event>>,
    #[cfg(feature = "vulkan")]
    externals: RefCell<Vec<External>>,
    /// Keeps the context alive.
    _device: Device,
}

impl Hand {
    pub(crate) fn new(device: &Device) -> Outcome<Self> {
        let mut before = null_mut();
        // SAFETY: writes one handle. The context is the device's, which this keeps alive.
        unsafe {
            call!(cuCtxGetCurrent(&raw mut before))?;
            call!(cuCtxSetCurrent(device.raw_context()))?;
        }
        Ok(Self {
            before,
            streams: RefCell::default(),
            events: RefCell::default(),
            #[cfg(feature = "vulkan")]
            externals: RefCell::default(),
            _device: device.clone(),
        })
    }

    pub(crate) fn stream(&self) -> Outcome<Stream> {
        let mut stream = null_mut();
        // SAFETY: writes one handle.
        unsafe { call!(cuStreamCreate(&raw mut stream, NON_BLOCKING)) }?;
        self.streams.borrow_mut().push(stream);
        Ok(stream)
    }

    /// An event without timing.
    pub(crate) fn event(&self) -> Outcome<Event> {
        self.event_with(NO_TIMING)
    }

    pub(crate) fn timed_event(&self) -> Outcome<Event> {
        self.event_with(0)
    }

    /// An event for which `cuEventSynchronize` sleeps instead of polling.
    pub(crate) fn blocking_event(&self) -> Outcome<Event> {
        self.event_with(NO_TIMING | BLOCKING)
    }

    fn event_with(&self, flags: c_uint) -> Outcome<Event> {
        let mut event = null_mut();
        // SAFETY: writes one handle.
        unsafe { call!(cuEventCreate(&raw mut event, flags)) }?;
        self.events.borrow_mut().push(event);
        Ok(event)
    }

    /// This many events without timing.
    pub(crate) fn events(&self, count: u64) -> Outcome<Vec<Event>> {
        (0..count).map(|_| self.event()).collect()
    }

    /// Imports a timeline semaphore.
    #[cfg(feature = "vulkan")]
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
        unsafe {
            call!(cuImportExternalSemaphore(
                &raw mut semaphore,
                &raw const desc
            ))
        }?;
        // The driver owns it now.
        let _ = handle.into_raw_fd();
        self.externals.borrow_mut().push(semaphore);
        Ok(semaphore)
    }
}

impl Drop for Hand {
    fn drop(&mut self) {
        // SAFETY: made here, and no longer used: rows end their streams before. The hand is not
        // sent to another thread, whose current context would be another one.
        unsafe {
            for stream in self.streams.take() {
                let _ = sys::cuStreamDestroy_v2(stream);
            }
            for event in self.events.take() {
                let _ = sys::cuEventDestroy_v2(event);
            }
            #[cfg(feature = "vulkan")]
            for semaphore in self.externals.take() {
                let _ = sys::cuDestroyExternalSemaphore(semaphore);
            }
            let _ = sys::cuCtxSetCurrent(self.before);
        }
    }
}

// The functions below take live handles of a `Hand`.

#[inline]
pub(crate) fn record(event: Event, stream: Stream) -> Outcome<()> {
    // SAFETY: live handles.
    unsafe { call!(cuEventRecord(event, stream)) }
}

#[inline]
pub(crate) fn wait_event(stream: Stream, event: Event) -> Outcome<()> {
    // SAFETY: live handles.
    unsafe { call!(cuStreamWaitEvent(stream, event, 0)) }
}

/// `cuEventQuery`: whether the event is complete.
#[inline]
pub(crate) fn query(event: Event) -> Outcome<bool> {
    // SAFETY: a live handle.
    match unsafe { sys::cuEventQuery(event) } {
        sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
        result => judge("cuEventQuery", result).map(|()| true),
    }
}

/// `cuEventSynchronize`. It spins, except for an event of [`Hand::blocking_event`].
#[inline]
pub(crate) fn synchronize(event: Event) -> Outcome<()> {
    // SAFETY: a live handle.
    unsafe { call!(cuEventSynchronize(event)) }
}

/// `cuStreamSynchronize`.
pub(crate) fn finish(stream: Stream) -> Outcome<()> {
    // SAFETY: a live handle.
    unsafe { call!(cuStreamSynchronize(stream)) }
}

/// `cuMemsetD32Async` of the whole buffer with 0. Rows keep the buffer until the stream is idle.
#[inline]
pub(crate) fn clear(buffer: &Buffer, stream: Stream) -> Outcome<()> {
    let words = (buffer.size() / 4) as usize;
    // SAFETY: this many words of device memory, and a live stream of the current context.
    unsafe { call!(cuMemsetD32Async(buffer.pointer(), 0, words, stream)) }
}

/// `cuSignalExternalSemaphoresAsync` with parameters for each semaphore.
#[cfg(feature = "vulkan")]
#[inline]
pub(crate) fn signal_external(
    semaphores: &[External],
    params: &[SignalParams],
    stream: Stream,
) -> Outcome<()> {
    let count = semaphores.len().min(params.len()) as c_uint;
    let (semaphores, params) = (semaphores.as_ptr(), params.as_ptr());
    // SAFETY: arrays of this length, live semaphores, and a live stream of the current context.
    unsafe {
        call!(cuSignalExternalSemaphoresAsync(
            semaphores, params, count, stream
        ))
    }
}

/// `cuWaitExternalSemaphoresAsync` with parameters for each semaphore.
#[cfg(feature = "vulkan")]
#[inline]
pub(crate) fn wait_external(
    semaphores: &[External],
    params: &[WaitParams],
    stream: Stream,
) -> Outcome<()> {
    let count = semaphores.len().min(params.len()) as c_uint;
    let (semaphores, params) = (semaphores.as_ptr(), params.as_ptr());
    // SAFETY: as for signals.
    unsafe {
        call!(cuWaitExternalSemaphoresAsync(
            semaphores, params, count, stream
        ))
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

/// A stream for each thread, with one order over all of them: each record waits for the last one.
///
/// The streams and events belong to the [`Hand`] that made them, which outlives this.
pub(crate) struct Chain {
    streams: Vec<(Stream, Vec<Event>)>,
    /// The last recorded event of all streams.
    last: Mutex<Option<Event>>,
}

// SAFETY: streams and events may be used from any thread.
unsafe impl Send for Chain {}
// SAFETY: as for sending.
unsafe impl Sync for Chain {}

impl Chain {
    /// Makes the streams, with this many events each.
    pub(crate) fn new(hand: &Hand, streams: usize, events: u64) -> Outcome<Self> {
        let streams = (0..streams).map(|_| Ok((hand.stream()?, hand.events(events)?)));
        Ok(Self {
            streams: streams.collect::<Outcome<_>>()?,
            last: Mutex::new(None),
        })
    }

    /// Makes records on a stream, each behind the last record on any of the streams.
    ///
    /// At most as many as the stream has events. Needs no current context.
    pub(crate) fn submit(&self, stream: usize, count: u64) -> Outcome<()> {
        let (stream, events) = &self.streams[stream];
        for &event in &events[..count as usize] {
            let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(last) = *last {
                wait_event(*stream, last)?;
            }
            record(event, *stream)?;
            *last = Some(event);
        }
        Ok(())
    }

    /// Waits until all streams are idle.
    pub(crate) fn finish(&self) -> Outcome<()> {
        let mut streams = self.streams.iter();
        streams.try_for_each(|(stream, _)| finish(*stream))
    }
}
