//! Objects that a graph keeps.
#![allow(unsafe_code, reason = "talks to the driver, which calls back")]

use std::ffi::c_void;
use std::ptr::null_mut;

use cudarc::driver::sys;
use syncline_core::Result;

use crate::device::context::Context;

/// `CU_USER_OBJECT_NO_DESTRUCTOR_SYNC`.
const NO_DESTRUCTOR_SYNC: u32 = 1;
/// `CU_GRAPH_USER_OBJECT_MOVE`: the graph takes over the reference.
const MOVE: u32 = 1;

impl Context {
    /// Makes `graph`, and all graphs instantiated from it, keep `kept`.
    ///
    /// # Errors
    /// A driver error. `kept` is dropped or released then.
    ///
    /// # Safety
    /// `graph` is a live graph, and no other thread uses it during the call. `release` drops a
    /// `Box<T>` that it gets from `Box::into_raw`, on any thread and without a driver call.
    pub(crate) unsafe fn keep_in_graph<T: Send>(
        &self,
        graph: sys::CUgraph,
        kept: Box<T>,
        release: unsafe extern "C" fn(*mut c_void),
    ) -> Result<()> {
        let kept = Box::into_raw(kept);
        let mut object = null_mut();
        // SAFETY: writes one handle. On success `kept` belongs to the user object, which calls
        // `release` with it once, when its last reference is released.
        let made = unsafe {
            self.driver().user_object_create(
                &raw mut object,
                kept.cast(),
                release,
                1,
                NO_DESTRUCTOR_SYNC,
            )
        };
        if let Err(code) = made {
            // SAFETY: from `Box::into_raw` above. The driver has created no object that owns it.
            drop(unsafe { Box::from_raw(kept) });
            return Err(self.error(code));
        }
        // SAFETY: the caller guarantees a live graph that only this thread uses. The object has one
        // reference, which the graph takes over.
        let taken = unsafe {
            self.driver()
                .graph_retain_user_object(graph, object, 1, MOVE)
        };
        taken.map_err(|code| {
            // SAFETY: the graph has not taken the reference, which is released here.
            let _ = unsafe { self.driver().user_object_release(object, 1) };
            self.error(code)
        })
    }
}
