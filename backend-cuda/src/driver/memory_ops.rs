//! Stream memory operations: streams that wait for words of memory, and write them.
#![allow(unsafe_code, reason = "talks to the driver")]

use cudarc::driver::sys;
use smallvec::SmallVec;

use crate::driver::table::{Code, Driver, MemOp};

/// The driver takes fewer than 256 in a call.
const MOST: usize = 255;

/// The bit of a wait that lets remote writes which came before it be seen after it (`CU_STREAM_WAIT_VALUE_FLUSH`).
const FLUSH: u32 = 1 << 30;

/// A word of registered memory, as the device addresses it, and its value.
pub(crate) type Valued = (sys::CUdeviceptr, u64);

/// Makes what is submitted to `stream` later wait until each word has its value or one behind it, which is for the
/// device one up to 2^63 − 1 larger. There are so many, at least one; one call takes up to 255.
///
/// See `cuStreamWaitValue64` with `CU_STREAM_WAIT_VALUE_GEQ`, and `cuStreamBatchMemOp`.
///
/// # Errors
/// A driver error.
///
/// # Safety
/// `stream` is alive. Each address is of 64 bits, aligned, in memory that is registered in the stream's context, and
/// stays so until the stream has come past this.
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
            // SAFETY: the caller's promise.
            let call = unsafe { driver.stream_wait_value64(stream, address, value, flags) };
            judge(call, "cuStreamWaitValue64_v2")
        }
        first => {
            let op = |(address, value)| MemOp::wait(address, value, flags);
            // SAFETY: the caller's promise.
            unsafe { batches(driver, stream, first.into_iter().chain(words).map(op)) }
        }
    }
}

/// Writes each word once what was submitted to `stream` before is finished, and everybody who sees that sees all of that.
///
/// See `cuStreamWriteValue64`, whose default is to fence, and `cuStreamBatchMemOp`.
///
/// # Errors
/// A driver error.
///
/// # Safety
/// As [`wait_all`].
pub(crate) unsafe fn write_all(
    driver: &Driver,
    stream: sys::CUstream,
    count: usize,
    mut words: impl Iterator<Item = Valued>,
) -> Result<(), Code> {
    match words.next() {
        Some((address, value)) if count == 1 => {
            // SAFETY: the caller's promise.
            let call = unsafe { driver.stream_write_value64(stream, address, value, 0) };
            judge(call, "cuStreamWriteValue64_v2")
        }
        first => {
            let op = |(address, value)| MemOp::write(address, value);
            // SAFETY: the caller's promise.
            unsafe { batches(driver, stream, first.into_iter().chain(words).map(op)) }
        }
    }
}

/// As many calls as there must be.
///
/// # Safety
/// As [`wait_all`].
unsafe fn batches(
    driver: &Driver,
    stream: sys::CUstream,
    ops: impl Iterator<Item = MemOp>,
) -> Result<(), Code> {
    let mut ops: SmallVec<[MemOp; 8]> = ops.collect();
    for ops in ops.chunks_mut(MOST) {
        // SAFETY: the list has that many, fewer than 256, and outlives the call; the rest is the
        // caller's promise.
        let call =
            unsafe { driver.stream_batch_mem_op(stream, ops.len() as u32, ops.as_mut_ptr(), 0) };
        judge(call, "cuStreamBatchMemOp_v2")?;
    }
    Ok(())
}

/// A driver without the function is never asked: no counter comes in then.
fn judge(call: Option<Result<(), Code>>, name: &'static str) -> Result<(), Code> {
    call.unwrap_or(Err(Code::not_supported(name)))
}
