//! Raw streams in use: one entry per stream in this process, for all its handles and queues.
#![allow(unsafe_code, reason = "destroys streams")]

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use cudarc::driver::sys;
use syncline_core::backend::kit::Mutex;
use syncline_core::error::Object;
use syncline_core::internal::MakerProcess;

use crate::device::capture_mode::CaptureMode;
use crate::device::stream_lock::StreamLock;
use crate::driver::table::{Driver, Raw};

/// The addresses of the context and of the stream.
///
/// The legacy default stream has one handle in all contexts.
type Key = (usize, usize);

/// All entries of the process, because two devices may use one context.
///
/// No driver call and no code of the application runs while this is locked.
static IN_USE: Mutex<BTreeMap<Key, Weak<RawStream>>> = Mutex::new(BTreeMap::new());

/// A stream of the driver, with the state that all its users in this process share.
pub(crate) struct RawStream {
    key: Key,
    /// The order domain: signals of one domain keep their order without waits. Unique, and never 0.
    domain: u64,
    raw: Raw<sys::CUstream_st>,
    /// The driver that destroys a stream of this crate, or `None` for a stream of the application.
    made_by: Option<Driver>,
    /// The application has or had the handle, and may capture the stream.
    lent: AtomicBool,
    /// Held during each submission, and by the application during its own calls.
    stream_lock: StreamLock,
    maker: MakerProcess,
}

impl RawStream {
    /// Adds an entry for a stream that the driver has just created. The last reference destroys it.
    ///
    /// # Safety
    /// `driver` has made `context`. `raw` is a live stream of `context`, and nothing else destroys
    /// the stream. The context outlives every reference.
    pub(crate) unsafe fn made(
        driver: &Driver,
        context: sys::CUcontext,
        raw: sys::CUstream,
    ) -> Arc<Self> {
        let made = Arc::new(Self {
            key: key(context, raw),
            domain: domain(),
            raw: Raw(raw),
            made_by: Some(driver.clone()),
            lent: AtomicBool::new(false),
            stream_lock: StreamLock::default(),
            maker: MakerProcess::this(),
        });
        // An old entry under this key belongs to a destroyed stream, because drivers reuse handles.
        IN_USE.lock().insert(made.key, Arc::downgrade(&made));
        made
    }

    /// The entry of a stream that is in use already.
    pub(crate) fn in_use(context: sys::CUcontext, raw: sys::CUstream) -> Option<Arc<Self>> {
        IN_USE.lock().get(&key(context, raw))?.upgrade()
    }

    /// The entry of an application's stream. Adds one if the stream is not in use yet.
    pub(crate) fn adopted(context: sys::CUcontext, raw: sys::CUstream) -> Arc<Self> {
        let new = Arc::new(Self {
            key: key(context, raw),
            domain: domain(),
            raw: Raw(raw),
            made_by: None,
            lent: AtomicBool::new(true),
            stream_lock: StreamLock::default(),
            maker: MakerProcess::this(),
        });
        let mut in_use = IN_USE.lock();
        // Another thread may have added it since the caller checked.
        let earlier = in_use.get(&new.key).and_then(Weak::upgrade);
        if earlier.is_none() {
            in_use.insert(new.key, Arc::downgrade(&new));
        }
        // Unlock first, because dropping an entry takes the lock.
        drop(in_use);
        earlier.unwrap_or(new)
    }

    #[inline]
    pub(crate) const fn domain(&self) -> u64 {
        self.domain
    }

    #[inline]
    pub(crate) const fn raw(&self) -> sys::CUstream {
        self.raw.0
    }

    /// True if the stream lives at least as long as this entry.
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
        // In a forked child, a thread of the parent may have held the lock.
        let Some(_calls) = self.maker.for_destroy() else {
            return;
        };
        // Before the stream is destroyed, because the driver may reuse the handle on another thread
        // at once.
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
            // SAFETY: a live stream that only this call destroys, in a live context (see `made`).
            // `cuStreamDestroy` lets pending work finish. Nothing here uses the handle any more.
            // The application has the handle through a guard, which keeps the queue, or through an
            // `unsafe` call. An error means that the context is already gone.
            let _ = unsafe { driver.stream_destroy(self.raw.0) };
        }
    }
}

impl fmt::Debug for RawStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stream {:p}", self.raw.0)
    }
}

/// A domain that no other queue of any backend in this process has.
fn domain() -> u64 {
    Object::new("stream", "").id()
}

fn key(context: sys::CUcontext, raw: sys::CUstream) -> Key {
    (context.addr(), raw.addr())
}
