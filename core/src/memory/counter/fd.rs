//! The handle of a counter in shared memory.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::page_file::check_page_file;
use crate::base::error::{Error, Object};
use crate::base::handle::{HandleKind, Rejected};

/// A sealed memfd with the page of a timeline's 64-bit counter.
///
/// Other processes use it, and devices that write and wait for words of memory. A successful import
/// consumes the handle, and a failed import returns it. Any device may import it: it is memory of
/// the host, and a device that cannot access that memory refuses it.
///
/// The kind of the descriptor can be checked, so no `unsafe` is needed to take one in. The contents
/// of the page are checked whenever they are read:
///
/// ```
/// # extern crate syncline_core as syncline;
/// # fn main() -> syncline::Result<()> {
/// use syncline::{Timeline, host, handle::CounterFd};
///
/// let device = host::Device::new();
/// let (_home, handle) = device.export_timeline(0)?;
/// // Usually the other process receives it from a socket.
/// let handle = CounterFd::from_fd(handle.into_fd())?;
/// let port = device.import_timeline(handle)?;
/// let line = Timeline::new("frames", 0, |_| Ok([port].into_iter().collect()))?;
/// assert_eq!(line.value()?, 0);
/// # Ok(())
/// # }
/// ```
///
/// A handle of another kind is a type error:
///
/// ```compile_fail,E0308
/// # extern crate syncline_core as syncline;
/// # use syncline::{handle::{CounterFd, TimelineFd}};
/// fn import(handle: CounterFd) {}
/// fn pass(handle: TimelineFd) {
///     import(handle);
/// }
/// ```
#[derive(Debug)]
pub struct CounterFd(OwnedFd);

impl CounterFd {
    /// Takes a descriptor in if it is the memfd of a counter.
    ///
    /// It must be open for reading and writing, have the right size, and have the seals that fix
    /// the size (`F_SEAL_SHRINK`, `F_SEAL_GROW`, `F_SEAL_SEAL`). Its header must have the layout
    /// version of this library. See memfd_create(2) and `F_GET_SEALS` in fcntl(2).
    ///
    /// Makes five system calls, and does not block for any kind of file.
    ///
    /// # Errors
    /// Each error returns the descriptor, still open. [`Error::Import`] says what was found
    /// instead.
    pub fn from_fd(fd: OwnedFd) -> Result<Self, Rejected<OwnedFd>> {
        match check_page_file(fd.as_fd()) {
            Ok(_) => Ok(Self(fd)),
            Err(reason) => Err(Rejected {
                error: Error::import(
                    Object::new("handle", HandleKind::CounterMemfd.name()),
                    format!("descriptor {}", fd.as_raw_fd()),
                    reason,
                ),
                handle: fd,
            }),
        }
    }

    /// The handle of a descriptor that is known to be a counter's. Not checked.
    pub(crate) const fn from_checked(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// Returns the descriptor, to be sent to another process.
    #[must_use]
    pub fn into_fd(self) -> OwnedFd {
        self.0
    }
}

impl From<CounterFd> for OwnedFd {
    fn from(handle: CounterFd) -> Self {
        handle.0
    }
}

impl AsFd for CounterFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
