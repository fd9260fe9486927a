//! The result of a failed import.

use std::fmt;

use crate::base::error::Error;

/// A failed import. The caller still owns the handle.
#[derive(Debug)]
pub struct Rejected<H> {
    /// The handle, unchanged.
    pub handle: H,
    /// The reason.
    pub error: Error,
}

impl<H> fmt::Display for Rejected<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

/// Has no source, because its text is that of [`Rejected::error`].
impl<H: fmt::Debug> std::error::Error for Rejected<H> {}

impl<H> From<Rejected<H>> for Error {
    /// Keeps the reason and closes the handle.
    fn from(rejected: Rejected<H>) -> Self {
        rejected.error
    }
}
