//! Which sizes and ranges memory has, on every backend.

use crate::base::error::{Error, Object, Result};

const WHOLE_WORDS: &str = "its size is whole 32-bit words, at least one";

/// True for the size of one or more whole words.
pub(crate) const fn is_whole_words(size: u64) -> bool {
    size > 0 && size.is_multiple_of(4)
}

/// Checks that memory of `size` bytes may be made (X8).
///
/// # Errors
/// [`Error::Unsupported`] unless `size` is a positive multiple of 4.
pub fn require_size(object: &Object, size: u64) -> Result<()> {
    if is_whole_words(size) {
        return Ok(());
    }
    Err(size_refused(object, size, WHOLE_WORDS))
}

/// The error for memory of a size that cannot be made.
#[must_use]
pub fn size_refused(object: &Object, size: u64, reason: &str) -> Error {
    Error::unsupported(object, format!("make memory of {size} bytes"), reason)
}

/// Checks that memory of `whole` bytes has a range of `size` bytes at `offset` (X8).
///
/// # Errors
/// [`Error::Unsupported`] unless both numbers are multiples of 4, `size` is positive, and the
/// range ends within the memory.
pub fn require_range(object: &Object, whole: u64, offset: u64, size: u64) -> Result<()> {
    let reason = if !is_whole_words(size) || !offset.is_multiple_of(4) {
        "a range is whole 32-bit words, at least one".into()
    } else if offset.checked_add(size).is_none_or(|end| end > whole) {
        format!("it has {whole} bytes")
    } else {
        return Ok(());
    };
    let asked = format!("give {size} bytes at offset {offset}");
    Err(Error::unsupported(object, asked, reason))
}
