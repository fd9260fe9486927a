//! Values that their first user makes.

use std::sync::OnceLock;

/// Returns the value in `slot`. Calls `make` and stores its result if there is none.
///
/// `make` runs without a lock. If another thread stores a value first, that value is returned and
/// the own one is dropped.
///
/// # Errors
/// The error of `make`. The slot stays empty.
#[inline]
pub fn get_or_make<T, E>(slot: &OnceLock<T>, make: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
    if let Some(value) = slot.get() {
        return Ok(value);
    }
    let made = make()?;
    Ok(slot.get_or_init(|| made))
}
