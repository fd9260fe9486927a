//! A CUDA context, retained or adopted, which is made current for the duration of a call.
//!
//! Each call restores the context that was current before it.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::any::Any;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use cudarc::driver::sys;
use syncline_core::backend::kit::{
    Mutex, MutexGuard, StandbyThread, TeardownGuard, must_defer_free,
};
use syncline_core::internal::{DriverCalls, DroppedByMaker};
use syncline_core::{Error, Result, error::Object};

use crate::device::capture_mode::CaptureMode;
use crate::device::deferred_free::{DeferredFrees, Resource};
use crate::driver::table::{Code, Driver, Raw};

/// The owner of an adopted driver object, kept as long as this crate uses the object.
#[derive(Default)]
pub(crate) struct Owner(DroppedByMaker<Option<Arc<dyn Any + Send + Sync>>>);

impl Owner {
    pub(crate) fn new(owner: Option<Arc<dyn Any + Send + Sync>>) -> Self {
        Self(DroppedByMaker::new(owner))
    }

    pub(crate) fn is_some(&self) -> bool {
        self.0.is_some()
    }
}

impl std::fmt::Debug for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Owner")
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // In a forked child, the owner's drop could call the driver.
        if self.0.maker().is_this()
            && let Some(owner) = self.0.take()
        {
            TeardownGuard::drop_owner(owner);
        }
    }
}

/// The CUDA context of one device. Every object created in the context keeps it alive.
pub(crate) struct Context {
    driver: Driver,
    object: Object,
    raw: Raw<sys::CUctx_st>,
    /// A driver call has reported that the device is lost.
    lost: AtomicBool,
    /// The device whose primary context this is, if this struct has retained it.
    retained: Option<sys::CUdevice>,
    owner: Owner,
    deferred_frees: DeferredFrees,
    shared_memory: SharedMemory,
    /// Notified once if the device is lost.
    loss_listeners: Mutex<Vec<Weak<dyn OnLoss>>>,
    /// Notifies them.
    loss_thread: StandbyThread,
}

/// The ranges of memory that this library has imported or exported.
#[derive(Debug, Default)]
pub(crate) struct SharedMemory(Mutex<BTreeMap<(sys::CUdeviceptr, u64), usize>>);

impl SharedMemory {
    /// Adds a range of `bytes` bytes. Ranges may overlap, and one may be added several times.
    pub(crate) fn add(&self, begin: sys::CUdeviceptr, bytes: u64) {
        *self.0.lock().entry((begin, bytes)).or_default() += 1;
    }

    /// Removes a range once.
    pub(crate) fn remove(&self, begin: sys::CUdeviceptr, bytes: u64) {
        let mut ranges = self.0.lock();
        if let Some(count) = ranges.get_mut(&(begin, bytes)) {
            *count -= 1;
            if *count == 0 {
                ranges.remove(&(begin, bytes));
            }
        }
    }

    /// True if the address is in one of the ranges.
    pub(crate) fn has(&self, address: sys::CUdeviceptr) -> bool {
        let ranges = self.0.lock();
        let mut before = ranges.range(..=(address, u64::MAX));
        before.any(|((begin, bytes), _)| address - begin < *bytes)
    }
}

/// An object that must learn of the loss of its device, because no driver call would tell it.
pub(crate) trait OnLoss: Send + Sync {
    /// Handles the loss of the device. Called once, on a separate thread, without any lock held.
    fn lose(&self, cause: &Error);
}

impl Context {
    /// True if this struct keeps the context alive, so that nothing can destroy it earlier.
    pub(crate) fn is_kept(&self) -> bool {
        self.retained.is_some() || self.owner.is_some()
    }

    /// The name of the device in errors.
    pub(crate) const fn object(&self) -> &Object {
        &self.object
    }

    /// Retains the device's primary context.
    ///
    /// # Errors
    /// A driver error.
    pub(crate) fn primary(driver: &Driver, device: sys::CUdevice, object: &Object) -> Result<Self> {
        let mut raw = null_mut();
        // SAFETY: writes one handle. The driver rejects an invalid device.
        unsafe { driver.device_primary_ctx_retain(&raw mut raw, device) }
            .map_err(|code| driver.error(object, code))?;
        TeardownGuard::register();
        Ok(Self {
            driver: driver.clone(),
            object: object.clone(),
            raw: Raw(raw),
            lost: AtomicBool::new(false),
            retained: Some(device),
            owner: Owner::default(),
            deferred_frees: DeferredFrees::default(),
            shared_memory: SharedMemory::default(),
            loss_listeners: Mutex::default(),
            loss_thread: StandbyThread::default(),
        })
    }

    /// Borrows a context from `owner`.
    ///
    /// # Safety
    /// `raw` is a live context and stays alive while `owner` is kept.
    pub(crate) unsafe fn adopted(
        driver: &Driver,
        raw: sys::CUcontext,
        object: &Object,
        owner: Owner,
    ) -> Self {
        TeardownGuard::register();
        Self {
            driver: driver.clone(),
            object: object.clone(),
            raw: Raw(raw),
            lost: AtomicBool::new(false),
            retained: None,
            owner,
            deferred_frees: DeferredFrees::default(),
            shared_memory: SharedMemory::default(),
            loss_listeners: Mutex::default(),
            loss_thread: StandbyThread::default(),
        }
    }

    /// True if the application may destroy the context while this struct exists.
    ///
    /// It has adopted the context without an owner.
    pub(crate) fn is_unowned(&self) -> bool {
        self.retained.is_none() && !self.owner.is_some()
    }

    #[inline]
    pub(crate) const fn driver(&self) -> &Driver {
        &self.driver
    }

    pub(crate) const fn raw(&self) -> sys::CUcontext {
        self.raw.0
    }

    /// Refuses the device in a forked child.
    ///
    /// # Errors
    /// [`Error::MadeBeforeFork`].
    pub(crate) fn require_maker(&self) -> Result<()> {
        self.driver.maker().require(&self.object)
    }

    /// A guard for a drop that calls the driver. See [`MakerProcess::for_destroy`].
    ///
    /// [`MakerProcess::for_destroy`]: syncline_core::internal::MakerProcess::for_destroy
    pub(crate) fn for_destroy(&self) -> Option<DriverCalls> {
        self.driver.maker().for_destroy()
    }

    /// The device of this context.
    ///
    /// # Errors
    /// A driver error.
    pub(crate) fn device(&self) -> Result<sys::CUdevice> {
        let _bound = self.bind()?;
        let mut device = 0;
        // SAFETY: writes one integer, for the current context.
        unsafe { self.driver.ctx_get_device(&raw mut device) }.map_err(|code| self.error(code))?;
        Ok(device)
    }

    /// Resources of this context whose free was deferred.
    pub(crate) const fn deferred_frees(&self) -> &DeferredFrees {
        &self.deferred_frees
    }

    /// Frees `resource` of `bytes` bytes now, or defers that if this call must not block.
    ///
    /// What was deferred is freed first. So resources are freed in the order of these calls, and
    /// imported memory after all that was mapped in it.
    ///
    /// Leaks it in a forked child, because it belongs to the parent process, and once the process
    /// exits.
    pub(crate) fn free_or_defer(&self, resource: Resource, bytes: u64) {
        let Some(_calls) = self.for_destroy() else {
            // A registered page stays mapped.
            return std::mem::forget(resource);
        };
        if must_defer_free() {
            self.deferred_frees.add(resource, bytes);
            return;
        }
        let Ok(_bound) = self.bind_outside_capture() else {
            // The end of a context frees its memory, but not this, which belongs to none.
            if matches!(resource, Resource::Mapped(_)) {
                resource.free(&self.driver);
            }
            return;
        };
        self.deferred_frees.free_all(&self.driver);
        resource.free(&self.driver);
    }

    /// The ranges of this context's memory that another API has, too.
    pub(crate) const fn shared_memory(&self) -> &SharedMemory {
        &self.shared_memory
    }

    /// Calls `make`, which creates a driver object in this context. The context is current.
    ///
    /// Runs deferred frees first if there are many, and again if the driver is out of memory. This
    /// may block until all work of the context has finished. It frees nothing inside calls that
    /// must not block on the device.
    ///
    /// # Errors
    /// A driver error.
    pub(crate) fn allocate(&self, mut make: impl FnMut(&Driver) -> Result<(), Code>) -> Result<()> {
        let may_free = !must_defer_free();
        if may_free {
            self.deferred_frees.free_if_many(&self.driver);
        }
        let made = match make(&self.driver) {
            Err(code)
                if may_free
                    && code.is_out_of_memory()
                    && self.deferred_frees.free_all(&self.driver) =>
            {
                make(&self.driver)
            }
            made => made,
        };
        made.map_err(|code| self.error(code))
    }

    /// Converts an error code of a call in this context to the typed error.
    pub(crate) fn error(&self, code: Code) -> Error {
        self.error_on(&self.object, code)
    }

    /// Converts an error code of a call on `object`, which belongs to this context.
    ///
    /// A lost device is named instead of `object`, which may be an internal stream.
    #[cold]
    pub(crate) fn error_on(&self, object: &Object, code: Code) -> Error {
        let object = if code.is_lost() { &self.object } else { object };
        let error = self.driver.error(object, code);
        if matches!(error, Error::DeviceLost { .. }) {
            self.lose(&error);
        }
        error
    }

    /// Notifies the loss listeners, once, on another thread, because the caller may hold locks.
    fn lose(&self, cause: &Error) {
        if self.lost.swap(true, Ordering::AcqRel) {
            return;
        }
        let listeners = std::mem::take(&mut *self.loss_listeners());
        let cause = cause.clone();
        let notify = move || {
            for listener in listeners.iter().filter_map(Weak::upgrade) {
                listener.lose(&cause);
            }
        };
        // It was started before the first listener was registered.
        self.loss_thread.run(notify);
    }

    /// Registers `listener` for the loss of the device.
    ///
    /// # Errors
    /// [`Error::Native`] if the system has no thread that could notify it.
    pub(crate) fn notify_of_loss(&self, listener: Weak<dyn OnLoss>) -> Result<()> {
        self.loss_thread.start("syncline-lost", &self.object)?;
        let mut listeners = self.loss_listeners();
        listeners.retain(|listener| listener.strong_count() > 0);
        listeners.push(listener);
        Ok(())
    }

    fn loss_listeners(&self) -> MutexGuard<'_, Vec<Weak<dyn OnLoss>>> {
        self.loss_listeners.lock()
    }

    /// True once a call in this context has reported that the device is lost.
    #[inline]
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// Makes the context current on this thread until the guard is dropped.
    ///
    /// # Errors
    /// A driver error.
    #[inline]
    pub(crate) fn bind(&self) -> Result<Bound<'_>> {
        let mut before = null_mut();
        // SAFETY: writes one handle.
        unsafe { self.driver.ctx_get_current(&raw mut before) }.map_err(|code| self.error(code))?;
        if before != self.raw.0 {
            // SAFETY: the context is alive, because it is retained or its owner keeps it (see
            // `adopted`).
            unsafe { self.driver.ctx_push_current(self.raw.0) }.map_err(|code| self.error(code))?;
        }
        Ok(Bound {
            context: self,
            before,
            _this_thread: PhantomData,
        })
    }

    /// Same as [`Context::bind`], for calls that are never part of a stream capture.
    ///
    /// These are creating, freeing, loading and copying for this crate's own purposes.
    ///
    /// # Errors
    /// A driver error.
    pub(crate) fn bind_outside_capture(&self) -> Result<(Bound<'_>, CaptureMode<'_>)> {
        Ok((self.bind()?, self.allow_during_capture()))
    }

    /// Allows calls on this thread while another stream is captured in the driver's "global" mode.
    ///
    /// Calls under this guard are never part of a capture. See
    /// [`capture_mode`](crate::device::capture_mode).
    #[inline]
    pub(crate) fn allow_during_capture(&self) -> CaptureMode<'_> {
        CaptureMode::relaxed(&self.driver)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if self.driver.is_forked() {
            return;
        }
        let Some(_going) = TeardownGuard::begin() else {
            return;
        };
        if self.deferred_frees.is_any() {
            match self.bind_outside_capture() {
                Ok(_bound) => _ = self.deferred_frees.free_all(&self.driver),
                Err(_) => self.deferred_frees.free_exported(&self.driver),
            }
            self.deferred_frees.leak_observed();
        }
        if let Some(device) = self.retained {
            let _mode = self.allow_during_capture();
            // SAFETY: retained once (`primary`) and released once here. Every object of the context
            // keeps this struct, so none is left. At process exit the driver may already be
            // unloaded, and then returns an error.
            let _ = unsafe { self.driver.device_primary_ctx_release(device) };
        }
        // Now, while the driver is loaded, because the owner's drop may destroy the context.
        self.owner = Owner::default();
    }
}

/// Keeps the context current on this thread. Dropping it restores the previous context.
pub(crate) struct Bound<'c> {
    context: &'c Context,
    /// The previous context, or null. If it was this context, nothing was pushed.
    before: sys::CUcontext,
    _this_thread: PhantomData<*const ()>,
}

impl Drop for Bound<'_> {
    #[inline]
    fn drop(&mut self) {
        self.restore();
    }
}

impl Bound<'_> {
    /// Makes the previous context current again.
    ///
    /// Out of line, so that the drop of an `Option` without a guard is one comparison.
    #[inline(never)]
    fn restore(&self) {
        let Context { driver, raw, .. } = self.context;
        let (mut popped, mut now) = (null_mut(), null_mut());
        if self.before != raw.0 {
            // SAFETY: pops what `bind` pushed on this thread. If work has set another context
            // current, that context replaced the pushed one, and the caller's context is below it.
            // If work has set none, or has pushed a context, the pop may reveal a context that is
            // not the caller's. The check below restores the caller's context then.
            let _ = unsafe { driver.ctx_pop_current(&raw mut popped) };
        }
        // SAFETY: writes one handle.
        let is_read = unsafe { driver.ctx_get_current(&raw mut now) }.is_ok();
        if is_read && now != self.before {
            // SAFETY: this context was current on this thread when `bind` was called, or it is
            // null. Only `unsafe` code of the application can have destroyed it since.
            let _ = unsafe { driver.ctx_set_current(self.before) };
        }
    }
}
