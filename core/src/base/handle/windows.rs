//! Handle types of Windows, and the one refusal of every device outside Windows.

use std::convert::Infallible;
use std::fmt;

use super::kind::HandleKind;
use super::origin::Origin;
use super::rejected::Rejected;
use crate::base::error::{Error, Object};

/// A handle of Windows that carries a semaphore of the type's kind.
///
/// Drivers accept such handles only on Windows (`VK_KHR_external_semaphore_win32`, and
/// `CUexternalSemaphoreHandleType` with `WIN32` or `D3D12_FENCE`). On this platform every import
/// refuses them. The result type [`Infallible`] shows that no import can succeed.
pub trait WindowsHandle: sealed::Sealed + fmt::Debug + Sized + Send + Sync + 'static {
    /// The kind of the handle.
    const KIND: HandleKind;

    /// The exporter.
    fn origin(&self) -> &Origin;

    /// The raw value.
    fn raw(&self) -> isize;

    /// The result of an import by the device `by` outside Windows.
    ///
    /// # Errors
    /// Always [`Error::Unsupported`] with the reason. Returns the handle.
    fn refuse(self, by: &Object) -> Result<Infallible, Rejected<Self>> {
        Err(Rejected {
            handle: self,
            error: Error::unsupported(
                by,
                format!("import a handle of the kind {}", Self::KIND),
                reason(),
            ),
        })
    }
}

/// Why no device of this platform takes handles of Windows.
pub(crate) fn reason() -> String {
    format!(
        "drivers know such handles on Windows alone, and this is {}, where semaphores travel as file descriptors",
        std::env::consts::OS
    )
}

impl HandleKind {
    /// Why no device of this platform can use such handles; `None` if that depends on the device.
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
        /// Never closed by this type. On Windows, an import leaves the handle with its owner.
        /// Elsewhere the value has no meaning.
        #[derive(Debug)]
        pub struct $name {
            raw: isize,
            origin: Box<Origin>,
        }

        impl $name {
            /// Wraps a raw handle.
            ///
            /// # Safety
            /// `raw` is a handle of the type's kind that `origin`'s driver exported. It stays open
            /// for as long as the returned value exists.
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
    /// An NT handle that holds a fence of Direct3D 12. Such a fence is a counter, like a timeline.
    D3d12FenceHandle, D3d12Fence
}
