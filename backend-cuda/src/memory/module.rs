//! Modules and kernels, which the driver compiles from PTX text.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::ffi::CString;
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::Arc;

use cudarc::driver::sys;
use syncline_core::{Error, Result, error::Object, info::DeviceId};

use crate::device::deferred_free::Resource;
use crate::device::inner::DeviceRef;
use crate::device::open::Device;
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
    /// [`Error::Unsupported`] for text with a zero byte. [`Error::Native`] for text that the driver
    /// does not accept. The compiler's log, if there is one, follows the name of the code.
    pub fn module(&self, ptx: &str) -> Result<Module> {
        Module::load(&self.inner().device_ref(), ptx)
    }
}

impl Module {
    /// Loads a module like [`Device::module`], with a [`DeviceRef`] in place of the device.
    ///
    /// # Errors
    /// Same errors as [`Device::module`].
    pub(crate) fn load(device_ref: &DeviceRef, ptx: &str) -> Result<Self> {
        let image = CString::new(ptx).map_err(|error| {
            Error::unsupported(device_ref.object(), "load a module", error.to_string())
        })?;
        let context = device_ref.context();
        let _bound = context.bind_outside_capture()?;
        let mut raw = null_mut();
        let mut log = [0_u8; LOG];
        let mut options = [
            sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER,
            sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
        ];
        let loaded = context.allocate(|driver| {
            log.fill(0);
            // The size stands in the place of a pointer. The driver replaces it by the size used.
            let mut values = [log.as_mut_ptr().cast(), without_provenance_mut(LOG)];
            // SAFETY: nul-terminated text that outlives the call, two options with their values,
            // and a buffer of the stated size. Writes one handle, of the current context.
            unsafe {
                driver.module_load_data_ex(
                    &raw mut raw,
                    image.as_ptr().cast(),
                    2,
                    options.as_mut_ptr(),
                    values.as_mut_ptr(),
                )
            }
        });
        loaded.map_err(|error| with_log(error, &log))?;
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
    /// [`Error::Unsupported`] for a name with a zero byte. A driver error, also for a name that the
    /// module does not have.
    pub fn function(&self, name: &str) -> Result<Function> {
        let name = CString::new(name).map_err(|error| {
            let object = self.0.device_ref.object();
            Error::unsupported(object, "find a function", error.to_string())
        })?;
        let context = self.0.device_ref.context();
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

/// The most bytes of the compiler's log in an error.
const LOG: usize = 1024;

/// Adds the compiler's log to the driver's error. A zero byte ends the log.
fn with_log(mut error: Error, log: &[u8]) -> Error {
    let log = log.split(|byte| *byte == 0).next().unwrap_or_default();
    let log = String::from_utf8_lossy(log);
    if let Error::Native { name, .. } = &mut error {
        for line in log.lines().map(str::trim).filter(|line| !line.is_empty()) {
            name.push_str("; ");
            name.push_str(line);
        }
    }
    error
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
        if device_ref.id() == device {
            return Ok(());
        }
        Err(Error::wrong_device(
            Object::new("function", &self.0.name),
            device_ref.object(),
            asked,
        ))
    }

    pub(crate) fn keep(&self) -> Arc<dyn std::any::Any + Send + Sync> {
        self.0.clone()
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // Functions keep the module, and launches keep their functions.
        let module = Resource::Module(Raw(self.raw.0));
        self.device_ref.context().free_or_defer(module, 0);
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
