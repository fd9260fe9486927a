//! Finds the driver library and rejects libraries that are not a usable CUDA driver.
#![allow(unsafe_code, reason = "loads a library and calls it")]

use std::ffi::{OsStr, c_int};
use std::path::Path;
use std::sync::OnceLock;

use libloading::Library;
use syncline_core::backend::kit::TeardownGuard;
use syncline_core::internal::MakerProcess;
use syncline_core::{Error, Result, error::Object};

use crate::driver::table::{Code, Driver, Optional, Symbols, unavailable, words};

/// The first CUDA version that has every required function (`cuDeviceGetUuid_v2`).
const OLDEST: i32 = 11_040;

#[cfg(unix)]
const LIBRARIES: &[&str] = &["libcuda.so.1", "libcuda.so"];
#[cfg(not(unix))]
const LIBRARIES: &[&str] = &["nvcuda.dll"];

impl Driver {
    /// The environment variable that names the driver library to load.
    ///
    /// If it is unset or empty, [`Driver::load`] uses the system's CUDA driver.
    pub const VARIABLE: &str = "SYNCLINE_CUDA_DRIVER";

    /// Loads and initializes the driver of [`Driver::VARIABLE`], or else the system's driver.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if there is no driver, if it is too old, or if it finds no device. A
    /// library that is not a CUDA driver, or is too old, is unloaded again.
    /// [`Error::MadeBeforeFork`] in a forked child, if the parent has initialized CUDA here.
    pub fn load() -> Result<Self> {
        match std::env::var_os(Self::VARIABLE) {
            Some(path) if !path.is_empty() => {
                // SAFETY: the environment of a process decides which libraries the process trusts,
                // as with `LD_LIBRARY_PATH`.
                unsafe { Self::load_from(&path) }.map_err(|error| match error {
                    Error::Unavailable {
                        backend, reason, ..
                    } => Error::unavailable(
                        backend,
                        format!("{reason} ({} names the library)", Self::VARIABLE),
                    ),
                    other => other,
                })
            }
            _ => {
                let (library, name) = Self::find()?;
                Self::start(library, name)
            }
        }
    }

    /// Loads and initializes the driver in the given file, and ignores [`Driver::VARIABLE`].
    ///
    /// The system's library search resolves a name without a slash. Adoption, for example
    /// [`Device::adopt`](crate::Device::adopt), always uses the driver of [`Driver::load`]. It
    /// fails while the process has another driver loaded.
    ///
    /// # Errors
    /// Same errors as [`Driver::load`].
    ///
    /// # Safety
    /// The library's initializers may run. If the library has the functions of a CUDA driver, these
    /// functions behave as the CUDA driver API specifies.
    pub unsafe fn load_from(path: impl AsRef<OsStr>) -> Result<Self> {
        let path = path.as_ref();
        let name = Path::new(path).display().to_string();
        // SAFETY: the caller guarantees it.
        let library = unsafe { Library::new(path) }
            .map_err(|error| unavailable(format!("{name} cannot be loaded ({error})")))?;
        Self::start(library, &name)
    }

    fn find() -> Result<(Library, &'static str)> {
        let mut reason = String::new();
        for name in LIBRARIES {
            // SAFETY: these names belong to NVIDIA's driver, whose initializers only prepare its
            // own state.
            match unsafe { Library::new(name) } {
                Ok(library) => return Ok((library, name)),
                Err(error) if reason.is_empty() => reason = error.to_string(),
                Err(_) => {}
            }
        }
        Err(unavailable(format!(
            "the NVIDIA driver's library was not found ({reason}); install the driver, or give the container access to it. `syncline doctor` looks for the cause, and `syncline run --software PROGRAM` needs no GPU"
        )))
    }

    fn start(library: Library, name: &str) -> Result<Self> {
        // A driver cannot be initialized again after a fork.
        static INITIALIZED: OnceLock<MakerProcess> = OnceLock::new();
        if let Some(maker) = INITIALIZED.get() {
            maker.require(&Object::new("CUDA driver", name))?;
        }
        let symbols = Symbols::resolve(&library).map_err(|missing| {
            // `cuInit` is resolved first and is as old as CUDA.
            unavailable(if missing == "cuInit" {
                format!("{name} is no CUDA driver: it has no function {missing}")
            } else {
                format!(
                    "the CUDA driver {name} lacks {missing}; a driver for CUDA {} (470) or newer is needed",
                    words(OLDEST)
                )
            })
        })?;
        let optional = Optional::resolve(&library);
        let driver = Self::new(symbols, optional, says_software(&library));
        driver.require_version()?;
        // Never unloaded: the driver has its own threads, and other code of the process may use it.
        std::mem::forget(library);
        // SAFETY: 0 is the only valid flag. The function may be called any number of times.
        unsafe { driver.init(0) }.map_err(|code| driver.no_start(code))?;
        TeardownGuard::register();
        INITIALIZED.get_or_init(MakerProcess::this);
        Ok(driver)
    }

    fn require_version(&self) -> Result<()> {
        let version = self.version().map_err(|code| self.no_start(code))?;
        if version < OLDEST {
            return Err(unavailable(format!(
                "the driver is for CUDA {}; CUDA {} (470) or newer is needed",
                words(version),
                words(OLDEST)
            )));
        }
        Ok(())
    }

    fn no_start(&self, code: Code) -> Error {
        let name = self.name_of(code.code);
        let advice = match code.code {
            Code::NO_DEVICE => "the driver finds no CUDA device (is CUDA_VISIBLE_DEVICES set?)",
            Code::STUB_LIBRARY => "the library is the toolkit's stub and no driver",
            803 => "the library and the kernel module are of different versions",
            _ => "the driver cannot start",
        };
        unavailable(format!(
            "{advice}: {} returned {name} ({})",
            code.call, code.code
        ))
    }
}

/// True if the driver says that it is a software driver.
///
/// NVIDIA's driver does not have this function.
fn says_software(library: &Library) -> bool {
    type Says = unsafe extern "system" fn() -> c_int;
    // SAFETY: only this project's software driver has a function of this name, and declares it with
    // this type.
    let says = unsafe { library.get::<Says>(b"synclineSoftwareDriver") };
    // SAFETY: as above.
    says.is_ok_and(|says| unsafe { says() } != 0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test's")]

    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::no_file(
        "/nonexistent/libcuda.so.1",
        "/nonexistent/libcuda.so.1 cannot be loaded"
    )]
    #[case::no_library(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"), "cannot be loaded")]
    #[case::no_driver("libm.so.6", "libm.so.6 is no CUDA driver")]
    fn a_file_that_is_no_driver_is_refused(#[case] path: &str, #[case] reason: &str) {
        // SAFETY: no library that the cases name is a CUDA driver. Loading a system library has no
        // effect.
        match unsafe { Driver::load_from(path) } {
            Err(error @ Error::Unavailable { .. }) => {
                let text = error.to_string();
                assert!(text.contains(reason), "{text}");
            }
            other => unreachable!("{path}: {other:?}"),
        }
    }

    #[test]
    fn a_driver_that_is_too_old_is_refused() {
        unsafe extern "system" fn cuda_11_3(version: *mut c_int) -> u32 {
            // SAFETY: the caller of `cuDriverGetVersion` passes a valid pointer.
            unsafe { version.write(11_030) };
            0
        }
        let symbols = Symbols {
            driver_get_version: cuda_11_3,
            ..Symbols::idle()
        };
        let refused = Driver::of(symbols, Optional::none()).require_version();
        let text = refused.unwrap_err().to_string();
        assert!(text.contains("CUDA 11.3; CUDA 11.4 (470)"), "{text}");
    }

    #[test]
    fn a_stub_of_the_toolkit_is_refused() {
        unsafe extern "system" fn stub(_: *mut c_int) -> u32 {
            Code::STUB_LIBRARY
        }
        let symbols = Symbols {
            driver_get_version: stub,
            ..Symbols::idle()
        };
        let refused = Driver::of(symbols, Optional::none()).require_version();
        let text = refused.unwrap_err().to_string();
        assert!(text.contains("the toolkit's stub"), "{text}");
    }
}
