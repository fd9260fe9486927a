//! A CUDA context: retained or adopted, made current for a call, the caller's left as found.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::any::Any;
use std::marker::PhantomData;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use cudarc::driver::sys;
use syncline_core::backend::{Mutex, MutexGuard, TakingDown, is_letting_go};
use syncline_core::{Error, Object, Result};

use crate::device::deferred_free::DeferredFrees;
use crate::driver::table::{Code, Driver, Raw};

/// Who owns an adopted driver object; kept as long as it is used here.
pub(crate) type Owner = Option<Arc<dyn Any + Send + Sync>>;

const CAPTURE_MODE_RELAXED: u32 = 2;

/// The context that everything of one device lives in. Whatever is made in it keeps it alive.
pub(crate) struct Context {
    driver: Driver,
    object: Object,
    raw: Raw<sys::CUctx_st>,
    /// The driver has said that nothing works in it any more.
    lost: AtomicBool,
    /// The device whose primary context this is, if it was retained here.
    retained: Option<sys::CUdevice>,
    owner: Owner,
    deferred_frees: DeferredFrees,
    /// What is told once if the device is lost.
    loss_listeners: Mutex<Vec<Weak<dyn OnLoss>>>,
}

/// Something that no driver tells of the loss of its device.
pub(crate) trait OnLoss: Send + Sync {
    /// The device is lost. Called once, on a thread of its own, with no lock held.
    fn lose(&self, cause: &Error);
}

impl Context {
    /// True if it lives as long as this: nobody destroys it before.
    pub(crate) const fn is_kept(&self) -> bool {
        self.retained.is_some() || self.owner.is_some()
    }

    /// The device's name in errors.
    pub(crate) const fn object(&self) -> &Object {
        &self.object
    }

    /// Retains the device's primary context.
    ///
    /// # Errors
    /// A driver error.
    pub(crate) fn primary(driver: &Driver, device: sys::CUdevice, object: &Object) -> Result<Self> {
        let mut raw = null_mut();
        // SAFETY: writes one handle. The driver refuses what is no device.
        unsafe { driver.device_primary_ctx_retain(&raw mut raw, device) }
            .map_err(|code| driver.error(object, code))?;
        Ok(Self {
            driver: driver.clone(),
            object: object.clone(),
            raw: Raw(raw),
            lost: AtomicBool::new(false),
            retained: Some(device),
            owner: None,
            deferred_frees: DeferredFrees::default(),
            loss_listeners: Mutex::default(),
        })
    }

    /// Borrows a context from `owner`.
    ///
    /// # Safety
    /// `raw` is a live context, and stays so while `owner` is kept.
    pub(crate) unsafe fn adopted(
        driver: &Driver,
        raw: sys::CUcontext,
        object: &Object,
        owner: Owner,
    ) -> Self {
        TakingDown::prepare();
        Self {
            driver: driver.clone(),
            object: object.clone(),
            raw: Raw(raw),
            lost: AtomicBool::new(false),
            retained: None,
            owner,
            deferred_frees: DeferredFrees::default(),
            loss_listeners: Mutex::default(),
        }
    }

    #[inline]
    pub(crate) const fn driver(&self) -> &Driver {
        &self.driver
    }

    pub(crate) const fn raw(&self) -> sys::CUcontext {
        self.raw.0
    }

    /// The device that it is a context of.
    ///
    /// # Errors
    /// A driver error.
    pub(crate) fn device(&self) -> Result<sys::CUdevice> {
        let _bound = self.bind()?;
        let mut device = 0;
        // SAFETY: writes one number, of the current context.
        unsafe { self.driver.ctx_get_device(&raw mut device) }.map_err(|code| self.error(code))?;
        Ok(device)
    }

    /// What is to be freed in it later.
    pub(crate) const fn deferred_frees(&self) -> &DeferredFrees {
        &self.deferred_frees
    }

    /// Has the driver make something, in this context, which is current. Frees what is due if that is much, or if the driver has no more, and
    /// may wait for all work of the context then; but not inside calls that must not.
    ///
    /// # Errors
    /// A driver error.
    pub(crate) fn allocate(&self, mut make: impl FnMut(&Driver) -> Result<(), Code>) -> Result<()> {
        let frees = !is_letting_go();
        if frees {
            self.deferred_frees.free_if_many(&self.driver);
        }
        let made = match make(&self.driver) {
            Err(code)
                if frees
                    && code.is_out_of_memory()
                    && self.deferred_frees.free_all(&self.driver) =>
            {
                make(&self.driver)
            }
            made => made,
        };
        made.map_err(|code| self.error(code))
    }

    /// The typed error for a result in this context.
    pub(crate) fn error(&self, code: Code) -> Error {
        self.error_on(&self.object, code)
    }

    /// The typed error for a result on an object of this context.
    #[cold]
    pub(crate) fn error_on(&self, object: &Object, code: Code) -> Error {
        let error = self.driver.error(object, code);
        if matches!(error, Error::DeviceLost { .. }) {
            self.lose(&error);
        }
        error
    }

    /// Fails what its streams were to signal in shared memory, once: on a thread of its own, as locks may be held here.
    fn lose(&self, cause: &Error) {
        if self.lost.swap(true, Ordering::AcqRel) {
            return;
        }
        let listeners = std::mem::take(&mut *self.loss_listeners());
        let cause = cause.clone();
        let tell = move || {
            for listener in listeners.iter().filter_map(Weak::upgrade) {
                listener.lose(&cause);
            }
        };
        let thread = std::thread::Builder::new().name("syncline-lost".into());
        // Without a thread those who wait find out by their time-outs.
        let _ = thread.spawn(tell);
    }

    /// Has `listener` told if the device is lost.
    pub(crate) fn notify_of_loss(&self, listener: Weak<dyn OnLoss>) {
        let mut listeners = self.loss_listeners();
        listeners.retain(|known| known.strong_count() > 0);
        listeners.push(listener);
    }

    fn loss_listeners(&self) -> MutexGuard<'_, Vec<Weak<dyn OnLoss>>> {
        self.loss_listeners.lock()
    }

    /// True once a call in this context has met the loss of the device.
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
            // SAFETY: alive: retained, or lent by who adopted it (see `adopted`).
            unsafe { self.driver.ctx_push_current(self.raw.0) }.map_err(|code| self.error(code))?;
        }
        Ok(Bound {
            context: self,
            before,
            _this_thread: PhantomData,
        })
    }

    /// As [`Context::bind`], for what has nothing to do with streams that somebody captures: making, freeing,
    /// loading and copying on our own account.
    ///
    /// # Errors
    /// A driver error.
    pub(crate) fn bind_outside_capture(&self) -> Result<(Bound<'_>, CaptureMode<'_>)> {
        Ok((self.bind()?, self.allow_during_capture()))
    }

    /// Lets calls on this thread pass while a stream is captured into a graph in the driver's "global" mode, by
    /// any thread: the driver refuses then whatever may synchronize (`cuMemFree`, `cuModuleUnload` and queries
    /// among it), and invalidates that capture. What is called here is never part of a capture.
    #[inline]
    pub(crate) fn allow_during_capture(&self) -> CaptureMode<'_> {
        CaptureMode::relaxed(&self.driver)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let Some(_going) = TakingDown::begin() else {
            std::mem::forget(self.owner.take());
            return;
        };
        if self.deferred_frees.is_any()
            && let Ok(_bound) = self.bind_outside_capture()
        {
            self.deferred_frees.free_all(&self.driver);
        }
        if let Some(device) = self.retained {
            let _mode = self.allow_during_capture();
            // SAFETY: retained once (`primary`), released once. Whatever was made in it keeps this,
            // so nothing of it is left. At process exit the driver may be gone already, and then
            // says so.
            let _ = unsafe { self.driver.device_primary_ctx_release(device) };
        }
        // The application's, and with it whatever that destroys.
        self.owner = None;
    }
}

/// The context is current on this thread; dropping it restores what the caller had.
pub(crate) struct Bound<'c> {
    context: &'c Context,
    /// What was current before; null for none. If it was the context already, nothing was pushed.
    before: sys::CUcontext,
    _this_thread: PhantomData<*const ()>,
}

impl Drop for Bound<'_> {
    #[inline]
    fn drop(&mut self) {
        let Context { driver, raw, .. } = self.context;
        let (mut popped, mut now) = (null_mut(), null_mut());
        if self.before != raw.0 {
            // SAFETY: pops what `bind` pushed on this thread. Work that has set another context current has
            // replaced the pushed one, so the caller's lies below. But setting none pops the pushed one
            // (and a context pushed by work hides it): then what is current now is not what the caller had.
            let _ = unsafe { driver.ctx_pop_current(&raw mut popped) };
        }
        // SAFETY: writes one handle.
        let known = unsafe { driver.ctx_get_current(&raw mut now) }.is_ok();
        if known && now != self.before {
            // SAFETY: what was current on this thread when `bind` was called, or null for none.
            // Only `unsafe` code of the application's can have destroyed it since.
            let _ = unsafe { driver.ctx_set_current(self.before) };
        }
    }
}

/// The thread's capture mode is relaxed; dropping it restores what the caller had.
pub(crate) struct CaptureMode<'d> {
    driver: &'d Driver,
    before: Option<u32>,
    _this_thread: PhantomData<*const ()>,
}

impl<'d> CaptureMode<'d> {
    /// See [`Context::allow_during_capture`].
    #[inline]
    pub(crate) fn relaxed(driver: &'d Driver) -> Self {
        let mut mode = CAPTURE_MODE_RELAXED;
        // SAFETY: reads and writes one integer; the setting is this thread's alone, and any is
        // valid.
        let exchanged = unsafe { driver.thread_exchange_stream_capture_mode(&raw mut mode) };
        Self {
            driver,
            before: exchanged.is_ok().then_some(mode),
            _this_thread: PhantomData,
        }
    }
}

impl Drop for CaptureMode<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(mut mode) = self.before {
            // SAFETY: as above, with the value that the driver gave this thread, which this is
            // still.
            let _ = unsafe {
                self.driver
                    .thread_exchange_stream_capture_mode(&raw mut mode)
            };
        }
    }
}
