//! Native sharing of timelines between devices of one process.

use crate::base::error::{Error, Object, Result};
use crate::base::handle::{Rejected, TimelineFd};
use crate::memory::counter::CounterFd;
use crate::port::attachment::Attachment;

/// Exports and imports the counters of timelines.
///
/// [`Device::sharing`](crate::backend::Device::sharing) returns it.
///
/// A link between two devices makes one counter on one device, and gives the other device a port of
/// it. It calls only the methods for the kinds of handle that the device lists in
/// [`Capabilities::exports`] and [`Capabilities::imports`]. A backend overrides these methods.
///
/// # Safety
/// A link imports what the device exports, by calls that are `unsafe` without a link. So the
/// implementor vouches for the device:
///
/// - Its [`Info`](crate::info::Info) tells the true UUIDs, kinds of handle and limits.
/// - The handles that it exports are of the counter of the attachment beside them. Nothing else has
///   handles of that counter or signals it.
/// - The attachment shows the value of that counter, and signals nothing else.
///
/// [`Capabilities::exports`]: crate::info::Capabilities::exports
/// [`Capabilities::imports`]: crate::info::Capabilities::imports
#[allow(unsafe_code, reason = "no driver checks what a handle is of")]
pub unsafe trait Sharing {
    /// The name of the device in errors.
    fn name(&self) -> &Object;

    /// Makes a timeline semaphore at `initial`, and `handles` handles of it.
    ///
    /// The host can read the attachment, which becomes the home of a timeline. For devices that
    /// export [`HandleKind::TimelineOpaqueFd`](crate::handle::HandleKind::TimelineOpaqueFd).
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the device exports none. A driver error.
    fn export_timeline(
        &self,
        initial: u64,
        handles: usize,
    ) -> Result<(Attachment, Vec<TimelineFd>)> {
        let _ = (initial, handles);
        Err(unsupported(self.name(), "export a timeline"))
    }

    /// Imports the timeline semaphore of `handle`.
    ///
    /// For devices that import
    /// [`HandleKind::TimelineOpaqueFd`](crate::handle::HandleKind::TimelineOpaqueFd).
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the device imports none. [`Error::CannotShare`] for a handle of
    /// another GPU or driver. A driver error. Each error returns the handle.
    ///
    /// # Safety
    /// All signals of the semaphore have increasing values, including those of other timelines and
    /// of other processes.
    #[allow(unsafe_code, reason = "no driver checks that values increase")]
    unsafe fn import_timeline(
        &self,
        handle: TimelineFd,
    ) -> Result<Attachment, Rejected<TimelineFd>> {
        let error = unsupported(self.name(), "import a timeline");
        Err(Rejected { handle, error })
    }

    /// Makes a counter at `initial` in shared memory, and `handles` handles of it.
    ///
    /// The host can read the attachment, which becomes the home of a timeline. For devices without
    /// [driver queues](crate::info::Capabilities::driver_queues) that export
    /// [`HandleKind::CounterMemfd`](crate::handle::HandleKind::CounterMemfd).
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the device exports none. [`Error::Native`] if the system has no
    /// memory or no descriptor left.
    fn export_counter(&self, initial: u64, handles: usize) -> Result<(Attachment, Vec<CounterFd>)> {
        let _ = (initial, handles);
        Err(unsupported(
            self.name(),
            "export a counter in shared memory",
        ))
    }

    /// Imports the counter of `handle`. The queues of the device wait for its memory and write it.
    ///
    /// For devices that import
    /// [`HandleKind::CounterMemfd`](crate::handle::HandleKind::CounterMemfd).
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the device imports none. [`Error::Import`] for a damaged page. A
    /// driver error. Each error returns the handle.
    fn import_counter(&self, handle: CounterFd) -> Result<Attachment, Rejected<CounterFd>> {
        let error = unsupported(self.name(), "import a counter in shared memory");
        Err(Rejected { handle, error })
    }
}

fn unsupported(name: &Object, asked: &str) -> Error {
    Error::unsupported(name, asked, "its backend does not do so")
}
