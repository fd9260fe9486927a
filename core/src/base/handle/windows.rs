//! Handles of Windows: types, so that a program can name them, and one refusal for all devices, as this library runs elsewhere.

use std::convert::Infallible;
use std::fmt;

use super::{HandleKind, Origin, Rejected};
use crate::base::error::{Error, Object};

/// A handle of Windows that carries a semaphore, of the kind that its type says.
///
/// Drivers take such handles on Windows alone (`VK_KHR_external_semaphore_win32`, and `CUexternalSemaphoreHandleType` with `WIN32` or
/// `D3D12_FENCE`). Here every import refuses them, which its type says, too: a success could not be made.
pub trait WindowsHandle: sealed::Sealed + fmt::Debug + Sized + Send + Sync + 'static {
    /// What it is.
    const KIND: HandleKind;

    /// The exporter.
    fn origin(&self) -> &Origin;

    /// The bare value.
    fn raw(&self) -> isize;

    /// What every device outside Windows answers to an import; `by` is the device.
    ///
    /// # Errors
    /// Always: [`Error::Unsupported`] with the reason, and the handle.
    fn refuse(self, by: &Object) -> Result<Infallible, Rejected<Self>> {
        Err(Rejected {
            handle: self,
            error: Error::Unsupported {
                object: by.clone(),
                asked: format!("import a handle of the kind {}", Self::KIND),
                reason: reason(),
            },
        })
    }
}

/// Why no device here has to do with handles of Windows.
pub(crate) fn reason() -> String {
    format!(
        "drivers know such handles on Windows alone, and this is {}, where semaphores travel as file descriptors",
        std::env::consts::OS
    )
}

impl HandleKind {
    /// Why no device of this platform exports or imports such handles; `None` if that depends on the device.
    #[must_use]
    pub fn no_platform(self) -> Option<String> {
        self.is_of_windows().then(reason)
    }
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! windows_handle {
    ($(#[$doc:meta])* $name:ident, $kind:ident) => {
        $(#[$doc])*
        ///
        /// Never closed here: on Windows an import leaves the handle with its owner, and anywhere else it stands for nothing.
        #[derive(Debug)]
        pub struct $name {
            raw: isize,
            origin: Box<Origin>,
        }

        impl $name {
            /// Takes a handle in.
            ///
            /// # Safety
            /// It is what the type says, exported by `origin`'s driver, and stays open as long as this exists.
            #[allow(unsafe_code, reason = "the kind of a foreign handle cannot be checked")]
            #[must_use]
            pub unsafe fn from_raw(raw: isize, origin: Origin) -> Self {
                Self { raw, origin: Box::new(origin) }
            }
        }

        impl sealed::Sealed for $name {}

        impl WindowsHandle for $name {
            const KIND: HandleKind = HandleKind::$kind;

            fn origin(&self) -> &Origin {
                &self.origin
            }

            fn raw(&self) -> isize {
                self.raw
            }
        }
    };
}

windows_handle! {
    /// An NT handle that holds a timeline semaphore.
    TimelineWin32, TimelineOpaqueWin32
}
windows_handle! {
    /// An NT handle that holds a binary semaphore.
    BinaryWin32, BinaryOpaqueWin32
}
windows_handle! {
    /// A global share handle that holds a timeline semaphore.
    TimelineWin32Kmt, TimelineOpaqueWin32Kmt
}
windows_handle! {
    /// A global share handle that holds a binary semaphore.
    BinaryWin32Kmt, BinaryOpaqueWin32Kmt
}
windows_handle! {
    /// An NT handle that holds a fence of Direct3D 12, which is a counter as a timeline is.
    D3d12FenceHandle, D3d12Fence
}
