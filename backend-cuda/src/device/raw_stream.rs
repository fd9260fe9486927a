//! Raw streams in use: one entry for each in this process, wherever the handle came from.
#![allow(unsafe_code, reason = "destroys streams")]

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use cudarc::driver::sys;
use syncline_core::Object;
use syncline_core::backend::Mutex;

use crate::device::context::{CaptureMode, Context};
use crate::device::stream_lock::StreamLock;
use crate::driver::table::{Driver, Raw};

/// A context and a stream's handle: the legacy default stream has the same handle in every context.
type Key = (usize, usize);

/// The entries. One list for the process, because two devices may use one context.
///
/// While it is locked no driver is called, and nothing of the application's runs.
static IN_USE: Mutex<BTreeMap<Key, Weak<RawStream>>> = Mutex::new(BTreeMap::new());

/// A driver stream, with the state that all its users in this process share.
pub(crate) struct RawStream {
    key: Key,
    /// Tells the engine which signals keep their order by themselves: those of one domain do. Unique
    /// in this process, and never 0.
    domain: u64,
    raw: Raw<sys::CUstream_st>,
    /// What destroys a stream that was made here; `None` for a stream of the application's.
    made_by: Option<Driver>,
    /// The application has the handle, or had it, and may capture the stream.
    lent: AtomicBool,
    /// Taken for each submission, and by the application for its own calls.
    stream_lock: StreamLock,
}

impl RawStream {
    /// Enters a stream that the driver has just made. It is destroyed with the last reference.
    ///
    /// # Safety
    /// `raw` is a live stream of `context`, and nothing else destroys it. The context lives for as
    /// long as there is a reference.
    pub(crate) unsafe fn made(context: &Context, raw: sys::CUstream) -> Arc<Self> {
        let made = Arc::new(Self {
            key: key(context, raw),
            domain: domain(),
            raw: Raw(raw),
            made_by: Some(context.driver().clone()),
            lent: AtomicBool::new(false),
            stream_lock: StreamLock::default(),
        });
        // An entry under this key is of a stream that is gone: drivers use handles again.
        IN_USE.lock().insert(made.key, Arc::downgrade(&made));
        made
    }

    /// The entry of a stream, if it is in use already.
    pub(crate) fn known(context: &Context, raw: sys::CUstream) -> Option<Arc<Self>> {
        IN_USE.lock().get(&key(context, raw))?.upgrade()
    }

    /// The entry of an application's stream, which is made unless the stream is in use already.
    pub(crate) fn adopted(context: &Context, raw: sys::CUstream) -> Arc<Self> {
        let new = Arc::new(Self {
            key: key(context, raw),
            domain: domain(),
            raw: Raw(raw),
            made_by: None,
            lent: AtomicBool::new(true),
            stream_lock: StreamLock::default(),
        });
        let mut in_use = IN_USE.lock();
        // Another thread may have entered it since the caller looked.
        let known = in_use.get(&new.key).and_then(Weak::upgrade);
        if known.is_none() {
            in_use.insert(new.key, Arc::downgrade(&new));
        }
        // First: an entry that goes locks the list.
        drop(in_use);
        known.unwrap_or(new)
    }

    #[inline]
    pub(crate) const fn domain(&self) -> u64 {
        self.domain
    }

    #[inline]
    pub(crate) const fn raw(&self) -> sys::CUstream {
        self.raw.0
    }

    /// True if the stream lives for as long as this does.
    pub(crate) const fn is_made_here(&self) -> bool {
        self.made_by.is_some()
    }

    /// True if the application never had the handle.
    #[inline]
    pub(crate) fn is_untouched(&self) -> bool {
        !self.lent.load(Ordering::Acquire)
    }

    /// Notes that the application gets the handle.
    pub(crate) fn lend(&self) {
        self.lent.store(true, Ordering::Release);
    }

    #[inline]
    pub(crate) const fn stream_lock(&self) -> &StreamLock {
        &self.stream_lock
    }
}

impl Drop for RawStream {
    fn drop(&mut self) {
        // Before the handle goes, which the driver may give to another thread at once.
        let mut in_use = IN_USE.lock();
        let own = in_use
            .get(&self.key)
            .is_some_and(|entry| std::ptr::eq(entry.as_ptr(), self));
        if own {
            in_use.remove(&self.key);
        }
        drop(in_use);
        if let Some(driver) = &self.made_by {
            let _mode = CaptureMode::relaxed(driver);
            // SAFETY: a live stream that only this destroys, in a context that lives (see `made`).
            // `cuStreamDestroy` lets work that is still in it finish. Nothing here uses the handle
            // any more. An application has it by a guard, which keeps the queue, or by an `unsafe`
            // call of its own. An error means that the context has gone first.
            let _ = unsafe { driver.stream_destroy(self.raw.0) };
        }
    }
}

impl fmt::Debug for RawStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stream {:p}", self.raw.0)
    }
}

/// A number that no other queue of any backend in this process has as its domain.
fn domain() -> u64 {
    Object::new("stream", "").id()
}

fn key(context: &Context, raw: sys::CUstream) -> Key {
    (context.raw().addr(), raw.addr())
}
