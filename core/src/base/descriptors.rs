//! How many descriptors the process may still open, for errors of drivers.
#![allow(unsafe_code, reason = "asks which numbers are open")]

use std::fmt;

use rustix::process::{Resource, getrlimit};

/// Few descriptors are left, which may be why a call failed (E5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FewDescriptors {
    left: u64,
    limit: u64,
}

impl FewDescriptors {
    /// One call of a driver may need several. NVIDIA's driver opens dozens for a device.
    const ENOUGH: u64 = 16;

    /// Returns `None` if enough are left.
    ///
    /// Opens nothing, because another thread may need the last descriptor. So it asks for the
    /// highest numbers first, which are free in most processes.
    pub(crate) fn now() -> Option<Self> {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let highest = i32::try_from(limit).unwrap_or(i32::MAX);
        let is_free = |number: &i32| {
            // SAFETY: reads the flags of a number, and fails if it is not open.
            unsafe { libc::fcntl(*number, libc::F_GETFD) == -1 }
        };
        let free = (0..highest).rev().filter(is_free);
        let left = free.take(Self::ENOUGH as usize).count() as u64;
        (left < Self::ENOUGH).then_some(Self { left, limit })
    }
}

impl fmt::Display for FewDescriptors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { left, limit } = self;
        write!(f, "{left} of {limit} descriptors left, see RLIMIT_NOFILE")
    }
}

/// Adds to the text of a failed call that few descriptors are left, if so.
pub(crate) fn with_shortage(text: String) -> String {
    match FewDescriptors::now() {
        Some(few) => format!("{text} with {few}"),
        None => text,
    }
}
