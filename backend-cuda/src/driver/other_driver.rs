//! Detects a second CUDA driver in the process.
//!
//! Its handles are invalid in the driver that this crate uses.
#![allow(
    unsafe_code,
    reason = "asks for loaded libraries and the addresses of functions"
)]

use std::ffi::c_void;

use syncline_core::{Error, Result, error::Object};

use crate::driver::table::Driver;

/// The names by which cudarc, the CUDA runtime and other libraries open a driver.
///
/// cudarc tries `libcuda.so` first.
#[cfg(unix)]
const NAMES: &[&str] = &["libcuda.so", "libcuda.so.1"];

impl Driver {
    /// Rejects a handle of the application while the process has another CUDA driver loaded.
    ///
    /// The other driver may have created the handle. The check loads nothing, because a library
    /// that is not loaded has created no handle. A process without cudarc's library passes.
    ///
    /// # Errors
    /// [`Error::Unsupported`], which names both libraries.
    pub(crate) fn require_alone(&self, object: &Object, asked: &str) -> Result<()> {
        #[cfg(unix)]
        for name in NAMES {
            let Some(other) = init_of(name).filter(|&other| other != self.address()) else {
                continue;
            };
            return Err(Error::unsupported(
                object,
                asked,
                format!(
                    "this process has two CUDA drivers, and the handle may be the other one's: {} is used here, and {} is \
                     loaded as {name}; both names, libcuda.so and libcuda.so.1, and {} must lead to one library",
                    file_of(self.address()),
                    file_of(other),
                    Self::VARIABLE,
                ),
            ));
        }
        let _ = (object, asked);
        Ok(())
    }
}

/// The address of `cuInit` in the library that is loaded under this name.
#[cfg(unix)]
fn init_of(name: &str) -> Option<*const c_void> {
    use libloading::os::unix::{Library, RTLD_LAZY};
    // SAFETY: `RTLD_NOLOAD` only finds libraries that are already loaded, so no initializer runs.
    let library = unsafe { Library::open(Some(name), RTLD_LAZY | libc::RTLD_NOLOAD) }.ok()?;
    // SAFETY: the function is not called.
    let init = unsafe { library.get::<*const c_void>(b"cuInit") }.ok()?;
    Some(*init)
}

/// The file name of the library that contains this function.
#[cfg(unix)]
fn file_of(function: *const c_void) -> String {
    // SAFETY: all zeroes are a valid value of this plain struct.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: `dladdr` accepts any address and writes one struct.
    let found = unsafe { libc::dladdr(function, &raw mut info) };
    if found == 0 || info.dli_fname.is_null() {
        return "a library without a name".into();
    }
    // SAFETY: not null, so it is a nul-terminated name that lives as long as the library.
    let name = unsafe { std::ffi::CStr::from_ptr(info.dli_fname) };
    name.to_string_lossy().into_owned()
}
