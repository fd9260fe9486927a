//! Kernels, from the text that the driver itself compiles.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::ffi::{CStr, CString};
use std::ptr::null_mut;
use std::sync::Arc;

use cudarc::driver::sys;
use syncline_core::{DeviceId, Error, Object, Result};

use crate::device::deferred_free::Resource;
use crate::device::open::{Device, DeviceRef};
use crate::driver::table::Raw;

/// Compiled PTX. Cheap to clone.
#[derive(Clone)]
pub struct Module(Arc<Loaded>);

struct Loaded {
    device_ref: DeviceRef,
    raw: Raw<sys::CUmod_st>,
}

/// A kernel of a [`Module`], which it keeps. Cheap to clone.
#[derive(Clone)]
pub struct Function(Arc<Kernel>);

struct Kernel {
    module: Module,
    name: String,
    raw: Raw<sys::CUfunc_st>,
}

impl Device {
    /// Compiles PTX text. Blocks, and may wait for all work of the context: call it at set-up.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for text with a zero byte; the driver's own for text it does not accept.
    pub fn module(&self, ptx: &str) -> Result<Module> {
        Module::load(&self.device_ref(), ptx)
    }
}

impl Module {
    /// As [`Device::module`], without the device.
    ///
    /// # Errors
    /// As [`Device::module`].
    pub(crate) fn load(device_ref: &DeviceRef, ptx: &str) -> Result<Self> {
        let image = CString::new(ptx).map_err(|error| Error::Unsupported {
            object: device_ref.object.clone(),
            asked: "load a module".into(),
            reason: error.to_string(),
        })?;
        let context = &device_ref.context;
        let _bound = context.bind_outside_capture()?;
        let mut raw = null_mut();
        // SAFETY: text that ends with a zero and outlives the call, into the current context;
        // writes one handle.
        context.allocate(|driver| unsafe {
            driver.module_load_data(&raw mut raw, image.as_ptr().cast())
        })?;
        Ok(Self(Arc::new(Loaded {
            device_ref: device_ref.clone(),
            raw: Raw(raw),
        })))
    }

    /// The kernel `name` of the module, loaded now: the driver would otherwise do it at the first launch,
    /// and wait there for work that may be waiting for that launch.
    ///
    /// # Errors
    /// A driver error, also for a name that the module does not have.
    pub fn function(&self, name: &CStr) -> Result<Function> {
        let context = &self.0.device_ref.context;
        let driver = context.driver();
        let _bound = context.bind_outside_capture()?;
        let mut raw = null_mut();
        // SAFETY: the module is loaded until the last handle goes; the name ends with a zero;
        // writes one handle, which is good for as long as the module, which the result keeps.
        unsafe { driver.module_get_function(&raw mut raw, self.0.raw.0, name.as_ptr()) }
            .map_err(|code| context.error(code))?;
        // SAFETY: a function that was just found. Drivers before 12.4 have no such call.
        if let Some(loaded) = unsafe { driver.func_load(raw) } {
            loaded.map_err(|code| context.error(code))?;
        }
        Ok(Function(Arc::new(Kernel {
            module: self.clone(),
            name: name.to_string_lossy().into_owned(),
            raw: Raw(raw),
        })))
    }
}

impl Function {
    /// The raw function, for launches into a stream that the application drives itself. It lives as long as a handle.
    #[must_use]
    pub fn raw(&self) -> sys::CUfunction {
        self.0.raw.0
    }

    /// Refuses a function of another device.
    ///
    /// # Errors
    /// [`Error::WrongDevice`].
    pub(crate) fn require_device(&self, device: DeviceId, asked: &Object) -> Result<()> {
        let device_ref = &self.0.module.0.device_ref;
        if device_ref.id == device {
            return Ok(());
        }
        Err(Error::WrongDevice {
            object: Object::new("function", &self.0.name),
            owner: device_ref.object.clone(),
            asked: asked.clone(),
        })
    }

    pub(crate) fn keep(&self) -> Arc<dyn std::any::Any + Send + Sync> {
        self.0.clone()
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // Its functions keep it, and launches keep them.
        Resource::Module(Raw(self.raw.0)).free_or_defer(0, &self.device_ref.context);
    }
}

impl std::fmt::Debug for Module {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Module({:p})", self.0.raw.0)
    }
}

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Function({})", self.0.name)
    }
}
