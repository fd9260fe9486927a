//! Handles, and the objects that they name.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crate::code::{Answer, Code};

/// Small values have a meaning as streams, and pointers of applications are larger.
static NEXT: AtomicUsize = AtomicUsize::new(0x1_0000);
const STEP: usize = 16;

/// A handle that no object had before.
///
/// A handle is no address, so that a handle of a destroyed object is an error and no crash.
pub(crate) fn new_handle() -> usize {
    NEXT.fetch_add(STEP, Ordering::Relaxed)
}

/// All live objects of one kind.
pub(crate) struct Table<T>(RwLock<BTreeMap<usize, Arc<T>>>);

impl<T> Table<T> {
    pub(crate) const fn new() -> Self {
        Self(RwLock::new(BTreeMap::new()))
    }

    /// Adds an object and returns its new handle.
    pub(crate) fn add(&self, object: Arc<T>) -> usize {
        let handle = new_handle();
        self.put(handle, object);
        handle
    }

    /// Adds an object under a handle that was made before.
    pub(crate) fn put(&self, handle: usize, object: Arc<T>) {
        let mut table = self.0.write().unwrap_or_else(PoisonError::into_inner);
        table.insert(handle, object);
    }

    /// The object, or `INVALID_HANDLE`.
    pub(crate) fn get(&self, handle: usize) -> Answer<Arc<T>> {
        let table = self.0.read().unwrap_or_else(PoisonError::into_inner);
        table.get(&handle).cloned().ok_or(Code::INVALID_HANDLE)
    }

    /// Removes the object: its handle is invalid from now on.
    pub(crate) fn remove(&self, handle: usize) -> Answer<Arc<T>> {
        let mut table = self.0.write().unwrap_or_else(PoisonError::into_inner);
        table.remove(&handle).ok_or(Code::INVALID_HANDLE)
    }

    /// Removes all objects for which `keep` is false.
    pub(crate) fn retain(&self, keep: impl Fn(&T) -> bool) {
        let gone = {
            let mut table = self.0.write().unwrap_or_else(PoisonError::into_inner);
            let gone: Vec<_> = table
                .iter()
                .filter(|(_, object)| !keep(object))
                .map(|(handle, _)| *handle)
                .collect();
            gone.into_iter()
                .filter_map(|handle| table.remove(&handle))
                .collect::<Vec<_>>()
        };
        // Their destructors may use the table.
        drop(gone);
    }

    /// An object for which `is_it` is true.
    pub(crate) fn find(&self, is_it: impl Fn(&T) -> bool) -> Option<Arc<T>> {
        let table = self.0.read().unwrap_or_else(PoisonError::into_inner);
        table.values().find(|object| is_it(object)).cloned()
    }

    /// How many live objects there are.
    pub(crate) fn len(&self) -> usize {
        self.0.read().unwrap_or_else(PoisonError::into_inner).len()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test's")]

    use super::*;

    #[test]
    fn a_removed_handle_stays_invalid() {
        let table = Table::new();
        let first = table.add(Arc::new(1));
        assert_eq!(*table.get(first).unwrap(), 1);
        table.remove(first).unwrap();
        let second = table.add(Arc::new(2));
        assert_ne!(first, second);
        assert_eq!(table.get(first), Err(Code::INVALID_HANDLE));
        assert_eq!(table.remove(first), Err(Code::INVALID_HANDLE));
        table.retain(|number| *number != 2);
        assert_eq!(table.len(), 0);
    }
}
