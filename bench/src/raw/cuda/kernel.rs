//! A small kernel, and an application's own stream.
#![allow(unsafe_code, reason = "launches a kernel, and destroys a stream")]

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;

use syncline::cuda::{Device, Function, Queue, Recorder};

use super::table::judge;
use super::{Calls, Hand, NON_BLOCKING, Stream};
use crate::side::Outcome;
use syncline_demo::compute::WAVE_PTX;

/// A kernel of one thread that reads the clock and ends.
#[derive(Clone)]
pub(crate) struct Small(Function);

/// The only parameter of the kernel: for how many nanoseconds it runs.
type Parameter = u64;

impl Small {
    pub(crate) fn new(device: &Device) -> Outcome<Self> {
        Ok(Self(device.module(WAVE_PTX)?.function(c"delay")?))
    }

    /// Records the kernel into a submission.
    #[inline]
    pub(crate) fn record(&self, recorder: &mut Recorder<'_>) -> syncline::Result<()> {
        let mut time: Parameter = 0;
        let mut params = [(&raw mut time).cast::<c_void>()];
        // SAFETY: the kernel takes one u64 and uses no memory.
        unsafe { recorder.launch(&self.0, [1; 3], [1; 3], &mut params) }
    }

    /// `cuLaunchKernel`. Rows keep the kernel until the stream is idle.
    #[inline]
    pub(crate) fn launch(&self, calls: &Calls, stream: Stream) -> Outcome<()> {
        let mut time: Parameter = 0;
        let mut params = [(&raw mut time).cast::<c_void>()];
        // SAFETY: the kernel takes one u64 and uses no memory.
        unsafe { calls.launch(&self.0, [1; 3], [1; 3], &mut params, stream) }
    }
}

/// A stream that is destroyed with this.
struct Own {
    calls: Calls,
    stream: Stream,
    /// Keeps the context alive.
    _device: Device,
}

// SAFETY: streams may be used from any thread.
unsafe impl Send for Own {}
// SAFETY: as for sending.
unsafe impl Sync for Own {}

impl Drop for Own {
    fn drop(&mut self) {
        if let Ok(_current) = self.calls.enter() {
            // SAFETY: made here. Its last owner is dropped, so no queue uses it any more.
            let _ = unsafe { (self.calls.table.stream_destroy)(self.stream) };
        }
    }
}

impl Hand {
    /// A queue over a stream that the application has made (`cuStreamCreate`) and owns.
    pub(crate) fn adopted(&self, label: &str) -> Outcome<Queue> {
        let mut stream = null_mut();
        // SAFETY: writes one handle.
        judge("cuStreamCreate", unsafe {
            (self.table.stream_create)(&raw mut stream, NON_BLOCKING)
        })?;
        let own = Own {
            calls: self.calls,
            stream,
            _device: self.device.clone(),
        };
        // SAFETY: a live stream that its owner destroys and that is never captured.
        Ok(unsafe {
            self.device
                .adopt_raw_stream(stream, Some(Arc::new(own)), label)
        }?)
    }
}
