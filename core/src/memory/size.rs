//! Which sizes and ranges memory has, on every backend.

use crate::base::error::{Error, Object, Result};

const WHOLE_WORDS: &str = "its size is whole 32-bit words, at least one";

/// True for the size of one or more whole words.
pub(crate) const fn is_whole_words(bytes: u64) -> bool {
    bytes > 0 && bytes.is_multiple_of(4)
}

/// Checks that memory of `bytes` bytes may be made (X8).
///
/// # Errors
/// [`Error::Unsupported`] unless `bytes` is a positive multiple of 4.
pub fn require_size(object: &Object, bytes: u64) -> Result<()> {
    if is_whole_words(bytes) {
        return Ok(());
    }
    Err(size_refused(object, bytes, WHOLE_WORDS))
}

/// The error for memory of a size that cannot be made.
#[must_use]
pub fn size_refused(object: &Object, bytes: u64, reason: &str) -> Error {
    Error::unsupported(object, format!("make memory of {bytes} bytes"), reason)
}

/// Checks that memory of `whole` bytes has a range of `bytes` bytes at `offset` (X8).
///
/// # Errors
/// [`Error::Unsupported`] unless both numbers are multiples of 4, `bytes` is positive, and the
/// range ends within the memory.
pub fn require_range(object: &Object, whole: u64, offset: u64, bytes: u64) -> Result<()> {
    let reason = if !is_whole_words(bytes) || !offset.is_multiple_of(4) {
        "a range is whole 32-bit words, at least one".into()
    } else if offset.checked_add(bytes).is_none_or(|end| end > whole) {
        format!("it has {whole} bytes")
    } else {
        return Ok(());
    };
    let asked = format!("give {bytes} bytes at offset {offset}");
    Err(Error::unsupported(object, asked, reason))
}
