//! Modules and kernels, which the driver compiles from PTX text.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::ffi::{CStr, CString};
use std::ptr::null_mut;
use std::sync::Arc;

use cudarc::driver::sys;
use syncline_core::{Error, Result, error::Object, info::DeviceId};

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
    /// Compiles PTX text.
    ///
    /// Blocks, and may wait for all work of the context, so call it at set-up.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for text with a zero byte, or the driver's error for text that it
    /// does not accept.
    pub fn module(&self, ptx: &str) -> Result<Module> {
        Module::load(&self.device_ref(), ptx)
    }
}

impl Module {
    /// Same as [`Device::module`], without a device.
    ///
    /// # Errors
    /// Same errors as [`Device::module`].
    pub(crate) fn load(device_ref: &DeviceRef, ptx: &str) -> Result<Self> {
        let image = CString::new(ptx).map_err(|error| Error::Unsupported {
            object: device_ref.object.clone(),
            asked: "load a module".into(),
            reason: error.to_string(),
        })?;
        let context = &device_ref.context;
        let _bound = context.bind_outside_capture()?;
        let mut raw = null_mut();
        // SAFETY: nul-terminated text that outlives the call. Writes one handle, of the current
        // context.
        context.allocate(|driver| unsafe {
            driver.module_load_data(&raw mut raw, image.as_ptr().cast())
        })?;
        Ok(Self(Arc::new(Loaded {
            device_ref: device_ref.clone(),
            raw: Raw(raw),
        })))
    }

    /// The kernel `name` of the module, loaded now.
    ///
    /// Otherwise the driver would load it at the first launch, and wait there for work that may
    /// itself wait for that launch.
    ///
    /// # Errors
    /// A driver error, also for a name that the module does not have.
    pub fn function(&self, name: &CStr) -> Result<Function> {
        let context = &self.0.device_ref.context;
        let driver = context.driver();
        let _bound = context.bind_outside_capture()?;
        let mut raw = null_mut();
        // SAFETY: the last handle unloads the module, and the name is nul-terminated. Writes one
        // handle, which is valid as long as the module. The result keeps the module.
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
    /// The raw function, for launches by the application. Valid as long as a handle exists.
    #[must_use]
    pub fn raw(&self) -> sys::CUfunction {
        self.0.raw.0
    }

    /// Rejects a function of another device.
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
        // Functions keep the module, and launches keep their functions.
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
