//! The capture mode of a thread.
//!
//! While another thread captures a stream in the driver's "global" mode, the driver rejects calls
//! that may synchronize, on any thread, and invalidates the capture. `cuMemFree`, `cuModuleUnload`
//! and event queries are among these calls. The relaxed mode of the calling thread allows them.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::marker::PhantomData;

use crate::driver::table::Driver;

/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
const RELAXED: u32 = 2;

/// Keeps the thread's capture mode relaxed. Dropping it restores the previous mode.
pub(crate) struct CaptureMode<'d> {
    driver: &'d Driver,
    before: Option<u32>,
    _this_thread: PhantomData<*const ()>,
}

impl<'d> CaptureMode<'d> {
    /// Relaxes the mode of the calling thread.
    #[inline]
    pub(crate) fn relaxed(driver: &'d Driver) -> Self {
        let mut mode = RELAXED;
        // SAFETY: reads and writes one integer. The mode belongs to this thread, and every mode is
        // valid.
        let exchanged = unsafe { driver.thread_exchange_stream_capture_mode(&raw mut mode) };
        Self {
            driver,
            before: exchanged.is_ok().then_some(mode),
            _this_thread: PhantomData,
        }
    }
}

impl Drop for CaptureMode<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(mut mode) = self.before {
            // SAFETY: as above, with the mode that the driver returned on this same thread.
            let _ = unsafe {
                self.driver
                    .thread_exchange_stream_capture_mode(&raw mut mode)
            };
        }
    }
}
