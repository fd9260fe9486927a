//! Stream memory operations: a stream waits for words of memory or writes them.
#![allow(unsafe_code, reason = "talks to the driver")]

use cudarc::driver::sys;
use smallvec::SmallVec;

use crate::driver::table::{Code, Driver, MemOp, require_function};

/// The most operations in one call. The driver takes fewer than 256.
const MAX_OPS: usize = 255;

/// `CU_STREAM_WAIT_VALUE_FLUSH`: remote writes before the wait are visible to work after the wait.
const FLUSH: u32 = 1 << 30;

/// The flags of a wait.
const fn wait_flags(flush: bool) -> u32 {
    if flush { FLUSH } else { 0 }
}

/// The width of a word of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Width {
    Bits32,
    Bits64,
}

impl Width {
    pub(crate) const fn bytes(self) -> u64 {
        match self {
            Self::Bits32 => 4,
            Self::Bits64 => 8,
        }
    }

    /// The largest difference of values that a wait compares correctly.
    ///
    /// The device compares signed differences.
    pub(crate) const fn largest_difference(self) -> u64 {
        match self {
            Self::Bits32 => i32::MAX as u64,
            Self::Bits64 => i64::MAX as u64,
        }
    }

    /// The value of a word that shows `now` and showed the low bits of `before` earlier.
    ///
    /// `None` if the word has fallen, or has grown by more than the largest difference.
    pub(crate) const fn extend(self, before: u64, now: u64) -> Option<u64> {
        let grown = now.wrapping_sub(before);
        let grown = match self {
            Self::Bits32 => grown & u32::MAX as u64,
            Self::Bits64 => grown,
        };
        if grown > self.largest_difference() {
            return None;
        }
        before.checked_add(grown)
    }

    const fn narrow(self, op: MemOp) -> MemOp {
        match self {
            Self::Bits32 => op.narrowed(),
            Self::Bits64 => op,
        }
    }
}

/// A word by its address on the device, and a value.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Valued {
    pub(crate) address: sys::CUdeviceptr,
    pub(crate) width: Width,
    pub(crate) value: u64,
}

impl Valued {
    const fn is_wide(&self) -> bool {
        matches!(self.width, Width::Bits64)
    }

    /// The operation that waits until the word has reached the value.
    pub(crate) const fn wait_op(self, flush: bool) -> MemOp {
        let wide = MemOp::wait(self.address, self.value, wait_flags(flush));
        self.width.narrow(wide)
    }

    /// The operation that writes the value after a memory fence.
    pub(crate) const fn write_op(self) -> MemOp {
        self.width.narrow(MemOp::write(self.address, self.value))
    }
}

/// Makes later work of `stream` wait until each word has reached its value.
///
/// A word has reached a value if it is larger by at most [`Width::largest_difference`], modulo its
/// width (`CU_STREAM_WAIT_VALUE_GEQ`). `count` is the number of words and at least 1. One driver
/// call takes up to 255 of them.
///
/// See `cuStreamWaitValue64` and `cuStreamBatchMemOp`.
///
/// # Errors
/// A driver error.
///
/// # Safety
/// `stream` is alive. Each address is an aligned word of memory that the stream's context reaches.
/// It stays so until the stream has executed these waits.
pub(crate) unsafe fn wait_all(
    driver: &Driver,
    stream: sys::CUstream,
    count: usize,
    mut words: impl Iterator<Item = Valued>,
    flush: bool,
) -> Result<(), Code> {
    match words.next() {
        Some(word) if count == 1 && word.is_wide() => {
            let flags = wait_flags(flush);
            // SAFETY: the caller guarantees it.
            let call =
                unsafe { driver.stream_wait_value64(stream, word.address, word.value, flags) };
            require_function(call, "cuStreamWaitValue64_v2")
        }
        first => {
            let op = |word: Valued| word.wait_op(flush);
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
        Some(word) if count == 1 && word.is_wide() => {
            // SAFETY: the caller guarantees it.
            let call = unsafe { driver.stream_write_value64(stream, word.address, word.value, 0) };
            require_function(call, "cuStreamWriteValue64_v2")
        }
        first => {
            let op = Valued::write_op;
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

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::the_same(Width::Bits32, 5, 5, Some(5))]
    #[case::more(Width::Bits32, 5, 9, Some(9))]
    #[case::wrapped(Width::Bits32, 0xffff_ffff, 1, Some(0x1_0000_0001))]
    #[case::in_a_later_round(Width::Bits32, 0x7_0000_0002, 3, Some(0x7_0000_0003))]
    #[case::half_way_round(Width::Bits32, 1, 0x8000_0000, Some(0x8000_0000))]
    #[case::fallen(Width::Bits32, 5, 4, None)]
    #[case::fallen_far(Width::Bits32, 1, 0x8000_0001, None)]
    #[case::wide(Width::Bits64, 5, 1 << 40, Some(1 << 40))]
    #[case::wide_fallen(Width::Bits64, 5, 4, None)]
    #[case::all_ones(Width::Bits64, 5, u64::MAX, None)]
    fn a_word_grows_by_its_signed_difference(
        #[case] width: Width,
        #[case] before: u64,
        #[case] now: u64,
        #[case] value: Option<u64>,
    ) {
        assert_eq!(width.extend(before, now), value);
    }
}
