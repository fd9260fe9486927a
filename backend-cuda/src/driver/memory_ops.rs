//! Stream memory operations: a stream waits for words of memory or writes them.
#![allow(unsafe_code, reason = "talks to the driver")]

use cudarc::driver::sys;
use smallvec::SmallVec;

use crate::driver::table::{Code, Driver, MemOp, require_function};

/// The most operations in one call. The driver takes fewer than 256.
const MAX_OPS: usize = 255;

/// `CU_STREAM_WAIT_VALUE_FLUSH`: remote writes before the wait are visible to work after the wait.
const FLUSH: u32 = 1 << 30;

/// The device address of a word in registered memory, and a value.
pub(crate) type Valued = (sys::CUdeviceptr, u64);

/// Makes later work of `stream` wait until each word has reached its value.
///
/// A word has reached a value if it is at most 2^63 − 1 larger, modulo 2^64
/// (`CU_STREAM_WAIT_VALUE_GEQ`). `count` is the number of words and at least 1. One driver call
/// takes up to 255 of them.
///
/// See `cuStreamWaitValue64` and `cuStreamBatchMemOp`.
///
/// # Errors
/// A driver error.
///
/// # Safety
/// `stream` is alive. Each address is an aligned 64-bit word in memory that is registered in the
/// stream's context. The memory stays registered until the stream has executed these waits.
pub(crate) unsafe fn wait_all(
    driver: &Driver,
    stream: sys::CUstream,
    count: usize,
    mut words: impl Iterator<Item = Valued>,
    flush: bool,
) -> Result<(), Code> {
    let flags = if flush { FLUSH } else { 0 };
    match words.next() {
        Some((address, value)) if count == 1 => {
            // SAFETY: the caller guarantees it.
            let call = unsafe { driver.stream_wait_value64(stream, address, value, flags) };
            require_function(call, "cuStreamWaitValue64_v2")
        }
        first => {
            let op = |(address, value)| MemOp::wait(address, value, flags);
            // SAFETY: the caller guarantees it.
            unsafe { batches(driver, stream, first.into_iter().chain(words).map(op)) }
        }
    }
}

/// Writes each word after all earlier work of `stream` has finished.
///
/// An observer of a written word also sees all memory writes of that earlier work. `count` is the
/// number of words and at least 1.
///
/// See `cuStreamWriteValue64`, which fences by default, and `cuStreamBatchMemOp`.
///
/// # Errors
/// A driver error.
///
/// # Safety
/// Same as [`wait_all`].
pub(crate) unsafe fn write_all(
    driver: &Driver,
    stream: sys::CUstream,
    count: usize,
    mut words: impl Iterator<Item = Valued>,
) -> Result<(), Code> {
    match words.next() {
        Some((address, value)) if count == 1 => {
            // SAFETY: the caller guarantees it.
            let call = unsafe { driver.stream_write_value64(stream, address, value, 0) };
            require_function(call, "cuStreamWriteValue64_v2")
        }
        first => {
            let op = |(address, value)| MemOp::write(address, value);
            // SAFETY: the caller guarantees it.
            unsafe { batches(driver, stream, first.into_iter().chain(words).map(op)) }
        }
    }
}

/// Submits the operations in as few calls as possible.
///
/// # Safety
/// Same as [`wait_all`].
unsafe fn batches(
    driver: &Driver,
    stream: sys::CUstream,
    ops: impl Iterator<Item = MemOp>,
) -> Result<(), Code> {
    let mut ops: SmallVec<[MemOp; 8]> = ops.collect();
    for ops in ops.chunks_mut(MAX_OPS) {
        // SAFETY: the list has this length, which is less than 256, and outlives the call. The
        // caller guarantees the rest.
        let call =
            unsafe { driver.stream_batch_mem_op(stream, ops.len() as u32, ops.as_mut_ptr(), 0) };
        require_function(call, "cuStreamBatchMemOp_v2")?;
    }
    Ok(())
}
