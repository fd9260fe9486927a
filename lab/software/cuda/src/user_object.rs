//! User objects, which graphs keep for an application.
#![allow(unsafe_code, reason = "a pointer that only the application follows")]

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::code::{Answer, Code};
use crate::table::Table;

/// All user objects of which the application has references.
pub(crate) static USER_OBJECTS: Table<UserObject> = Table::new();

/// An object of the application, which is destroyed with its last reference.
pub(crate) struct UserObject {
    pointer: *mut c_void,
    destroy: extern "C" fn(*mut c_void),
    /// References of the application and of graphs.
    references: AtomicU64,
    /// References of the application.
    owned: AtomicU64,
}

// SAFETY: the pointer is only given back to the application's own function, which may run on any
// thread.
unsafe impl Send for UserObject {}
// SAFETY: as for sending.
unsafe impl Sync for UserObject {}

impl UserObject {
    pub(crate) fn new(
        pointer: *mut c_void,
        destroy: extern "C" fn(*mut c_void),
        references: u32,
    ) -> Arc<Self> {
        Arc::new(Self {
            pointer,
            destroy,
            references: AtomicU64::new(references.into()),
            owned: AtomicU64::new(references.into()),
        })
    }

    /// Releases references of the application. The handle is removed with the last one.
    pub(crate) fn release(&self, handle: usize, count: u32) -> Answer {
        self.disown(handle, count)?;
        self.drop_references(count);
        Ok(())
    }

    /// Removes references of the application.
    fn disown(&self, handle: usize, count: u32) -> Answer {
        let fewer = |owned: u64| owned.checked_sub(count.into());
        let (set, get) = (Ordering::AcqRel, Ordering::Acquire);
        let before = self.owned.fetch_update(set, get, fewer);
        let before = before.map_err(|_| Code::INVALID_VALUE)?;
        if before == u64::from(count) {
            let _ = USER_OBJECTS.remove(handle);
        }
        Ok(())
    }

    fn drop_references(&self, count: u32) {
        let count = u64::from(count);
        if self.references.fetch_sub(count, Ordering::AcqRel) == count {
            (self.destroy)(self.pointer);
        }
    }
}

/// References that a graph has.
pub(crate) struct Kept {
    object: Arc<UserObject>,
    count: u32,
}

impl Kept {
    /// Adds references for a graph.
    pub(crate) fn new(object: Arc<UserObject>, count: u32) -> Self {
        object.references.fetch_add(count.into(), Ordering::AcqRel);
        Self { object, count }
    }

    /// Moves references of the application to a graph.
    pub(crate) fn moved(object: Arc<UserObject>, handle: usize, count: u32) -> Answer<Self> {
        object.disown(handle, count)?;
        Ok(Self { object, count })
    }
}

impl Clone for Kept {
    fn clone(&self) -> Self {
        Self::new(self.object.clone(), self.count)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.object.drop_references(self.count);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test's")]

    use super::*;

    extern "C" fn count(pointer: *mut c_void) {
        // SAFETY: each test passes a counter that it keeps.
        unsafe { &*pointer.cast::<AtomicU64>() }.fetch_add(1, Ordering::SeqCst);
    }

    #[test]
    fn an_object_is_destroyed_with_its_last_reference() {
        let destroyed = AtomicU64::new(0);
        let pointer = (&raw const destroyed).cast_mut().cast();
        let object = UserObject::new(pointer, count, 2);
        let handle = USER_OBJECTS.add(object.clone());
        let moved = Kept::moved(object.clone(), handle, 1).unwrap();
        let copy = moved.clone();
        drop(moved);
        assert_eq!(object.release(handle, 2), Err(Code::INVALID_VALUE));
        object.release(handle, 1).unwrap();
        assert!(USER_OBJECTS.get(handle).is_err());
        assert_eq!(destroyed.load(Ordering::SeqCst), 0);
        drop(copy);
        assert_eq!(destroyed.load(Ordering::SeqCst), 1);
    }
}
