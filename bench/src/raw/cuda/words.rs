//! Words in mapped host memory.
#![allow(unsafe_code, reason = "calls the driver, as the baseline")]

use std::ffi::{c_uint, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cudarc::driver::sys;

use super::Hand;
use super::table::{Table, judge};
use crate::side::{Outcome, Stop};

/// Time-out for a word.
const LONG: Duration = Duration::from_secs(10);

/// `CU_MEMHOSTALLOC_DEVICEMAP` with `CU_MEMHOSTALLOC_PORTABLE`.
const MAPPED: c_uint = 3;

/// Words in mapped host memory.
pub(crate) struct Words {
    table: &'static Table,
    host: *mut c_void,
    device: sys::CUdeviceptr,
    count: usize,
}

impl Words {
    const STRIDE: usize = 128;

    /// The address of a word on the device.
    pub(crate) fn address(&self, at: usize) -> sys::CUdeviceptr {
        debug_assert!(at < self.count, "word {at} of {}", self.count);
        self.device + (at * Self::STRIDE) as u64
    }

    /// A word as the host sees it.
    #[inline]
    pub(crate) fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at < self.count, "word {at} of {}", self.count);
        // SAFETY: within the allocation, which begins on a page and lives as long as this.
        unsafe {
            &*self
                .host
                .cast::<u8>()
                .add(at * Self::STRIDE)
                .cast::<AtomicU64>()
        }
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
}

impl Drop for Words {
    fn drop(&mut self) {
        // SAFETY: allocated here. Rows end their streams before.
        let _ = unsafe { (self.table.mem_free_host)(self.host) };
    }
}

impl Hand {
    /// `cuMemHostAlloc` of words that both sides see. All are 0, each in a cache line of its own.
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
