//! Tables of the data for dispatchable handles, and locks.
#![allow(unsafe_code, reason = "reads the dispatch key of a handle")]

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use ash::vk::Handle;

/// Locks a mutex.
///
/// A thread that panicked with the lock held cannot have left the data in an invalid state. The
/// data are counters and lists.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks for reading, with the same rule as [`lock`].
pub(crate) fn read<T>(locked: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    locked.read().unwrap_or_else(PoisonError::into_inner)
}

/// Locks for writing, with the same rule as [`lock`].
pub(crate) fn write<T>(locked: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    locked.write().unwrap_or_else(PoisonError::into_inner)
}

/// The layer's data of each instance or device.
///
/// Each has the process that made it. A call from another process, which was forked, ends that
/// process.
pub(crate) struct Table<T>(RwLock<BTreeMap<usize, (u32, Arc<T>)>>);

/// Ends a forked process that uses an instance or a device of its parent.
///
/// The specification says nothing about such calls. Drivers share descriptors with the parent, so
/// the call may change what the parent has.
fn require_process(maker: u32) {
    let process = std::process::id();
    if process != maker {
        // Not `eprintln!`, which panics if standard error cannot be written.
        let _ = writeln!(
            std::io::stderr(),
            "software layer: process {process} calls the driver with an object that process \
             {maker} made before a fork"
        );
        std::process::abort();
    }
}

/// Returns the pointer at the start of a dispatchable object.
///
/// A device shares it with its queues, and an instance with its physical devices.
///
/// # Safety
/// `handle` is null or a live dispatchable handle.
unsafe fn key(handle: impl Handle) -> usize {
    let object = handle.as_raw() as usize as *const usize;
    // SAFETY: by this function's contract. The loader puts the pointer to its dispatch table there.
    unsafe { object.as_ref() }.copied().unwrap_or(0)
}

impl<T> Table<T> {
    pub(crate) const fn new() -> Self {
        Self(RwLock::new(BTreeMap::new()))
    }

    /// # Safety
    /// As [`key`].
    pub(crate) unsafe fn get(&self, handle: impl Handle) -> Option<Arc<T>> {
        // SAFETY: by this function's contract.
        let key = unsafe { key(handle) };
        let (maker, found) = read(&self.0).get(&key).cloned()?;
        require_process(maker);
        Some(found)
    }

    /// # Safety
    /// As [`key`].
    pub(crate) unsafe fn insert(&self, handle: impl Handle, value: Arc<T>) {
        // SAFETY: by this function's contract.
        let key = unsafe { key(handle) };
        write(&self.0).insert(key, (std::process::id(), value));
    }

    /// # Safety
    /// As [`key`].
    pub(crate) unsafe fn remove(&self, handle: impl Handle) -> Option<Arc<T>> {
        // SAFETY: by this function's contract.
        let key = unsafe { key(handle) };
        let (maker, removed) = write(&self.0).remove(&key)?;
        require_process(maker);
        Some(removed)
    }
}
