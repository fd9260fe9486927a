//! Words in mapped host memory, for which streams wait and which they write.
#![allow(unsafe_code, reason = "calls the driver, as the baseline")]

use std::ffi::{c_uint, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cudarc::driver::sys;
use syncline::backend::Device as _;
use syncline::cuda::Device;

use super::{Hand, Stream, call};
use crate::side::{Outcome, Stop};

/// Time-out for a word.
const LONG: Duration = Duration::from_secs(10);

/// `CU_MEMHOSTALLOC_DEVICEMAP` with `CU_MEMHOSTALLOC_PORTABLE`.
const MAPPED: c_uint = 3;
/// `CU_STREAM_WAIT_VALUE_GEQ`.
const AT_LEAST: c_uint = 0;

/// Bytes from one word to the next, so that each has a cache line of its own.
const STRIDE: usize = 128;

/// Whether streams of the device can wait for and write 64-bit values by `cuStreamWaitValue64_v2`.
pub(crate) fn has_memory_operations(device: &Device) -> bool {
    /// The first version with the function.
    const SINCE: i32 = 11_070;
    let mut version = 0;
    // SAFETY: writes one integer.
    let _ = unsafe { sys::cuDriverGetVersion(&raw mut version) };
    version >= SINCE && device.info().capabilities.stream_memory_ops
}

/// Words in mapped host memory. All begin at 0.
///
/// Rows end the streams that use them before they drop this.
pub(crate) struct Words {
    host: *mut c_void,
    device: sys::CUdeviceptr,
    count: usize,
}

impl Words {
    pub(crate) fn new(_current: &Hand, count: usize) -> Outcome<Self> {
        let mut words = Self {
            host: null_mut(),
            device: 0,
            count,
        };
        let bytes = count.max(1) * STRIDE;
        // SAFETY: writes one pointer each, the second of the mapped memory that was just allocated.
        unsafe {
            call!(cuMemHostAlloc(&raw mut words.host, bytes, MAPPED))?;
            call!(cuMemHostGetDevicePointer_v2(
                &raw mut words.device,
                words.host,
                0
            ))?;
        }
        for at in 0..count {
            words.word(at).store(0, Ordering::SeqCst);
        }
        Ok(words)
    }

    /// The address of a word on the device.
    pub(crate) fn address(&self, at: usize) -> sys::CUdeviceptr {
        self.device + (at * STRIDE) as u64
    }

    /// A word as the host sees it.
    #[inline]
    pub(crate) fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at < self.count, "word {at} of {}", self.count);
        // SAFETY: within the allocation, which begins on a page and lives as long as this.
        unsafe { &*self.host.byte_add(at * STRIDE).cast::<AtomicU64>() }
    }

    /// Polls until a word is at or above `value`.
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

    /// `cuStreamWaitValue64`, until the word is at or above `value`.
    #[inline]
    pub(crate) fn wait(&self, stream: Stream, at: usize, value: u64) -> Outcome<()> {
        // SAFETY: a live stream, and a word of this.
        unsafe {
            call!(cuStreamWaitValue64_v2(
                stream,
                self.address(at),
                value,
                AT_LEAST
            ))
        }
    }

    /// `cuStreamWriteValue64`.
    #[inline]
    pub(crate) fn write(&self, stream: Stream, at: usize, value: u64) -> Outcome<()> {
        // SAFETY: as for waits.
        unsafe { call!(cuStreamWriteValue64_v2(stream, self.address(at), value, 0)) }
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        // SAFETY: allocated here, if at all, and no longer used.
        let _ = unsafe { sys::cuMemFreeHost(self.host) };
    }
}
