//! Errors of imports, which backends have in common.

use crate::base::error::{Error, Object};
use crate::base::handle::MemoryFd;

/// The error for memory that `device` does not import.
#[must_use]
pub fn memory_refused(device: &Object, memory: &MemoryFd, reason: impl Into<String>) -> Error {
    Error::import(device, format!("memory of {} bytes", memory.size()), reason)
}
