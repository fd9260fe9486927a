//! The handle of a counter in shared memory.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use crate::base::error::{Error, Object};
use crate::base::handle::{HandleKind, Rejected};
use crate::memory::counter::judge;

/// A sealed memfd whose page holds a timeline's 64-bit counter, for other processes and for devices that write and wait for words of memory.
///
/// Owned by exactly one party: a successful import consumes it, a failed one gives it back. Where it comes from makes no
/// difference: it is memory of the computer, and a device that cannot reach that says so.
///
/// What it carries can be told, so a bare descriptor comes in without `unsafe`, and is judged. The rest of the page is judged whenever it is read:
///
/// ```
/// # fn main() -> syncline_core::Result<()> {
/// use syncline_core::{CounterFd, Timeline, host};
///
/// let device = host::Device::new();
/// let (_home, handle) = device.export_timeline(0)?;
/// // Across a socket, it would be.
/// let handle = CounterFd::from_fd(handle.into_fd())?;
/// let port = device.import_timeline(handle)?;
/// let line = Timeline::new("frames", 0, |_| Ok([port].into_iter().collect()))?;
/// assert_eq!(line.value()?, 0);
/// # Ok(())
/// # }
/// ```
///
/// What carries another kind does not pass for it:
///
/// ```compile_fail,E0308
/// # use syncline_core::{CounterFd, TimelineFd};
/// fn import(handle: CounterFd) {}
/// fn pass(handle: TimelineFd) {
///     import(handle);
/// }
/// ```
#[derive(Debug)]
pub struct CounterFd(OwnedFd);

impl CounterFd {
    /// Takes a descriptor in, if it is a counter's: memory of the right size, which is sealed so that it keeps that (`F_SEAL_SHRINK`,
    /// `F_SEAL_GROW`, `F_SEAL_SEAL`), can be read and written, and begins as this version of the library begins its pages. Makes five
    /// system calls, and does not block, whatever file it is.
    ///
    /// See memfd_create(2) and `F_GET_SEALS` in fcntl(2).
    ///
    /// # Errors
    /// [`Error::Import`], with what was found instead, and the descriptor, still open.
    pub fn from_fd(fd: OwnedFd) -> Result<Self, Rejected<OwnedFd>> {
        match judge(fd.as_fd()) {
            Ok(_) => Ok(Self(fd)),
            Err(reason) => Err(Rejected {
                error: Error::Import {
                    object: Object::new("handle", HandleKind::CounterMemfd.name()),
                    what: format!("descriptor {}", fd.as_raw_fd()),
                    reason,
                },
                handle: fd,
            }),
        }
    }

    /// Of a counter that is known to be one.
    pub(crate) const fn known(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// Gives the bare descriptor up, to be sent to another process.
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
