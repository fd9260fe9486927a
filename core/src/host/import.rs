//! Fences for descriptors that can be polled. Each is a timeline that is signalled outside the
//! engine.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use crate::backend::{Attachment, Device as _, Watch as _};
use crate::host::descriptor::{Descriptor, Kind};
use crate::host::device::Device;
use crate::port::attachment::Nature;
use crate::timeline::point::KeptPoint;
use crate::timeline::state::Shared;
use crate::{
    Error, Fence, Result,
    error::Object,
    handle::{Rejected, SyncFd},
};

impl Device {
    /// A fence that is complete once `descriptor` is readable.
    ///
    /// The descriptor may be a sync file, an eventfd, a timerfd, a pidfd, the reading end of a
    /// pipe, or a socket. `None`, the −1 of other APIs, makes a complete fence. Queues of every
    /// device and the host can wait for the fence.
    ///
    /// * Nothing is ever read from the descriptor. Once seen readable, the fence stays complete,
    ///   even if an eventfd is drained later. Readiness that comes and goes between two polls is
    ///   not seen.
    /// * A sync file with an error fails the fence. So does a pipe or a socket whose other end
    ///   closes before it is readable.
    /// * Recording it is refused. The descriptor is closed once the fence is no longer used.
    ///
    /// See poll(2), eventfd(2), and `SYNC_IOC_FILE_INFO` of the kernel's sync files.
    ///
    /// # Errors
    /// Each error returns the descriptor, still open. [`Error::Import`] if it is not open, cannot
    /// be polled (a regular file, a directory, `/dev/null`), or is write-only. [`Error::Native`] if
    /// the system has no descriptor left, or no thread to watch it.
    pub fn import_descriptor(
        &self,
        descriptor: Option<OwnedFd>,
        label: &str,
    ) -> Result<Fence, Rejected<OwnedFd>> {
        let fence = |point| Fence::foreign(self.id(), self.object(), label, point);
        let Some(descriptor) = descriptor else {
            return Ok(fence(KeptPoint::default()));
        };
        let prepared = self.poller().and_then(|poller| {
            let kind = Kind::of(descriptor.as_fd(), self.object())?;
            let started = poller.watcher().start();
            started.map_err(|error| Error::no_thread(self.object(), &error))?;
            Ok((poller, kind))
        });
        let (poller, kind) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => {
                return Err(Rejected {
                    handle: descriptor,
                    error,
                });
            }
        };
        let object = Object::new("descriptor", label);
        let port = Descriptor::new(object.clone(), kind, descriptor);
        let attachment = Attachment::new(self.id(), 0, port)
            .watched_by(poller)
            .of_nature(Nature::Descriptor)
            .signalled_elsewhere(true);
        let of = Arc::new(Shared::new(object, 0, attachment, Box::default()));
        // The holder of the other end signals it. This is the only claim that the timeline ever
        // has.
        let claimed = of.claim(1, 0);
        debug_assert!(claimed.is_ok(), "a fresh timeline can be claimed");
        of.close();
        Ok(fence(KeptPoint {
            of: Some(of),
            value: 1,
        }))
    }

    /// A fence for the signal of a sync file. See [`Device::import_descriptor`].
    ///
    /// The fence is complete at once if the signal has been made. The signal is not consumed, so
    /// duplicates of the descriptor may become other fences or payloads.
    ///
    /// # Errors
    /// The handle, and [`Error::Native`] if the system has no descriptor left, or no thread to
    /// watch it.
    pub fn import_sync_fd(&self, handle: SyncFd, label: &str) -> Result<Fence, Rejected<SyncFd>> {
        self.import_descriptor(handle.into_fd(), label)
            .map_err(|Rejected { handle, error }| Rejected {
                handle: SyncFd::from_checked(Some(handle)),
                error,
            })
    }
}
