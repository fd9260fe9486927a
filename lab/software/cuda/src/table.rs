//! Handles and their objects.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::code::{Answer, Code};

/// The next handle. Small values are special streams, and pointers of applications are larger.
static NEXT: AtomicUsize = AtomicUsize::new(0x1_0000);
const STEP: usize = 16;

/// Returns a handle that no object had before.
///
/// A handle is no address, so that a handle of a destroyed object causes an error and no crash.
pub(crate) fn new_handle() -> usize {
    NEXT.fetch_add(STEP, Ordering::Relaxed)
}

/// All live objects of one kind.
pub(crate) struct Table<T>(RwLock<Handles<T>>);

struct Handles<T> {
    live: BTreeMap<usize, Arc<T>>,
    /// The handles of objects that were destroyed with their context.
    orphans: BTreeSet<usize>,
}

impl<T> Handles<T> {
    /// Returns the reason why a handle has no live object.
    fn missing(&self, handle: usize) -> Code {
        if self.orphans.contains(&handle) {
            return Code::CONTEXT_IS_DESTROYED;
        }
        Code::INVALID_HANDLE
    }
}

impl<T> Table<T> {
    pub(crate) const fn new() -> Self {
        Self(RwLock::new(Handles {
            live: BTreeMap::new(),
            orphans: BTreeSet::new(),
        }))
    }

    fn read(&self) -> RwLockReadGuard<'_, Handles<T>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Handles<T>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an object and returns its new handle.
    pub(crate) fn add(&self, object: Arc<T>) -> usize {
        let handle = new_handle();
        self.put(handle, object);
        handle
    }

    /// Adds an object under a handle that was made before.
    pub(crate) fn put(&self, handle: usize, object: Arc<T>) {
        self.write().live.insert(handle, object);
    }

    /// Returns the object, or `INVALID_HANDLE`, or `CONTEXT_IS_DESTROYED`.
    pub(crate) fn get(&self, handle: usize) -> Answer<Arc<T>> {
        let handles = self.read();
        let live = handles.live.get(&handle).cloned();
        live.ok_or_else(|| handles.missing(handle))
    }

    /// Removes the object. Its handle is invalid from now on.
    pub(crate) fn remove(&self, handle: usize) -> Answer<Arc<T>> {
        let mut handles = self.write();
        let live = handles.live.remove(&handle);
        live.ok_or_else(|| handles.missing(handle))
    }

    /// Removes all objects for which `keep` is false.
    pub(crate) fn retain(&self, keep: impl Fn(&T) -> bool) {
        // Their destructors may use the table, so they run when it is unlocked.
        let gone = Self::split(&mut self.write(), keep);
        drop(gone);
    }

    /// Removes all objects for which `keep` is false.
    ///
    /// Their handles then report that the context is destroyed.
    pub(crate) fn orphan(&self, keep: impl Fn(&T) -> bool) {
        let gone = {
            let mut handles = self.write();
            let gone = Self::split(&mut handles, keep);
            handles.orphans.extend(gone.keys());
            gone
        };
        drop(gone);
    }

    fn split(handles: &mut Handles<T>, keep: impl Fn(&T) -> bool) -> BTreeMap<usize, Arc<T>> {
        let all = std::mem::take(&mut handles.live).into_iter();
        let (kept, gone) = all.partition(|(_, object)| keep(object));
        handles.live = kept;
        gone
    }

    /// Returns an object for which `is_it` is true.
    pub(crate) fn find(&self, is_it: impl Fn(&T) -> bool) -> Option<Arc<T>> {
        let handles = self.read();
        let found = handles.live.values().find(|object| is_it(object));
        found.cloned()
    }

    /// Returns the number of live objects.
    pub(crate) fn len(&self) -> usize {
        self.read().live.len()
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
        assert_eq!(table.get(second), Err(Code::INVALID_HANDLE));
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn a_handle_tells_that_its_context_is_destroyed() {
        let table = Table::new();
        let (first, second) = (table.add(Arc::new(1)), table.add(Arc::new(2)));
        table.orphan(|number| *number != 2);
        assert_eq!(*table.get(first).unwrap(), 1);
        assert_eq!(table.get(second), Err(Code::CONTEXT_IS_DESTROYED));
        assert_eq!(table.remove(second), Err(Code::CONTEXT_IS_DESTROYED));
        assert_eq!(table.len(), 1);
    }
}
